"""Planning inside a caller's own transaction: there if and only if it commits, through whatever connection it has."""

import asyncio
import csv
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads
from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import pipeline
from pipeline import Conflict, PlannedTopic, Topic
from pipeline.build import Services
from pipeline.errors import NotFound, PipelineError, Refused, SchemaError, UsageError
from pipeline.models import Site as SiteRow
from pipeline.project.loading import load_stages
from pipeline.service.append import BATCH, CLOCK
from pipeline.service.planning import StageSpec
from pipeline.sql import append
from pipeline.states import JobState as S
from pipeline.testing.project import ProjectCopy, copy_project
from pipeline.views import Planned, content_hash
from tests.db.conftest import Sql
from tests.factories import ACTOR, STAGES, Factory

LIMITED = (StageSpec("write", 1, 5), StageSpec("publish", 1, 5))
KYOTO = Topic("japan", "kyoto", "Kyoto", "city", {"people": 1_460_000, "sights": ["Kinkaku-ji"]})
OSAKA = Topic("japan", "osaka", "Osaka", "city")
ROME = Topic("italy", "rome", "Rome", "city")

Door = Callable[[str, bool], list[PlannedTopic]]


class Regret(Exception):
    """What a caller rolls back for."""


def number(many: int, lane: str = "japan") -> list[Topic]:
    return [Topic(lane, f"{lane}-{n}", f"Number {n}", "page", {"n": n}) for n in range(many)]


def plain(url: str, **options: Any) -> Any:
    """A connection of psycopg."""
    return psycopg.connect(make_url(url).set(drivername="postgresql").render_as_string(hide_password=False), **options)


@cache
def lasting(url: str) -> Engine:
    return create_engine(url)


@pytest.fixture
def mine(database_url: str) -> Iterator[Engine]:
    """The caller's own engine, with nothing of ours; statements stay compiled from test to test."""
    engine = lasting(database_url)
    yield engine
    engine.dispose()


def by_connection(url: str, commit: bool) -> list[PlannedTopic]:
    engine = create_engine(url)
    with engine.connect() as connection:
        planned = pipeline.plan(connection, "acme", [KYOTO, ROME])
        (connection.commit if commit else connection.rollback)()
    engine.dispose()
    return planned


def by_session(url: str, commit: bool) -> list[PlannedTopic]:
    engine = create_engine(url)
    with Session(engine) as session:
        planned = pipeline.plan(session, "acme", [KYOTO, ROME])
        (session.commit if commit else session.rollback)()
    engine.dispose()
    return planned


def by_scoped_session(url: str, commit: bool) -> list[PlannedTopic]:
    engine = create_engine(url)
    session = scoped_session(sessionmaker(engine))
    planned = pipeline.plan(session, "acme", [KYOTO, ROME])
    (session.commit if commit else session.rollback)()
    session.remove()
    engine.dispose()
    return planned


def by_psycopg(url: str, commit: bool) -> list[PlannedTopic]:
    with plain(url) as connection:
        planned = pipeline.plan(connection, "acme", [KYOTO, ROME])
        (connection.commit if commit else connection.rollback)()
    return planned


def by_psycopg_transaction(url: str, commit: bool) -> list[PlannedTopic]:
    with plain(url, autocommit=True) as connection, connection.transaction(force_rollback=not commit):
        return pipeline.plan(connection, "acme", [KYOTO, ROME])


def by_async_connection(url: str, commit: bool) -> list[PlannedTopic]:
    async def body() -> list[PlannedTopic]:
        engine = create_async_engine(url)
        async with engine.connect() as connection:
            planned = await pipeline.aplan(connection, "acme", [KYOTO, ROME])
            await (connection.commit if commit else connection.rollback)()
        await engine.dispose()
        return planned

    return asyncio.run(body())


def by_async_session(url: str, commit: bool) -> list[PlannedTopic]:
    async def body() -> list[PlannedTopic]:
        engine = create_async_engine(url)
        async with AsyncSession(engine) as session:
            planned = await pipeline.aplan(session, "acme", [KYOTO, ROME])
            await (session.commit if commit else session.rollback)()
        await engine.dispose()
        return planned

    return asyncio.run(body())


