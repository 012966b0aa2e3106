"""What the files of the revisions themselves must keep to; no database."""

import ast
import importlib.util
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from pipeline import migrate

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "alembic" / "versions").glob("*.py"))


@pytest.fixture(scope="module")
def directory() -> ScriptDirectory:
    return ScriptDirectory.from_config(Config(ROOT / "alembic.ini"))


def calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]


def named(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def test_there_is_exactly_one_head(directory: ScriptDirectory) -> None:
    """History is one line, and the numbers read off the file names are that line."""
    line = [script.revision for script in directory.walk_revisions()]

    assert directory.get_heads() == [migrate.head()]
    assert line[::-1] == migrate.numbers()


def test_file_names_carry_the_number_of_their_revision(directory: ScriptDirectory) -> None:
    """0001, 0002, … without a gap, in the file's name as inside it."""
    for expected, script in enumerate(reversed(list(directory.walk_revisions())), start=1):
        number = f"{expected:04}"

        assert script.revision == number
        assert Path(script.path).name.startswith(f"{number}_")
        assert script.down_revision == (f"{expected - 1:04}" if expected > 1 else None)
    assert len(FILES) == len(migrate.numbers())


def test_the_library_is_not_hidden_by_our_folder() -> None:
    """An ``__init__.py`` in ``alembic/`` would be imported in place of the library."""
    spec = importlib.util.find_spec("alembic")

    assert not (ROOT / "alembic" / "__init__.py").exists()
    assert spec is not None
    assert spec.origin is not None
    assert "site-packages" in spec.origin


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_revision_imports_nothing_of_ours(path: Path) -> None:
    """Yesterday's revision must not follow today's model."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(str(node.module))

    assert {name.partition(".")[0] for name in imported} <= {"alembic", "sqlalchemy"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_revision_says_why_and_can_be_taken_back(path: Path) -> None:
    """A title, a reason, and a downgrade that does something."""
    tree = ast.parse(path.read_text())
    title, _, why = (ast.get_docstring(tree) or "").partition("\n\n")
    downgrade = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "downgrade")

    assert title
    assert why
    assert not isinstance(downgrade.body[0], ast.Pass)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_index_has_a_revision_of_its_own_and_is_built_concurrently(path: Path) -> None:
    """Nothing else stands beside it, what a failed build left is dropped first, and no time limit cuts it short."""
    found = calls(path)
    builds = [call for call in found if named(call) == "create_index"]
    if not builds:
        return
    text = path.read_text()
    drop, build = text.index("op.drop_index"), text.index("op.create_index")

    assert len(builds) == 1
    assert {named(call) for call in found} <= {
        *("create_index", "drop_index", "execute", "get_context", "autocommit_block", "text")
    }
    assert drop < build
    assert text.count("postgresql_concurrently=True") == text.count("op.drop_index") + 1
    assert text.count("if_exists=True") == text.count("op.drop_index") == 2
    assert text.count("autocommit_block()") == 2
    assert (
        text.count('op.execute("SET statement_timeout = 0")') == text.count('op.execute("SET lock_timeout = 0")') == 2
    )
