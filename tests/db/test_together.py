"""Calls that wait at the same time are served together, and what is refused to one is refused to no other."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from pipeline.errors import LeaseLost, PathTaken
from pipeline.service.together import MOST, Together
from pipeline.views import Claim, Draft, Page
from tests.db.conftest import Sql
from tests.factories import Factory
from tests.processes.project import until


class Counter:
    """Serves by doubling; remembers what came together. The first time it waits until it may go on."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()

    def serve(self, asked: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(asked))
        assert self.go.wait(30)
        if 0 in asked:
            raise LookupError("all of them")
        return [ValueError(f"not {n}") if n < 0 else 2 * n for n in asked]


def all_at_once(together: Together[int, int], counter: Counter, asked: Sequence[int]) -> "list[Future[int]]":
    """Let the first be served while the others come."""
    with ThreadPoolExecutor(len(asked)) as threads:
        calls = [threads.submit(together, asked[0])]
        until(lambda: bool(counter.batches), "the first is served")
        calls += [threads.submit(together, n) for n in asked[1:]]
        until(lambda: len(together._waiting) == len(asked) - 1, "the others wait")
        counter.go.set()
    return calls


def test_who_waits_is_served_by_whoever_has_the_turn() -> None:
    """One batch for all that came meanwhile; each gets its own answer."""
    counter = Counter()
    together = Together(counter.serve)

    calls = all_at_once(together, counter, [1, 2, 3, 4])

    assert [call.result() for call in calls] == [2, 4, 6, 8]
    assert [sorted(batch) for batch in counter.batches] == [[1], [2, 3, 4]]


def test_an_exception_among_the_answers_is_raised_for_its_call_alone() -> None:
    counter = Counter()
    together = Together(counter.serve)

    calls = all_at_once(together, counter, [1, -2, 3])

    assert (calls[0].result(), calls[2].result()) == (2, 6)
    with pytest.raises(ValueError, match="not -2"):
        calls[1].result()


def test_what_fails_for_all_is_raised_for_all_and_the_next_are_served() -> None:
    counter = Counter()
    together = Together(counter.serve)

    calls = all_at_once(together, counter, [1, 0, 3])

    for call in calls[1:]:
        with pytest.raises(LookupError):
            call.result()
    assert together(5) == 10


def test_a_batch_has_a_limit() -> None:
    """What does not fit is served next."""
    counter = Counter()
    together = Together(counter.serve)

    calls = all_at_once(together, counter, [1] * (MOST + 3))

    assert {call.result() for call in calls} == {2}
    assert [len(batch) for batch in counter.batches] == [1, MOST, 2]


def publishing(make: Factory, lanes: int) -> list[Claim]:
    """Claims of the first page of each lane at publish."""
    for n in range(lanes):
        make.advance_to("publish", lane=f"lane-{n}")
    return make.claim("publish", lanes)


def publish(make: Factory, claim: Claim, path: str, act: Callable[[], str] = lambda: "tag") -> bool:
    assert claim.topic is not None
    return make.services.ledger.publish(
        claim, target="files", key=path, hash="h", look=lambda: None, act=act, still_ours=lambda: True,
        topic_id=claim.topic.id, revision=claim.revision_id, inputs="",
    )  # fmt: skip


def queued(make: Factory, calls: Sequence[Callable[[], Any]]) -> "list[Future[Any]]":
    """Let all of these wait for their intents, then go."""
    intends = make.services.ledger._intends
    with ThreadPoolExecutor(len(calls)) as threads, intends._turn:
        found = [threads.submit(call) for call in calls]
        until(lambda: len(intends._waiting) == len(calls), "all wait")
    return found


def test_pages_of_many_jobs_share_an_intent(make: Factory, sql: Sql) -> None:
    """All are live afterwards, each by its own reservation; the intents were one transaction."""
    claims = publishing(make, 5)
    during: list[list[str]] = []

    def act() -> str:
        during.append([row.xmin for row in sql("SELECT xmin::text FROM publications")])
        return "tag"

    calls = queued(make, [lambda c=c: publish(make, c, f"{c.job_id}/", act) for c in claims])

    assert all(call.result() for call in calls)
    assert {len(set(seen)) for seen in during if len(seen) == 5} >= {1}
    rows = sql("SELECT live_path, live_fence, intent_token FROM publications ORDER BY live_fence")
    assert rows == [(f"{c.job_id}/", c.fence, None) for c in sorted(claims, key=lambda c: c.fence)]