def by_async_scoped_session(url: str, commit: bool) -> list[PlannedTopic]:
    async def body() -> list[PlannedTopic]:
        engine = create_async_engine(url)
        session = async_scoped_session(async_sessionmaker(engine), asyncio.current_task)
        planned = await pipeline.aplan(session, "acme", [KYOTO, ROME])
        await (session.commit if commit else session.rollback)()
        await session.remove()
        await engine.dispose()
        return planned

    return asyncio.run(body())


def by_async_psycopg(url: str, commit: bool) -> list[PlannedTopic]:
    async def body() -> list[PlannedTopic]:
        address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        async with await psycopg.AsyncConnection.connect(address) as connection:
            planned = await pipeline.aplan(connection, "acme", [KYOTO, ROME])
            await (connection.commit if commit else connection.rollback)()
            return planned

    return asyncio.run(body())


DOORS: list[Door] = [
    by_connection, by_session, by_scoped_session, by_psycopg, by_psycopg_transaction,
    by_async_connection, by_async_session, by_async_scoped_session, by_async_psycopg,
]  # fmt: skip


@pytest.mark.guarantee("R1")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "rollback"])
def test_topics_are_there_if_and_only_if_the_caller_commits(
    door: Door, commit: bool, make: Factory, sql: Sql, database_url: str
) -> None:
    """Whatever the connection, all rows of a plan are the caller's: topic, job, lane and gates."""
    make.site()

    planned = door(database_url, commit)

    assert [(p.slug, p.position, p.new) for p in planned] == [("kyoto", 1, True), ("rome", 1, True)]
    found = sql("SELECT t.id, t.slug, j.id, j.state, j.stage FROM topics t JOIN jobs j ON j.topic_id = t.id ORDER BY 2")
    there = [(p.topic_id, p.slug, p.job_id, "pending", "generate") for p in planned]
    assert found == (there if commit else [])
    assert sql("SELECT count(*) FROM lanes") == sql("SELECT count(*) FROM gates") == [(2 if commit else 0,)]


def test_topics_stand_at_the_ends_of_their_lanes(make: Factory, sql: Sql, mine: Engine) -> None:
    """Each lane goes on counting where it stood, in the order given, and the answers come in that order too."""
    make.plan(lane="japan", count=2)

    with mine.begin() as connection:
        planned = pipeline.plan(connection, "acme", [KYOTO, ROME, OSAKA])

    assert [(p.slug, p.position) for p in planned] == [("kyoto", 3), ("rome", 1), ("osaka", 4)]
    assert sql("SELECT name, next_position FROM lanes ORDER BY 1") == [("italy", 2), ("japan", 5)]


@pytest.mark.guarantee("R2")
def test_the_same_again_is_answered_and_not_planned(make: Factory, sql: Sql, mine: Engine) -> None:
    """A caller who does not know whether its commit arrived plans again, and is given the same ids."""
    make.site()
    with mine.begin() as connection:
        first = pipeline.plan(connection, "acme", [KYOTO, ROME])

    with mine.begin() as connection:
        second = pipeline.plan(connection, "acme", [KYOTO, ROME, OSAKA])

    assert second[:2] == [replace(p, new=False) for p in first]
    assert second[2].new
    assert sql("SELECT name, next_position FROM lanes ORDER BY 1") == [("italy", 2), ("japan", 3)]


def test_what_is_given_twice_is_planned_once(make: Factory, sql: Sql, mine: Engine) -> None:
    """The second time, in one call too, it is there already."""
    make.site()

    with mine.begin() as connection:
        planned = pipeline.plan(connection, "acme", [KYOTO, KYOTO])

    assert [p.new for p in planned] == [True, False]
    assert planned[0] == replace(planned[1], new=True)
    assert sql("SELECT count(*) FROM topics") == [(1,)]


@pytest.mark.guarantee("R2")
@pytest.mark.parametrize(
    ("changes", "what"),
    [({"title": "Kioto"}, "another title"), ({"type": "town"}, "another type"), ({"lane": "italy"}, "another lane"),
     ({"brief": {"people": 1}}, "another brief"), ({"title": "K", "brief": {}}, "another title and brief")],
)  # fmt: skip
def test_other_content_under_a_planned_name_is_a_conflict(
    changes: dict[str, Any], what: str, make: Factory, sql: Sql, mine: Engine
) -> None:
    """It is named, nothing of the call is planned, and the caller's transaction goes on."""
    make.site()
    with mine.begin() as connection:
        pipeline.plan(connection, "acme", [KYOTO])

    with mine.begin() as connection:
        connection.exec_driver_sql("UPDATE pipeline.sites SET name = 'before'")
        with pytest.raises(Conflict, match=f"topic 'kyoto' is planned already, with {what}"):
            pipeline.plan(connection, "acme", [ROME, replace(KYOTO, **changes)])
        connection.exec_driver_sql("UPDATE pipeline.sites SET name = name || ' and after'")

    assert sql("SELECT slug, title FROM topics") == [("kyoto", "Kyoto")]
    assert sql("SELECT name, next_position FROM lanes") == [("japan", 2)]
    assert sql("SELECT name FROM sites") == [("before and after",)]


