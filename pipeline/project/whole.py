"""Files of a project that are put in their place whole, by a rename, or not at all; ground floor."""

import contextlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path, lines: Iterable[bytes], like: os.stat_result | None = None) -> Iterator[Path]:
    """A new file beside ``path`` with these bytes, safe on the disk, with mode and owner of ``like``.

    To be looked at, and put in its place with ``replace``; in the end it is gone otherwise. Raises OSError.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
    new = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.writelines(lines)
            stream.flush()
            os.fsync(stream.fileno())
            os.fchmod(stream.fileno(), like.st_mode & 0o7777 if like else 0o644 & ~_umask())
            if like:
                with contextlib.suppress(OSError):  # whoever edits another's file keeps it theirs, where he may
                    os.fchown(stream.fileno(), like.st_uid, like.st_gid)
        yield new
    finally:
        new.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
