"""``pipeline db``: the schema and the embedded server; floor 4."""

from typing import Annotated

import typer

from pipeline.cli.house import project, refuse_nothing
from pipeline.cli.render import as_json, count, out, safe, say
from pipeline.cli.status import JsonOption
from pipeline.errors import Refused

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
    if not show_password:
        secret = {name: "***" for name in found.query if "password" in name.lower()}
        found = found.update_query_dict(secret)
    text = found.set(drivername="postgresql").render_as_string(hide_password=not show_password)
    out(as_json({"url": text, "embedded": is_embedded(settings)}) if json else safe(text))


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