def test_two_contents_of_one_name_in_one_call_are_a_conflict(make: Factory, mine: Engine) -> None:
    """Both places are named."""
    make.site()

    with mine.begin() as connection, pytest.raises(Conflict, match=r"in topics\[0\] and, otherwise, in topics\[2\]"):
        pipeline.plan(connection, "acme", [KYOTO, ROME, replace(KYOTO, title="Kioto")])


@pytest.mark.parametrize("together", [True, False], ids=["in-one-call", "planned-before"])
def test_two_topics_cannot_live_at_one_path(together: bool, make: Factory, sql: Sql, mine: Engine) -> None:
    """Where the site's patterns send two names to one path, the second is refused with the first one's name."""
    make.site()
    sql("""UPDATE sites SET settings = '{"paths": {"country": "{lane}/"}}'""")
    pillar, other = Topic("japan", "guide", "Japan", "country"), Topic("words", "japan", "Japan", "page")
    with mine.begin() as connection:
        pipeline.plan(connection, "acme", [] if together else [pillar])

    with mine.begin() as connection, pytest.raises(Conflict, match=r"topic 'japan' would live at 'japan/', .*'guide'"):
        pipeline.plan(connection, "acme", [pillar, other])

    assert sql("SELECT slug, path FROM topics") == ([] if together else [("guide", "japan/")])


def test_the_hash_of_a_topic_is_that_of_its_row_in_the_file(make: Factory, sql: Sql, mine: Engine) -> None:
    """What the stages add is kept with the site, by type, when it is registered."""
    make.site()
    sql("""UPDATE sites SET settings = '{"fingerprints": {"city": {"generate": "abc"}}}'""")

    with mine.begin() as connection:
        pipeline.plan(connection, "acme", [KYOTO])

    row = [KYOTO.title, KYOTO.type, dict(KYOTO.brief), {"generate": "abc"}]
    assert sql("SELECT input_hash FROM topics") == [(content_hash(row),)]


def test_a_transaction_must_have_begun(make: Factory, sql: Sql, database_url: str) -> None:
    """Where each statement commits by itself nothing is planned, and the sentence says why."""
    make.site()
    engine = create_engine(database_url, isolation_level="AUTOCOMMIT")

    with plain(database_url, autocommit=True) as connection, pytest.raises(Refused, match="autocommit"):
        pipeline.plan(connection, "acme", [KYOTO])
    with engine.connect() as connection, pytest.raises(Refused, match="autocommit"):
        pipeline.plan(connection, "acme", [KYOTO])

    engine.dispose()
    assert sql("SELECT slug FROM topics UNION ALL SELECT name FROM lanes") == []


@pytest.mark.parametrize("given", [object(), "postgresql://localhost/x", None])
def test_what_is_no_connection_is_refused(given: Any) -> None:
    """The sentence names what was given, and the other door."""
    with pytest.raises(UsageError, match=f"through a {type(given).__name__}; .* pipeline.aplan"):
        pipeline.plan(given, "acme", [KYOTO])
    with pytest.raises(UsageError, match=f"through a {type(given).__name__}; .* pipeline.plan"):
        asyncio.run(pipeline.aplan(given, "acme", [KYOTO]))


