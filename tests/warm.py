"""``python -m MODULE`` as a process of its own that need not load the libraries first: forked off one that has.

Loading them takes most of a second of a core, a fork a hundredth of one. All else is as ever: a process has its own
number, folder, environment, standard streams and signals, and runs the module as ``__main__`` from its first line. What
the interpreter itself reads when it starts (PYTHON* variables, the locale) needs a cold start: ``subprocess``.
"""

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
STREAMS = ("stdin", "stdout", "stderr")
RUN_AS_MAIN = {"pipeline.cli.main", "pipeline.child", "pipeline.apart"}  # loaded when they run, as ever
LIBRARIES = ("alembic.command", "jinja2", "psycopg", "rich.live", "rich.progress", "rich.table", "typer.main")


class Process:
    """What a test needs of ``subprocess.Popen``; its pipes hold text."""

    def __init__(
        self,
        module: str,
        words: Sequence[str] = (),
        *,
        cwd: Path | str,
        env: Mapping[str, str],
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        closed: Collection[int] = (),
        terminal: bool = False,
    ) -> None:
        """``closed``: streams that the process is to lack; ``terminal``: the one of standard input is to be its own."""
        self.args = [module, *words]
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = None, None, None
        theirs = [self._stream(number, asked) for number, asked in enumerate((stdin, stdout, stderr))]
        self._wire, far = socket.socketpair()
        socket.send_fds(_server(), [b"!"], [far.fileno(), *theirs])
        far.close()
        for fd, asked in zip(theirs, (stdin, stdout, stderr), strict=True):
            if asked in (subprocess.PIPE, subprocess.DEVNULL):
                os.close(fd)
        order = {
            "module": module, "words": list(words), "cwd": str(cwd), "env": dict(env), "closed": list(closed),
            "terminal": terminal,
        }  # fmt: skip
        self._wire.sendall(json.dumps(order).encode() + b"\n")
        self._answers = self._wire.makefile("rb", buffering=0)  # it must not take the exit code along with the number
        self.pid = int(self._answers.readline())

    def _stream(self, number: int, asked: int | None) -> int:
        """The descriptor that is to be its standard stream; our end of a pipe becomes an attribute."""
        if asked == subprocess.DEVNULL:
            return os.open(os.devnull, os.O_RDWR)
        if asked != subprocess.PIPE:
            return number if asked is None else asked
        reader, writer = os.pipe()
        ours, theirs, mode = (writer, reader, "w") if number == 0 else (reader, writer, "r")
        setattr(self, STREAMS[number], os.fdopen(ours, mode))
        return theirs

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._wire.settimeout(timeout)
            try:
                self.returncode = int(self._wire.recv(16))
            except (BlockingIOError, TimeoutError):
                return None
            self._answers.close()
            self._wire.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it still says, once it has ended."""
        said = {"stdout": "", "stderr": ""}

        def read(name: str, stream: IO[str]) -> None:
            with stream:
                said[name] = stream.read()

        streams = {name: getattr(self, name) for name in said}
        readers = [threading.Thread(target=read, args=item) for item in streams.items() if item[1] is not None]
        until = None if timeout is None else time.monotonic() + timeout
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(None if until is None else max(until - time.monotonic(), 0))
        self.wait(None if until is None else max(until - time.monotonic(), 0))
        return said["stdout"], said["stderr"]


@cache
def _server() -> socket.socket:
    """The line to the process that has loaded everything; it ends with us."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.warm", str(theirs.fileno())]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PIPELINE_", "DATABASE_", "PG"))}
    server = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    theirs.close()

    def end() -> None:
        ours.close()
        server.wait(timeout=10)

    atexit.register(end)
    return ours


def _load() -> None:
    import pipeline

    for name in LIBRARIES:
        importlib.import_module(name)
    for found in pkgutil.walk_packages(pipeline.__path__, "pipeline."):
        if found.name not in RUN_AS_MAIN and not found.name.startswith("pipeline.testing"):
            importlib.import_module(found.name)
    gc.collect()
    gc.freeze()  # what is shared with a fork stays shared


def _next(control: socket.socket) -> dict[str, Any]:
    """Returns in each new process, with what it is to run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C for the test run; it ends us by its end
    while True:
        _, fds, _, _ = socket.recv_fds(control, 1, 4)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not fds:
            os._exit(0)
        if os.fork() == 0:
            break
        for fd in fds:
            os.close(fd)
    wire = socket.socket(fileno=fds[0])
    order: dict[str, Any] = json.loads(wire.makefile("rb").readline())
    pid = os.fork()
    if pid:
        for fd in fds[1:]:
            os.close(fd)
        wire.sendall(b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        wire.sendall(b"%d" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _take_streams(fds[1:], order["closed"])
    wire.detach()
    control.detach()
    os.closerange(3, 256)
    if order["terminal"]:
        os.login_tty(os.dup(0))
    return order


def _take_streams(fds: Sequence[int], closed: Collection[int]) -> None:
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    for number in closed:
        os.close(number)
    sys.stdin = None if 0 in closed else os.fdopen(0, closefd=False)
    sys.stdout = None if 1 in closed else os.fdopen(1, "w", closefd=False)
    sys.stderr = None if 2 in closed else os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)


def _become(order: Mapping[str, Any]) -> None:
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    time.tzset()
    sys.path[0] = order["cwd"]
    sys.argv = [order["module"], *order["words"]]
    try:
        runpy.run_module(order["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    # As the interpreter ends, but for taking down what was loaded: that would cost more than all the rest.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    _load()
    _become(_next(socket.socket(fileno=int(sys.argv[1]))))
