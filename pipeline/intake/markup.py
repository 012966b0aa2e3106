"""XML in pieces, without what makes it dangerous; ground floor.

No document type, hence no entities of its own; no tree in memory; what is nested too deep or too long for one text is
refused. The parser is expat, which the standard library brings.
"""

from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeAlias
from xml.parsers import expat

from pipeline.intake.found import Unreadable

CHUNK = 1 << 16
MAX_DEPTH = 64
MAX_TEXT = 16 << 20  # characters of one element

Start: TypeAlias = Callable[[str, dict[str, str], int], None]
End: TypeAlias = Callable[[str, int], None]
Said: TypeAlias = Callable[[str], None]


def parse(
    stream: BinaryIO,
    *,
    start: Start,
    end: End,
    text: Said,
) -> Iterator[None]:
    """Read a document, a piece at a time: names are ``namespace}local``, numbers are lines.

    Raises Unreadable for what is no XML.
    """
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    depth = length = 0

    def opened(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, length
        depth, length = depth + 1, 0
        if depth > MAX_DEPTH:
            raise Unreadable(f"its elements are nested more than {MAX_DEPTH} deep", parser.CurrentLineNumber)
        start(name, attributes, parser.CurrentLineNumber)

    def closed(name: str) -> None:
        nonlocal depth, length
        depth, length = depth - 1, 0
        end(name, parser.CurrentLineNumber)

    def said(data: str) -> None:
        nonlocal length
        length += len(data)
        if length > MAX_TEXT:
            raise Unreadable(f"a text of more than {MAX_TEXT} characters", parser.CurrentLineNumber)
        text(data)

    def forbidden(*_: object) -> None:
        raise Unreadable(
            "it declares a document type, which is not read; take the declaration out", parser.CurrentLineNumber
        )

    parser.StartElementHandler = opened
    parser.EndElementHandler = closed
    parser.CharacterDataHandler = said
    parser.StartDoctypeDeclHandler = forbidden
    try:
        while data := stream.read(CHUNK):
            parser.Parse(data, False)
            yield
        parser.Parse(b"", True)
        yield
    except expat.ExpatError as error:
        raise Unreadable(
            f"no well-formed XML ({expat.ErrorString(error.code)}); export it again", error.lineno
        ) from error
    except (LookupError, ValueError) as error:  # an encoding that is not there
        raise Unreadable(f"not readable as XML ({error}); export it as UTF-8") from error


def local(name: str) -> str:
    return name.rpartition("}")[2]
