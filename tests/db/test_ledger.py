"""The publish ledger: intent, look, act, confirm; what was done once is not done again."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pipeline.errors import LeaseLost, PathTaken
from pipeline.service.acknowledging import Verb
from pipeline.service.ledger import Occupied, _Intent
from pipeline.views import Claim, Found, Page
from tests.db.conftest import Sql
from tests.factories import Factory, draft_of


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Place:
    """A target in memory: what it has at each path, and how often it was written."""

    has: dict[str, str] = field(default_factory=dict)
    writes: int = 0

    def look(self, path: str) -> Found | None:
        return Found(self.has[path], f"etag-{self.has[path]}") if path in self.has else None

    def write(self, path: str, hash: str) -> str:
        self.has[path] = hash
        self.writes += 1
        return f"etag-{hash}"


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def publish(make: Factory, place: Place) -> Callable[..., bool]:
    """Publishes the topic of a claim; ``during`` happens after the act, before the confirmation."""

    def run(
        claim: Claim,
        path: str = "a/",
        hash: str = "h1",
        *,
        still_ours: bool = True,
        during: Callable[[], None] | None = None,
        artefact: bool = False,
        inputs: str = "",
    ) -> bool:
        def act() -> str:
            remote = place.write(path, hash)
            if during is not None:
                during()
            return remote

        topic_id = None if artefact or claim.topic is None else claim.topic.id
        return make.services.ledger.publish(
            claim, target="files", key=path, hash=hash, look=lambda: place.look(path), act=act,
            still_ours=lambda: still_ours, topic_id=topic_id, revision=claim.revision_id, inputs=inputs,
        )  # fmt: skip

    return run


def crash() -> None:
    raise Crash


def test_what_is_published_is_on_record(make: Factory, place: Place, publish: Callable[..., bool], sql: Sql) -> None:
    """Path, hash, revision and the target's own tag are live, and no intent is open."""
    make.advance_to("publish")
    claim = make.claim("publish")[0]

    assert publish(claim, inputs="made of this")

    row = sql("SELECT * FROM publications")[0]
    assert (row.live_path, row.live_hash, row.live_remote, row.live_inputs) == ("a/", "h1", "etag-h1", "made of this")
    assert (row.live_revision, row.live_fence, row.topic_id) == (
        claim.revision_id,
        claim.fence,
        claim.topic and claim.topic.id,
    )
    assert (row.intent_token, row.intent_fence, row.intent_at) == (None, None, None)
    assert row.first_at is not None


def test_the_same_hash_does_nothing(make: Factory, place: Place, publish: Callable[..., bool], sql: Sql) -> None:
    """What the target has already is confirmed, not written."""
    make.advance_to("publish")
    claim = make.claim("publish")[0]
    publish(claim)
    before = sql("SELECT live_path, live_hash, first_at, changed_at FROM publications")

    assert not publish(claim)

    assert place.writes == 1
    assert sql("SELECT live_path, live_hash, first_at, changed_at FROM publications") == before


def test_what_is_live_stays_on_record_while_an_update_is_intended(
    make: Factory, place: Place, publish: Callable[..., bool], sql: Sql
) -> None:
    """Between intent and confirmation the old page is what is live."""
    make.advance_to("publish")
    claim = make.claim("publish")[0]
    publish(claim)

    with pytest.raises(Crash):
        publish(claim, hash="h2", during=crash)

    row = sql("SELECT live_hash, intent_hash, intent_fence FROM publications")[0]
    assert row == ("h1", "h2", claim.fence)


def test_a_crash_between_act_and_confirmation_is_looked_at_and_not_repeated(
    make: Factory, place: Place, publish: Callable[..., bool], sql: Sql
) -> None:
    """The next reservation finds the page there, writes nothing, and confirms."""
    job_id = make.advance_to("publish")[0]
    with pytest.raises(Crash):
        publish(make.claim("publish")[0], during=crash)
    make.expire(job_id)
    make.services.work.reap(make.services.work.expired())
    again = make.claim("publish")[0]

    assert not publish(again)

    assert place.writes == 1
    assert sql("SELECT live_hash, live_fence, intent_token FROM publications") == [("h1", again.fence, None)]


