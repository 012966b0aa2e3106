"""A draft as a text that people edit: what is written is read as it was, and every mistake is told."""

import pytest
from hypothesis import given, strategies as st

from pipeline.errors import UsageError
from pipeline.project.drafts import read, written
from pipeline.project.topics import CONTROL
from pipeline.views import Draft

DRAFT = Draft("Two days", 'It says "so"', "# One\n\n+++\n\nText.\n", {"mood": "fine"}, {"template": "page"})
LINE = st.text(max_size=40).filter(lambda text: not CONTROL.search(text) and not set("\n\t\r") & set(text))


@given(title=LINE.filter(str.strip), description=LINE, body=st.text(max_size=200).filter(lambda t: "\r" not in t))
def test_what_is_not_edited_is_the_same_draft(title: str, description: str, body: str) -> None:
    """Whatever stands in it; the very object, so that nobody writes a revision of it."""
    draft = Draft(title, description, "".join(c for c in body if not CONTROL.search(c)))

    assert read(written(draft).encode(), "x", draft) is draft


def test_what_is_edited_comes_back() -> None:
    """Title, description and text; what is not shown stays; an editor's line ends and mark are none of the text."""
    text = written(DRAFT).replace("Two days", "Three days").replace("Text.", "More.").replace("\n", "\r\n")

    found = read(b"\xef\xbb\xbf" + text.encode(), "x", DRAFT)

    assert found == Draft(
        "Three days", 'It says "so"', "# One\n\n+++\n\nMore.\n", {"mood": "fine"}, {"template": "page"}
    )


def test_a_text_without_header_is_the_body() -> None:
    assert read(b"Just this.", "x", DRAFT) == Draft(
        DRAFT.title, DRAFT.description, "Just this.\n", DRAFT.fields, DRAFT.lineage
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"+++\ntitle = 'x'\nbody", "x.md: its header has no end; close it with a line of +++"),
        (b"+++\ntitle = x\n+++\n", "x.md: the header between the lines of +++ is no TOML"),
        (b"+++\nlayout = 'x'\n+++\n", "x.md: the header has a 'layout'; it has title and description only"),
        (b"+++\ntitle = 3\n+++\n", "x.md: title is no text on one line"),
        (b"+++\ntitle = ' '\n+++\n", "x.md: title is empty"),
        (b"+++\ndescription = 'a\\nb'\ntitle = \"a\\nb\"\n+++\n", "x.md: title is no text on one line"),
        (b"+++\ntitle = '" + b"x" * 1001 + b"'\n+++\n", "x.md: title is longer than 1000 bytes"),
        (b"---\ntitle: x\n---\n", "x.md: begins with ---"),
        (b"a\nb\x1b[2J", r"x.md:2: holds the control character '\\x1b'"),
        (b"a\nb\xff", "x.md:2: not UTF-8"),
        (b"a" * (1 << 20) + b"b", "x.md has 1048577 bytes"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("+", r"\+")):
        read(text, "x.md", DRAFT)
