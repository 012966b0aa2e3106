"""The city pages of the bench: a tiny build works, and the peers get the same text."""

from pathlib import Path

import pytest

from bench.ground import ground
from bench.site import Ours
from bench.site_peers import eleventy_project, hugo_project
from bench.site_rows import LANES, PAGES, cities, our_project


def test_rows_are_made_in_the_shape_of_the_file() -> None:
    """As many pages and lanes, and a choice of them is spread over all."""
    rows = cities(Path("/dev/null"), PAGES)

    assert (len(rows), len({row.country for row in rows})) == (PAGES, LANES)
    some = cities(Path("/dev/null"), 500)
    assert len(some) == 500
    assert len({row.country for row in some}) > LANES / 4


def test_the_peers_get_a_file_for_each_page(tmp_path: Path) -> None:
    project = our_project(tmp_path / "ours", cities(Path("/dev/null"), 30))

    for make in (eleventy_project, hugo_project):
        folder = make(tmp_path / make.__name__, project)
        texts = [file.read_text() for file in folder.rglob("*.md")]
        assert len(texts) == 30
        assert all("## Getting there and around" in text for text in texts)


@pytest.mark.slow
def test_a_tiny_site_is_built_and_edited(tmp_path: Path) -> None:
    """Every page is there; then a row is edited, and one page is published again."""
    rows = cities(Path("/dev/null"), 30)
    with ground() as here:
        ours = Ours(here, rows, our_project(tmp_path / "ours", rows))
        with ours.stack:
            assert ours.build() > 0
            assert ours.edit() > 0
    pages = [page.read_text() for page in tmp_path.glob("ours/public/*/*/*/index.html")]
    assert sum(" / edit 1" in page for page in pages) == 1