def test_psycopg_is_awaited_without_the_asyncio_of_sqlalchemy(
    make: Factory, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where that cannot be imported (it needs greenlet), nothing else misses it."""
    make.site()
    monkeypatch.setitem(sys.modules, "sqlalchemy.ext.asyncio", None)

    planned = by_async_psycopg(database_url, True)

    assert all(p.new for p in planned)
    with pytest.raises(UsageError, match="through a object"):
        asyncio.run(pipeline.aplan(object(), "acme", [KYOTO]))  # type: ignore[arg-type]


def test_only_postgresql_is_planned_in() -> None:
    """Another database is refused by its name, and asked nothing."""
    with create_engine("sqlite://").connect() as connection, pytest.raises(UsageError, match="connection is to sqlite"):
        pipeline.plan(connection, "acme", [KYOTO])


def test_nothing_of_a_psycopg_connection_is_relied_upon_or_changed(make: Factory, database_url: str) -> None:
    """Its kind of cursor, its rows, its JSON and its search_path are the caller's."""
    make.site()
    connection = plain(database_url, row_factory=dict_row, cursor_factory=psycopg.RawCursor, prepare_threshold=0)
    set_json_loads(lambda data: pytest.fail("the caller's own JSON"), connection)
    connection.execute("CREATE TEMPORARY TABLE topics (mine int)")
    connection.execute("SET search_path = pg_temp, public")
    settings = "SELECT name, setting FROM pg_settings ORDER BY name"
    before = connection.execute(settings).fetchall()

    with connection:
        pipeline.plan(connection, "acme", [KYOTO])
        (first,) = pipeline.plan(connection, "acme", [KYOTO])
        after = connection.execute(settings).fetchall()
        mine = connection.execute("SELECT count(*) AS n FROM topics").fetchone()

    assert not first.new
    assert after == before
    assert mine == {"n": 0}


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "fresh"])
def test_a_refusal_leaves_a_transaction_of_psycopg_as_it_was(
    begun: bool, make: Factory, sql: Sql, database_url: str
) -> None:
    """Whether something was done in it before, or it had yet to begin: nothing of the plan is left, and it goes on."""
    make.plan(lane="japan")
    with plain(database_url) as connection, plain(database_url) as other:
        if begun:
            connection.execute("UPDATE pipeline.sites SET name = 'before'")
        with pytest.raises(Conflict):
            pipeline.plan(connection, "acme", [ROME, Topic("japan", "japan-1", "Another", "city")])
        free = other.execute("SELECT name FROM pipeline.lanes FOR NO KEY UPDATE SKIP LOCKED").fetchall()
        other.rollback()
        (planned,) = pipeline.plan(connection, "acme", [KYOTO])

    assert planned.position == 2
    assert free == [("japan",)]
    assert sql("SELECT name, next_position FROM lanes") == [("japan", 3)]
    assert sql("SELECT name = 'before' FROM sites") == [(begun,)]


def test_nothing_of_an_engine_is_relied_upon(make: Factory, sql: Sql, database_url: str) -> None:
    """Its JSON, its schema and its streaming are the caller's."""
    make.site()
    forbidden = lambda data: pytest.fail("the caller's own JSON")  # noqa: E731
    engine = create_engine(
        database_url,
        json_serializer=forbidden,
        json_deserializer=forbidden,
        execution_options={"schema_translate_map": {None: "elsewhere"}, "stream_results": True, "yield_per": 1},
    )

    with engine.begin() as connection:
        pipeline.plan(connection, "acme", [KYOTO, OSAKA, ROME])
        again = pipeline.plan(connection, "acme", [KYOTO, OSAKA, ROME])

    engine.dispose()
    assert [p.new for p in again] == [False] * 3
    assert sql("SELECT brief FROM topics ORDER BY position, slug LIMIT 1") == [(dict(KYOTO.brief),)]


def test_a_session_is_not_flushed(make: Factory, mine: Engine) -> None:
    """Objects that the caller has not flushed stay as they are."""
    make.site()
    pending = SiteRow(slug="not valid", name="x", base_url="x")

    with Session(mine) as session:
        session.add(pending)
        pipeline.plan(session, "acme", [KYOTO])

        assert pending in session.new


def test_the_callers_savepoints_stay_its_own(make: Factory, sql: Sql, mine: Engine) -> None:
    """What is planned inside a nested transaction goes with it."""
    make.site()

    with mine.begin() as connection:
        pipeline.plan(connection, "acme", [KYOTO])
        nested = connection.begin_nested()
        pipeline.plan(connection, "acme", [OSAKA])
        nested.rollback()

    assert sql("SELECT slug FROM topics") == [("kyoto",)]
    assert sql("SELECT next_position FROM lanes") == [(2,)]


