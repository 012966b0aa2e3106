"""The ledger: one page at a time, whoever comes to it.

Migrations against each other and against claims are staged in tests/migrations.
"""

from collections.abc import Sequence
from typing import Any

from pipeline.errors import LeaseLost, PathTaken
from pipeline.service.ledger import Occupied
from pipeline.sql import ledger
from pipeline.views import Claim, Found
from tests.concurrency.stage import CLOCK
from tests.factories import Factory
from tests.interleavings.facts import asked, fate
from tests.interleavings.orders import COMMIT, Ended, Hand, Part, Staged, long, scenario
from tests.interleavings.parts import LOCK, MOVE, operates, reaps, says


class Shelf:
    """A target in memory, which is emptied before each order, and notes each write."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.writes: list[str] = []

    def publishes(self, claim: Claim, hash: str, key: str, name: str) -> Part:
        """Publish; answers whether something was done, or the name of the refusal."""

        def act() -> str:
            self.pages[key] = hash
            self.writes.append(hash)
            return "remote"

        def body(hand: Hand) -> bool | str:
            try:
                return hand.services.ledger.publish(
                    claim, target="files", key=key, hash=hash,
                    look=lambda: Found(self.pages[key], "remote") if key in self.pages else None,
                    act=act, still_ours=lambda: True, topic_id=claim.topic.id if claim.topic else None,
                    revision=None, inputs="",
                )  # fmt: skip
            except (LeaseLost, PathTaken, Occupied) as error:
                return type(error).__name__

        return Part(name, body, (ledger.put(CLOCK), COMMIT, (ledger.reservation(), 2), ledger.confirm(CLOCK)))

    def emptied(self) -> list[str]:
        """What was written in this order; the shelf is empty then."""
        written, self.pages, self.writes = self.writes, {}, []
        return written


def _live(make: Factory) -> Sequence[tuple[Any, ...]]:
    return [tuple(row) for row in asked(make, "SELECT live_path, live_hash FROM {s}.publications"
                                              " WHERE live_path IS NOT NULL ORDER BY 1")]  # fmt: skip


@scenario
def one_path_of_two_topics(make: Factory, level: str) -> Staged:
    """Two topics want one path: one has it, the other is told that it is taken."""
    for lane in ("a", "b"):
        make.advance_to("publish", lane=lane)
    one, other = make.claim("publish", 2)
    shelf = Shelf()

    def judge(end: Ended) -> str:
        answers, written = {name: end[name] for name in ("one", "other")}, shelf.emptied()
        (won,) = [name for name, answer in answers.items() if answer is True]
        assert sorted(map(str, answers.values())) == ["PathTaken", "True"]
        assert written == [won]
        assert _live(make) == [("page/", won)]
        return won

    return Staged(
        [shelf.publishes(one, "one", "page/", "one"), shelf.publishes(other, "other", "page/", "other")], judge
    )


@scenario
def one_topic_by_two_tokens(make: Factory, level: str) -> Staged:
    """A worker whose job was taken back and its next holder publish the same page: the old one writes nothing more."""
    make.advance_to("publish")
    (stale,) = make.claim("publish")
    make.expire(stale.job_id)
    make.services.work.reap(make.services.work.expired(make.site_id))
    (claim,) = make.claim("publish")
    shelf = Shelf()

    def judge(end: Ended) -> str:
        assert end["stale"] == "LeaseLost"
        assert end["holder"] is True
        assert shelf.emptied() == ["new"]
        assert _live(make) == [("page/", "new")]
        return "done"

    parts = [shelf.publishes(stale, "old", "page/", "stale"), shelf.publishes(claim, "new", "page/", "holder")]
    return Staged(parts, judge, waits=False, outcomes=1)


@long
@scenario
def publish_and_reap(make: Factory, level: str) -> Staged:
    """Taken back in the middle of publishing: what is confirmed is live; a reaper steps over one that is at it."""
    make.advance_to("publish")
    (claim,) = make.claim("publish")
    make.expire(claim.job_id)
    shelf = Shelf()

    def judge(end: Ended) -> str:
        written, answer = shelf.emptied(), end["publish"]
        assert answer in ((True, "LeaseLost") if end["reap"].fates else (True,))
        assert _live(make) == ([("page/", "new")] if answer is True else [])
        return f"{answer} {written}"

    reaper = reaps(make, stops=(MOVE, (COMMIT, 2)))
    return Staged([shelf.publishes(claim, "new", "page/", "publish"), reaper], judge, outcomes=3)


@long
@scenario
def publish_and_forced_cancel(make: Factory, level: str) -> Staged:
    """The same for a person who takes it."""
    make.advance_to("publish")
    (claim,) = make.claim("publish")
    shelf = Shelf()

    def judge(end: Ended) -> str:
        assert end["cancel"][0].to_state == "cancelled"
        written, answer = shelf.emptied(), end["publish"]
        assert answer in (True, "LeaseLost")
        assert _live(make) == ([("page/", "new")] if answer is True else [])
        return f"{answer} {written}"

    parts = [shelf.publishes(claim, "new", "page/", "publish"), operates("cancel", claim.job_id, force=True)]
    return Staged(parts, judge, outcomes=3)


@long
@scenario
def publish_and_advance_of_another_topic(make: Factory, level: str) -> Staged:
    """An end that raises the site's change and a page on its way: neither waits for the other's locks for ever."""
    for lane in ("a", "b"):
        make.advance_to("publish", lane=lane)
    one, other = make.claim("publish", 2)
    shelf = Shelf()

    def judge(end: Ended) -> str:
        assert end["publish"] is True
        assert shelf.emptied() == ["new"]
        assert fate(end["advance"], other) == "written"
        return "done"

    parts = [shelf.publishes(one, "new", "page/", "publish"), says(other, stops=(LOCK, COMMIT), touches=True)]
    return Staged(parts, judge, waits=False, outcomes=1)
