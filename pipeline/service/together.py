"""Calls that come at the same time are served by one transaction; floor 2.

Why: threads that share one connection wait for each other anyway, and most of what a small transaction costs is the
same for one call and for twenty. Whoever has the turn serves all that wait for it, and waits for more to come only as
long as its owner says.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

MOST = 64  # calls in one transaction


@dataclass(slots=True)
class _Call(Generic[Asked, Answer]):
    asked: Asked
    answer: "Answer | Exception | None" = None
    served: bool = False


class Together(Generic[Asked, Answer]):
    """``serve`` answers many calls at once, in their order; an exception among its answers is raised for that call."""

    def __init__(
        self,
        serve: "Callable[[Sequence[Asked]], Sequence[Answer | Exception]]",
        company: Callable[[], float] = lambda: 0.0,  # seconds for which the first waits for others
    ) -> None:
        self._serve = serve
        self._company = company
        self._turn = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: list[_Call[Asked, Answer]] = []

    def __call__(self, asked: Asked) -> Answer:
        mine: _Call[Asked, Answer] = _Call(asked)
        with self._lock:
            self._waiting.append(mine)
        while not mine.served:
            with self._turn:
                if not mine.served:
                    self._serve_some()
        if isinstance(mine.answer, Exception):
            raise mine.answer
        return mine.answer  # type: ignore[return-value]

    def _serve_some(self) -> None:
        if pause := self._company():
            time.sleep(pause)
        with self._lock:
            calls, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        try:
            answers = self._serve([call.asked for call in calls])
            for call, answer in zip(calls, answers, strict=True):
                call.answer = answer
        except Exception as error:
            for call in calls:
                call.answer = error
        except BaseException as error:  # an interrupt is the business of the thread that it came to
            for call in calls:
                call.answer = RuntimeError(f"interrupted: {type(error).__name__}")
            raise
        finally:
            for call in calls:
                call.served = True