def test_what_is_refused_to_one_stops_no_other(make: Factory, sql: Sql) -> None:
    """A path that another has, and a reservation that is gone: those two are told, and nothing of theirs is left."""
    first, taken, lost, *well = publishing(make, 5)
    publish(make, first, "first/")
    make.expire(lost.job_id)
    make.services.work.reap(make.services.work.expired())
    paths = {taken.fence: "first/"}

    calls = queued(
        make, [lambda c=c: publish(make, c, paths.get(c.fence, f"{c.job_id}/")) for c in (taken, lost, *well)]
    )

    assert isinstance(calls[0].exception(), PathTaken)
    assert isinstance(calls[1].exception(), LeaseLost)
    assert all(call.result() for call in calls[2:])
    assert {row.live_path for row in sql("SELECT live_path FROM publications")} == {
        "first/",
        *(f"{c.job_id}/" for c in well),
    }


def test_one_job_publishes_two_pages_at_once(make: Factory, sql: Sql) -> None:
    """Two calls under one reservation are two publications, one after the other."""
    make.site()
    make.services.work.touch(make.site_id)
    claim = make.claim("assemble")[0]

    def artefact(path: str) -> bool:
        return make.services.ledger.publish(
            claim, target="files", key=path, hash="h", look=lambda: None, act=lambda: "tag", still_ours=lambda: True,
            topic_id=None, revision=None, inputs="",
        )  # fmt: skip

    calls = queued(make, [lambda: artefact("feed.xml"), lambda: artefact("sitemap.xml")])

    assert [call.result() for call in calls] == [True, True]
    assert len(sql("SELECT 1 FROM publications WHERE live_path IS NOT NULL")) == 2


def test_many_pages_are_acted_on_at_the_same_time_and_what_was_done_is_confirmed(make: Factory, sql: Sql) -> None:
    """With ``at_once`` the acts meet; one that fails is raised once the others' deeds are on record."""
    make.site()
    make.services.work.touch(make.site_id)
    claim = make.claim("assemble")[0]
    meeting = threading.Barrier(3, timeout=30)

    def act(n: int) -> str:
        meeting.wait()
        if n == 1:
            raise RuntimeError("the disk is full")
        return "tag"

    pages = [Page(f"{n}.xml", "h", lambda: None, lambda n=n: act(n)) for n in range(3)]

    with pytest.raises(RuntimeError, match="disk"):
        make.services.ledger.publish_all(claim, "files", pages, still_ours=lambda: True, at_once=3)

    live = sql("SELECT live_path FROM publications WHERE live_path IS NOT NULL ORDER BY 1")
    assert live == [("0.xml",), ("2.xml",)]


def test_questions_of_many_pages_get_their_own_answers(make: Factory) -> None:
    """Twins and unknown paths, asked at the same time, are told apart."""
    claims = publishing(make, 3)
    reading = make.services.reading
    asks = [
        lambda c=c: reading.twins(c.site_id, 0, Draft(f"Title of {c.topic and c.topic.slug}", "", "")) for c in claims
    ]
    with ThreadPoolExecutor(3) as threads, reading._twins._turn:
        found = [threads.submit(ask) for ask in asks]
        until(lambda: len(reading._twins._waiting) == 3, "all wait")

    assert [call.result() for call in found] == [
        {"title": [c.topic and c.topic.slug], "description": []} for c in claims
    ]
    paths = [c.topic.path for c in claims if c.topic]
    assert reading.unknown_paths(make.site_id, [*paths, "nowhere/"]) == {"nowhere/"}
    assert reading.unknown_paths(make.site_id + 1, paths) == set(paths)


def test_drafts_are_the_contents_of_revisions(make: Factory) -> None:
    claims = publishing(make, 2)

    found = make.services.reading.drafts([c.revision_id for c in claims if c.revision_id])

    assert {id: draft.title for id, draft in found.items()} == {
        c.revision_id: f"Title of {c.topic and c.topic.slug}" for c in claims
    }
    assert make.services.reading.drafts([]) == {}


def test_live_pages_know_the_hash_of_their_content(make: Factory) -> None:
    """It is that of the draft, so that a page can be judged without its text."""
    claim = publishing(make, 1)[0]
    publish(make, claim, "a/")

    (page,) = make.services.reading.live(make.site_id, "files")

    assert claim.draft is not None
    assert page.content == claim.draft.hash
    assert page.revision == claim.revision_id
    assert page.card is not None
    assert page.card.title == claim.draft.title
