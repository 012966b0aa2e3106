"""Archives, within limits that do not trust what they say of themselves; ground floor."""

import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import RawIOBase
from typing import IO, BinaryIO, cast

from pipeline.intake.found import Unreadable

MAX_MEMBERS = 10_000
MAX_INFLATED = 256 << 20  # bytes that come out, all members together
MAX_RATIO = 200  # beyond the first few megabytes no text is packed so tightly
FREE = 8 << 20


class Budget:
    """How many bytes may still come out of an archive of this size."""

    def __init__(self, size: int) -> None:
        self._left = min(MAX_INFLATED, max(FREE, size * MAX_RATIO))
        self._most = self._left

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise Unreadable(f"more than {self._most} bytes come out of it, so it is not unpacked")


class Counted(RawIOBase):
    """A stream that is read through a budget."""

    def __init__(self, stream: IO[bytes], budget: Budget) -> None:
        self._stream, self._budget = stream, budget

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            data = self._stream.read(1 << 16 if size < 0 else min(size, 1 << 16))
        except (zipfile.BadZipFile, EOFError, OSError, ValueError, RuntimeError, NotImplementedError) as error:
            raise Unreadable(f"the archive is broken ({error})") from error
        except Exception as error:  # zlib's own error has no common base
            raise Unreadable(f"the archive is broken ({error})") from error
        self._budget.take(len(data))
        return data


class Archive:
    """The members of a zip: files with harmless names."""

    def __init__(self, packed: zipfile.ZipFile, size: int) -> None:
        self._packed = packed
        self._budget = Budget(size)
        self.names: list[str] = []
        if len(packed.infolist()) > MAX_MEMBERS:
            raise Unreadable(f"it has {len(packed.infolist())} members; at most {MAX_MEMBERS} are looked at")
        for info in packed.infolist():
            parts = info.filename.split("/")
            if info.is_dir():
                continue
            if info.filename.startswith("/") or "\\" in info.filename or ".." in parts or ":" in info.filename:
                raise Unreadable(f"its member {info.filename[:100]!r} has no harmless name")
            if stat.S_ISLNK(info.external_attr >> 16):
                raise Unreadable(f"its member {info.filename[:100]!r} is a link")
            if info.flag_bits & 1:
                raise Unreadable("it is encrypted; save it without a password")
            self.names.append(info.filename)

    def open(self, name: str) -> BinaryIO:
        """The member, read within the budget of all."""
        try:
            return cast(BinaryIO, Counted(self._packed.open(name), self._budget))
        except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError) as error:
            raise Unreadable(f"the archive is broken ({error})") from error


@contextmanager
def unpacked(stream: BinaryIO, size: int) -> Iterator[Archive]:
    """The archive in ``stream``, of ``size`` bytes. Raises Unreadable for what is none, or is too much."""
    try:
        packed = zipfile.ZipFile(stream)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise Unreadable(f"no readable archive ({error})") from error
    with packed:
        yield Archive(packed, size)
