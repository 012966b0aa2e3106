"""The least rights that do, other schemas, and role settings that others have made: all end to end."""

from collections.abc import Callable

import pytest

from pipeline import migrate
from pipeline.testing.database import SCHEMA
from tests.doors.scene import Door, Said
from tests.servers.scratch import Scratch

Roles = Callable[[str], str]

# As the README has them.
WORKER = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
)

pytestmark = pytest.mark.slow
READER = ("GRANT USAGE ON SCHEMA {schema} TO {role}", "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")


def become(project: Door, scratch: Scratch, name: str, role: str, query: str = "") -> None:
    url = scratch.url(name, role).render_as_string(hide_password=False)
    project.env["PIPELINE_DATABASE_URL"] = url + query


def grant(scratch: Scratch, name: str, rights: tuple[str, ...], role: str, schema: str = SCHEMA) -> None:
    scratch.run(*(right.format(schema=schema, role=role) for right in rights), database=name, user="pipeline")


def run(project: Door, *more: str) -> Said:
    return project("run", "--site", "demo", "--workers", "1", *more)


def refused(said: Said, *parts: str) -> None:
    assert (said.code, said.out) == (3, ""), said
    told = said.err.splitlines()[-1]
    assert told.startswith("error: ")
    for part in parts:
        assert part in told


@pytest.mark.guarantee("S14")
def test_a_worker_needs_rows_and_sequences_only(project: Door, scratch: Scratch, name: str, roles: Roles) -> None:
    """A whole run, a correction and an operator's verbs; not one right to make or change a table."""
    role = roles("worker")
    grant(scratch, name, WORKER, role)
    scratch.run("REVOKE ALL ON SCHEMA public FROM PUBLIC", f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC",
                database=name)  # fmt: skip
    become(project, scratch, name, role)
    project.moods(a1="fail")

    assert run(project).code == 1
    job = project("jobs", "list", "--state", "failed", "--json").json["jobs"][0]["id"]
    project.moods()
    assert project("jobs", "requeue", str(job)).code == 0
    assert run(project).out.startswith("demo: 6 of 6 topics live\n")
    assert project("jobs", "list").code == 0
    refused(project("db", "downgrade", "0035", "--yes"), "must be owner of")


@pytest.mark.parametrize("left_out", range(3))
def test_a_right_that_is_missing_is_named(
    project: Door, scratch: Scratch, name: str, roles: Roles, left_out: int
) -> None:
    """One sentence: the server's own words, and the GRANT that its owner has to run. Given that, it runs."""
    role = roles("worker")
    rights = tuple(right for number, right in enumerate(WORKER) if number != left_out)
    grant(scratch, name, rights, role)
    become(project, scratch, name, role)

    said = run(project)
    text = WORKER[left_out].format(schema=f'"{SCHEMA}"', role=f'"{role}"')

    assert said.code == 3, said
    assert f"owner run: {text}" in said.err
    assert "Traceback" not in said.err
    grant(scratch, name, (WORKER[left_out],), role)
    assert run(project).code == 0


def test_a_reader_may_look_and_nothing_else(project: Door, scratch: Scratch, name: str, roles: Roles) -> None:
    """Every door that only looks opens; those that write are refused with the right that is missing."""
    assert run(project).code == 0
    reader = roles("reader")
    grant(scratch, name, READER, reader)
    become(project, scratch, name, reader)

    assert project("status").out.startswith("demo: 6 of 6 topics live")
    for words in ("topics list --site demo", "topics show demo/a1", "jobs list --site demo", "sites list",
                  "lanes list --site demo", "db current", "run --site demo --plan"):  # fmt: skip
        said = project(*words.split())
        assert said.code == 0, (words, said)
    insert = f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{SCHEMA}" TO "{reader}"'
    refused(run(project), "permission denied for table", insert)
    refused(project("jobs", "requeue", "1"), "permission denied for table", insert)
    refused(project("db", "downgrade", "0035", "--yes"), "must be owner of")


