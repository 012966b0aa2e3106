"""A project of one's own: all of it or nothing, the stages the same as ours, its pages without a finding."""

import re
import tomllib
from dataclasses import astuple
from pathlib import Path

import pytest

from pipeline.content import check, generate
from pipeline.errors import NotFound, Refused, UsageError
from pipeline.project import starting
from pipeline.project.site import load_site
from pipeline.project.starting import start_project
from pipeline.project.topics import load_topics
from pipeline.settings import Settings, key
from pipeline.testing import MemoryCorpus
from pipeline.views import PageCard, TopicView

ROOT = Path(__file__).parents[2]
MADE = [
    ".gitignore", "README.md", "alembic.ini", "pipeline.toml",
    "sites/demo/site.toml",
    "sites/demo/templates/_parts.md.j2", "sites/demo/templates/article.md.j2", "sites/demo/templates/guide.md.j2",
    "sites/demo/topics.csv",
    "stages/__init__.py", "stages/assemble.py", "stages/generate.py", "stages/publish.py", "stages/validate.py",
]  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    start_project(tmp_path / "x")
    return tmp_path / "x"


def names(folder: Path) -> list[str]:
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_a_project_has_these_files_and_says_so(tmp_path: Path) -> None:
    """In a folder that is made for it, with those above."""
    made = start_project(tmp_path / "a" / "x")

    assert [p.relative_to(tmp_path / "a" / "x").as_posix() for p in made] == MADE
    assert names(tmp_path / "a" / "x") == MADE


def test_its_stages_are_ours(project: Path) -> None:
    """One source: byte by byte what this repository runs."""
    ours = {p.name: p.read_bytes() for p in (ROOT / "stages").glob("*.py")}

    assert {p.name: p.read_bytes() for p in (project / "stages").iterdir()} == ours


def test_its_name_is_everywhere(tmp_path: Path) -> None:
    """The site's folder, its address, what is to be typed; and no mark is left."""
    made = start_project(tmp_path / "x", "my-notes")

    assert load_site(tmp_path / "x", "my-notes").base_url == "https://my-notes.example"
    assert "pipeline run --site my-notes" in (tmp_path / "x/README.md").read_text()
    assert [p for p in made if re.search("@[A-Z]+@|demo", p.read_text())] == []


def test_its_pages_are_two_lanes_without_a_finding(project: Path) -> None:
    """Not even a warning; every link between them leads somewhere."""
    site = load_site(project, "demo")
    topics = []
    for number, row in enumerate(load_topics(site), start=1):
        lane, slug, title, type, path, order, brief, *_ = astuple(row)
        topics.append(TopicView(number, "demo", lane, slug, title, type, path, order, brief))
    cards = [
        PageCard(t.id, t.lane, t.position, t.type, t.path, t.title, str(t.brief["description"]), live=True)
        for t in topics
    ]
    findings = []
    for topic in topics:
        corpus = MemoryCorpus(cards)
        corpus.topic = topic
        findings += check(site, topic, generate(site, topic), corpus)

    assert findings == []
    assert [(t.lane, t.position) for t in topics] == [(lane, n) for lane in ("beans", "brewing") for n in range(1, 5)]
    assert set(site.lanes) == {t.lane for t in topics}


def test_its_settings_file_names_each_setting_with_its_default(project: Path) -> None:
    """All of it is commented out; taken together it is what counts without it."""
    text = (project / "pipeline.toml").read_text()
    assert tomllib.loads(text) == {}

    named = tomllib.loads("\n".join(line[2:] for line in text.splitlines() if re.match(r"# \w+ = ", line)))

    assert set(named) == {key(field) for field in Settings.model_fields}
    given = {field: named[key(field)] for field in Settings.model_fields if field not in ("database_url", "workers")}
    plain = Settings.model_construct()
    assert {f: getattr(Settings(**given), f) for f in given} == {f: getattr(plain, f) for f in given}


@pytest.mark.parametrize(
    "site", ["", "Demo", "a b", "../x", "a/b", "a--b", "-a", "a_b", "con", "x" * 201, "demo\n", "é"]
)
def test_a_name_that_no_site_can_have(tmp_path: Path, site: str) -> None:
    """Nothing is written."""
    with pytest.raises(UsageError, match="is no name for a site"):
        start_project(tmp_path / "x", site)

    assert not (tmp_path / "x").exists()


def test_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    """What is there is named, a few of it, and left alone."""
    for name in "abcdefg":
        (tmp_path / name).touch()

    with pytest.raises(Refused, match=r"is not empty: it holds a, b, c, d, e and 2 more; name a new folder$"):
        start_project(tmp_path)

    assert names(tmp_path) == list("abcdefg")


def test_a_path_that_is_no_folder(tmp_path: Path) -> None:
    """A file, and a link to nowhere."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")

    with pytest.raises(Refused, match="is a file"):
        start_project(tmp_path / "file")
    with pytest.raises(Refused, match="leads nowhere"):
        start_project(tmp_path / "link")


def test_a_repository_and_an_environment_may_be_there_already(tmp_path: Path) -> None:
    """They usually come first; nothing of ours meets them."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".venv").mkdir()

    assert len(start_project(tmp_path)) == len(MADE)


def test_what_was_written_before_an_error_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the same command can be typed again."""
    real = Path.open

    def fail(path: Path, *words: object, **more: object) -> object:
        if path.name == "topics.csv" and "x" in words:
            raise OSError(28, "No space left on device", str(path))
        return real(path, *words, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", fail)
    with pytest.raises(OSError, match="No space left"):
        start_project(tmp_path / "a" / "x")
    monkeypatch.undo()

    assert list(tmp_path.iterdir()) == []
    assert len(start_project(tmp_path / "a" / "x")) == len(MADE)


def test_an_installation_that_lost_its_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told before anything is written."""
    monkeypatch.setattr(starting, "stages_folder", lambda: tmp_path / "gone")

    with pytest.raises(NotFound, match="has lost its stages"):
        start_project(tmp_path / "x")

    assert not (tmp_path / "x").exists()
