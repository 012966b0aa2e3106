"""Take what others exported into a site: rows into its topics file, texts beside it, live addresses; ground floor.

What is found is read once, piece by piece; texts wait on disk. Then all is decided at once, against the file as it is
under its lock. Texts take their places first and the topics file last, each by a rename: who was interrupted begins
again, and what is there already is left alone.
"""

import hashlib
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline.errors import ProjectError, Refused as NotDone
from pipeline.intake.deciding import Decision, Site as Known, Topic, decide
from pipeline.intake.found import MAX_TEXT_BYTES, Address, Item, Left, Note, Refused, Unreadable
from pipeline.intake.rules import Rules
from pipeline.intake.sources import Source, read, sources
from pipeline.project.live import comparable, live_file, live_paths, path_of
from pipeline.project.sheet import Sheet, opened
from pipeline.project.site import MAX_SLUG_BYTES, Site
from pipeline.project.texts import FOLDER, source_of, text_file, written
from pipeline.project.topics import CONTROL, MAX_FILE_BYTES, OWN
from pipeline.project.whole import whole

SPOOL = ".import-"


@dataclass(slots=True)
class Report:
    """What came of an import; whatever was not taken is named."""

    file: str  # the topics file, as it is called in messages
    new: list[Topic] = field(default_factory=list)
    texts: int = 0  # of the new ones
    unchanged: int = 0
    addresses: int = 0  # newly known as live
    known_addresses: int = 0
    columns: list[str] = field(default_factory=list)  # new in the topics file
    others: int = 0  # topics in that file that get these columns, empty
    refused: list[Refused] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    apart: list[Note] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


@dataclass(slots=True)
class _Heap:
    """What was found, without the texts, which lie in ``folder`` by their numbers."""

    items: list[Item] = field(default_factory=list)
    hashes: dict[int, str] = field(default_factory=dict)
    urls: list[Address] = field(default_factory=list)
    size: int = 0


def import_into(site: Site, path: Path, rules: Rules, *, dry_run: bool = False) -> Report:
    """Import a file, or all files below a folder. Raises PipelineError when nothing can be imported at all."""
    report = Report(f"sites/{site.slug}/{site.topics}")
    with opened(site) as (sheet, topics, put), _spool(site, dry_run=dry_run) as spool:
        heap = _Heap()
        for source in sources(path):
            if isinstance(source, Left):
                report.left.append(source)
            else:
                _take(source, rules, heap, spool, report)
        live = live_paths(site)
        known = Known(report.file, topics, site.path, live, lambda slug: source_of(site, slug))
        decision = decide(heap.items, known, rules)
        new = _with_free_texts(site, decision, heap, report)
        _compare_texts(site, decision, heap)
        report.new, report.texts = new, sum(topic.number in heap.hashes for topic in new)
        report.unchanged, report.apart = decision.unchanged, decision.apart
        report.refused += decision.refused
        report.notes += decision.notes
        addresses = _addresses(site, heap.urls, live, {*(t.path for t in topics)}, report)
        if new:
            _append(sheet, new, {t.lane: t.order for t in topics}, report)
            put(check_only=True)
        if dry_run:
            return report
        if spool is not None and report.texts:
            _put_texts(site, spool, [topic for topic in new if topic.number in heap.hashes])
        if new:
            put()
        if addresses:
            _note(site, addresses)
    return report


@contextmanager
def _spool(site: Site, *, dry_run: bool) -> Iterator[Path | None]:
    """A folder in the site's, so that a rename puts its files in place; what a killed import left is cleared away."""
    if dry_run:
        yield None
        return
    for old in site.folder.glob(f"{SPOOL}*"):
        shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=SPOOL, dir=site.folder))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _take(source: Source, rules: Rules, heap: _Heap, spool: Path | None, report: Report) -> None:
    """All that a source holds; nothing of it when it breaks off."""
    items, urls, said = len(heap.items), len(heap.urls), (len(report.refused), len(report.left), len(report.notes))
    try:
        for found in read(source, rules.named):
            match found:
                case Item():
                    _keep(found, heap, spool, report)
                case Address():
                    heap.urls.append(found)
                case Refused():
                    report.refused.append(found)
                case Left():
                    report.left.append(found)
                case Note():
                    report.notes.append(found)
    except Unreadable as error:
        del heap.items[items:], heap.urls[urls:]
        for number in [number for number in heap.hashes if number >= items]:
            del heap.hashes[number]
        del report.refused[said[0] :], report.left[said[1] :], report.notes[said[2] :]
        report.refused.append(Refused(source.name, error.line, f"nothing of it was imported: {error.why}"))