def test_a_schema_of_another_name(project: Door, scratch: Scratch, empty_name: str) -> None:
    """Migrated, run, read and taken down, without a trace in the usual one; a worker of its own rights works in it."""
    project.env["PIPELINE_SCHEMA"] = "content_x"
    assert project("db", "upgrade").code == 0
    assert project("db", "check").code == 0
    assert run(project).code == 0
    assert "6 of 6 topics live" in project("status").out
    schemas = scratch.run(r"SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^information'", database=empty_name)
    assert sorted(schemas) == [("content_x",), ("public",)]

    project.env["PIPELINE_SCHEMA"] = "pipeline"
    refused(project("status"), "no schema 'pipeline' in this database")
    project.env["PIPELINE_SCHEMA"] = "content_x"
    assert project("db", "downgrade", "base", "--yes").code == 0


ROLE_SETTINGS = {
    "search_path": "nonsense, pg_temp",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "statement_timeout": "1min",
    "synchronous_commit": "off",
    "TimeZone": "Pacific/Chatham",
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "standard_conforming_strings": "on",
    "client_encoding": "LATIN1",
    "row_security": "off",
    "plan_cache_mode": "force_generic_plan",
}


def test_a_roles_own_settings_do_no_harm(project: Door, scratch: Scratch, empty_name: str, roles: Roles) -> None:
    """All at once: another path and zone, serializable by default, the odd formats of dates; migrations as well."""
    role = roles("odd")
    scratch.run(f"GRANT CREATE ON DATABASE {empty_name} TO {role}")
    for key, value in ROLE_SETTINGS.items():
        words = value if key == "search_path" else f"'{value}'"
        scratch.run(f"ALTER ROLE {role} SET {key} = {words}")
    become(project, scratch, empty_name, role)

    assert project("db", "upgrade").code == 0
    assert project("db", "check").code == 0
    said = run(project)

    assert said.code == 0, said
    assert "6 of 6 topics live" in project("status").out
    levels = scratch.run("SHOW default_transaction_isolation", database=empty_name, user=role)
    assert levels == [("serializable",)]  # it was in force


def test_a_role_that_may_only_read_is_told_so(project: Door, scratch: Scratch, name: str, roles: Roles) -> None:
    """default_transaction_read_only: looking works, writing is refused by a sentence; nothing overrides it."""
    assert run(project).code == 0
    role = roles("frozen")
    grant(scratch, name, WORKER, role)
    scratch.run(f"ALTER ROLE {role} SET default_transaction_read_only = on")
    become(project, scratch, name, role)

    assert project("status").code == 0
    refused(run(project), "in a read-only transaction", "default_transaction_read_only is on")
    refused(project("jobs", "skip", "1", "--yes"), "in a read-only transaction")


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ("?sslmode=require", "server does not support SSL, but SSL was required"),
        ("?sslmode=verify-full&sslrootcert=/nowhere/root.crt", "server does not support SSL, but SSL was required"),
        ("?sslmode=perhaps", "sslmode"),
        ("?channel_binding=require", "channel binding"),
    ],
)
def test_what_the_url_asks_of_the_connection_is_passed_on(
    project: Door, scratch: Scratch, name: str, query: str, part: str
) -> None:
    """A server without TLS is refused in one sentence by whoever insists on it, for work and for migrations."""
    become(project, scratch, name, "pipeline", query)

    for words in ("status", "db upgrade", "run --site demo", "worker"):
        refused(project(*words.split()), part)


def test_a_url_that_asks_for_nothing_special(project: Door, scratch: Scratch, name: str) -> None:
    """sslmode=prefer, a service's own application name, options: all reach the server."""
    become(project, scratch, name, "pipeline", "?sslmode=prefer&options=-c%20work_mem%3D7MB&connect_timeout=5")

    assert project("db", "check").code == 0
    assert run(project).code == 0
    assert migrate.current(project.env["PIPELINE_DATABASE_URL"], SCHEMA) == migrate.head()
