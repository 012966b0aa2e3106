"""A TCP proxy that misbehaves on order: holds, swallows, resets, cuts, and drops the answer to a COMMIT.

It lives on an event loop in a thread of its own. Orders come from other threads, and each is answered by what really
happened to connections.
"""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

# Of the server's protocol: a simple query COMMIT, and the tag of a command that was one.
ASKED = b"Q\x00\x00\x00\x0bCOMMIT\x00"
ANSWERED = b"C\x00\x00\x00\x0bCOMMIT\x00"
AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: a reset instead of a farewell


@dataclass(eq=False)
class Link:
    """One client's connection and ours to the server for it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    swallowed: int = 0
    cut_after: int | None = None  # bytes of the server's
    lose_commit: bool = False
    asked: bool = False  # the COMMIT whose answer is to be lost was forwarded
    over: asyncio.Event = field(default_factory=asyncio.Event)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    was_cut: asyncio.Event = field(default_factory=asyncio.Event)

    def reset(self) -> None:
        for writer in (self.client, self.server):
            sock = writer.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            writer.transport.abort()
        self.over.set()


class Loop:
    """The event loop of all proxies of a run."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True).start()

    def do(self, work: Coroutine[Any, Any, T], timeout: float = 30) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)


class Proxy:
    """One listening port before the server; ``port`` is where clients go."""

    def __init__(self, loop: Loop, host: str, port: int) -> None:
        self._at = loop
        self._target = (host, port)
        self._links: set[Link] = set()
        self._held: asyncio.Event | None = None  # while it is there and not set, nothing moves
        self._waited = 0
        self._deaf = False
        self.port = loop.do(self._listen())

    async def _listen(self) -> int:
        server = await asyncio.start_server(self._come, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, to = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        for each in (writer, to):
            each.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(writer, to)
        self._links.add(link)
        ways = [
            asyncio.create_task(self._carry(link, reader, to, self._from_client)),
            asyncio.create_task(self._carry(link, there, writer, self._from_server)),
            asyncio.create_task(link.over.wait()),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        self._links.discard(link)
        for each in (writer, to):
            each.close()

    async def _carry(
        self,
        link: Link,
        source: asyncio.StreamReader,
        goal: asyncio.StreamWriter,
        judge: Callable[[Link, bytes], bytes | None],
    ) -> None:
        try:
            while data := await source.read(65536):
                if self._held is not None and not self._held.is_set():
                    self._waited += 1
                    await self._held.wait()
                if self._deaf:
                    link.swallowed += len(data)
                    continue
                kept = judge(link, data)
                if kept is None:
                    return
                goal.write(kept)
                await goal.drain()
        except OSError:
            return

    def _from_client(self, link: Link, data: bytes) -> bytes | None:
        link.asked = link.asked or (link.lose_commit and ASKED in data)
        return data

    def _from_server(self, link: Link, data: bytes) -> bytes | None:
        if link.asked:
            if ANSWERED in data:
                link.lost.set()
                self._others_keep_theirs()
                link.reset()
                return None
            link.asked = False  # another COMMIT than the one that ends a transaction well
        if link.cut_after is not None:
            link.cut_after -= len(data)
            if link.cut_after < 0:
                link.client.write(data[: link.cut_after])
                link.was_cut.set()
                link.reset()
                return None
        return data

    def _others_keep_theirs(self) -> None:
        for link in self._links:
            link.lose_commit = False

    # Orders; each returns how many connections or messages it bit.

    def hold(self, seconds: float) -> int:
        """Nothing moves for a while, then all of it does."""
        return self._at.do(self._hold(seconds), seconds + 30)

    async def _hold(self, seconds: float) -> int:
        self._waited, self._held = 0, asyncio.Event()
        await asyncio.sleep(seconds)
        self._held.set()
        return self._waited

    def swallow(self, seconds: float) -> int:
        """What is said is lost both ways, with the sockets open; then they are reset."""
        return self._at.do(self._swallow(seconds), seconds + 30)

    async def _swallow(self, seconds: float) -> int:
        links = list(self._links)
        self._deaf = True
        await asyncio.sleep(seconds)
        self._deaf = False
        for link in self._links.copy():
            link.reset()
        return sum(link.swallowed > 0 for link in links)

    def reset(self) -> int:
        return self._at.do(self._reset())

    async def _reset(self) -> int:
        links = list(self._links)
        for link in links:
            link.reset()
        return len(links)

    def cut(self, size: int, patience: float) -> int:
        """The first answer that goes beyond ``size`` bytes ends in the middle."""
        return self._at.do(self._cut(size, patience), patience + 30)

    async def _cut(self, size: int, patience: float) -> int:
        links = list(self._links)
        for link in links:
            link.cut_after = size
        cut = await _any([link.was_cut for link in links], patience)
        for link in links:
            link.cut_after = None
        return cut

    def lose_commit(self, patience: float) -> int:
        """The next COMMIT is forwarded, done and answered; the answer goes no further."""
        return self._at.do(self._lose_commit(patience), patience + 30)

    async def _lose_commit(self, patience: float) -> int:
        links = list(self._links)
        for link in links:
            link.lose_commit = True
        lost = await _any([link.lost for link in links], patience)
        for link in links:
            link.lose_commit = False
        return lost


async def _any(events: list[asyncio.Event], patience: float) -> int:
    """How many of the events came by the time that one did."""
    if not events:
        return 0
    waits = [asyncio.create_task(event.wait()) for event in events]
    await asyncio.wait(waits, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    return sum(event.is_set() for event in events)