def _keep(item: Item, heap: _Heap, spool: Path | None, report: Report) -> None:
    if item.text is not None:
        data = written(item.text.description, item.text.body, item.text.fields, item.source)
        if len(data) > MAX_TEXT_BYTES * 3 // 2:
            report.refused.append(
                Refused(item.file, item.line, f"its text has more than {MAX_TEXT_BYTES} bytes; divide it")
            )
            return
        heap.hashes[len(heap.items)] = hashlib.sha256(data).hexdigest()
        if spool is not None:
            with (spool / str(len(heap.items))).open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
                os.fchmod(stream.fileno(), 0o644)
        item = replace(item, text=None)
    heap.size += 200 + sum(len(value) for value in item.cells.values())
    if heap.size > 2 * MAX_FILE_BYTES:
        raise ProjectError(f"{report.file} could not hold all of it; divide what you import, and the site")
    heap.items.append(item)


def _hash(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        return ""


def _with_free_texts(site: Site, decision: Decision, heap: _Heap, report: Report) -> list[Topic]:
    """The new topics, without those in whose text's place another lies."""
    free: list[Topic] = []
    for topic in decision.new:
        there = _hash(text_file(site, topic.slug)) if topic.number in heap.hashes else ""
        if there not in ("", heap.hashes.get(topic.number)):
            why = f"{FOLDER}/{topic.slug}.md is there already, and says something else; move it away"
            report.refused.append(Refused(topic.item.file, topic.item.line, why))
        else:
            free.append(topic)
    return free


def _put_texts(site: Site, spool: Path, topics: list[Topic]) -> None:
    try:
        (site.folder / FOLDER).mkdir(exist_ok=True)
        for topic in topics:
            (spool / str(topic.number)).replace(text_file(site, topic.slug))
    except OSError as error:
        raise NotDone(f"sites/{site.slug}/{FOLDER}: {error.strerror}; make it writable, and import again") from error


def _compare_texts(site: Site, decision: Decision, heap: _Heap) -> None:
    """Tell of texts that are other in the source than here: they stay as they are."""
    numbers = {id(item): number for number, item in enumerate(heap.items)}
    for item, slug in decision.same:
        hash = heap.hashes.get(numbers[id(item)])
        if hash is not None and hash != _hash(text_file(site, slug)):
            what = f"topic {slug!r} is there already and keeps its text; the source's is another (to take it over: edit"
            decision.notes.append(Note(item.file, item.line, f"{what} {FOLDER}/{slug}.md)"))


def _append(sheet: Sheet, new: list[Topic], last: dict[str, int], report: Report) -> None:
    """Rows for the new topics at the end of the sheet, which gets the columns that it lacks."""
    wanted = list(dict.fromkeys(name for topic in new for name in topic.brief if name not in OWN))
    columns = [name for name in wanted if name not in sheet.header and len(name.encode()) <= MAX_SLUG_BYTES]
    if sheet.lines and not sheet.lines[-1].endswith(b"\n"):
        sheet.lines[-1] += sheet.end.encode()
    if columns:
        blank = sheet.delimiter.encode() * len(columns)
        for end, _ in sheet.records.values():
            sheet.lines[end - 1] = _before_end(sheet.lines[end - 1], blank)
        at = next(n for n, line in enumerate(sheet.lines) if line.strip())
        names = sheet.write(["", *columns]).rstrip(b"\r\n")
        sheet.lines[at] = _before_end(sheet.lines[at], names)
        sheet.header += columns
        report.columns, report.others = columns, len(sheet.records)
    counts: dict[str, int] = defaultdict(int, last)
    for topic in new:
        counts[topic.lane] += 1
        own = {"lane": topic.lane, "slug": topic.slug, "title": topic.title, "type": topic.type}
        cells = {**topic.brief, **own, "position": str(counts[topic.lane])}
        sheet.lines.append(sheet.write([cells.get(name, "") for name in sheet.header]))


def _before_end(line: bytes, more: bytes) -> bytes:
    text = line.rstrip(b"\r\n")
    return text + more + line[len(text) :]


def _addresses(
    site: Site, urls: Collection[Address], live: dict[str, str], ours: Collection[str], report: Report
) -> list[str]:
    """The paths that are newly known as live, each once."""
    fresh: dict[str, str] = {}
    mine = {comparable(path) for path in ours}
    for address in urls:
        path = path_of(site, address.url)
        if path is None or CONTROL.search(path) or len(path) > 2000:
            why = f"{address.url[:200]!r} is no address below {site.base_url}"
            report.refused.append(Refused(address.file, address.line, why))
        elif comparable(path) in live or comparable(path) in mine or comparable(path) in fresh:
            report.known_addresses += 1
        else:
            fresh[comparable(path)] = path or "/"
    report.addresses = len(fresh)
    return list(fresh.values())


def _note(site: Site, addresses: list[str]) -> None:
    """Add the addresses to the site's file of them."""
    file = live_file(site)
    there = file.exists()
    before = file.read_bytes() if there else b"# Live already, and not ours: no topic may live there.\n"
    lines = [before if before.endswith(b"\n") else before + b"\n", *(f"{path}\n".encode() for path in addresses)]
    try:
        with whole(file, lines, file.stat() if there else None) as new:
            new.replace(file)
    except OSError as error:
        raise NotDone(f"sites/{site.slug}/{file.name}: {error.strerror}; the addresses were not noted") from error
