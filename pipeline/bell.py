"""What wakes a worker's loop: a stage that has ended here, or the server's word that there is work; engine room.

The server's word is a hint and nothing more. It is lost with its connection, and never comes through a pooler; a worker
that polls misses nothing without it.
"""

import select
import socket
from typing import Any

import psycopg
from sqlalchemy import Engine


class Bell:
    """Rung from any thread, waited for by one.

    ``told``: another session has said that there is work. ``named``: each ``(site_id, stage, priority)`` where one has
    said that there is some.
    """

    def __init__(self) -> None:
        self._ear, self._cord = socket.socketpair()
        self._ear.setblocking(False)
        self._rung = False
        self.told = False
        self.named: set[tuple[int, str, int]] = set()
        self._line: Any = None  # the driver's connection

    def ring(self) -> None:
        """End the wait, or the next one."""
        if not self._rung:
            self._rung = True
            self._cord.send(b"!")

    def hear(self) -> None:
        """Another session has said that there is work."""
        self.told = True

    def take(self) -> tuple[bool, set[tuple[int, str, int]]]:
        """What was told and named since the last time."""
        taken = self.told, self.named
        self.told, self.named = False, set()
        return taken

    def wait(self, seconds: float, engine: Engine | None = None) -> None:
        """Return when rung, when the server tells on the connection of ``engine``, or after ``seconds``.

        What was rung for should be looked at after the return: later rings end the next wait.
        """
        if engine is None:
            self._wait(seconds)
            return
        if self._line is None or self._line.closed:
            with engine.connect() as connection:
                self._line = connection.connection.dbapi_connection
        line = self._line.pgconn  # it lies in the pool, and whoever waits here is the only one to take it out
        try:
            if line.socket in self._wait(seconds, line.socket):
                line.consume_input()
                while (notice := line.notifies()) is not None:
                    if notice.be_pid != line.backend_pid:
                        self._note(notice.extra.decode(errors="replace"))
        except psycopg.OperationalError:
            return  # the server is gone, as the next statement will find

    def _note(self, word: str) -> None:
        """``append.add`` names the place; what says nothing, or anything else, is about all places."""
        site_id, _, rest = word.partition(" ")
        stage, _, priority = rest.rpartition(" ")
        try:
            self.named.add((int(site_id), stage, int(priority)))
        except ValueError:
            self.told = True

    def _wait(self, seconds: float, *more: int) -> set[int]:
        poll = select.poll()
        for number in (self._ear.fileno(), *more):
            poll.register(number, select.POLLIN)
        ready = {number for number, _ in poll.poll(seconds * 1000)}
        if self._ear.fileno() in ready:
            self._ear.recv(64)
            self._rung = False
        return ready

    def close(self) -> None:
        self._ear.close()
        self._cord.close()
