"""The house keeps its floors: imports only go down, files stay small, the library alembic is not hidden."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "pipeline"

FLOORS = [
    {"errors", "states", "retry", "clock", "settings", "holder", "models", "views", "intake", "project", "stages"},
    {"db", "sql"},
    {"service"},
    {
        "embedded",
        "migrate",
        "build",
        "bell",
        "threads",
        "folders",
        "pace",
        "holding",
        "holdings",
        "wire",
        "verdict",
        "access",
        "runner",
        "spawned",
        "keeper",
        "loop",
        "executors",
        "rota",
        "apart",
        "heartbeat",
        "upkeep",
        "worker",
        "child",
        "crew",
        "wanted",
        "remarks",
        "run",
    },
    {"cli", "web", "testing", "inside"},
]
BESIDE = {"content"}  # what the ready-made stages use: stands on the ground, knows no queue
HEIGHT = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms} | dict.fromkeys(BESIDE, 1)


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def nodes(source: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(source.read_text())))


@cache
def imported_rooms(source: Path) -> set[str]:
    names: set[str] = set()
    for node in nodes(source):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}: use absolute imports"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("pipeline.")}


def sources() -> list[Path]:
    return [p for p in sorted(PACKAGE.rglob("*.py")) if p.relative_to(PACKAGE).parts[0] not in ("migrations",)]


def test_every_room_stands_on_a_floor() -> None:
    """A new module is given its floor before it is used."""
    rooms = {room_of(p) for p in sources()} - {"__init__"}

    assert rooms - set(HEIGHT) == set()


def test_imports_only_go_down() -> None:
    """No module imports one of a higher floor."""
    climbs = [
        f"{path.relative_to(PACKAGE)} -> {room}"
        for path in sources()
        if room_of(path) != "__init__"
        for room in sorted(imported_rooms(path))
        if room in HEIGHT and HEIGHT[room] > HEIGHT[room_of(path)]
    ]

    assert climbs == []


def test_content_and_queue_know_nothing_of_each_other() -> None:
    """The content package imports the ground alone, and no floor of the engine imports it."""
    into = {room for p in (PACKAGE / "content").rglob("*.py") for room in imported_rooms(p)}
    out_of = [p for p in sources() if room_of(p) not in BESIDE and "content" in imported_rooms(p)]

    assert {room for room in into if room in HEIGHT and room not in FLOORS[0] | BESIDE} == set()
    assert [str(p) for p in out_of if room_of(p) in FLOORS[3] | FLOORS[2]] == []


def test_stages_import_public_names_only() -> None:
    """The ready-made stages use what any author may use."""
    names = set()
    for path in (ROOT / "stages").glob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pipeline"):
                names.add(node.module)

    assert names <= {"pipeline", "pipeline.content"}


def test_files_stay_small_enough_to_hold_in_the_head() -> None:
    """No file of the product passes 450 lines."""
    long = {str(p.relative_to(ROOT)): n for p in sources() if (n := len(p.read_text().splitlines())) > 450}

    assert long == {}


def test_our_folder_does_not_hide_the_library() -> None:
    """``alembic/`` has no ``__init__.py``."""
    assert not (ROOT / "alembic" / "__init__.py").exists()


def test_no_sql_is_put_together_from_strings() -> None:
    """``text()`` never gets an f-string or a concatenation."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in sources()
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "text"
        and node.args
        and isinstance(node.args[0], ast.JoinedStr | ast.BinOp)
    ]

    assert found == []


def test_no_data_is_run_as_code() -> None:
    """No pickle, marshal, shelve, eval or exec anywhere."""
    bad = {"pickle", "marshal", "shelve", "dill"}
    found = []
    for path in sources():
        for node in nodes(path):
            if isinstance(node, ast.Import) and {a.name.split(".")[0] for a in node.names} & bad:
                found.append(path.name)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
                found.append(f"{path.name}:{node.lineno}")

    assert found == []
