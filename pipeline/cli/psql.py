"""psql on the project's database; floor 4. No password is ever among its words: a process list shows those to all."""

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pipeline.cli.guard import DATABASE
from pipeline.errors import Refused, UsageError

LOST_CONNECTION = 2  # psql's exit code


def find_psql(*, embedded: bool) -> Path:
    """psql: for the embedded server the one that came with it, for a named server that on PATH; else the other.

    Raises Refused when there is neither.
    """
    places = (_bundled(), shutil.which("psql"))
    found = next(filter(None, places if embedded else reversed(places)), None)
    if found is None:
        raise Refused(
            "there is no psql here; install PostgreSQL's client programs, or use another tool: pipeline db url"
        )
    return Path(found)


def run_psql(psql: Path, url: str, words: Sequence[str]) -> int:
    """Run it in our terminal, and return the exit code that is ours to give."""
    target, password = _target(url)
    environment = dict(os.environ)
    if password is not None:
        environment["PGPASSWORD"] = password
    # Ctrl-C goes to both of us, and is psql's to answer: it ends a query there. A handler is not inherited.
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        code = subprocess.run([psql, "--dbname", target, *words], env=environment, check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    if code == LOST_CONNECTION:
        return DATABASE
    return min(abs(code), 1)


def _target(url: str) -> tuple[str, str | None]:
    """What libpq is told in words, and the password that it is told otherwise."""
    from psycopg.conninfo import make_conninfo
    from psycopg.errors import ProgrammingError
    from sqlalchemy import create_engine

    engine = create_engine(url)
    _, arguments = engine.dialect.create_connect_args(engine.url)
    # Others are the driver's own. As text: a port is a number there.
    values = {name: str(value) for name, value in arguments.items() if isinstance(value, str | int)}
    password = values.pop("password", None)
    if "sslpassword" in values:
        raise Refused(
            "psql cannot be given sslpassword without showing it to others; use another tool: pipeline db url"
        )
    try:
        return make_conninfo(**values), password
    except ProgrammingError as error:
        raise UsageError(f"the database URL cannot be used by psql: {str(error).strip()}") from error


def _bundled() -> str | None:
    from pipeline.embedded.binaries import find_binaries
    from pipeline.embedded.errors import EmbeddedError

    try:
        found = find_binaries() / "psql"
    except EmbeddedError:
        return None
    return str(found) if found.is_file() else None