def test_a_site_must_have_been_run(make: Factory, sql: Sql, mine: Engine) -> None:
    """An unknown site, and one without stages, are refused with the command that helps."""
    make.site()
    with mine.begin() as connection, pytest.raises(NotFound, match="no site 'other'; run it once: pipeline run --site"):
        pipeline.plan(connection, "other", [KYOTO])
    sql("UPDATE stages SET state = 'retired'")

    with mine.begin() as connection, pytest.raises(NotFound, match="no stages of site 'acme'; run it once"):
        pipeline.plan(connection, "acme", [KYOTO])


def test_a_schema_that_is_not_there_is_named(make: Factory, mine: Engine) -> None:
    """The caller's transaction goes on; a name that is none is refused before it is asked."""
    make.site()

    with mine.begin() as connection:
        with pytest.raises(SchemaError, match="pipeline db upgrade"):
            pipeline.plan(connection, "acme", [KYOTO], schema="elsewhere")
        assert pipeline.plan(connection, "acme", [KYOTO])[0].new
        with pytest.raises(UsageError, match="no schema of ours"):
            pipeline.plan(connection, "acme", [OSAKA], schema='x"; DROP SCHEMA pipeline; --')


def test_a_closed_lane_takes_nothing(make: Factory, sql: Sql, mine: Engine) -> None:
    """It is named, and nothing is planned in other lanes either."""
    make.plan(lane="japan")
    sql("UPDATE lanes SET state = 'closed'; UPDATE jobs SET state = 'waiting'")

    with (
        mine.begin() as connection,
        pytest.raises(Refused, match=r"lane 'japan' is closed.*pipeline lanes open acme/ja"),
    ):
        pipeline.plan(connection, "acme", [ROME, KYOTO])

    assert sql("SELECT count(*) FROM topics") == sql("SELECT count(*) FROM lanes") == [(1,)]


@pytest.mark.parametrize("stages", [STAGES, LIMITED], ids=["free", "limited"])
def test_a_paused_lane_takes_topics_that_wait(stages: Any, make: Factory, mine: Engine) -> None:
    """They go on where they stand when the lane does, without upkeep."""
    make.site(stages=stages)
    make.plan(lane="japan")
    make.services.lanes.pause(make.site_id, "japan", actor=ACTOR)

    with mine.begin() as connection:
        pipeline.plan(connection, "acme", [KYOTO])
    waiting = [make.state(job_id) for job_id in make.job_ids("japan")]
    make.services.lanes.resume(make.site_id, "japan", actor=ACTOR)

    assert waiting == [S.WAITING, S.WAITING]
    after = [S.PENDING, S.WAITING] if stages is LIMITED else [S.PENDING, S.PENDING]
    assert [make.state(job_id) for job_id in make.job_ids("japan")] == after


@pytest.mark.parametrize(("width", "mended"), [(1, 1), (2, 2)])
def test_at_a_limited_first_stage_upkeep_promotes(width: int, mended: int, make: Factory, mine: Engine) -> None:
    """A plan takes no gate and gives no turn: upkeep does, and counts what it mended, once."""
    make.site(stages=(StageSpec("write", width, 5), STAGES[2]))

    with mine.begin() as connection:
        planned = pipeline.plan(connection, "acme", number(3))
    before = {make.state(p.job_id) for p in planned}
    healed = [make.services.work.heal(make.site_id) for _ in range(2)]

    assert before == {S.WAITING}
    assert all(make.job(p.job_id).gate_id for p in planned)
    assert healed == [mended, 0]
    assert [make.state(p.job_id) for p in planned] == [S.PENDING] * mended + [S.WAITING] * (3 - mended)


def test_a_lane_of_its_own_ways_keeps_them(make: Factory, sql: Sql, mine: Engine) -> None:
    """Attempts are those that the lane says, else the stage's."""
    make.plan(lane="japan")
    sql("""UPDATE lanes SET overrides = '{"generate": {"max_attempts": 9}}'""")

    with mine.begin() as connection:
        kyoto, rome = pipeline.plan(connection, "acme", [KYOTO, ROME])

    assert make.job(kyoto.job_id).max_attempts == 9
    assert make.job(rome.job_id).max_attempts == 5


def nested(depth: int) -> Any:
    """A list in a list in a …, so deep."""
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


