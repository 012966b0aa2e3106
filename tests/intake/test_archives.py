"""O-71: archives that lie stop at the limit, within memory and time, and write nothing anywhere."""

import gzip
import io
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.intake.scene import addresses, found_in, in_file, refused, zipped

SHEET = "xl/worksheets/sheet1.xml"
BOOK = {
    "xl/workbook.xml": b'<workbook xmlns:r="r"><sheets><sheet name="S" r:id="rId1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": (
        b'<Relationships><Relationship Id="rId1" Target="worksheets/sheet1.xml"/></Relationships>'
    ),
}
PROBE = """
import re, resource, sys
from pathlib import Path
from pipeline.intake.found import Named, Unreadable
from pipeline.intake.sources import Source, read
try:
    print(sum(1 for _ in read(Source(Path(sys.argv[1]).name, Path(sys.argv[1])), Named())))
except Unreadable as error:
    print("refused", error.why)
usage = resource.getrusage(resource.RUSAGE_SELF)
status = Path("/proc/self/status")  # what the process began as does not count there
memory = re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1] if status.exists() else usage.ru_maxrss
print(memory, usage.ru_utime + usage.ru_stime)
"""


def bomb(path: Path, member: str, size: int, more: dict[str, bytes] | None = None, start: bytes = b"") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (more or {}).items():
            archive.writestr(name, data)
        with archive.open(member, "w", force_zip64=True) as stream:
            stream.write(start)
            for _ in range(size >> 20):
                stream.write(b" " * (1 << 20))
    return path


def probed(path: Path) -> tuple[str, int, float]:
    """What a process of its own said of it, its memory in KiB, its seconds."""
    done = subprocess.run([sys.executable, "-c", PROBE, str(path)], capture_output=True, text=True, check=True)
    said, figures = done.stdout.splitlines()
    return said, int(figures.split()[0]), float(figures.split()[1])


@pytest.mark.parametrize(
    ("name", "member", "more", "start"),
    [
        ("a.zip", "a.csv", {}, b"Keyword\n"),
        ("a.xlsx", SHEET, BOOK, b"<worksheet><sheetData>"),
        ("b.xlsx", "xl/sharedStrings.xml", {**BOOK, SHEET: b"<worksheet/>"}, b"<sst>"),
    ],
)
def test_a_bomb_stops_at_the_limit(
    tmp_path: Path, name: str, member: str, more: dict[str, bytes], start: bytes
) -> None:
    """Hundreds of megabytes of nothing: refused below 200 MiB and 5 s."""
    said, memory, seconds = probed(bomb(tmp_path / name, member, 300 << 20, more, start))

    assert said.startswith("refused")
    assert memory < 200 * 1024
    assert seconds < 5


def test_a_row_of_millions_of_cells_is_refused(tmp_path: Path) -> None:
    cells = b"<worksheet><sheetData><row>" + b"<c><v>1</v></c>" * 2_000_000 + b"</row></sheetData></worksheet>"

    said, memory, _ = probed(zipped(tmp_path / "a.xlsx", {**BOOK, SHEET: cells}))

    assert "columns" in said
    assert memory < 200 * 1024


def test_a_gzip_of_zeros_is_refused(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as stream:
        for _ in range(100):
            stream.write(bytes(1 << 20))

    assert "bytes come out" in refused(in_file(tmp_path, "sitemap.xml.gz", packed.getvalue()))[0][1]


@pytest.mark.parametrize("name", ["../x.csv", "/x.csv", "a/../../x.csv", "..\\x.csv", "C:/x.csv"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    assert "no harmless name" in refused(found_in(zipped(tmp_path / "a.zip", {name: b"Keyword\nx\n"})))[0][1]


def test_links_and_crowds_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("a.csv")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    assert "link" in refused(found_in(tmp_path / "a.zip"))[0][1]
    zipped(tmp_path / "b.zip", {f"{n}.csv": b"" for n in range(10_001)})
    assert "members" in refused(found_in(tmp_path / "b.zip"))[0][1]


def test_a_directory_that_lies_is_found_out(tmp_path: Path) -> None:
    """It says that a member has ten bytes, and more come out."""
    path = zipped(tmp_path / "a.zip", {"a.csv": b"Keyword\n" + b"word\n" * 1000})
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 10)
    path.write_bytes(data)

    assert refused(found_in(path)) != []


def test_an_archive_in_an_archive_stays_closed(tmp_path: Path) -> None:
    inner = zipped(tmp_path / "inner.zip", {"a.csv": b"Keyword\nx\n"}).read_bytes()
    path = zipped(tmp_path / "a.zip", {"inner.zip": inner})

    assert found_in(path) == found_in(path)
    assert refused(found_in(path)) == []


def test_a_sitemap_of_any_size_is_read_in_pieces(tmp_path: Path) -> None:
    """50,001 addresses and more; gzip as well; an index is told of."""
    entries = "".join(f"<url><loc> https://old.example/{n}/?a=1&amp;b </loc></url>" for n in range(50_001))
    data = f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'

    found = addresses(in_file(tmp_path, "sitemap.xml.gz", gzip.compress(data.encode())))

    assert len(found) == 50_001
    assert found[0] == "https://old.example/0/?a=1&b"
    index = "<sitemapindex><sitemap><loc>https://old.example/1.xml</loc></sitemap></sitemapindex>"
    assert "1 sitemaps" in str(in_file(tmp_path, "index.xml", index))
