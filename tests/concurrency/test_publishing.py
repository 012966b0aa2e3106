"""Races around what readers see: one page at a time, and no change that the site's assembly misses."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from sqlalchemy import Engine, select, update

from pipeline.build import Services
from pipeline.errors import LeaseLost, PathTaken
from pipeline.service.acknowledging import Ack, Fate, Verb
from pipeline.service.ledger import Occupied
from pipeline.service.work import Prefix
from pipeline.sql import assembly, ledger, transitions
from pipeline.sql.tables import jobs, publications, sites
from pipeline.states import ASSEMBLE
from pipeline.views import Claim, Found
from tests.concurrency.conftest import Lane
from tests.concurrency.stage import CLOCK, Play, door_to_jobs
from tests.factories import LEASE, Factory


@dataclass(slots=True)
class Shelf:
    """A target in memory that notes each write."""

    pages: dict[str, str] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)

    def look(self, key: str) -> Found | None:
        return Found(self.pages[key], "remote") if key in self.pages else None

    def act(self, key: str, hash: str) -> str:
        self.pages[key] = hash
        self.writes.append(hash)
        return "remote"

    def publishes(
        self, claim: Claim, hash: str, *, key: str = "page/index.html", topic_id: int | None = None
    ) -> Callable[[Services], bool]:
        topic = topic_id or (claim.topic.id if claim.topic else None)
        return lambda s: s.ledger.publish(
            claim,
            target="files",
            key=key,
            hash=hash,
            look=lambda: self.look(key),
            act=lambda: self.act(key, hash),
            still_ours=lambda: True,
            topic_id=topic,
            revision=None,
            inputs="",
        )


def publishing(make: Factory, lane: str = "lane") -> Claim:
    """A topic's job, reserved at the stage that publishes."""
    make.advance_to("publish", lane=lane)
    (claim,) = [c for c in make.claim("publish", 1) if c.topic is not None]
    return claim


def assembling(make: Factory) -> Claim:
    """The site's own job, reserved."""
    make.services.work.touch(make.site_id)
    (claim,) = make.claim(ASSEMBLE)
    return claim


def assembles(claim: Claim, built: int) -> Callable[[Services], dict[int, Fate]]:
    return lambda s: s.work.acknowledge([Ack(claim, Verb.ADVANCE, built=(built, "print"))], wait=True).fates


def publishes(claim: Claim) -> Callable[[Services], dict[int, Fate]]:
    return lambda s: s.work.acknowledge([Ack(claim, Verb.ADVANCE, touches=True)], wait=True).fates


def owed(engine: Engine) -> bool:
    """Whether an assembly is on its way, if the site has changed since it was built."""
    with engine.begin() as connection:
        changed, built = connection.execute(select(sites.c.changed, sites.c.built)).one()
        unfinished = connection.execute(
            select(jobs.c.id).where(jobs.c.stage == ASSEMBLE, jobs.c.state == "pending")
        ).all()
    assert built <= changed
    return bool(unfinished) if changed > built else not unfinished


@pytest.mark.parametrize("topic_first", [True, False], ids=["topic-first", "assembly-first"])
def test_two_jobs_at_one_page_take_turns(play: Play, make: Factory, topic_first: bool) -> None:
    """While one reservation is at a page, the other is told that it is occupied, and writes nothing."""
    mine, site = publishing(make), assembling(make)
    assert mine.topic is not None
    shelf = Shelf()
    by_topic = shelf.publishes(mine, "by topic")
    by_site = shelf.publishes(site, "by site", topic_id=mine.topic.id)
    one, other = play.actor("one"), play.actor("other")
    stop = one.before(ledger.confirm(CLOCK))
    first = one.does(by_topic if topic_first else by_site)
    stop.reached()

    second = other.does(by_site if topic_first else by_topic)
    assert isinstance(second.error(), Occupied)
    stop.go()

    assert first.result() is True
    assert shelf.writes == ["by topic" if topic_first else "by site"]
    # Once the first one has ended its intent, the second may.
    assert other.does(by_site if topic_first else by_topic).result() is True
    assert other.does(by_site if topic_first else by_topic).result() is False
    assert len(shelf.writes) == 2


