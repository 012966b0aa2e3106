"""``drain`` and ``pipeline_project``: real stages on a real database, in this process."""

import threading
from datetime import timedelta
from itertools import count

import pytest
from sqlalchemy import create_engine, text

from pipeline import Backoff, Done, Draft, Fail, Finding, Hold, Reject, Retry, Snooze, Stage, migrate
from pipeline.errors import NotFound
from pipeline.project.loading import Stages
from pipeline.testing import NotIdle, drain
from pipeline.testing.project import ProjectCopy, choose_site

HEAD = "lane,position,slug,title,type"


class Write(Stage):
    retry = Backoff(attempts=3, first=timedelta(0), cap=timedelta(0))

    def run(self, topic, ctx):
        return Done(draft=Draft(topic.title, "About it", f"round {topic.round}"))


class Release(Stage):
    width = 1
    target = "memory"

    def run(self, topic, ctx):
        ctx.ledger.publish(
            "memory", topic.path, ctx.draft.hash, lambda: None, lambda: "v1", topic_id=topic.id, revision=ctx.revision
        )
        return Done()


@pytest.fixture
def project(services, tmp_path):
    """Makes a project of given stages and topics, on the database that is audited after each test."""

    def make(*stages, topics=("japan,1,tokyo,Tokyo,page", "japan,2,kyoto,Kyoto,page"), site="acme"):
        folder = tmp_path / "sites" / site
        folder.mkdir(parents=True)
        folder.joinpath("site.toml").write_text(f'name = "{site}"\nbase_url = "https://{site}.example"\n')
        folder.joinpath("topics.csv").write_text("\n".join([HEAD, *topics]) + "\n")
        named = {type(stage).__name__.lower(): stage for stage in stages}
        return ProjectCopy(tmp_path, site, Stages(named, None), services)

    return make


def test_the_database_is_migrated_empty_and_of_one_test_alone(pipeline_database):
    """Nothing is in it but the schema, as the migrations make it."""
    engine = create_engine(pipeline_database)
    with engine.begin() as connection:
        assert connection.scalar(text("SELECT count(*) FROM pipeline.sites")) == 0
        assert connection.scalar(text("SELECT version_num FROM pipeline.alembic_version")) == migrate.head()
    engine.dispose()


def test_a_project_is_planned_and_drained_to_its_end(project):
    """Every topic through every stage, in order, within one call."""
    mine = project(Write(), Release())

    planned = mine.plan()
    left = mine.drain()

    assert planned.new == 2
    assert left.all_done
    assert left.finished >= 4  # and the site's own job
    assert left.later_seconds is None
    assert mine.states() == {"tokyo": ("release", "done"), "kyoto": ("release", "done")}
    assert list(mine.published()) == ["tokyo/", "kyoto/"]
    assert [(a["stage"], a["outcome"]) for a in mine.attempts("kyoto")] == [("write", "done"), ("release", "done")]


def test_draining_again_does_nothing(project):
    mine = project(Write(), Release())
    mine.plan()
    mine.drain()

    assert mine.plan().unchanged == 2
    assert mine.drain().finished == 0


def test_a_draft_sent_back_goes_round_until_it_is_good(project):
    """Rejections and retries without a back-off are part of the same drain."""

    class Check(Stage):
        retry = Backoff(attempts=3, first=timedelta(0), cap=timedelta(0))
        tries = count(1)

        def run(self, topic, ctx):
            if topic.round < 2:
                return Reject([Finding("again", "once more")])
            return Retry("flaky") if next(self.tries) == 1 else Done()

    mine = project(Write(), Check(), Release(), topics=["japan,1,tokyo,Tokyo,page"])
    mine.plan()

    left = mine.drain()

    outcomes = [a["outcome"] for a in mine.attempts("tokyo") if a["stage"] == "check"]
    assert left.all_done
    assert outcomes == ["rejected", "rejected", "retry", "done"]


