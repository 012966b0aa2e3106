"""Which encoding a file has; ground floor.

Marks come first, then what UTF-16 looks like, then UTF-8, which hardly any other text is by chance; Windows' own is
left.
"""

import codecs
from typing import BinaryIO

MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
HEAD = 4096
CHUNK = 1 << 20


def encoding_of(stream: BinaryIO) -> tuple[str, str]:
    """The encoding, and how to treat what is wrong by it. The stream is read through, and put back to its start."""
    head = stream.read(HEAD)
    try:
        for mark, name in MARKS:
            if head.startswith(mark):
                return name, "surrogateescape" if name == "utf-8-sig" else "replace"
        zeros = [head[n::2].count(0) for n in (0, 1)]
        if len(head) > 8 and max(zeros) * 5 > len(head) // 2:
            return ("utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"), "replace"
        stream.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        good = bad = 0
        while raw := stream.read(CHUNK):
            if not raw.isascii() or decoder.getstate()[0]:
                text = decoder.decode(raw)
                broken = sum("\udc80" <= c <= "\udcff" for c in text)
                bad += broken
                good += sum(c > "\x7f" for c in text) - broken
        return ("cp1252", "replace") if bad > good else ("utf-8", "surrogateescape")
    finally:
        stream.seek(0)


def decoded(raw: bytes) -> str | None:
    """A whole text; None when it is none by any encoding known here."""
    for mark, name in MARKS:
        if raw.startswith(mark):
            return _strict(raw, name)
    zeros = [raw[n:HEAD:2].count(0) for n in (0, 1)]
    if len(raw) > 8 and max(zeros) * 5 > min(len(raw), HEAD) // 2:
        return _strict(raw, "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be")
    text = _strict(raw, "utf-8")
    return text if text is not None else _strict(raw, "cp1252")


def _strict(raw: bytes, name: str) -> str | None:
    try:
        return raw.decode(name)
    except UnicodeDecodeError:
        return None
