"""The files target: one folder of static files, written so that a reader sees the old bytes or the new, never a part.

Beside the floors; knows no queue and no database. It never deletes a page.

A page begins as a hidden file in the root, so that what a killed process left is found without a walk over the site.

Why descriptors: every folder below the root is opened from its parent's descriptor without following links, so a link
planted in the tree leads nowhere, even when it appears between a check and a write. The root itself may be a link.
"""

import errno
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from pipeline import holder
from pipeline.errors import LeaseLost, TargetError
from pipeline.project.topics import DEVICES
from pipeline.views import Found, LivePage, Page

FILES = "files"  # of this target, in the ledger
SEGMENT = re.compile(r"[a-z0-9-]+(?:\.[a-z0-9]+)?")
MAX_SEGMENT_BYTES = 200
MAX_KEY_BYTES = 1020
TEMPORARY = re.compile(r"\.pipeline-(?P<holder>[^/]+)-[0-9a-f]{32}\.tmp")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO})
REASONS = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EROFS: "the file system is read-only; mount it writable",
    errno.EACCES: "this user may not write there; change the folder's owner or mode",
    errno.EPERM: "this user may not write there; change the folder's owner or mode",
    errno.ENOTDIR: "a file or a link stands where a folder is needed; move it away",
    errno.ELOOP: "a symbolic link stands where a folder is needed; move it away",
    errno.EISDIR: "a folder stands where the file is needed; move it away",
    errno.EEXIST: "a file stands where a folder is needed; move it away",
    errno.EXDEV: "this folder is on another disk than the site's root; keep the site on one",
}


def file_key(path: str) -> str:
    """The file of a page: ``japan/kyoto/`` is ``japan/kyoto/index.html``. Raises TargetError for an unsafe path."""
    key = f"{path}index.html"
    split(key)
    return key


def split(key: str) -> list[str]:
    """The segments of a site-relative key, each harmless on every system. Raises TargetError for any other key."""
    parts = key.split("/")
    for part in parts:
        if not SEGMENT.fullmatch(part):
            raise TargetError(f"{key[:200]!r}: {part[:60]!r} is no safe name; use a-z, 0-9 and '-'")
        if len(part) > MAX_SEGMENT_BYTES:
            raise TargetError(f"{key[:200]!r}: a part is longer than {MAX_SEGMENT_BYTES} bytes; shorten it")
        if part.partition(".")[0] in DEVICES:
            raise TargetError(f"{key[:200]!r}: {part!r} is a reserved name on some systems; choose another")
    if len(key) > MAX_KEY_BYTES:
        raise TargetError(f"{key[:200]!r}…: longer than {MAX_KEY_BYTES} bytes; shorten it")
    return parts