@pytest.mark.parametrize("topic_first", [True, False], ids=["topic-first", "assembly-first"])
@pytest.mark.parametrize("at", ["put", "locked", "committing"])
def test_two_intents_for_one_page_are_noted_one_after_the_other(
    play: Play, make: Factory, at: str, topic_first: bool
) -> None:
    """The second intent waits for the first one's row, then sees that its holder is at it."""
    mine, site = publishing(make), assembling(make)
    assert mine.topic is not None
    shelf = Shelf()
    by_topic = shelf.publishes(mine, "by topic")
    by_site = shelf.publishes(site, "by site", topic_id=mine.topic.id)
    one, other = play.actor("one"), play.actor("other")
    match at:
        case "put":
            stop = one.after(ledger.put(CLOCK))
        case "locked":  # only what is on record already is locked
            assert one.does(shelf.publishes(site, "earlier", topic_id=mine.topic.id)).result() is True
            stop = one.after(ledger.lock())
        case _:
            stop = one.before_commit()
    shelf.writes.clear()
    before_end = one.before(ledger.confirm(CLOCK))
    first = one.does(by_topic if topic_first else by_site)
    stop.reached()
    second = other.does(by_site if topic_first else by_topic)
    play.wait_until_blocked(other, one)

    stop.go()
    before_end.reached()
    assert isinstance(second.error(), Occupied)
    before_end.go()

    assert first.result() is True
    assert len(shelf.writes) == 1


def test_two_topics_never_get_one_path(play: Play, make: Factory) -> None:
    """Two topics on their way to one path: one has it, the other is told who."""
    one_claim, other_claim = publishing(make, "a"), publishing(make, "b")
    shelf = Shelf()
    one, other = play.actor("one"), play.actor("other")
    stop = one.before_commit()
    first = one.does(shelf.publishes(one_claim, "one"))
    stop.reached()
    second = other.does(shelf.publishes(other_claim, "other"))
    play.wait_until_blocked(other, one)

    stop.go()

    assert first.result() is True
    assert isinstance(second.error(), PathTaken)
    assert shelf.writes == ["one"]


@pytest.mark.parametrize("gone", [True, False], ids=["holder-gone", "lease-over"])
def test_a_reaper_steps_over_a_confirmation(play: Play, make: Factory, engine: Engine, gone: bool) -> None:
    """A job whose page is being confirmed is not taken before that has committed."""
    claim = publishing(make)
    make.expire(claim.job_id)
    (candidate,) = make.services.work.expired()
    shelf = Shelf()
    worker, reaper = play.actor("worker"), play.actor("reaper")
    stop = worker.before(ledger.confirm(CLOCK))
    page = worker.does(shelf.publishes(claim, "page"))
    stop.reached()

    assert reaper.does(lambda s: s.work.reap([candidate], holder_is_gone=gone)).result().fates == {}
    stop.go()

    assert page.result() is True
    with engine.begin() as connection:
        assert connection.execute(select(publications.c.live_hash)).scalar_one() == "page"
    assert reaper.does(lambda s: s.work.reap([candidate])).result().fates == {claim.fence: Fate.WRITTEN}


