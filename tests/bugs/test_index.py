"""Every report is a test under its number, or is named with the test that proves it."""

import ast
import re
from pathlib import Path

import tests.bugs

ROOT = Path(__file__).parents[2]
ENTRY = re.compile(r"^O-(\d\d)  (tests/\S+\.py)::(test_\w+)$", re.MULTILINE)
APPLICABLE = {*range(1, 45), *range(56, 59)}


def names(path: Path) -> set[str]:
    """The test functions of a file."""
    found = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
    return {name for name in found if name.startswith("test_")}


def entries() -> list[tuple[int, str, str]]:
    return [(int(number), path, name) for number, path, name in ENTRY.findall(tests.bugs.__doc__ or "")]


def test_every_report_has_its_test() -> None:
    """By its number in a name of this package, or by an entry of the list."""
    here = {
        int(number)
        for path in Path(__file__).parent.glob("test_*.py")
        for name in names(path)
        for number in re.findall(r"_o(\d\d)(?=_)", name)
    }

    assert APPLICABLE - here - {number for number, _, _ in entries()} == set()


def test_every_entry_leads_to_a_test() -> None:
    """A test that is renamed or taken out is missed here."""
    found = entries()

    assert len(found) == len(re.findall("::test_", tests.bugs.__doc__ or ""))
    assert [entry for entry in found if entry[2] not in names(ROOT / entry[1])] == []