def test_a_crash_before_the_act_is_done_by_the_next(
    make: Factory, place: Place, publish: Callable[..., bool], sql: Sql
) -> None:
    """An intent without a deed is taken over once its holder is gone."""
    job_id = make.advance_to("publish")[0]
    with pytest.raises(LeaseLost, match="before a/ was written"):
        publish(make.claim("publish")[0], still_ours=False)
    assert place.writes == 0
    make.expire(job_id)
    make.services.work.reap(make.services.work.expired())

    assert publish(make.claim("publish")[0])
    assert place.writes == 1


def test_two_topics_never_share_a_path(make: Factory, place: Place, publish: Callable[..., bool]) -> None:
    """A path belongs to the topic that lives there, and to the one on its way there."""
    make.advance_to("publish", lane="one")
    make.advance_to("publish", lane="two")
    first, second = make.claim("publish", 2)
    publish(first)

    with pytest.raises(PathTaken, match="files:a/ belongs to one-1"):
        publish(second, hash="h2")

    assert place.has == {"a/": "h1"}


def test_an_intended_path_is_taken_too(make: Factory, place: Place, publish: Callable[..., bool]) -> None:
    """Before the first is live, the second is refused: the law is on intents."""
    make.advance_to("publish", lane="one")
    make.advance_to("publish", lane="two")
    first, second = make.claim("publish", 2)

    def rival() -> None:
        with pytest.raises(PathTaken):
            publish(second, hash="h2")

    assert publish(first, during=rival)
    assert place.writes == 1


def test_a_topic_cannot_take_the_path_of_an_artefact(make: Factory, place: Place, publish: Callable[..., bool]) -> None:
    """A page does not overwrite the site's own files, nor they a page."""
    make.advance_to("publish")
    page = make.claim("publish")[0]
    make.services.work.touch(make.site_id)
    site = make.claim("assemble")[0]
    publish(site, "sitemap.xml", artefact=True)
    publish(page)

    with pytest.raises(PathTaken, match="the site itself"):
        publish(page, "sitemap.xml", "h2")
    with pytest.raises(PathTaken, match="lane-1"):
        publish(site, "a/", "h2", artefact=True)


def test_a_page_that_another_reservation_writes_is_occupied(
    make: Factory, place: Place, publish: Callable[..., bool], sql: Sql
) -> None:
    """While the holder of an intent lives, nobody else acts on that page."""
    make.advance_to("publish", lane="one")
    make.advance_to("publish", lane="two")
    first, second = make.claim("publish", 2)
    with pytest.raises(Crash):
        publish(first, during=crash)
    assert first.topic is not None

    with pytest.raises(Occupied):
        make.services.ledger.publish(
            second, target="files", key="a/", hash="h2", look=lambda: None, act=lambda: place.write("a/", "h2"),
            still_ours=lambda: True, topic_id=first.topic.id, revision=None, inputs="",
        )  # fmt: skip

    assert place.has == {"a/": "h1"}


def test_a_page_may_move(make: Factory, place: Place, publish: Callable[..., bool], sql: Sql) -> None:
    """A new path is one more intent; the old one is free after the confirmation."""
    make.advance_to("publish", lane="one")
    make.advance_to("publish", lane="two")
    first, second = make.claim("publish", 2)
    publish(first)

    publish(first, "b/")
    publish(second)

    assert sql("SELECT live_path FROM publications ORDER BY id") == [("b/",), ("a/",)]


def test_a_page_that_moved_but_is_not_confirmed_keeps_both_paths(
    make: Factory, place: Place, publish: Callable[..., bool]
) -> None:
    """Where it lives and where it goes are both taken."""
    make.advance_to("publish", lane="one")
    make.advance_to("publish", lane="two")
    first, second = make.claim("publish", 2)
    publish(first)
    with pytest.raises(Crash):
        publish(first, "b/", during=crash)

    for path in ("a/", "b/"):
        with pytest.raises(PathTaken):
            publish(second, path, "h2")


