"""On a real terminal: the display, Ctrl-C, questions."""

import os
import pty
import re
import signal
from dataclasses import dataclass, field

import pytest

from tests.doors.scene import CANARIES, MODULE, Door
from tests.factories import Factory
from tests.warm import Process

pytestmark = pytest.mark.slow  # real processes, and many of them


@dataclass(slots=True)
class Terminal:
    """The command with a terminal of its own, as a person sees it."""

    door: Door
    words: tuple[str, ...]
    seen: str = ""
    master: int = field(init=False)
    process: Process = field(init=False)

    def __post_init__(self) -> None:
        self.master, slave = pty.openpty()
        env = self.door.environment({"TERM": "xterm", "LINES": "30"})
        streams = {"stdin": slave, "stdout": slave, "stderr": slave}
        self.process = Process(MODULE, self.words, cwd=self.door.root, env=env, terminal=True, **streams)
        os.close(slave)

    def until(self, part: str | None) -> str:
        """Read until the text is seen; None: until the end."""
        while part is None or part not in self.seen:
            try:
                piece = os.read(self.master, 4096).decode(errors="replace")
            except OSError:  # nobody has the other end open any more
                piece = ""
            if not piece:
                assert part is None, self.seen
                break
            self.seen += piece
        assert "Traceback" not in self.seen, self.seen
        assert not any(canary in self.seen for canary in CANARIES)
        return self.seen

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def end(self) -> int:
        self.until(None)
        os.close(self.master)
        return self.process.wait(timeout=30)


def test_run_shows_its_stages_and_ends_cleanly(door: Door) -> None:
    """A row a stage while it works; at the end the cursor is back and the summary stands alone."""
    door.moods(a1="talk")
    terminal = Terminal(door, ("run", "--site", "demo", "--workers", "1"))

    code = terminal.end()

    assert code == 0
    for name in ("write", "check", "release", "repair/failed", "0 of 6"):
        assert name in terminal.seen
    assert terminal.seen.rindex("\x1b[?25h") > terminal.seen.rindex("\x1b[?25l")
    assert r"noise \x1b]0;title\x07 of a stage" in terminal.seen
    assert "\x1b]0;" not in terminal.seen
    assert "repair/failed" not in terminal.seen[terminal.seen.rindex("\x1b[?25h") :]
    assert terminal.seen.endswith("result: public/demo\r\n")


def test_ctrl_c_reaches_everyone_and_gives_back(door: Door) -> None:
    """Typed on a terminal it goes to the whole group; workers, even starting ones, still wind down in order."""
    door.moods(a1="slow")
    door.env |= {"PIPELINE_GRACE": "PT0.2S", "NO_COLOR": "1"}
    terminal = Terminal(door, ("run", "--site", "demo", "--workers", "1"))
    terminal.until("0 of 6")
    terminal.type("\x03")

    assert terminal.end() == 130
    assert not re.search(r"\x1b\[[0-9;]*3[0-9][;m]", terminal.seen)  # a display, and no colours
    assert "interrupted; what was in hand was given back" in terminal.seen

    working = Terminal(door, ("run", "--site", "demo", "--workers", "1"))
    door.wait_until_slow()
    working.type("\x03")

    assert working.end() == 130
    assert working.seen.rindex("\x1b[?25h") > working.seen.rindex("\x1b[?25l")
    assert all(job["state"] != "reserved" for job in door("jobs", "list", "--json").json["jobs"])


def test_skip_asks_first(door: Door, make: Factory) -> None:
    """No, Ctrl-C and end of input change nothing; yes does, and so does --yes without a question."""
    first, second = make.plan(count=2)
    for answer, code in (("n\n", 1), ("\x03", 1), ("\x04", 1), ("y\n", 0)):
        terminal = Terminal(door, ("jobs", "skip", str(first)))
        terminal.until("[y/N]")
        terminal.type(answer)
        assert terminal.end() == code, terminal.seen
        assert ("nothing was changed" in terminal.seen) == (code != 0)
        assert make.state(first) == ("skipped" if code == 0 else "pending")

    terminal = Terminal(door, ("jobs", "skip", str(second), "--yes"))
    assert terminal.end() == 0
    assert "[y/N]" not in terminal.seen
    assert make.state(second) == "skipped"


def test_a_reader_that_leaves_is_no_error(door: Door, make: Factory) -> None:
    """``pipeline jobs list | head -1`` is quiet."""
    make.plan(count=2)
    process = door.start("jobs", "list")
    assert process.stdout is not None
    process.stdout.close()

    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(timeout=30) in (0, -signal.SIGPIPE)