TEXTS = "a" * ((1 << 20) - len('{"a":""}'))
GOOD: list[tuple[str, Any]] = [
    ("slug", "a" * 200), ("lane", "a" * 200), ("title", "é" * 500), ("type", "a" * 200), ("brief", {"a": TEXTS}),
    ("brief", {"a": nested(63)}), ("brief", {"a": 10**1000, "b": -(10**1000)}), ("brief", {"": None}),
    ("brief", {"a": [1.0, 1, True, 0.1, 1e-300, -5e-324, 9007199254740993, 999999999999999.9, 1e15, "1"]}),
    ("brief", {"a": "\x01\x7f\u2028\ufffe \U0001f5fb'\"\\%(p)s;--", "%s": {"{x}": r"\ud800"}}),
]  # fmt: skip
BAD: list[tuple[str, Any, str]] = [
    ("slug", "a" * 201, "topics[1].slug: is longer than 200 bytes"),
    ("slug", "Kyoto", "topics[1].slug: 'Kyoto' is no slug"),
    ("slug", "kyoto\n", "topics[1].slug: 'kyoto\\n' is no slug"),
    ("slug", "../etc", "topics[1].slug: '../etc' is no slug"),
    ("slug", "con", "topics[1].slug: 'con' is a reserved name"),
    ("slug", None, "topics[1].slug: None is no slug"),
    ("lane", "", "topics[1].lane: '' is no slug"),
    ("lane", "a'b", 'topics[1].lane: "a\'b" is no slug'),
    ("type", "City", "topics[1].type: 'City' is no type"),
    ("type", "a" * 201, "topics[1].type: "),
    ("title", " ", "topics[1].title: is empty"),
    ("title", "a\nb", "topics[1].title: holds a line break or a tab"),
    ("title", "a\x00", "topics[1].title: holds the character U+0000"),
    ("title", "\ud800", "topics[1].title: holds the character U+D800"),
    ("title", "é" * 500 + "a", "topics[1].title: is longer than 1000 bytes"),
    ("title", 7, "topics[1].title: is of type int"),
    ("brief", [], "topics[1].brief: is of type list"),
    ("brief", {"a": TEXTS + "a"}, "topics[1].brief: is 1048577 bytes as JSON"),
    ("brief", {"a": "é" * (1 << 19)}, "topics[1].brief: is 1048584 bytes as JSON"),
    ("brief", {"a": nested(64)}, "topics[1].brief['a']" + "[0]" * 63 + ": is nested deeper than 64 levels"),
    ("brief", {"a": nested(5000)}, ": is nested deeper than 64 levels"),
    ("brief", {"a": [{"b": "x\x00"}]}, "topics[1].brief['a'][0]['b']: holds NUL at place 2"),
    ("brief", {"a": "\udc00"}, "topics[1].brief['a']: holds a lone surrogate at place 1"),
    ("brief", {"a\x00": 1}, "topics[1].brief: has a key that holds NUL"),
    ("brief", {1: 1}, "topics[1].brief: has the key 1"),
    ("brief", {"a": float("nan")}, "topics[1].brief['a']: is nan"),
    ("brief", {"a": float("-inf")}, "topics[1].brief['a']: is -inf"),
    ("brief", {"a": 1e16}, "topics[1].brief['a']: is 1e+16, too large"),
    ("brief", {"a": 10**1000 + 1}, "topics[1].brief['a']: is an integer of more than 1000 digits"),
    ("brief", {"a": (1,)}, "topics[1].brief['a']: is of type tuple"),
    ("brief", {"a": b"x"}, "topics[1].brief['a']: is of type bytes"),
]  # fmt: skip


@pytest.mark.guarantee("R24")
@pytest.mark.parametrize(("name", "value"), GOOD, ids=range(len(GOOD)))
def test_what_is_taken_comes_back_as_it_was(name: str, value: Any, make: Factory, mine: Engine) -> None:
    """To the last value, and to its type; planned again it is the same."""
    make.site()
    topic = replace(KYOTO, **{name: value})

    with mine.begin() as connection:
        pipeline.plan(connection, "acme", [topic])
        again = pipeline.plan(connection, "acme", [topic])

    (claim,) = make.claim("generate")
    assert claim.topic is not None
    found = getattr(claim.topic, name)
    assert (found, json.dumps(found, sort_keys=True)) == (value, json.dumps(value, sort_keys=True))
    assert [p.new for p in again] == [False]