def test_a_confirmation_behind_a_reaper_is_refused(play: Play, make: Factory, engine: Engine) -> None:
    """What was written outside by a holder that is taken over stays unconfirmed; its successor looks, and confirms."""
    claim = publishing(make)
    shelf = Shelf()
    worker, reaper = play.actor("worker"), play.actor("reaper")
    acted = worker.before(ledger.reservation(), nth=2)
    page = worker.does(shelf.publishes(claim, "page"))
    acted.reached()
    make.expire(claim.job_id)
    (candidate,) = make.services.work.expired()
    stop = reaper.before_commit()
    reap = reaper.does(lambda s: s.work.reap([candidate]).fates)
    stop.reached()
    acted.go()
    play.wait_until_blocked(worker, reaper)

    stop.go()

    assert reap.result() == {claim.fence: Fate.WRITTEN}
    assert isinstance(page.error(), LeaseLost)
    with engine.begin() as connection:
        assert connection.execute(select(publications.c.live_hash)).scalar_one() is None
    (owner,) = [c for c in make.claim("publish") if c.topic is not None]
    assert make.services.engine is engine
    assert shelf.publishes(owner, "page")(make.services) is False  # it was there already
    assert shelf.writes == ["page"]


def test_an_intent_whose_holder_was_taken_over_is_taken_over_too(play: Play, make: Factory) -> None:
    """A dead reservation's intent occupies nothing, and its late confirmation is refused."""
    late = publishing(make)
    shelf = Shelf()
    worker = play.actor("worker")
    acted = worker.before(ledger.reservation(), nth=2)
    page = worker.does(shelf.publishes(late, "old"))
    acted.reached()
    make.expire(late.job_id)
    make.services.work.reap(make.services.work.expired())
    (owner,) = [c for c in make.claim("publish") if c.topic is not None]

    assert shelf.publishes(owner, "new")(make.services) is True
    acted.go()

    assert isinstance(page.error(), LeaseLost)
    assert shelf.pages == {"page/index.html": "new"}


STEPS = ("written", "site", "committing")


@pytest.mark.parametrize("step", STEPS)
def test_a_page_that_ends_behind_an_assembly_is_assembled_again(
    play: Play, make: Factory, engine: Engine, lane: Lane, step: str
) -> None:
    """A change that commits after the assembly did leaves another assembly behind."""
    page, site = publishing(make), assembling(make)
    one, other = play.actor("assembly"), play.actor("page")
    match step:
        case "written":
            stop = one.after(transitions.advance(CLOCK))
        case "site":
            stop = one.after(assembly.lock_sites())
        case _:
            stop = one.before_commit()
    first = one.does(assembles(site, 1))
    stop.reached()
    second = other.does(publishes(page))
    play.wait_until_blocked(other, one)

    stop.go()

    assert first.result() == {site.fence: Fate.WRITTEN}
    assert second.result() == {page.fence: Fate.WRITTEN}
    assert one.sqlstates == other.sqlstates == []
    assert lane.assemblies() == [("done", 1), ("pending", 1)]
    assert owed(engine)


@pytest.mark.parametrize("step", STEPS)
def test_an_assembly_that_ends_behind_a_page_leaves_another(
    play: Play, make: Factory, engine: Engine, lane: Lane, step: str
) -> None:
    """An assembly that did not see a change, which commits first, leaves another assembly behind."""
    page, site = publishing(make), assembling(make)
    one, other = play.actor("page"), play.actor("assembly")
    match step:
        case "written":
            stop = one.before(assembly.add_assembly(CLOCK))
        case "site":
            stop = one.after(assembly.add_assembly(CLOCK))
        case _:
            stop = one.before_commit()
    first = one.does(publishes(page))
    stop.reached()
    second = other.does(assembles(site, 1))
    play.wait_until_blocked(other, one)

    stop.go()

    assert first.result() == {page.fence: Fate.WRITTEN}
    assert second.result() == {site.fence: Fate.WRITTEN}
    assert one.sqlstates == other.sqlstates == []
    assert lane.assemblies() == [("done", 1), ("pending", 1)]
    assert owed(engine)


def test_an_assembly_and_a_page_that_end_in_one_batch_leave_another(make: Factory, engine: Engine, lane: Lane) -> None:
    """A worker that says both at once owes the site another assembly."""
    page, site = publishing(make), assembling(make)
    acks = [Ack(page, Verb.ADVANCE, touches=True), Ack(site, Verb.ADVANCE, built=(1, "print"))]

    fates = make.services.work.acknowledge(acks, wait=True).fates

    assert fates == {page.fence: Fate.WRITTEN, site.fence: Fate.WRITTEN}
    assert lane.assemblies() == [("done", 1), ("pending", 1)]
    assert owed(engine)


