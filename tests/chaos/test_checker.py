"""The history checker finds what is wrong in a history, and nothing in a good one."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos import checker
from tests.chaos.history import Answer, Call, History, read
from tests.chaos.records import Attempt, Broken, Death, Event, Job, Page, Records, Run, Topic

HASH = "ab" * 32


def planned(*slugs: str, answer: Answer = Answer.OK, id: str = "call-1") -> Call:
    return Call(id, "plan", {"site": "acme", "slugs": list(slugs)}, 0.0, answer, 0.1, slugs if answer == "ok" else ())


def asked(verb: str, jobs: list[int], answer: Answer = Answer.OK, id: str = "call-2") -> Call:
    return Call(id, verb, {"jobs": jobs}, 0.0, answer, 0.1, jobs if answer == "ok" else ())


def good() -> Records:
    """Two topics of one lane, published one after the other; the first was taken from a worker that died at it."""
    attempts = [
        Attempt(1, 11, "publish", 0, "expired", True, 10.0, 12.0, 501, "expired"),
        Attempt(2, 11, "publish", 0, "done", True, 12.5, 13.0, 502),
        Attempt(3, 12, "publish", 0, "done", True, 13.5, 14.0, 502),
    ]
    runs = [
        Run(1, 1, "publish", 501, 110.0, 10.1, None),
        Run(2, 1, "publish", 502, 112.6, 12.6, 112.9, 12.9, ("one/index.html",)),
        Run(3, 2, "publish", 502, 113.6, 13.6, 113.9, 13.9, ("two/index.html",)),
    ]
    return Records(
        calls=[planned("one", "two")],
        topics={1: Topic(1, "acme", "lane", "one", 1, 0.0), 2: Topic(2, "acme", "lane", "two", 2, 0.0)},
        jobs={
            11: Job(11, 1, 1, "publish", 0, "done", 2, 5, 13.0),
            12: Job(12, 2, 1, "publish", 0, "done", 1, 5, 14.0),
        },
        attempts={a.fence: a for a in attempts},
        events=[],
        runs={r.fence: r for r in runs},
        pages=[Page("acme", "one/index.html", HASH, 1, 2), Page("acme", "two/index.html", HASH, 2, 3)],
        files={("acme", "one/index.html"): HASH, ("acme", "two/index.html"): HASH},
        deaths=[Death(501, 10.5, still=False)],
        bound=3.5,
    )


def having(kind: str, key: Any, **changes: Any) -> Records:
    """The good history, but for one record."""
    records = good()
    rows: Mapping[Any, Any] = getattr(records, kind)
    changed: Any = {kind: {**rows, key: replace(rows[key], **changes)}}
    return replace(records, **changed)


def without(key: Any, *kinds: str) -> Records:
    """The good history, but for the records of a key."""
    left: Any = {kind: {k: v for k, v in getattr(good(), kind).items() if k != key} for kind in kinds}
    return replace(good(), **left)


def zombie(outcome: str) -> Records:
    """The first worker did not die: it came back when the second was at work, and went on."""
    ran = having("runs", 1, end=112.7, end_wall=12.7)
    first = replace(ran.attempts[1], outcome=outcome)
    return replace(ran, attempts={**ran.attempts, 1: first})


def test_a_good_history_is_found_good() -> None:
    """Two pages in order, one recovered from a worker that died."""
    assert checker.check(good()) == []


BAD: dict[str, tuple[int, Callable[[], Records]]] = {
    "an acknowledged topic is lost": (1, lambda: replace(good(), calls=[planned("one", "two", "three")])),
    "a topic was invented": (1, lambda: replace(good(), calls=[planned("one")])),
    "a refused plan is there": (
        1,
        lambda: replace(good(), calls=[planned("one"), planned("two", answer=Answer.REFUSED, id="call-3")]),
    ),
    "a topic has no pass": (1, lambda: replace(without(3, "attempts", "runs"), jobs={11: good().jobs[11]})),
    "a job came to no end": (1, lambda: having("jobs", 12, state="pending", finished_at=None)),
    "a job was halted without a reason": (1, lambda: having("jobs", 12, state="cancelled", finished_at=None)),
    "two completions were accepted": (2, lambda: having("attempts", 1, outcome="done")),
    "a reservation was run twice": (2, lambda: replace(good(), double_runs=[2])),
    "a stage ran without reservation": (2, lambda: without(1, "attempts")),
    "a stage ran on another topic": (2, lambda: having("runs", 3, topic=1)),
    "done without completion": (2, lambda: having("attempts", 3, outcome="retry")),
    "accepted without a run": (2, lambda: without(3, "runs")),
    "accepted in the middle of a run": (2, lambda: having("runs", 3, end=None, end_wall=None)),
    "refused and done": (
        3,
        lambda: replace(
            good(),
            calls=[*good().calls, asked("cancel", [11], Answer.REFUSED)],
            events=[Event(11, "cancel", "pending", "cancelled", "call-2", 1.0)],
        ),
    ),
    "ok and not done": (3, lambda: replace(good(), calls=[*good().calls, asked("cancel", [11])])),
    "done in part": (
        3,
        lambda: replace(
            good(),
            calls=[*good().calls, asked("cancel", [11, 12], Answer.UNKNOWN)],
            events=[Event(11, "cancel", "pending", "cancelled", "call-2", 1.0)],
        ),
    ),
    "done twice": (
        3,
        lambda: replace(
            good(),
            calls=[*good().calls, asked("cancel", [11])],
            events=[Event(11, "cancel", "pending", "cancelled", "call-2", at) for at in (1.0, 2.0)],
        ),
    ),
    "done to another": (
        3,
        lambda: replace(
            good(),
            calls=[*good().calls, asked("cancel", [11])],
            events=[Event(12, "cancel", "pending", "cancelled", "call-2", 1.0)],
        ),
    ),
    "the second began before the first had ended": (4, lambda: having("runs", 3, wall=12.7)),
    "the second began before the first was skipped": (
        4,
        lambda: replace(
            having("attempts", 2, outcome="retry"),
            jobs={**good().jobs, 11: replace(good().jobs[11], state="skipped", finished_at=13.8)},
            pages=good().pages[1:],
        ),
    ),
    "reserved while reserved": (5, lambda: having("attempts", 2, reserved_at=11.0)),
    "more attempts than are permitted": (5, lambda: having("jobs", 11, max_attempts=1)),
    "attempts that were not counted": (5, lambda: having("jobs", 11, attempts=1)),
    "a file is torn": (6, lambda: replace(good(), files={**good().files, ("acme", "one/index.html"): "cd" * 32})),
    "a file is missing": (6, lambda: replace(good(), files={("acme", "one/index.html"): HASH})),
    "a file that nobody knows": (6, lambda: replace(good(), files={**good().files, ("acme", "x/index.html"): HASH})),
    "live under another's fence": (
        6,
        lambda: replace(good(), pages=[good().pages[0], replace(good().pages[1], fence=2)]),
    ),
    "done and not live": (
        6,
        lambda: replace(good(), pages=good().pages[:1], files={("acme", "one/index.html"): HASH}),
    ),
    "two ran at once by right": (7, lambda: zombie("retry")),
    "recovered late": (8, lambda: replace(good(), bound=1.0)),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_history_is_found_bad(what: str) -> None:
    """Each point of the list sees what it is there for."""
    point, history = BAD[what]

    broken = checker.check(history())

    assert point in {b.point for b in broken}


def test_an_unknown_answer_may_mean_either() -> None:
    """Done or not: a client that was told nothing has no ground to complain."""
    call = asked("cancel", [11], Answer.UNKNOWN)
    event = Event(11, "cancel", "pending", "cancelled", "call-2", 1.0)
    done = replace(good(), calls=[*good().calls, call], events=[event])
    undone = replace(good(), calls=[*good().calls, call])

    assert (checker.check(done), checker.check(undone)) == ([], [])


def test_an_overlap_after_a_lost_lease_is_counted_and_no_fault() -> None:
    """A worker that stood still beyond its lease, and went on beside its successor."""
    assert checker.overlaps(zombie("expired")) == (1, [])


def test_a_topic_that_was_moved_is_judged_by_where_it_stood() -> None:
    """What began before the topic came to its place says nothing of order there."""
    early = having("runs", 3, wall=12.7)
    moved = replace(early, topics={**early.topics, 2: replace(early.topics[2], placed_at=13.0)})

    assert [b for b in checker.check(moved) if b.point == 4] == []


def test_a_recovery_in_an_outage_is_not_measured() -> None:
    """While the server is away nobody can take anything back."""
    away = replace(good(), bound=1.0, outages=[(10.8, 11.5)])

    assert checker.recoveries(away) == ([], [])


def test_a_call_without_its_second_line_is_unknown(tmp_path: Any) -> None:
    """A client that was killed in the middle of a call leaves one line."""
    history = History(tmp_path / "history")
    history.call("skip", lambda id: [7], lambda got: got, jobs=[7])
    history._write(id="call-9", verb="skip", asked={"jobs": [8]}, at=1.0)

    calls = read(tmp_path / "history")

    assert [(c.id, c.answer, tuple(c.got)) for c in calls] == [
        ("call-1", Answer.OK, (7,)),
        ("call-9", Answer.UNKNOWN, ()),
    ]


def test_a_broken_promise_says_what_it_is_about() -> None:
    """Point, promise and the rows that it is about, on one line."""
    assert str(Broken(4, "began before its turn", {"job": 7})) == "(4) began before its turn: job 7"
