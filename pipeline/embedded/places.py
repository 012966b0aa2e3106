"""Directories of the embedded server: where they are, who owns them, what they can hold; engine room.

Changes nothing outside of the home directory, except the hidden one that a socket needs when the home's path is too
long.
"""

import contextlib
import hashlib
import logging
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pipeline.embedded.errors import OWN_SERVER, EmbeddedError

log = logging.getLogger("pipeline.embedded")

SOCKET = ".s.PGSQL.5432"
LONGEST_SOCKET_PATH = 100  # bytes; systems allow 104 (macOS) or 108 (Linux)
SHARED_FILE_SYSTEMS = re.compile(
    r"(nfs4?|cifs|smb3?|smbfs|9p|v9fs|drvfs|vboxsf|prl_fs|virtiofs|fakeowner|afs|ceph|gluster\w*|lustre"
    r"|fuse\.(sshfs|s3fs|rclone|grpcfuse|osxfs|vmhgfs-fuse|glusterfs|davfs))"
)


def embedded_home(project_root: Path) -> Path:
    """Where the project's embedded server lives: ``<project_root>/.pipeline/pg``."""
    return project_root / ".pipeline" / "pg"


def located(home: Path) -> Path:
    """The directory really used for ``home``; reads only. They differ after ``settle`` had to move out."""
    elsewhere = _elsewhere(home)
    # os.path, because the other directory may be below one that we cannot enter: then it is not in use.
    return elsewhere if not os.path.exists(home / "data") and os.path.exists(elsewhere / "data") else home


def settle(home: Path) -> Path:
    """Make the home directory, private, and return it, or one in the user's own data directory.

    The second happens when the file system of ``home`` is shared with other machines or does not keep modes.
    """
    if any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in str(home)):
        raise EmbeddedError(f"{str(home)!r} has a character that PostgreSQL's tools refuse; rename it, or {OWN_SERVER}")
    used = located(home)
    _make_home(used)
    if used != home or (used / "data").exists():
        return used
    if reason := _unsuitable(used):
        elsewhere = _elsewhere(home)
        with contextlib.suppress(OSError, EmbeddedError):
            _make_home(elsewhere)
            if not _unsuitable(elsewhere):
                log.warning("%s %s, so the embedded PostgreSQL lives in %s", home, reason, elsewhere)
                return elsewhere
        if not keeps_modes(used):
            raise EmbeddedError(f"{home} {reason}, and {elsewhere} is no better; {OWN_SERVER}")
    return used


def keeps_modes(directory: Path) -> bool:
    """Whether a mode of 0700 stays 0700 there."""
    probe = Path(tempfile.mkdtemp(prefix="probe-", dir=directory))
    try:
        return stat.S_IMODE(probe.stat().st_mode) == 0o700
    finally:
        probe.rmdir()


def file_system(path: Path) -> str:
    """The type of the file system that holds ``path``, as Linux calls it; empty where the system does not tell."""
    best, kind = "", ""
    for line in read_small(Path("/proc/self/mountinfo"), limit=1 << 20).splitlines():
        left, _, right = line.partition(" - ")
        # Spaces and such are octal escapes there. Of two mounts at one place the later covers the earlier.
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), left.split()[4])
        if len(point) >= len(best) and Path(path).is_relative_to(point):
            best, kind = point, right.split()[0]
    return kind


def socket_places(home: Path, uid: int) -> Iterator[Path]:
    """Directories for the socket, best first: beside the data, else a hidden one named by a hash of the home."""
    name = f"pipeline-{uid}-{_digest(home)}"
    runtime = [os.environ["XDG_RUNTIME_DIR"]] if os.environ.get("XDG_RUNTIME_DIR") and uid == os.geteuid() else []
    for place in (home / "s", *(Path(top).absolute() / name for top in (*runtime, tempfile.gettempdir(), "/tmp"))):
        # libpq reads a comma as the end of one host and the beginning of the next.
        if "," not in str(place) and len(os.fsencode(place / SOCKET)) <= LONGEST_SOCKET_PATH and place.parent.is_dir():
            yield place


