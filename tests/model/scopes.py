"""How far the model is explored: no one scope could hold all verbs, so each looks closely at some of them."""

from tests.model.world import WORKER, Scope

SURE: frozenset[str] = frozenset()


def verbs_of(words: str, *more: str) -> frozenset[str]:
    """Verbs in one string; those of two words apart."""
    return frozenset(words.split()) | frozenset(more)


LANE = Scope(
    "2 workers × 3 jobs: leases and cancels", 2, 3, 1, unsure=SURE,
    verbs=verbs_of("claim advance fail renew expire look reap cancel skip"),
)  # fmt: skip
ANSWERS = Scope(
    "2 workers × 2 jobs: answers that are lost", 2, 2, 1, unsure=verbs_of("advance retry"),
    verbs=verbs_of("claim advance retry expire look reap force skip"),
)  # fmt: skip
ORDER = Scope(
    "3 workers × 3 jobs: order", 3, 3, 1, most=2, unsure=SURE, verbs=verbs_of("claim advance fail skip requeue")
)  # fmt: skip
PAUSED = Scope(
    "2 workers × 2 jobs: pause and hold", 2, 2, 1, unsure=SURE,
    verbs=verbs_of("claim advance retry hold approve pause resume settle skip"),
)  # fmt: skip
TWO_GATES = Scope(
    "2 workers × 3 jobs, two strict stages: sent back", 2, 3, 1, strict=(True, True), unsure=SURE,
    verbs=verbs_of("claim advance fail reject skip"),
)  # fmt: skip

QUICK = (LANE, ANSWERS, ORDER, PAUSED, TWO_GATES)

OUTCOMES = Scope(
    "1 worker × 2 jobs × 2 attempts: all outcomes", 1, 2, 2, unsure=SURE,
    verbs=verbs_of("claim expire look reap skip requeue approve") | WORKER,
)  # fmt: skip
PEOPLE = Scope(
    "1 worker × 2 jobs × 2 attempts: all that people do", 1, 2, 1, most=2, unsure=SURE,
    verbs=verbs_of("claim advance hold expire look reap settle")
    | verbs_of("cancel force requeue skip grant approve pause resume", "send back"),
)  # fmt: skip
CRASHES = Scope(
    "2 workers × 2 jobs × 2 attempts, 2 reapers: crashes", 2, 2, 2, reapers=2, unsure=SURE,
    verbs=verbs_of("claim advance fail crash expire look reap skip"),
)  # fmt: skip
GOES_ON = Scope(
    "2 workers × 3 jobs: what failed is skipped", 2, 3, 1, skips=True, unsure=SURE,
    verbs=verbs_of("claim advance fail expire look reap cancel skip"),
)  # fmt: skip
ATTEMPTS = Scope(
    "3 workers × 2 jobs × 3 attempts: retries and reaps", 3, 2, 3, unsure=SURE,
    verbs=verbs_of("claim advance retry expire look reap skip"),
)  # fmt: skip
CROWD = Scope(
    "3 workers × 4 jobs: a crowd", 3, 4, 1, most=2, unsure=SURE, verbs=verbs_of("claim advance fail skip requeue")
)  # fmt: skip

FULL = (*QUICK, OUTCOMES, PEOPLE, CRASHES, GOES_ON, ATTEMPTS, CROWD)
