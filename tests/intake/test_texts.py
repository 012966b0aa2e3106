"""Markdown with front matter: what it says is taken as it stands, and nothing of it is run."""

import resource
import time
from pathlib import Path

import pytest

from pipeline.intake.found import Named
from tests.intake.scene import found_in, in_file, items, refused, said, titles


def write(folder: Path, name: str, head: str, body: str = "Words.\n") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\n{head}\n---\n{body}")
    return folder


def test_yaml(tmp_path: Path) -> None:
    """Titles with signs, folded ones, dates of any shape, lists; scalars stay the text that they are."""
    head = (
        'title: >\n  Hello:\n  "world" #1\ndate: 2014-03-12 10:00:00 -4\ncountry: NO\nversion: 010\ntags:\n- a\n- b\n'
        "description: 'Short'\nempty: ~"
    )
    write(tmp_path, "2014-03-12-Hello-World.md", head)

    (found,) = items(found_in(tmp_path))

    assert found.title == 'Hello: "world" #1'
    assert (found.name, found.own, found.type) == ("Hello-World", True, "post")
    assert found.cells["date"] == "2014-03-12T10:00:00-04:00"
    assert (found.cells["country"], found.cells["version"], found.cells["tags"]) == ("NO", "010", "a")
    assert found.text is not None
    assert found.text.description == "Short"
    assert found.text.body == "Words.\n"
    assert found.text.fields["tags"] == ["a", "b"]
    assert "empty" not in found.text.fields


def test_toml_and_json(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text('+++\ntitle = "A"\ndate = 2020-01-02\n+++\nBody\n')
    (tmp_path / "b.md").write_text('{\n  "title": "B",\n  "slug": "bee"\n}\nBody\n')
    (tmp_path / "c.md").write_text("{{ not json }}\n")

    found = items(found_in(tmp_path))

    assert [(one.title, one.name) for one in found] == [("A", "a"), ("B", "bee"), ("c", "c")]
    assert found[0].cells["date"] == "2020-01-02"
    assert [one.text.body for one in found if one.text] == ["Body\n", "Body\n", "{{ not json }}\n"]


def test_without_front_matter_the_heading_is_the_title(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"\xef\xbb\xbf# The title\r\n\r\nText\r\n")

    (found,) = items(found_in(tmp_path))

    assert found.title == "The title"
    assert found.text is not None
    assert found.text.body == "Text\n"


def test_the_date_may_stand_in_the_name_alone(tmp_path: Path) -> None:
    write(tmp_path, "2016-05-19-x.md", "title: X")

    assert items(found_in(tmp_path))[0].cells["date"] == "2016-05-19"


def test_a_bundle_is_named_by_its_folder(tmp_path: Path) -> None:
    write(tmp_path, "posts/moka/index.md", "title: Moka")

    (found,) = items(found_in(tmp_path))

    assert (found.name, found.source) == ("moka", "moka/index.md")


@pytest.mark.parametrize("head", ["draft: true", "draft: yes", "published: false"])
def test_drafts_are_left_unless_asked_for(tmp_path: Path, head: str) -> None:
    write(tmp_path, "a.md", f"title: A\n{head}")

    assert "draft" in said(found_in(tmp_path))[0]
    assert titles(found_in(tmp_path, Named(statuses=frozenset({"publish", "draft"})))) == ["A"]


@pytest.mark.parametrize(
    ("head", "line", "why"),
    [
        ("title: A\n\ttags: b", 3, "YAML"),
        ("title: A\ndate: [", 3, "YAML"),
        ("- a\n- b", 2, "names and values"),
        ("title: !!python/object/apply:os.system [echo]", 2, "YAML"),
        ("title: !!binary aGk=", 2, "binary"),
        ("a: &a [x]\n" + "b: [" + "*a, " * 200 + "]", 2, "refers to itself"),
        ("a: " + "[" * 100 + "]" * 100, 2, "nested"),
    ],
)
def test_front_matter_that_cannot_be_read_is_refused_with_its_line(
    tmp_path: Path, head: str, line: int, why: str
) -> None:
    write(tmp_path, "a.md", head)

    ((at, what),) = refused(found_in(tmp_path))

    assert at == line
    assert why in what


def test_what_has_no_end_or_is_no_text_is_refused(tmp_path: Path) -> None:
    assert "no end" in refused(in_file(tmp_path, "a.md", "---\ntitle: A\n"))[0][1]
    assert "TOML" in refused(in_file(tmp_path, "a.md", "+++\ntitle =\n+++\n"))[0][1]
    assert "control" in refused(in_file(tmp_path, "a.md", "a\nb\x00\n"))[0][1]
    assert refused(in_file(tmp_path, "a.md", "a\nb\x00\n"))[0][0] == 2
    assert "more than" in refused(in_file(tmp_path, "a.md", "x" * (1 << 21)))[0][1]


def test_a_bomb_of_aliases_goes_off_in_nobodys_hands(tmp_path: Path) -> None:
    """S11: refused in under a second and fifty megabytes."""
    lines = ['a0: &a0 ["lol"]']
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    write(tmp_path, "a.md", "\n".join(lines))
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()

    found = found_in(tmp_path)

    assert "refers to itself" in refused(found)[0][1]
    assert time.process_time() - began < 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * 1024


def test_links_and_other_files_are_left(tmp_path: Path) -> None:
    folder = write(tmp_path / "in", "a.md", "title: A")
    (tmp_path / "secret.md").write_text("secret")
    (folder / "b.md").symlink_to(tmp_path / "secret.md")
    (folder / "c.png").write_bytes(b"x")
    (folder / ".hidden.md").write_text("x")

    found = found_in(folder)

    assert titles(found) == ["A"]
    assert len(said(found)) == 2