def private_directory(path: Path, uid: int, gid: int, *, ours: bool) -> None:
    """Make ``path`` a directory of ``uid`` with mode 0700, or raise EmbeddedError.

    ``ours`` says that only we can have put anything at that path, so root may correct its owner. Elsewhere, as in a
    temp directory, what is there and is not exactly right belongs to a stranger.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
        ours = True
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise EmbeddedError(f"{path} must be a directory of ours ({error.strerror}); remove it") from error
    try:
        if os.fstat(fd).st_uid != uid:
            if not ours or os.geteuid() != 0:
                raise EmbeddedError(f"{path} belongs to another user; remove it, or {OWN_SERVER}")
            os.fchown(fd, uid, gid)
        if stat.S_IMODE(os.fstat(fd).st_mode) != 0o700:
            os.fchmod(fd, 0o700)
    finally:
        os.close(fd)


def remove_socket_directory(home: Path, directory: Path | None) -> None:
    """Remove the hidden socket directory of ``home`` when it is empty, and only that."""
    if directory and directory.name.startswith("pipeline-") and directory.name.endswith(_digest(home)):
        with contextlib.suppress(OSError):
            directory.rmdir()


def read_small(path: Path, limit: int = 8192) -> str:
    """The text of a small file; empty when there is none or it is not ours to read.

    Never follows a link or waits at a pipe: root reads files of the server's user with this.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return (file.read(limit) or b"").decode("utf-8", "replace")
    except OSError:
        return ""


def write_whole(path: Path, content: str, mode: int) -> None:
    """Put a small file there, complete or not at all. One writer at a time."""
    making = path.with_name(f"{path.name}.tmp")
    making.unlink(missing_ok=True)
    with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)
        share_with_owner(file.fileno(), path)
        file.write(content)
    making.replace(path)


def share_with_owner(fd: int, path: Path) -> None:
    """When root makes a file in somebody's directory, leave it to that somebody, who must be able to open it later."""
    if os.geteuid() == 0 and (owner := path.parent.stat()).st_uid != os.fstat(fd).st_uid:
        os.fchown(fd, owner.st_uid, owner.st_gid)


def _make_home(home: Path) -> None:
    # Another user runs the server for root and has to pass through, but not to look around.
    mode = 0o711 if os.geteuid() == 0 else 0o700
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            home.mkdir(mode=mode)
            home.chmod(mode)
    status = home.stat()
    if os.geteuid() not in (0, status.st_uid) or not os.access(home, os.W_OK):
        raise EmbeddedError(f"{home} belongs to another user (uid {status.st_uid}); run as that user, or {OWN_SERVER}")
    if status.st_uid == os.geteuid() and status.st_mode & 0o777 & ~mode:
        home.chmod(stat.S_IMODE(status.st_mode) & mode)
    for directory in (home, home.parent) if home.parent.name == ".pipeline" else (home,):
        # Links are not followed: the directory may be another user's, and we may be root.
        with contextlib.suppress(FileExistsError, PermissionError):
            ignore = os.open(directory / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
            with open(ignore, "w") as file:
                file.write("*\n")


def _unsuitable(directory: Path) -> str:
    kind = file_system(directory)
    if SHARED_FILE_SYSTEMS.fullmatch(kind):
        return f"is on a shared file system ({kind})"
    return "" if keeps_modes(directory) else "does not keep the mode of a private directory"


def _elsewhere(home: Path) -> Path:
    if sys.platform == "darwin":
        top = Path("~/Library/Application Support")
    else:
        top = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share")
    with contextlib.suppress(RuntimeError):  # a user without a home directory
        top = top.expanduser()
    return top.absolute() / "pipeline" / f"pg-{_digest(home)}"


def _digest(home: Path) -> str:
    return hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
