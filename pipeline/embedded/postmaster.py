"""Whether our server runs, and how to stop it; engine room.

``postmaster.pid`` only claims that a process exists. A pid is our postmaster when the process lives, is no zombie, is
called postgres, and works in our data directory. Nothing here starts a server.
"""

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from pipeline.embedded.errors import EmbeddedError
from pipeline.embedded.locks import PAUSE
from pipeline.embedded.places import read_small

# Servers that this process started: asking for their end reaps them, and keeping them here spares a warning at exit.
# A forked copy of this process is not their parent, hence the third part: whose children they are.
_children: dict[int, tuple[subprocess.Popen[bytes], Path, int]] = {}


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A running server of ours, as its own file describes it."""

    pid: int
    socket_directory: Path | None
    state: str  # "starting", "ready", "stopping", "standby"; empty when the file is cut short

    @property
    def accepts(self) -> bool:
        """Whether asking for a connection is worth while."""
        return self.state not in ("starting", "stopping")


def find(data: Path) -> Postmaster | None:
    """The running server of this data directory, or None."""
    lines = read_small(data / "postmaster.pid").splitlines()
    pid = pid_in_file(data)
    if pid is None or not _serves(pid, data):
        return None
    socket = lines[4].strip() if len(lines) > 4 else ""
    return Postmaster(pid, Path(socket) if socket else None, lines[7].strip() if len(lines) > 7 else "")


def pid_in_file(data: Path) -> int | None:
    """What postmaster.pid claims; None when there is no file or no number in it."""
    lines = read_small(data / "postmaster.pid").splitlines()
    digits = lines[0].strip().removeprefix("-") if lines else ""
    return int(digits) if digits.isdecimal() and 0 < int(digits) < 2**31 else None


def adopt(child: subprocess.Popen[bytes], data: Path) -> None:
    """Remember a server that this process started."""
    _children[child.pid] = child, data, os.getpid()


def give_up(data: Path, deadline: float) -> None:
    """Stop whatever runs or is coming up on this data directory, as far as it can be seen."""
    for child, place, parent in list(_children.values()):
        if (place, parent) == (data, os.getpid()) and child.poll() is None:
            child.send_signal(signal.SIGINT)  # perhaps it has not yet written its file
            child.wait(max(0.0, deadline - time.monotonic()))
    if found := find(data):
        stop(data, found, deadline)


def stop(data: Path, found: Postmaster, deadline: float) -> None:
    """Stop the server the fast way: clients are disconnected, nothing is lost. Returns when it is gone.

    Raises EmbeddedError at ``deadline`` (monotonic); the server then still tries.
    """
    os.kill(found.pid, signal.SIGINT)
    while _serves(found.pid, data):
        if time.monotonic() > deadline:
            raise EmbeddedError(
                f"the embedded PostgreSQL (process {found.pid}) was told to stop and still runs; see the log by {data}"
            )
        time.sleep(PAUSE)


def _serves(pid: int, data: Path) -> bool:
    if pid in _children:
        child, _, parent = _children[pid]
        if parent == os.getpid() and child.poll() is not None:
            del _children[pid]
            return False
    if not Path("/proc/self").exists():
        return _serves_without_proc(pid, data)
    # "pid (name) state ...": the name is in parentheses because it may hold anything.
    name, _, rest = read_small(Path(f"/proc/{pid}/stat")).partition("(")[2].rpartition(")")
    if name != "postgres" or rest.split()[0] in ("Z", "X"):
        return False
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", data)
    except PermissionError:
        # Containers often keep root from looking there. The command line is open to all, and we wrote it.
        arguments = read_small(Path(f"/proc/{pid}/cmdline")).split("\0")
        return str(data) in arguments
    except OSError:
        return False


def _serves_without_proc(pid: int, data: Path) -> bool:
    shown = subprocess.run(["ps", "-ww", "-o", "stat=,command=", "-p", str(pid)], capture_output=True, text=True).stdout
    state, _, command = shown.strip().partition(" ")
    return bool(state) and not state.startswith("Z") and "postgres" in command and str(data) in command