class FilesTarget:
    """Keys such as ``japan/kyoto/index.html`` below one root. Safe to use from many threads and processes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def look(self, key: str) -> Found | None:
        """SHA-256, as hex, of the bytes that are there now, and their tag; None when no plain file is."""
        with self._refusals(key), self._existing(key) as file:
            if file is None:
                return None
            with os.fdopen(file, "rb", closefd=False) as stream:
                return Found(hashlib.file_digest(stream, "sha256").hexdigest(), _tag(os.fstat(file)))

    def read(self, page: LivePage) -> bytes | None:
        """The bytes that are there, if they are what the ledger says."""
        with self._refusals(page.path), self._existing(page.path) as file:
            if file is None:
                return None
            with os.fdopen(file, "rb", closefd=False) as stream:
                data = stream.read()
            return data if hashlib.sha256(data).hexdigest() == page.hash else None

    def tag(self, key: str) -> str | None:
        """A version tag from size and time of change, without reading the bytes; None when no plain file is there."""
        with self._refusals(key), self._existing(key) as file:
            return None if file is None else _tag(os.fstat(file))

    def write(self, key: str, data: bytes, *, wanted: Callable[[], bool] = lambda: True) -> str:
        """Put the bytes there, whole and durable, and return their tag.

        ``wanted`` is asked once more when only the rename is left; no is LeaseLost. Raises TargetError with path and
        reason. Either way no temporary file is left, and ``look`` tells what stands there.
        """
        *folders, name = split(key)
        with self._refusals(key), self._folder(folders) as (root, folder, unsaid):
            temporary = f".pipeline-{_mark(holder.me())}-{secrets.token_hex(16)}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(temporary, flags, 0o600, dir_fd=root)
            try:
                with os.fdopen(file, "wb") as stream:
                    stream.write(data)
                    stream.flush()
                    os.fchmod(file, 0o644)
                    os.fsync(file)
                    tag = _tag(os.fstat(file))
                if not wanted():
                    raise LeaseLost(f"the reservation was lost before {key} was put in place; it is left alone")
                os.rename(temporary, name, src_dir_fd=root, dst_dir_fd=folder)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=root)
                raise
            for names in (folder, *unsaid):
                os.fsync(names)
            return tag

    def page(
        self,
        key: str,
        data: bytes,
        *,
        cancelled: Callable[[], bool],
        topic_id: int | None = None,
        revision: int | None = None,
        inputs: str = "",
        seen: str | None = None,
    ) -> Page:
        """These bytes as a page for the ledger; ``cancelled`` is asked once more right before they are put in place."""
        return Page(
            key,
            hashlib.sha256(data).hexdigest(),
            lambda: self.look(key),
            lambda: self.write(key, data, wanted=lambda: not cancelled()),
            topic_id=topic_id,
            revision=revision,
            inputs=inputs,
            seen=seen,
        )

    def holds(self, page: LivePage) -> bool:
        """Whether the file is still what the ledger says: by its tag, or else by its bytes."""
        with suppress(OSError):  # what a link leads to is no harm here: nothing is written
            facts = os.lstat(f"{self.root}/{page.path}")
            if stat.S_ISREG(facts.st_mode) and _tag(facts) == page.remote:
                return True
        found = self.look(page.path)
        return found is not None and found.hash == page.hash

    def sweep(self, older_than: timedelta) -> int:
        """Remove the temporary files of processes that are gone, or that are old; return how many."""
        limit = time.time() - older_than.total_seconds()
        removed = 0
        if not self.root.is_dir():
            return 0
        with self._refusals(""):
            for mark in filter(None, map(TEMPORARY.fullmatch, os.listdir(self.root))):
                file = self.root / mark.string
                try:
                    if holder.is_gone(mark["holder"].replace("~", "/")) or file.lstat().st_mtime < limit:
                        file.unlink()
                        removed += 1
                except FileNotFoundError:
                    continue  # another sweep was faster
        return removed

    @contextmanager
    def _existing(self, key: str) -> Iterator[int | None]:
        """A descriptor of the plain file at ``key``, or None; whatever else stands there is not ours."""
        *folders, name = split(key)
        opened: list[int] = []
        try:
            try:
                opened.append(os.open(self.root, FOLDER & ~os.O_NOFOLLOW))
                for folder in folders:
                    opened.append(os.open(folder, FOLDER, dir_fd=opened[-1]))
                # Not blocking: a named pipe that was planted there would hold the worker for ever.
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                opened.append(os.open(name, flags, dir_fd=opened[-1]))
            except OSError as error:
                if error.errno not in ABSENT:
                    raise
                yield None
                return
            yield opened[-1] if stat.S_ISREG(os.fstat(opened[-1]).st_mode) else None
        finally:
            for descriptor in opened:
                os.close(descriptor)

    @contextmanager
    def _folder(self, folders: list[str]) -> Iterator[tuple[int, int, list[int]]]:
        """Descriptors of the root and of that folder; missing ones are made and their names made durable.

        But not the name of the last, unless others may rely on it: the third answer is the folder to be synced yet.
        Right after the page's own folder that costs next to nothing.
        """
        opened = [self._open_root()]
        unsaid: list[int] = []
        try:
            for place, name in enumerate(folders, start=1):
                descriptor, made = _enter(opened[-1], name)
                opened.append(descriptor)
                if made and place < len(folders):
                    os.fsync(opened[-2])
                elif made:
                    unsaid.append(opened[-2])
            yield opened[0], opened[-1], unsaid
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _open_root(self) -> int:
        try:
            return os.open(self.root, FOLDER & ~os.O_NOFOLLOW)
        except FileNotFoundError:
            pass
        missing = [path for path in (self.root, *self.root.parents) if not path.exists()]
        self.root.mkdir(parents=True, exist_ok=True)
        for path in missing:
            _sync(path.parent)
        return os.open(self.root, FOLDER & ~os.O_NOFOLLOW)

    @contextmanager
    def _refusals(self, key: str) -> Iterator[None]:
        """Turn what the system says into TargetError with path and reason."""
        try:
            yield
        except OSError as error:
            reason = REASONS.get(error.errno or 0) or error.strerror or str(error)
            raise TargetError(f"{self.root / key}: {reason}") from error


def _enter(parent: int, name: str) -> tuple[int, bool]:
    """Open the folder ``name`` in ``parent``, made if it is missing; whether it was."""
    try:
        return os.open(name, FOLDER, dir_fd=parent), False
    except FileNotFoundError:
        pass
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:  # another worker was faster
        return os.open(name, FOLDER, dir_fd=parent), False
    made = os.open(name, FOLDER, dir_fd=parent)
    try:
        os.fchmod(made, 0o755)  # whatever the umask says: a web server must be able to read it
    except BaseException:
        os.close(made)
        raise
    return made, True


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, FOLDER & ~os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mark(me: str) -> str:
    """Who writes, as a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.~-]", "_", me.replace("/", "~"))


def _tag(facts: os.stat_result) -> str:
    return f"{facts.st_size}-{facts.st_mtime_ns}"