def test_pages_of_two_sites_that_end_at_once_do_not_cross(play: Play, make: Factory, engine: Engine) -> None:
    """Sites are raised in the order of their ids, whatever the order of their rows."""
    held: list[list[Claim]] = []
    for slug in ("one", "two"):
        make.site(slug)
        held.append([publishing(make, "a"), publishing(make, "b")])
    ids = sorted({c.site_id for group in held for c in group})
    one, other = play.actor("one"), play.actor("other")
    with engine.begin() as connection:  # the lower id now lies behind the higher one
        connection.execute(update(sites).where(sites.c.id == ids[0]).values(changed=sites.c.changed + 1))
    stop = one.before_commit()
    first = one.does(lambda s: s.work.acknowledge([Ack(g[0], Verb.ADVANCE, touches=True) for g in held], wait=True))
    stop.reached()
    second = other.does(
        lambda s: s.work.acknowledge([Ack(g[1], Verb.ADVANCE, touches=True) for g in reversed(held)], wait=True)
    )
    play.wait_until_blocked(other, one)

    stop.go()

    first.result()
    second.result()
    assert one.sqlstates == other.sqlstates == []


def test_an_assembly_is_reaped_and_ends_at_once(play: Play, make: Factory, engine: Engine, lane: Lane) -> None:
    """The site's own job is fenced like any other."""
    make.site()
    site = assembling(make)
    make.expire(site.job_id)
    (candidate,) = make.services.work.expired()
    reaper, worker = play.actor("reaper"), play.actor("worker")
    stop = reaper.before_commit()
    reap = reaper.does(lambda s: s.work.reap([candidate]).fates)
    stop.reached()
    end = worker.does(assembles(site, 1))
    play.wait_until_blocked(worker, reaper)

    stop.go()

    assert reap.result() == {site.fence: Fate.WRITTEN}
    assert end.result() == {site.fence: Fate.LOST}
    assert owed(engine)
    with engine.begin() as connection:
        assert connection.execute(select(sites.c.built)).scalar_one() == 0


def test_a_claimed_assembly_does_not_swallow_a_change(play: Play, make: Factory, engine: Engine, lane: Lane) -> None:
    """A page that ends while an assembly is being claimed is seen by that assembly, or by another."""
    page = publishing(make)
    make.services.work.touch(make.site_id)
    claimer, worker = play.actor("claimer"), play.actor("worker")
    stop = claimer.before_commit()
    claim = claimer.does(lambda s: s.work.claim([Prefix(make.site_id, ASSEMBLE, 2, 1, LEASE)], "claimer"))
    stop.reached()
    end = worker.does(publishes(page))
    play.wait_until_blocked(worker, claimer)

    stop.go()

    (site,) = claim.result()
    end.result()
    row = make.services.reading.site("acme")
    assert row is not None
    make.services.work.acknowledge([Ack(site, Verb.ADVANCE, built=(row.changed, "print"))], wait=True)
    assert owed(engine)
    assert lane.assemblies() == [("done", 1)]


def test_a_page_whose_lease_ended_under_its_eyes_is_not_confirmed(play: Play, make: Factory) -> None:
    """A confirmation with an old snapshot finds the reservation gone when it comes to lock it."""
    claim = publishing(make)
    shelf = Shelf()
    worker = play.actor("worker")
    with door_to_jobs(play.url, worker) as door:
        acted = worker.before(ledger.reservation(), nth=2)
        page = worker.does(shelf.publishes(claim, "page"))
        acted.reached()
        door.shut()
        acted.go()
        play.wait_until_waiting(worker, "advisory")
        make.expire(claim.job_id)
        make.services.work.reap(make.services.work.expired())
        door.open()
        assert isinstance(page.error(), LeaseLost)