@pytest.mark.guarantee("R24")
@pytest.mark.parametrize(("name", "value", "said"), BAD, ids=range(len(BAD)))
def test_what_would_not_come_back_is_refused_with_its_place(
    name: str, value: Any, said: str, make: Factory, mine: Engine
) -> None:
    """Before any SQL, and in harmless words."""
    make.site()
    asked: list[str] = []

    with mine.connect() as connection:
        event.listen(connection, "before_cursor_execute", lambda cn, cursor, sql, *rest: asked.append(sql))
        with pytest.raises(UsageError, match=re.escape(said)) as refused:
            pipeline.plan(connection, "acme", [ROME, replace(KYOTO, **{name: value})])

    assert asked == []
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 500


def test_only_topics_are_planned(mine: Engine) -> None:
    """A dictionary is no Topic."""
    given: Any = [{"slug": "kyoto"}]

    with mine.connect() as connection, pytest.raises(UsageError, match=r"topics\[0\]: is of type dict"):
        pipeline.plan(connection, "acme", given)


def test_a_title_is_taken_as_from_a_file(make: Factory, sql: Sql, mine: Engine) -> None:
    """Composed, without blanks around it: so it is the same topic once a file names it."""
    make.site()

    with mine.begin() as connection:
        pipeline.plan(connection, "acme", [replace(KYOTO, title=" Kyo\u0302to ")])

    assert sql("SELECT title FROM topics") == [("Ky\u00f4to",)]


def test_a_stream_is_read_a_batch_at_a_time(make: Factory, sql: Sql, mine: Engine) -> None:
    """What is not yet needed is not yet made."""
    make.site()
    made = 0
    most = []

    def stream() -> Iterator[Topic]:
        nonlocal made
        for topic in number(2 * BATCH + 1):
            made += 1
            yield topic

    def before(cn: Any, statement: Any, *rest: Any) -> None:
        if statement is append.add(CLOCK):
            most.append(made)

    with mine.begin() as connection:
        event.listen(connection, "before_execute", before)
        planned = pipeline.plan(connection, "acme", stream())

    assert most == [BATCH, 2 * BATCH, 2 * BATCH + 1]
    assert [p.position for p in planned] == list(range(1, 2 * BATCH + 2))
    assert sql("SELECT max(position), count(*) FROM jobs") == [(2 * BATCH + 1, 2 * BATCH + 1)]


def test_few_topics_of_lanes_that_are_there_take_few_words(make: Factory, mine: Engine) -> None:
    """Beside the savepoint, one statement locks the lanes and one writes."""
    make.plan(lane="japan")
    make.plan(lane="italy")
    asked: list[Any] = []

    with mine.begin() as connection:
        event.listen(connection, "before_execute", lambda cn, statement, *rest: asked.append(statement))
        pipeline.plan(connection, "acme", [KYOTO, ROME, OSAKA])

    assert asked == [append.SAVEPOINT, append.hold(), append.add(CLOCK), append.RELEASE]


def test_lanes_are_held_while_others_are_made_in_a_stream(make: Factory, sql: Sql, mine: Engine) -> None:
    """What comes later in a stream lets go of nothing that came before, planned or not."""
    make.site()
    with mine.begin() as connection:
        pipeline.plan(connection, "acme", number(BATCH))
    later = [Topic("italy", "rome", "Rome", "city"), KYOTO]

    with mine.begin() as connection:
        pipeline.plan(connection, "acme", iter([*number(BATCH), *later]))
        with plain(str(mine.url.render_as_string(hide_password=False))) as other:
            free = other.execute("SELECT name FROM pipeline.lanes FOR NO KEY UPDATE SKIP LOCKED").fetchall()

    assert free == []
    assert sql("SELECT name, next_position FROM lanes ORDER BY 1") == [("italy", 2), ("japan", BATCH + 2)]


def test_a_stream_that_breaks_off_leaves_nothing(make: Factory, sql: Sql, mine: Engine) -> None:
    """Whatever its iterator raises, what was planned before is taken back, and the caller's transaction goes on."""
    make.site()

    def stream() -> Iterator[Topic]:
        yield from number(BATCH)
        raise Regret

    with mine.begin() as connection:
        with pytest.raises(Regret):
            pipeline.plan(connection, "acme", stream())
        pipeline.plan(connection, "acme", [KYOTO])

    assert sql("SELECT slug FROM topics") == [("kyoto",)]


