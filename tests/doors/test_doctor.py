"""``pipeline doctor``: one line a check, keys, exit codes; with the least rights, and when nothing fits."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from pipeline.service.acknowledging import Verb
from pipeline.sql.audit import INVARIANTS
from pipeline.sql.audit.liveness import LIVENESS
from tests.conftest import SCHEMA
from tests.doors.scene import Door, Said
from tests.factories import Factory

pytestmark = pytest.mark.guarantee("R28")

CHECK = {"section", "name", "state", "found", "advice", "rows"}
READER = "doctor_reader"


def checks(said: Said, section: str | None = None) -> dict[str, dict[str, object]]:
    """By name, those of a section or all."""
    found = said.json["checks"]
    assert all(set(check) == CHECK for check in found)
    return {check["name"]: check for check in found if section in (None, check["section"])}


@pytest.fixture
def reader(door: Door, server_url: str, database_url: str) -> Iterator[Callable[[str], None]]:
    """Makes the door that of a role which may read the tables named, and nothing else."""
    admin = create_engine(server_url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    owner = create_engine(database_url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with admin.connect() as connection:
        connection.execute(text(f"DROP ROLE IF EXISTS {READER}"))
        connection.execute(text(f"CREATE ROLE {READER}"))
        connection.execute(text(f"GRANT {READER} TO pipeline"))

    def become(tables: str) -> None:
        with owner.connect() as connection:
            connection.execute(text(f"GRANT USAGE ON SCHEMA {SCHEMA} TO {READER}"))
            connection.execute(text(f"GRANT SELECT ON {tables} TO {READER}"))
        url = door.env["PIPELINE_DATABASE_URL"]
        door.env["PIPELINE_DATABASE_URL"] = f"{url}{'&' if '?' in url else '?'}options=-c%20role%3D{READER}"

    yield become
    with owner.connect() as connection:
        connection.execute(text(f"REVOKE ALL ON ALL TABLES IN SCHEMA {SCHEMA} FROM {READER}"))
        connection.execute(text(f"REVOKE ALL ON SCHEMA {SCHEMA} FROM {READER}"))
    with admin.connect() as connection:
        connection.execute(text(f"DROP ROLE {READER}"))


def test_one_line_a_check(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    """By section, each with its state; the last line adds up. Warnings are no failure."""
    make.advance_to("publish", count=2)
    make.say(make.claim("publish")[0], Verb.FAIL, error="no")

    said = inside("doctor")

    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    sections = [line for line in lines if line and not line.startswith(" ")]
    assert sections[:-1] == ["server", "schema", "audit", "liveness", "site acme"]
    assert {line.split()[0] for line in lines if line.startswith(" ")} == {"ok", "warning"}
    for name in (*INVARIANTS, *LIVENESS):
        assert sum(line.split()[1] == name for line in lines if line.startswith("  ok")) == 1, name
    (blocked,) = (line for line in lines if "blocked" in line)
    assert "is failed at publish; 1 wait behind it → pipeline jobs requeue" in blocked
    assert "checks: " in lines[-1]
    assert "warning" in lines[-1]


def test_keys_and_counts(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    """One document, the same checks; --site leaves the other sites out."""
    make.site("other")
    make.plan()

    said = inside("doctor --json --site other")

    assert set(said.json) == {"state", "strict", "counts", "checks"}
    assert set(said.json["counts"]) == {"ok", "warning", "broken"}
    assert sum(said.json["counts"].values()) == len(said.json["checks"])
    assert (said.json["state"], said.json["strict"]) == ("warning", False)  # the tests' server is not durable
    assert set(checks(said, "audit")) == set(INVARIANTS)
    assert {check["section"] for check in said.json["checks"] if check["section"].startswith("site")} == {"site other"}


@pytest.mark.plants_faults
def test_a_broken_promise_is_told_with_its_row(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    """Exit code 1, the row, and what to do; a row that no driver can read as well."""
    (job_id,) = make.plan()
    with make.engine.begin() as connection:
        connection.execute(text(f"UPDATE {SCHEMA}.jobs SET attempts = 2"))
        connection.execute(text(f"INSERT INTO {SCHEMA}.schedules (site_id, name, rule) VALUES (:s, 'n', '{{}}')"),
                           {"s": make.site_id})  # fmt: skip
        connection.execute(
            text(f"INSERT INTO {SCHEMA}.schedule_ticks SELECT id, '-infinity', now() FROM {SCHEMA}.schedules")
        )

    said = inside("doctor")
    document = inside("doctor --json")

    assert said.code == document.code == 1
    (line,) = (line for line in said.out.splitlines() if line.split()[1:2] == ["I6"])
    assert line.startswith("  broken   I6")
    assert f"not so in 1 row, such as job_id {job_id}" in line
    assert "→ stop the workers" in line
    assert "2 broken" in said.out.splitlines()[-1]
    assert document.json["state"] == "broken"
    assert checks(document)["I6"]["rows"][0]["job_id"] == job_id  # type: ignore[index]
    assert checks(document)["I18"]["rows"][0]["due_at"] == "-infinity"  # type: ignore[index]


def test_strict_judges_every_row_by_every_constraint(door: Door, make: Factory, inside: Callable[[str], Said]) -> None:
    """In one line where all hold."""
    make.plan()

    said = inside("doctor --strict --json")

    assert said.code == 0
    assert said.json["strict"] is True
    assert checks(said)["constraints"]["state"] == "ok"
    assert str(checks(said)["constraints"]["found"]).endswith(" hold for every row")


def test_a_reader_sees_all_that_the_tables_tell(
    door: Door, make: Factory, reader: Callable[[str], None], inside: Callable[[str], Said]
) -> None:
    """It needs to read, and nothing else."""
    make.plan()
    reader(f"ALL TABLES IN SCHEMA {SCHEMA}")

    said = inside("doctor --json")

    assert said.code == 0
    assert {check["state"] for check in checks(said, "audit").values()} == {"ok"}
    assert checks(said)["revision"]["state"] == "ok"
    assert checks(said)["drift"]["state"] == "ok"


def test_what_a_role_may_not_read_is_said(
    door: Door, make: Factory, reader: Callable[[str], None], inside: Callable[[str], Said]
) -> None:
    """The rest is asked all the same."""
    make.plan()
    reader(", ".join(f"{SCHEMA}.{name}" for name in
                     ("alembic_version", "sites", "lanes", "stages", "gates", "topics", "jobs", "events")))  # fmt: skip

    said = inside("doctor --json")

    assert said.code == 0
    audit = checks(said, "audit")
    assert audit["I1"]["state"] == audit["I14"]["state"] == "ok"
    assert audit["I3"]["state"] == "warning"
    assert "not asked, this role may not read it (permission denied for table attempts)" in str(audit["I3"]["found"])


def test_a_schema_that_does_not_fit_is_broken(fresh: Door, inside: Callable[[str], Said]) -> None:
    """The next step is named, and nothing else is asked."""
    said = inside("doctor")

    assert said.code == 1
    assert "  broken   revision" in said.out
    assert "run: pipeline db upgrade" in said.out
    assert "not asked" in said.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("doctor --site acne", 2, "no site 'acne' in the database; did you mean 'acme'?"),
        ("doctor --site demo", 2, "site 'demo' was never run; run: pipeline run --site demo"),
    ],
)
def test_a_site_that_is_not_there_is_a_mistake(
    door: Door, make: Factory, inside: Callable[[str], Said], words: str, code: int, message: str
) -> None:
    make.site()

    said = inside(words)

    assert said.code == code
    assert said.err.startswith("error: ")
    assert message in said.err


def test_a_database_that_is_away(closed: Door, inside: Callable[[str], Said]) -> None:
    """Exit code 3, one line, no password."""
    said = inside("doctor")

    assert (said.code, said.out) == (3, "")
    assert said.err.startswith("error: the database cannot be reached: ")
    assert said.err.count("\n") == 1


def test_nobody_starts_a_server_to_examine_nothing(homeless: Door, inside: Callable[[str], Said]) -> None:
    said = inside("doctor")

    assert (said.code, said.err) == (1, "error: nothing here yet; run: pipeline run --site demo\n")
