"""Advisory locks on files; engine room.

The kernel drops them when their process dies, however it dies, so nobody has to count or clean up. Waiting is by asking
again, not by blocking in the kernel: Ctrl-C works, and patience has an end.
"""

import errno
import fcntl
import os
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.embedded.errors import OWN_SERVER, EmbeddedError
from pipeline.embedded.places import share_with_owner

PAUSE = 0.02
BUSY = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}

_open_locks: "weakref.WeakSet[FileLock]" = weakref.WeakSet()


class FileLock:
    """One open lock file; made when missing and never removed, which would split those who wait from those who come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Closed at exec by Python's default, so neither the server nor any other program keeps our locks alive.
        self._fd: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        share_with_owner(self._fd, path)
        _open_locks.add(self)

    def fileno(self) -> int:
        if self._fd is None:
            raise ValueError(f"{self.path} is closed")
        return self._fd

    def exclusive(self) -> bool:
        """Try to be the only holder. A failed try loses the shared lock that was held."""
        return self._flock(fcntl.LOCK_EX)

    def exclusive_or_shared(self) -> bool:
        """Try to be the only holder, and keep a shared lock when others hold one.

        The caller holds the start lock. That is why the second step succeeds: nobody else can be asking for more.
        """
        return self.exclusive() or not self._flock(fcntl.LOCK_SH)

    def wait_shared(self, deadline: float) -> None:
        self._wait(fcntl.LOCK_SH, deadline)

    def wait_exclusive(self, deadline: float) -> None:
        """Be the only holder, and say in the file who that is. Raises EmbeddedError at ``deadline`` (monotonic)."""
        self._wait(fcntl.LOCK_EX, deadline)
        os.ftruncate(self.fileno(), 0)
        os.pwrite(self.fileno(), f"{os.getpid()}\n".encode(), 0)

    def holder(self) -> str:
        """The pid that the last exclusive waiter left in the file; for messages only."""
        return os.pread(self.fileno(), 20, 0).decode("ascii", "replace").strip() or "unknown"

    def close(self) -> None:
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        # Closing alone would not do: a forked child may still have the same open file.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)

    def hand_over(self) -> None:
        """Close our end and leave the lock to the child that inherited the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _wait(self, kind: int, deadline: float) -> None:
        while not self._flock(kind):
            if time.monotonic() > deadline:
                raise EmbeddedError(
                    f"{self.path} has been held by process {self.holder()} for longer than we wait; "
                    "it starts or stops the embedded PostgreSQL: look at that process, then try again"
                )
            time.sleep(PAUSE)

    def _flock(self, kind: int) -> bool:
        try:
            fcntl.flock(self.fileno(), kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in BUSY:
                return False
            raise EmbeddedError(f"{self.path} cannot be locked ({error.strerror}); {OWN_SERVER}") from error
        return True


@contextmanager
def held(path: Path, deadline: float) -> Iterator[None]:
    """Hold the lock file exclusively for the length of the block."""
    lock = FileLock(path)
    try:
        lock.wait_exclusive(deadline)
        yield
    finally:
        lock.close()


def _let_go_in_child() -> None:
    # A forked child has the same open files: were it to keep them, a lock would outlive the process that took it.
    for lock in list(_open_locks):
        lock.hand_over()


os.register_at_fork(after_in_child=_let_go_in_child)