def test_what_is_due_later_is_left_and_told(project):
    """A snooze, a hold and a failure end a drain; the chain behind the failure waits."""
    said = {"tokyo": Snooze(timedelta(hours=1)), "kyoto": Hold("look at it"), "osaka": Fail("no"), "nara": Done()}

    class Judge(Stage):
        width = 4

        def run(self, topic, ctx):
            return said[topic.slug]

    mine = project(Judge(), topics=[f"japan,{n},{slug},{slug},page" for n, slug in enumerate(said, start=1)])
    mine.plan()

    left = mine.drain()

    assert not left.all_done
    assert 3500 < left.later_seconds <= 3600
    assert [trouble.job.topic for trouble in left.troubles] == ["osaka"]
    assert mine.states() == {
        "tokyo": ("judge", "pending"),
        "kyoto": ("judge", "waiting"),
        "osaka": ("judge", "failed"),
        "nara": ("judge", "done"),
    }


def test_a_paused_site_is_at_rest(project, engine):
    """What is due there is not taken, so it is not waited for."""
    mine = project(Write())
    mine.plan()
    with engine.begin() as connection:
        connection.execute(text("UPDATE pipeline.sites SET state = 'paused'"))

    left = mine.drain()

    assert (left.all_done, left.finished) == (False, 0)
    assert {state for _, state in mine.states().values()} == {"pending"}


def test_a_drain_that_does_not_end_names_the_jobs(project):
    """A stage that runs until it is cancelled: the drain says where, and the job is given back."""

    class Sleeps(Stage):
        def run(self, topic, ctx):
            pause = threading.Event()
            while not ctx.cancelled():
                pause.wait(0.01)
            return Done()

    mine = project(Sleeps(), topics=["japan,1,tokyo,Tokyo,page"])
    mine.plan()

    with pytest.raises(NotIdle, match=r"not idle after 0\.3 s.*\n.*\(tokyo\) at sleeps: \w+, attempt [01] of 5"):
        mine.drain(timeout=0.3)

    assert mine.states()["tokyo"][1] in ("pending", "done")


def test_a_stage_that_asks_for_a_process_runs_in_this_one(project):
    """Its class is left as it is."""
    seen = []

    class Apart(Stage):
        executor = "process"

        def run(self, topic, ctx):
            seen.append(threading.current_thread())
            return Done()

    mine = project(Apart(), topics=["japan,1,tokyo,Tokyo,page"])
    mine.plan()

    assert mine.drain().all_done
    assert len(seen) == 1
    assert Apart.executor == "process"


def test_drain_takes_a_url_as_well(project, database_url):
    mine = project(Write())
    mine.plan()

    assert drain(database_url, mine.root, "acme", stages=mine.stages).all_done


def test_what_is_not_there_is_told(project, tmp_path):
    """A site that was never planned, one that has no folder, and a choice that nobody made."""
    mine = project(Write())

    with pytest.raises(NotIdle, match="plan it first"):
        mine.drain()
    with pytest.raises(NotFound, match="call plan"):
        mine.states()
    with pytest.raises(NotFound, match="no site 'beta'"):
        drain(mine.services, tmp_path, "beta", stages=mine.stages)
    (tmp_path / "sites" / "beta").mkdir()
    (tmp_path / "sites" / "beta" / "site.toml").write_text('name = "B"\nbase_url = "https://b.example"\n')
    with pytest.raises(NotFound, match=r"which site.*acme, beta"):
        choose_site(tmp_path, None)
    assert choose_site(tmp_path, "beta") == "beta"


def test_the_example_site_is_drained_from_a_copy(pipeline_project):
    """This repository's own stages, artefacts included; nothing is written outside the copy."""
    topics = pipeline_project.site.folder / "topics.csv"
    lines = topics.read_text().splitlines(keepends=True)
    topics.write_text("".join(lines[:4]))

    pipeline_project.plan()
    left = pipeline_project.drain()

    assert left.all_done
    assert left.status.live == 3
    assert {"index.html", "sitemap.xml"} < set(pipeline_project.published())
    for path in pipeline_project.published():
        assert (pipeline_project.root / "public" / "acme" / path).is_file()
