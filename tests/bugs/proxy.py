"""A door before a server of ours, which can stand still with its sockets open, or swallow the answer to a COMMIT."""

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self

from sqlalchemy.engine import URL, make_url

LOOPBACK = "127.0.0.1"
PATIENCE = 20.0


class Proxy:
    """Forwards to the server of ``url``, which is reached by TCP or by its socket; what passes is not encrypted."""

    def __init__(self, url: str | URL) -> None:
        self._of = make_url(url)
        self._open = threading.Event()
        self._open.set()
        self._lock = threading.Lock()
        self._armed = 0
        self._ends: list[socket.socket] = []
        self._swallowed = threading.Semaphore(0)
        self.stuck = threading.Event()  # something did not get through
        self._listener = socket.create_server((LOOPBACK, 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """The same database, by way of this proxy."""
        query = {"sslmode": "disable", "gssencmode": "disable"}
        port = self._listener.getsockname()[1]
        return self._of.set(host=LOOPBACK, port=port, query=query).render_as_string(hide_password=False)

    def hold(self) -> None:
        """From now on nothing gets through, in either direction, and no socket is closed."""
        self.stuck.clear()
        self._open.clear()

    def go_on(self) -> None:
        self._open.set()

    def swallow(self, count: int = 1) -> None:
        """Forward so many COMMITs, wait for the server's answer to each, and end the connection without it."""
        with self._lock:
            self._armed += count

    def swallowed(self) -> None:
        """Return once an answer has been swallowed; AssertionError when none ever was."""
        assert self._swallowed.acquire(timeout=PATIENCE), "no COMMIT came by"

    def close(self) -> None:
        """Gone at once, with all its connections: who comes now is refused."""
        _end(self._listener)  # or accept() would take one more
        self._listener.close()
        with self._lock:
            for end in self._ends:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
        self._open.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = self._reach()
            except OSError:
                return
            with self._lock:
                self._ends += near, far
            asked = threading.Event()  # a COMMIT whose answer is not to be heard is on its way
            threading.Thread(target=self._from_client, args=(near, far, asked), daemon=True).start()
            threading.Thread(target=self._from_server, args=(far, near, asked), daemon=True).start()

    def _reach(self) -> socket.socket:
        host = self._of.query.get("host") or self._of.host or LOOPBACK
        port = self._of.port or 5432
        if not str(host).startswith("/"):
            return socket.create_connection((str(host), port))
        far = socket.socket(socket.AF_UNIX)
        far.connect(f"{host}/.s.PGSQL.{port}")
        return far

    def _pass(self, data: bytes, end: socket.socket) -> None:
        if not self._open.is_set():
            self.stuck.set()
            self._open.wait()
        end.sendall(data)

    def _from_client(self, near: socket.socket, far: socket.socket, asked: threading.Event) -> None:
        buffer, greeted = b"", False
        with contextlib.suppress(OSError):
            while data := near.recv(65536):
                buffer += data
                # Whole messages: first one without a type, then each with its type and its length.
                while len(buffer) >= (head := 5 if greeted else 4):
                    length = head - 4 + struct.unpack("!I", buffer[head - 4 : head])[0]
                    if len(buffer) < length:
                        break
                    message, buffer = buffer[:length], buffer[length:]
                    if greeted and _commits(message):
                        with self._lock:
                            if self._armed:
                                self._armed -= 1
                                asked.set()
                    greeted = True
                    self._pass(message, far)
        _end(far)

    def _from_server(self, far: socket.socket, near: socket.socket, asked: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                if asked.is_set():  # the server has answered: what it committed is committed
                    assert b"COMMIT\0" in data, data
                    self._swallowed.release()
                    break
                self._pass(data, near)
        _end(near)


def _commits(message: bytes) -> bool:
    """Whether a client's message is COMMIT, as a simple query or as one that is parsed."""
    if message[:1] not in b"QP":
        return False
    query = message[5:] if message[:1] == b"Q" else message[5:].split(b"\0", 1)[1]
    return query.lstrip()[:6].upper() == b"COMMIT"


def _end(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
