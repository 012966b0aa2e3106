"""A path as sources: what there is below it, and which reader is for what; ground floor."""

import gzip
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO, cast

from pipeline.errors import UsageError
from pipeline.intake import delimited, sitemaps, texts, wordpress, workbook
from pipeline.intake.archives import Budget, Counted, unpacked
from pipeline.intake.found import MAX_FILE_BYTES, Found, Left, Named, Unreadable

TEXTS = (".md", ".markdown", ".mdown")
TABLES = (".csv", ".tsv", ".tab")
WORKBOOKS = (".xlsx", ".xlsm")
MARKUP = (".xml", ".wxr", ".rss")
PACKED = (".zip",)
ALL = (*TEXTS, *TABLES, *WORKBOOKS, *MARKUP, *PACKED, ".gz")
SPOOLED = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """One file, to be taken whole or not at all."""

    name: str  # in messages
    path: Path


def sources(path: Path) -> Iterator[Source | Left]:
    """The file at ``path``, or all below that folder that may hold topics, by name; links and hidden ones are left.

    Raises UsageError when there is nothing.
    """
    if path.is_file():
        yield Source(path.name, path)
        return
    if not path.is_dir():
        raise UsageError(f"{path}: no such file or folder; name what is to be imported")
    others = 0
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            file = Path(folder) / name
            if name.startswith(".") or not name.lower().endswith(ALL):
                others += 1
            elif file.is_symlink() or not file.is_file():
                yield Left(file.relative_to(path).as_posix(), 0, "it is a link or no file")
            else:
                yield Source(file.relative_to(path).as_posix(), file)
    if others:
        yield Left(path.name, 0, f"{others} files of other kinds")


def read(source: Source, named: Named) -> Iterator[Found]:
    """What a source holds. Raises Unreadable when it cannot be read to its end: then nothing of it is to be taken."""
    try:
        size = source.path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise Unreadable(f"it is {size} bytes; at most {MAX_FILE_BYTES} are read: divide it")
        with source.path.open("rb") as stream:
            yield from _read(source.name, stream, size, named)
    except OSError as error:
        raise Unreadable(f"{error.strerror or error}; make it readable") from error


def _read(name: str, stream: BinaryIO, size: int, named: Named) -> Iterator[Found]:
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in PACKED:
        yield from _unpacked(name, stream, size, named)
    elif suffix in WORKBOOKS:
        yield from workbook.read(name, stream, size, named)
    elif suffix in TEXTS:
        yield texts.read(name, stream, named)
    elif suffix in MARKUP:
        yield from _markup(name, stream, named)
    elif suffix == ".gz":
        inflated = cast(BinaryIO, Counted(cast(IO[bytes], gzip.GzipFile(fileobj=stream)), Budget(size)))
        with _spooled(inflated) as plain:
            yield from _read(name.removesuffix(".gz").removesuffix(".GZ"), plain, size, named)
    else:
        yield from delimited.read(name, stream, named)


def _markup(name: str, stream: BinaryIO, named: Named) -> Iterator[Found]:
    head = stream.read(1 << 14)
    stream.seek(0)
    root = re.search(rb"<(?![?!])(?:[\w-]+:)?([A-Za-z]+)", re.sub(rb"<!--.*?-->", b"", head, flags=re.DOTALL))
    match root[1].lower() if root else b"":
        case b"rss":
            yield from wordpress.read(name, stream, named)
        case b"urlset" | b"sitemapindex":
            yield from sitemaps.read(name, stream)
        case _:
            raise Unreadable("neither a WordPress export nor a sitemap; export it as one of these, or as CSV")


def _unpacked(name: str, stream: BinaryIO, size: int, named: Named) -> Iterator[Found]:
    with unpacked(stream, size) as archive:
        for member in archive.names:
            suffix = PurePosixPath(member).suffix.lower()
            if suffix in (*TABLES, *TEXTS, *MARKUP):
                with _spooled(archive.open(member)) as plain:
                    yield from _read(f"{name}/{member}", plain, 0, named)
            else:
                yield Left(f"{name}/{member}", 0, "a file of another kind")


def _spooled(stream: BinaryIO) -> AbstractContextManager[BinaryIO]:
    """The stream as a file that can be read from its start again."""
    plain = tempfile.SpooledTemporaryFile(max_size=SPOOLED)  # noqa: SIM115
    shutil.copyfileobj(stream, plain, SPOOLED)
    plain.seek(0)
    return cast(AbstractContextManager[BinaryIO], plain)
