"""Processes that kill themselves at one exact place: ``python -m tests.failpoints.child``.

One process imports everything and then makes each victim by a fork, before it has any thread: that is all that it does,
so a victim is what a fresh process would be, without the second that imports take. A line of JSON in is one order, a
line out its wait status. The product knows nothing of this: hooks of SQLAlchemy and ``os.rename`` are watched here.
"""

import json
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

from sqlalchemy import Connection, Engine, event
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

from pipeline.build import connect
from pipeline.settings import Settings
from pipeline.testing.database import SCHEMA
from pipeline.worker import Worker
from tests.failpoints import work
from tests.failpoints.points import AFTER, BEFORE, RENAME, SKIP, STATEMENTS, UNHEARD, UNSENT, WORK, Point
from tests.failpoints.work import SITE, STAGES, rows

WITNESS = "killed-at"  # a file in the project: the place was come to


class Trap:
    """Kills this process at the place."""

    def __init__(self, root: Path, point: Point) -> None:
        self._witness = root / WITNESS
        self._point = point

    def lay(self) -> None:
        if self._point.what == RENAME:
            self._around_rename()
        else:
            self._at_statement(STATEMENTS[self._point.what]())

    def _die(self) -> NoReturn:
        file = os.open(self._witness, os.O_WRONLY | os.O_CREAT)
        os.write(file, self._point.id.encode())
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    def _around_rename(self) -> None:
        real = os.rename

        def rename(*words: Any, **options: Any) -> None:
            if self._point.place == BEFORE:
                self._die()
            real(*words, **options)
            self._die()

        os.rename = rename

    def _at_statement(self, statement: object) -> None:
        place = self._point.place
        committing = threading.local()

        @event.listens_for(Engine, "begin")
        def _begin(cn: Connection) -> None:
            cn.info["met"] = False

        @event.listens_for(Engine, "before_cursor_execute")
        def _before(cn: Connection, cursor: Any, sql: str, values: Any, context: Any, many: bool) -> None:
            if getattr(context, "invoked_statement", None) is statement and place == BEFORE:
                self._die()

        @event.listens_for(Engine, "after_cursor_execute")
        def _after(cn: Connection, cursor: Any, sql: str, values: Any, context: Any, many: bool) -> None:
            if getattr(context, "invoked_statement", None) is statement:
                if place == AFTER:
                    self._die()
                cn.info["met"] = True

        @event.listens_for(Engine, "commit")
        def _commit(cn: Connection) -> None:
            committing.met = cn.info.get("met", False)

        real: Any = PGDialect_psycopg.do_commit

        def do_commit(dialect: Any, connection: Any) -> None:
            mine = getattr(committing, "met", False)
            if mine and place == UNSENT:
                self._die()
            real(dialect, connection)
            if mine and place == UNHEARD:
                self._die()

        PGDialect_psycopg.do_commit = do_commit  # type: ignore[method-assign]


def _settings() -> Settings:
    return Settings.model_construct(
        db_schema=SCHEMA, concurrency=2, prepare="auto",
        poll=timedelta(seconds=0.02), reap=timedelta(seconds=0.2), grace=timedelta(seconds=0.05),
    )  # fmt: skip


def _work(root: Path, url: str) -> None:
    worker = Worker(url, _settings(), root, STAGES, site=SITE)
    work.stop = worker.stop
    worker.run()


def _operate(url: str, point: Point) -> None:
    with connect(url, _settings(), name="operator", connections=1) as services:
        site = services.reading.site(SITE)
        assert site is not None
        if point.action == SKIP:
            first = min(job.id for job in services.reading.jobs(site.id, [], 100))
            services.operate.skip([first], actor="test", reason="failpoint")
        else:
            services.planning.plan(site.id, rows(point.trouble))


def _victim(order: dict[str, Any]) -> None:
    root = Path(order["root"])
    point = Point(order["what"], order["place"])
    log = os.open(root / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 2)
    os.chdir(root)
    Trap(root, point).lay()
    if point.action == WORK:
        _work(root, order["url"])
    else:
        _operate(order["url"], point)


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _victim(order)
                code = 0
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
            finally:
                os._exit(code)
        print(json.dumps({"pid": pid}), flush=True)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
