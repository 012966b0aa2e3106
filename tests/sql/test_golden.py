"""Every statement, as PostgreSQL gets it: a change to one shows as a change to its file.

``PIPELINE_UPDATE_GOLDEN=1`` writes the files anew.
"""

import importlib
import inspect
import itertools
import os
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.dialects.postgresql import psycopg

import pipeline.sql
from pipeline.clock import Clock, DatabaseClock
from pipeline.sql.audit import INVARIANTS
from pipeline.sql.claim import Which
from pipeline.sql.transitions import Reach

GOLDEN = Path(__file__).parent / "golden"
CHOICES: dict[Any, tuple[Any, ...]] = {
    bool: (False, True),
    Reach: tuple(Reach),
    Which: tuple(Which),
    Clock: (DatabaseClock(),),
}

# Where a choice is not of a type that says what there is to choose from, or where all of them would be too many.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "reads.job_list": [
        {"by_site": True, "by_state": False},
        {"by_site": True, "by_state": True},
        {"by_site": False, "by_state": False, "by_ids": True},
        {"by_site": True, "by_state": False, "by_lane": True, "by_stage": True, "by_error": True},
    ],
}


def functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every function that makes a statement: they are the ones whose results are kept."""
    for module in pkgutil.iter_modules(pipeline.sql.__path__):
        loaded = importlib.import_module(f"pipeline.sql.{module.name}")
        for name, value in vars(loaded).items():
            if hasattr(value, "cache_info") and value.__module__ == loaded.__name__:
                yield f"{module.name}.{name}", value


def statements() -> Iterator[tuple[str, Any]]:
    for name, function in functions():
        parameters = inspect.signature(function).parameters.values()
        clock = {p.name: DatabaseClock() for p in parameters if p.annotation is Clock}
        free = [p for p in parameters if p.annotation is not Clock]
        variants = VARIANTS.get(name)
        if variants is None:
            choices = itertools.product(*(CHOICES[p.annotation] for p in free))
            variants = [dict(zip((p.name for p in free), choice, strict=True)) for choice in choices]
        for variant in variants:
            parts = [key if value is True else str(value) for key, value in variant.items() if value is not False]
            yield ".".join([name, "-".join(parts)]) if parts else name, function(**clock, **variant)


_BREAK = (
    r"WITH RECURSIVE|WITH|INSERT INTO|DELETE FROM|SELECT|(?<!DISTINCT )FROM|WHERE|LEFT OUTER JOIN|JOIN|GROUP BY"
    r"|ORDER BY|LIMIT|FOR NO KEY UPDATE|FOR SHARE|(?<!KEY )(?<!DO )UPDATE|(?<!UPDATE )SET|RETURNING|UNION ALL|UNION"
    r"|ON CONFLICT|VALUES"
)
_TOKEN = re.compile(rf"'[^']*'|\b(?:{_BREAK})\b|\(|\)|[^'()\s]+|\s+")
_QUERY = re.compile(r"\s*(SELECT|INSERT INTO|UPDATE|WITH|\(\s*SELECT)\b")


def readable(sql: str) -> str:
    """The statement with one clause a line, inner queries indented; nothing but blanks is changed."""
    flat = " ".join(sql.split())
    lines, line, level = [], "", 0
    inner: list[bool] = []  # for each open parenthesis: whether a query stands in it
    for match in _TOKEN.finditer(flat):
        token = match.group()
        in_query = not inner or inner[-1]
        if in_query and re.fullmatch(_BREAK, token):
            lines.append("  " * level + line.strip())
            line = token
        elif token == "(":
            inner.append(bool(_QUERY.match(flat, match.end())))
            line += token
            if inner[-1]:
                lines.append("  " * level + line.strip())
                line, level = "", level + 1
        elif token == ")" and inner.pop():
            lines.append("  " * level + line.strip())
            line, level = token, level - 1
        else:
            line += token
    lines.append("  " * level + line.strip())
    wrapped: list[str] = []
    for text in filter(str.strip, lines):
        indent = " " * (len(text) - len(text.lstrip()) + 4)
        wrapped += textwrap.wrap(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(wrapped) + "\n"


ALL = dict(statements())


def compiled(statement: Any) -> str:
    return str(statement.compile(dialect=psycopg.dialect()))


@pytest.mark.parametrize("name", ALL)
def test_each_statement_is_the_one_on_file(name: str) -> None:
    """What the server is asked changes only together with its file."""
    path = GOLDEN / f"{name}.sql"
    now = readable(compiled(ALL[name]))
    if os.environ.get("PIPELINE_UPDATE_GOLDEN"):
        path.write_text(now)

    assert path.read_text() == now, f"{path.name}: write it anew with PIPELINE_UPDATE_GOLDEN=1 if this is meant"


def test_no_file_is_left_of_a_statement_that_is_gone() -> None:
    """Each file has its statement."""
    files = {path.stem for path in GOLDEN.glob("*.sql")}
    if os.environ.get("PIPELINE_UPDATE_GOLDEN"):
        for name in files - set(ALL):
            (GOLDEN / f"{name}.sql").unlink()
        files &= set(ALL)

    assert files - set(ALL) == set()


@pytest.mark.parametrize("name", ALL)
def test_formatting_changes_blanks_only(name: str) -> None:
    """A file shows the statement itself."""
    sql = compiled(ALL[name])

    assert "".join(readable(sql).split()) == "".join(sql.split())


@pytest.mark.parametrize("name", ALL)
def test_states_are_literals(name: str) -> None:
    """A bound state would miss partial indexes once the plan is generic; lists that people filter by may be bound."""
    bound_state = re.findall(r"\bstate (?:=|IN|<>|!=) ?\(?%\(\w+\)s", compiled(ALL[name]))

    assert bound_state == []


@pytest.mark.parametrize("name", INVARIANTS)
def test_the_audit_takes_no_parameters(name: str) -> None:
    """Its queries can be read, copied and run as they stand."""
    assert not re.search(r"(?<!:):[a-z]|%\(", INVARIANTS[name][1])
