"""What the page of guarantees says is there: each has its tests, and those exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
PARTS = {part.split()[0]: part for part in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]}
NAMED = re.compile(r"`(tests/\S+\.py)::(test_\w+)`")


def test_every_guarantee_of_the_engine_is_on_the_page() -> None:
    assert set(PARTS) == {f"R{n}" for n in (*range(1, 26), 28)}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_a_guarantee_names_tests_that_exist(part: str) -> None:
    """At least two, and not all of one file: one way of looking proves little."""
    named = NAMED.findall(part)

    assert len(named) >= 2
    assert len({path for path, _ in named}) >= 2
    for path, name in named:
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{name}"