def test_changed_at_moves_only_with_the_content(
    make: Factory, place: Place, publish: Callable[..., bool], sql: Sql
) -> None:
    """New bytes around the same revision are no change for readers; another revision is; first_at stays."""
    make.advance_to("publish")
    claim = make.claim("publish")[0]
    publish(claim)
    first = sql("SELECT first_at, changed_at FROM publications")[0]

    publish(claim, hash="other links around it")
    assert sql("SELECT first_at, changed_at FROM publications")[0] == first

    make.say(claim, Verb.REJECT)
    for stage in ("generate", "validate"):
        again = make.claim(stage)[0]
        make.say(again, draft=draft_of(again) if stage == "generate" else None)
    publish(make.claim("publish")[0], hash="h3")

    row = sql("SELECT first_at, changed_at, live_hash FROM publications")[0]
    assert row.first_at == first.first_at
    assert row.changed_at > first.changed_at
    assert row.live_hash == "h3"


def test_changed_at_of_an_artefact_moves_with_its_bytes(
    make: Factory, place: Place, publish: Callable[..., bool], sql: Sql
) -> None:
    """The site's own files have no revision: their hash is their content."""
    make.site()
    make.services.work.touch(make.site_id)
    claim = make.claim("assemble")[0]
    publish(claim, "feed.xml", artefact=True)
    first = sql("SELECT changed_at FROM publications")[0].changed_at

    publish(claim, "feed.xml", artefact=True)
    assert sql("SELECT changed_at FROM publications")[0].changed_at == first
    publish(claim, "feed.xml", "h2", artefact=True)
    assert sql("SELECT changed_at FROM publications")[0].changed_at > first


def test_two_artefacts_are_two_rows(make: Factory, place: Place, publish: Callable[..., bool], sql: Sql) -> None:
    """Each path of the site's own is a publication of its own."""
    make.site()
    make.services.work.touch(make.site_id)
    claim = make.claim("assemble")[0]

    publish(claim, "feed.xml", artefact=True)
    publish(claim, "sitemap.xml", artefact=True)

    assert sql("SELECT live_path, topic_id FROM publications ORDER BY id") == [
        ("feed.xml", None),
        ("sitemap.xml", None),
    ]


def test_what_became_live_meanwhile_stays(make: Factory, place: Place, publish: Callable[..., bool], sql: Sql) -> None:
    """A page that was made from what was live a while ago takes nobody's place: the newer one is left alone."""
    make.advance_to("publish")
    (claim,) = make.claim("publish")
    publish(claim)
    publish(claim, hash="h2")
    assert claim.topic is not None
    stale, fresh = (
        Page("a/", "h3", lambda: place.look("a/"), lambda: place.write("a/", "h3"), claim.topic.id, seen=seen)
        for seen in ("h1", "h2")
    )

    left = make.services.ledger.publish_all(claim, "files", [stale], still_ours=lambda: True)
    between = sql("SELECT live_hash, intent_token FROM publications")
    taken = make.services.ledger.publish_all(claim, "files", [fresh], still_ours=lambda: True)

    assert (left, between) == ([False], [("h2", None)])
    assert taken == [True]
    assert sql("SELECT live_hash FROM publications") == [("h3",)]


def test_a_lost_reservation_is_not_carried_by_a_later_one_of_its_job(make: Factory) -> None:
    """Side by side in one transaction, each is asked for by its own fence."""
    (job_id,) = make.advance_to("publish")
    (lost,) = make.claim("publish")
    make.services.operate.cancel([job_id], actor="a", force=True)
    make.services.operate.requeue([job_id], actor="a")
    (held,) = make.claim("publish")
    assert held.topic is not None
    page = Page("a/", "h1", lambda: None, lambda: "", held.topic.id)
    ledger = make.services.ledger

    old, new = ledger._all(ledger._intend, [_Intent(claim, "files", [page]) for claim in (lost, held)])

    assert isinstance(old, LeaseLost)
    assert isinstance(new, list)
