"""What is seen while a run goes on: a display on a terminal, plain lines elsewhere; floor 4.

All of it goes to standard error, the log of ``pipeline`` included, through one door: no line tears the display.
"""

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pipeline.cli.render import masked, safe, say
from pipeline.cli.status import by_stage
from pipeline.states import ASSEMBLE

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

    from pipeline.run import Progress

QUIET = 2.0  # seconds between two plain lines


class Display:
    """Shows a run's progress, and says what is to be said meanwhile."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._said_at = float("-inf")
        self._last = ""
        self._log = _Log(self)
        self._turn = threading.RLock()  # workers' lines come from threads
        self._drawing = False  # in the main thread, where signals are heard
        self._asked_to_stop = False

    def __enter__(self) -> Self:
        if sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False, markup=False, emoji=False)
            self._live = Live(
                console=console, transient=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            )
        log = logging.getLogger("pipeline")
        log.addHandler(self._log)
        log.setLevel(logging.INFO)
        log.propagate = False
        logging.getLogger("psycopg").setLevel(logging.CRITICAL)  # what it meets reaches us as an error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._whole():
            if self._live is not None:
                self._live.stop()
        logging.getLogger("pipeline").removeHandler(self._log)

    def say(self, text: str) -> None:
        """One line of talk, above the display."""
        if self._live is None:
            say(safe(text))
            return
        from rich.text import Text

        with self._whole():
            self._live.console.print(Text(masked(safe(text))), soft_wrap=True)

    def show(self, progress: "Progress") -> None:
        """Called many times a second; what it costs must not slow the run down."""
        if self._live is not None:
            with self._whole():
                self._live.update(frame(progress))
                if self._live.is_started:
                    self._live.refresh()
                else:
                    self._live.start(refresh=True)
            return
        now = time.monotonic()
        text = line(progress)
        if text != self._last and now - self._said_at >= QUIET:
            self._last, self._said_at = text, now
            say(f"{text} ({progress.seconds:.0f} s)")

    def interrupt(self) -> None:
        """Raise KeyboardInterrupt, but never in the middle of a frame: its rest would stay on the screen."""
        if not self._drawing:
            raise KeyboardInterrupt
        self._asked_to_stop = True

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        mine = threading.current_thread() is threading.main_thread() and not self._drawing
        self._drawing |= mine
        try:
            with self._turn:
                yield
        finally:
            self._drawing &= not mine
        if mine and self._asked_to_stop:
            self._asked_to_stop = False
            raise KeyboardInterrupt


def line(progress: "Progress") -> str:
    """Progress in one line, the same as long as nothing changes."""
    parts = [f"{safe(progress.site)}: {done(progress)} of {progress.total} done"]
    for name, cells in by_stage(progress.standing, progress.stages).items():
        if found := [f"{number} {column}" for column, number in cells.items() if number]:
            parts.append(f"{safe(name)} {', '.join(found)}")
    return "; ".join(parts)


def frame(progress: "Progress") -> "Group":
    """The display: an overall bar, and a row for each stage."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    finished = done(progress)
    rate = finished / progress.seconds if progress.seconds > 0 else 0
    minutes, seconds = divmod(int(progress.seconds), 60)
    bar = Table.grid(padding=(0, 2, 0, 0))
    bar.add_row(
        Text(safe(progress.site), style="bold"),
        ProgressBar(total=max(progress.total, 1), completed=finished, width=32),
        Text(f"{finished} of {progress.total}"),
        Text(f"{minutes}:{seconds:02}"),
        Text(f"{rate:.1f} a second"),
    )
    rows = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    rows.add_column("stage")
    for name in ("waiting", "ready", "running", "later", "repair/failed"):
        rows.add_column(name, justify="right")
    for name, cells in by_stage(progress.standing, (*progress.stages, ASSEMBLE)).items():
        person = cells["failed"] + cells["repair"] + cells["cancelled"]
        rows.add_row(
            Text(safe(name)),
            _number(cells["waiting"]),
            _number(cells["ready"]),
            _number(cells["running"], "green"),
            _number(cells["later"], "yellow"),
            _number(person, "red"),
        )
    return Group(bar, rows)


def done(progress: "Progress") -> int:
    return max(progress.total - sum(s.count for s in progress.standing), 0)


def _number(number: int, style: str = "") -> Any:
    from rich.text import Text

    return Text(str(number), style=style) if number else Text("·", style="dim")


class _Log(logging.Handler):
    """Puts records of the log through the display, one line each."""

    def __init__(self, display: Display) -> None:
        super().__init__(logging.INFO)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._display.say(record.getMessage())
        except Exception:
            self.handleError(record)
