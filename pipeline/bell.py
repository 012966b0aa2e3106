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
    """Rung from any thread, waited for by one. ``told``: another session has said that there is work."""

    def __init__(self) -> None:
        self._ear, self._cord = socket.socketpair()
        self._ear.setblocking(False)
        self._rung = False
        self.told = False

    def ring(self) -> None:
        """End the wait, or the next one."""
        if not self._rung:
            self._rung = True
            self._cord.send(b"!")

    def hear(self) -> None:
        """Another session has said that there is work."""
        self.told = True

    def wait(self, seconds: float, engine: Engine | None = None) -> None:
        """Return when rung, when the server tells on the connection of ``engine``, or after ``seconds``.

        What was rung for should be looked at after the return: later rings end the next wait.
        """
        if engine is None:
            self._wait(seconds)
            return
        with engine.connect() as connection:
            driver: Any = connection.connection.dbapi_connection
            number = driver.pgconn.socket
            if number in self._wait(seconds, number):
                try:
                    driver.pgconn.consume_input()
                except psycopg.OperationalError:
                    return  # the server is gone, as the next statement will find
                while (notice := driver.pgconn.notifies()) is not None:
                    self.told |= notice.be_pid != driver.pgconn.backend_pid

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
