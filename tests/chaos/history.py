"""What clients asked, and what they were told: one line before each call and one after it."""

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from pipeline.db import sqlstate
from pipeline.errors import PipelineError
from pipeline.service.base import PASSING

T = TypeVar("T")


class Answer(StrEnum):
    OK = "ok"
    REFUSED = "refused"  # nothing was done
    UNKNOWN = "unknown"  # done, or not


class GaveUp(Exception):
    """The caller itself took its transaction back."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as its client saw it. ``got`` is what it was answered, if it was ``ok``."""

    id: str
    verb: str
    asked: Mapping[str, Any]
    began: float  # wall
    answer: Answer  # UNKNOWN as well when no line came after the first
    ended: float | None = None
    got: Sequence[Any] = ()


class History:
    """Writes the log; many threads may."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._numbers = itertools.count(1)
        self._turn = threading.Lock()

    def _write(self, **what: Any) -> None:
        os.write(self._file, json.dumps(what, separators=(",", ":")).encode() + b"\n")

    def call(self, verb: str, act: Callable[[str], T], got: Callable[[T], Sequence[Any]], **asked: Any) -> T | None:
        """Do it, under an id that ``act`` is given; None when it was refused, or nobody knows."""
        with self._turn:
            id = f"call-{next(self._numbers)}"
        self._write(id=id, verb=verb, asked=asked, at=time.time())
        answer, found, why = Answer.UNKNOWN, None, ""
        try:
            found = act(id)
            answer = Answer.OK
        except (PipelineError, GaveUp) as error:
            answer, why = Answer.REFUSED, str(error)[:200]
        except SQLAlchemyError as error:
            # What lost to another, or was cancelled by the server, was rolled back by it.
            state = sqlstate(error) if isinstance(error, DBAPIError) else None
            answer = Answer.REFUSED if state in PASSING else Answer.UNKNOWN
            why = state or type(error).__name__
        self._write(id=id, answer=answer, at=time.time(), got=list(got(found)) if found is not None else [], why=why)
        return found


def read(path: Path) -> list[Call]:
    """The calls of a log, in the order in which they began."""
    first: dict[str, dict[str, Any]] = {}
    second: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        found = json.loads(line)
        (first if "verb" in found else second)[found["id"]] = found
    calls = []
    for id, asked in first.items():
        told = second.get(id, {})
        calls.append(
            Call(
                id, asked["verb"], asked["asked"], asked["at"], Answer(told.get("answer", Answer.UNKNOWN)),
                told.get("at"), tuple(told.get("got", ())),
            )
        )  # fmt: skip
    return calls