def test_large_briefs_are_sent_a_few_at_a_time(make: Factory, sql: Sql, mine: Engine) -> None:
    """However many topics there are, one statement carries a few megabytes."""
    make.site()
    sizes: list[int] = []

    def before(cn: Any, cursor: Any, statement: str, values: dict[str, Any], *rest: Any) -> None:
        sizes.append(len(str(values.get("p_topics", ""))))

    with mine.begin() as connection:
        event.listen(connection, "before_cursor_execute", before)
        pipeline.plan(connection, "acme", [replace(t, brief={"a": "x" * 1_000_000}) for t in number(12)])

    assert max(sizes) < 6_000_000
    assert sql("SELECT count(*), max(position) FROM jobs") == [(12, 12)]


@pytest.mark.guarantee("R1")
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_leaves_no_half_plan_to_commit(
    interrupt: type[BaseException], make: Factory, sql: Sql, mine: Engine
) -> None:
    """Even who catches it and commits has planned nothing, and the lane goes on counting where it stood."""
    make.site()

    def stream() -> Iterator[Topic]:
        yield from number(BATCH)
        raise interrupt

    with mine.begin() as connection:
        pipeline.plan(connection, "acme", [KYOTO])
        with pytest.raises(interrupt):
            pipeline.plan(connection, "acme", stream())

    assert sql("SELECT slug FROM topics") == [("kyoto",)]
    assert sql("SELECT next_position FROM lanes") == [(2,)]


def test_nothing_given_is_nothing_asked(mine: Engine) -> None:
    """No topics: no statement, no transaction."""
    with mine.connect() as connection:
        assert pipeline.plan(connection, "acme", []) == []
        assert not connection.in_transaction()


def test_every_refusal_is_one_of_ours() -> None:
    """One class catches them all."""
    assert issubclass(Conflict, Refused)
    assert issubclass(Refused, PipelineError)


ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(services: Services, tmp_path: Path) -> ProjectCopy:
    """The example site with two of Japan's pages, planned, and its own stages."""
    root = copy_project(ROOT, tmp_path / "project")
    project = ProjectCopy(root, "acme", load_stages(ROOT), services)
    write_rows(project, read_rows()[:2])
    project.plan()
    return project


def read_rows() -> list[dict[str, str]]:
    with (ROOT / "sites/acme/topics.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["lane"] == "japan"]


def write_rows(project: ProjectCopy, rows: list[dict[str, str]]) -> None:
    with (project.root / "sites/acme/topics.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def as_topic(row: dict[str, str]) -> Topic:
    """The same as a topic that an application plans."""
    own = {name: row[name] for name in ("lane", "slug", "title", "type")}
    return Topic(**own, brief={name: value for name, value in row.items() if name not in {*own, "position"}})


def test_a_topic_that_an_application_planned_is_published(project: ProjectCopy, mine: Engine) -> None:
    """It goes through the site's own stages; the file's plan leaves it alone, and once the file names it, finds it the
    same."""
    row = read_rows()[2]
    with mine.begin() as connection:
        (planned,) = pipeline.plan(connection, "acme", [as_topic(row)])

    project.drain()
    without = project.plan()
    write_rows(project, read_rows()[:3])
    named = project.plan()

    assert planned.position == 3
    assert f"japan/{row['slug']}/index.html" in project.published()
    assert without == Planned(unchanged=2, absent=(row["slug"],))
    assert named == Planned(unchanged=3)


def examples() -> list[str]:
    """The documentation's examples of planning."""
    told = [
        textwrap.dedent(part) for part in re.findall(r"code-block:: python\n\n(.*)", pipeline.plan.__doc__ or "", re.S)
    ]
    told += re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    return [example for example in told if re.search(r"\bplan\(", example)]


@pytest.mark.parametrize("example", examples())
def test_the_documentations_examples_work(example: str, project: ProjectCopy, sql: Sql, mine: Engine) -> None:
    """An order and its page exist together."""
    row = SiteRow(slug="order", name="An order", base_url="https://order.example")
    words = {"Session": Session, "Topic": Topic, "plan": pipeline.plan, "pipeline": pipeline, "order": row}

    exec(example, {**words, "engine": mine.execution_options(schema_translate_map={None: "pipeline"})})

    assert sql("SELECT slug FROM sites WHERE slug = 'order'") == [("order",)]
    assert sql("SELECT slug, position FROM topics ORDER BY position")[2:] == [("nara", 3)]
