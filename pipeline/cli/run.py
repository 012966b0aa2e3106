"""``pipeline run``: plan what is missing, work until the site is idle, tell what is left; floor 4."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from pipeline.cli import outlook, summary
from pipeline.cli.completion import site_names
from pipeline.cli.display import Display
from pipeline.cli.guard import Interrupted
from pipeline.cli.house import project
from pipeline.cli.render import as_json, out
from pipeline.cli.status import JsonOption

GIVEN_BACK = "interrupted; what was in hand was given back; run the same command to go on"
REPEATS = 3
AT_ONCE = "interrupted at once; the next run takes back what was in hand; run the same command to go on"


def run(
    site: Annotated[
        str, typer.Option("--site", help="The site: a folder in sites/.", metavar="NAME", autocompletion=site_names)
    ],
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Worker processes; default: one for each core.", min=1, max=256, metavar="N"),
    ] = None,
    wait: Annotated[
        float,
        typer.Option("--wait", help="How long to wait for retries.", min=0, max=31_536_000, metavar="SECONDS"),
    ] = 120,
    plan: Annotated[bool, typer.Option("--plan", help="Only show what would be done; nothing is written.")] = False,
    json: JsonOption = False,
) -> int:
    """Publish what is missing or changed of a site.

    Plans it, works until the site is idle, and tells what is left. Ends with 0 when everything is live, with 1 when
    something needs a person or a longer wait.

    Example: pipeline run --site acme
    """
    settings, root = project()
    from pipeline.run import Run

    with Display() as display, interruptible(display) as heard:
        work = Run(
            root,
            site,
            settings,
            workers=workers or settings.workers,
            wait=timedelta(seconds=wait),
            show=display.show,
            say=display.say,
        )
        try:
            with answers_only(display):
                if plan:
                    ahead = work.plan()
                else:
                    report = work.run()
        except KeyboardInterrupt:
            raise Interrupted(None if plan else GIVEN_BACK if len(heard) < 2 else AT_ONCE) from None
    if plan:
        out(as_json(outlook.document(ahead)) if json else outlook.text(ahead))
        return 0
    if json:
        out(as_json(summary.document(report)))
    else:
        out(summary.text(report, Path.cwd(), datetime.now().astimezone()))
    return report.exit_code


@contextmanager
def interruptible(display: Display) -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt: the first gives work back, the next ends it. Yields those heard."""
    heard: list[int] = []
    asked, urgent, over = threading.Event(), threading.Event(), threading.Event()
    main = threading.get_ident()

    def stop(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        if len(heard) > REPEATS + 2:
            return  # impatience must not disturb the end
        asked.set()
        if len(heard) > 1:
            urgent.set()
        display.interrupt()

    def answer() -> None:
        asked.wait()
        if not over.is_set():
            display.say("stopping: what is in hand is finished or given back; again to stop at once")
        urgent.wait()
        # Whatever dealt with the first may have swallowed the second: a driver that just cancelled its query, say.
        for _ in range(REPEATS):
            if not over.wait(1):
                signal.pthread_kill(main, signal.SIGTERM)
        over.wait()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    # A terminal sends Ctrl-C to its whole group. Workers inherit this mask, so they hear of it from us alone, by
    # SIGTERM, even while they start. The thread made before it takes the signals in our stead, as long as it
    # lives, and answers: the main thread may be in the middle of writing.
    threading.Thread(target=answer, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield heard
    finally:
        for event in (over, asked, urgent):
            event.set()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def answers_only(display: Display) -> Iterator[None]:
    """Keep standard output for the answer: what stages print, in workers too, becomes talk while the block lasts."""
    try:
        kept = os.dup(1)
    except OSError:  # closed: nothing to keep
        yield
        return
    if sys.stdout is not None:
        sys.stdout.flush()
    reader, writer = os.pipe()
    os.dup2(writer, 1)
    os.close(writer)
    thread = threading.Thread(target=_relay, args=(reader, display), daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError, ValueError, AttributeError):
            sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
        thread.join(timeout=1)  # a process that a stage left behind may keep the pipe open


def _relay(reader: int, display: Display) -> None:
    with os.fdopen(reader, "rb") as stream:
        for raw in stream:
            with suppress(Exception):
                display.say(raw.decode("utf-8", "replace").rstrip())
