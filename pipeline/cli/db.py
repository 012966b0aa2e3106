"""``pipeline db``: the schema and the embedded server; floor 4."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.house import project, refuse_nothing, unknown
from pipeline.cli.render import as_json, count, out, safe, say, table
from pipeline.cli.status import JsonOption
from pipeline.errors import NotFound, Refused

if TYPE_CHECKING:
    from sqlalchemy import URL

app = typer.Typer(
    help="Migrate and check the schema; reach and stop the embedded server.\n\nExample: pipeline db check",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def upgrade(json: JsonOption = False) -> None:
    """Bring the schema up to this release; on a named server, its owner runs this.

    Example: pipeline db upgrade
    """
    from pipeline import migrate
    from pipeline.build import connect, open_database

    settings, root = project()
    with open_database(settings, root) as url:
        with connect(url, settings, name="pipeline db upgrade", connections=1):
            pass  # is there a server, and is it new enough?
        applied = migrate.upgrade(
            url, settings.db_schema, progress=lambda number, title: say(f"applied {number} {title}".rstrip())
        )
    if json:
        out(as_json({"schema": settings.db_schema, "revision": migrate.head(), "applied": applied}))
        return
    done = f"{count(len(applied), 'revision')} applied" if applied else "nothing to do"
    out(f"the schema '{settings.db_schema}' is at {migrate.head()}; {done}")


@app.command()
def downgrade(
    revision: Annotated[
        str, typer.Argument(help="Down to which revision; base: before the first.", metavar="REVISION")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: JsonOption = False,
) -> None:
    """Take the schema down to an older revision; what only newer tables and columns hold is lost.

    Example: pipeline db downgrade 0035 --yes
    """
    from pipeline import migrate
    from pipeline.build import connect, open_database

    numbers = migrate.numbers()
    wanted = revision.zfill(4) if revision.isdecimal() else revision
    if wanted not in (*numbers, "base"):
        raise NotFound(unknown("revision", revision, [*numbers, "base"], "in this release"))
    settings, root = project()
    refuse_nothing(settings, root)
    with open_database(settings, root) as url:
        with connect(url, settings, name="pipeline db downgrade", connections=1):
            pass
        at = migrate.current(url, settings.db_schema)
        if at in numbers and wanted != "base" and wanted > at:
            raise Refused(f"the schema is at {at}, which is below {wanted}; to go up: pipeline db upgrade")
        moved: list[str] = []
        if at is not None and at != wanted:
            sites, topics = migrate.contents(url, settings.db_schema)
            held = f"the schema '{settings.db_schema}' holds {count(sites, 'site')} with {count(topics, 'topic')}"
            _agree(yes, f"{held}; going down from {at} to {wanted} loses data")
            moved = migrate.downgrade(
                url,
                settings.db_schema,
                wanted,
                progress=lambda number, title: say(f"taken back {number} {title}".rstrip()),
            )
    if json:
        out(as_json({"schema": settings.db_schema, "revision": wanted, "taken_back": moved}))
        return
    done = f"{count(len(moved), 'revision')} taken back" if moved else "nothing to do"
    out(f"the schema '{settings.db_schema}' is at {wanted if at else 'base'}; {done}")


@app.command()
def current(json: JsonOption = False) -> None:
    """Show the revision that the schema is at, and the one that this release needs.

    Example: pipeline db current
    """
    from pipeline import migrate
    from pipeline.build import connect, open_database

    settings, root = project()
    refuse_nothing(settings, root)
    with open_database(settings, root) as url:
        with connect(url, settings, name="pipeline db current", connections=1):
            pass
        at = migrate.current(url, settings.db_schema)
    if json:
        out(as_json({"schema": settings.db_schema, "revision": at, "head": migrate.head()}))
        return
    needs = "as this release needs" if at == migrate.head() else f"this release needs {migrate.head()}"
    out(f"the schema '{settings.db_schema}' is at {safe(at or 'base')}; {needs}")


@app.command()
def history(json: JsonOption = False) -> None:
    """List the revisions of this release, oldest first; no database is asked.

    Example: pipeline db history
    """
    from pipeline import migrate

    found = migrate.titles()
    if json:
        out(as_json({"revisions": [{"revision": number, "title": title} for number, title in found]}))
    else:
        out(table(("revision", "title"), found))


@app.command()
def check(json: JsonOption = False) -> int:
    """Compare the schema with what this release needs; drift is listed.

    Example: pipeline db check
    """
    from pipeline import migrate
    from pipeline.build import connect, open_database

    settings, root = project()
    refuse_nothing(settings, root)
    with open_database(settings, root) as url:
        with connect(url, settings, name="pipeline db check", connections=1):
            pass
        drift = migrate.drift(url, settings.db_schema)
    if json:
        out(as_json({"schema": settings.db_schema, "revision": migrate.head(), "drift": drift}))
    elif drift:
        out("\n".join(safe(line) for line in drift))
    else:
        out(f"the schema '{settings.db_schema}' is at {migrate.head()}, as this release needs")
    if drift:
        say(f"{count(len(drift), 'difference')}; the schema was changed by hand: change it back, or restore a backup")
    return 1 if drift else 0


@app.command()
def url(
    show_password: Annotated[bool, typer.Option("--show-password", help="Do not mask the password.")] = False,
    json: JsonOption = False,
) -> None:
    """Print the database's URL, for psql and other tools.

    Example: psql "$(pipeline db url --show-password)"
    """
    from pipeline.build import is_embedded
    from pipeline.db import parse_url

    settings, root = project()
    if settings.database_url is not None:
        found = parse_url(settings.database_url.get_secret_value())
    else:
        from pipeline.embedded import EmbeddedServer, embedded_home

        refuse_nothing(settings, root)
        server = EmbeddedServer(embedded_home(root))
        if not server.running():
            raise Refused("the embedded server does not run: it does while a command of this project needs it")
        found = parse_url(server.url())
    text = (
        found.set(drivername="postgresql").render_as_string(hide_password=False)
        if show_password
        else without_password(found)
    )
    out(as_json({"url": text, "embedded": is_embedded(settings)}) if json else safe(text))


@app.command()
def shell(
    words: Annotated[
        list[str] | None, typer.Argument(help="What psql is given; after --.", metavar="[-- PSQL OPTIONS]")
    ] = None,
) -> int:
    """Open psql on the database; the embedded server runs for as long.

    Example: pipeline db shell -- -c "SELECT slug FROM pipeline.topics"
    """
    from pipeline.build import is_embedded, open_database
    from pipeline.cli.psql import find_psql, run_psql

    settings, root = project()
    psql = find_psql(embedded=is_embedded(settings))
    refuse_nothing(settings, root)
    with open_database(settings, root) as url:
        if sys.stderr is not None and sys.stderr.isatty():
            say(f"the tables are in the schema '{settings.db_schema}'")
        return run_psql(psql, url, words or [])


@app.command()
def stop(
    force: Annotated[bool, typer.Option("--force", help="Even while other commands use it.")] = False,
    json: JsonOption = False,
) -> None:
    """Stop the project's embedded server; it starts again when a command needs it.

    Example: pipeline db stop
    """
    from pipeline.build import is_embedded
    from pipeline.embedded import EmbeddedServer, embedded_home

    settings, root = project()
    if not is_embedded(settings):
        raise Refused("the database is a server named by PIPELINE_DATABASE_URL; only the embedded one is stopped here")
    server = EmbeddedServer(embedded_home(root))
    stopped = server.stop(force=force)
    if not stopped and server.running():
        raise Refused("other commands use the embedded server; wait for them, or end it under them: db stop --force")
    if json:
        out(as_json({"stopped": stopped}))
    else:
        out("the embedded server was stopped" if stopped else "nothing to stop: the embedded server does not run")


def without_password(url: "URL") -> str:
    """The URL as it may be shown: passwords masked, in the query as well."""
    secret = {name: "***" for name in url.query if "password" in name.lower()}
    return url.set(drivername="postgresql").update_query_dict(secret).render_as_string(hide_password=True)


def _agree(yes: bool, fact: str) -> None:
    """Have a person agree; where none can be asked, only ``--yes`` will do."""
    if yes:
        say(fact)
    elif sys.stdin is not None and sys.stdin.isatty():
        typer.confirm(f"{fact}; go on?", abort=True, err=True)
    else:
        raise Refused(f"{fact}; to do it all the same, add --yes")
