"""A small project with stages that do as their row says, and the command run in it as a process."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.warm import Process

ROOT = Path(__file__).parents[2]
MODULE = "pipeline.cli.main"
PIPELINE = [sys.executable, "-m", MODULE]
CANARY = "canary/7Qx@9"
CANARIES = (CANARY, "canary%2F7Qx%409", "canary/7Qx%409", "canary%2F7Qx@9", "7Qx")

STAGES = """
import hashlib
import time
from datetime import timedelta
from pathlib import Path

from pipeline import Backoff, Done, Draft, Fail, Finding, Found, Reject, Repair, Retry, SiteStage, Stage

ROOT = Path(__file__).parents[1]


class Write(Stage):
    retry = Backoff(attempts=2, first=timedelta(0))

    def run(self, topic, ctx):
        match topic.brief.get("mood"):
            case "fail":
                return Fail("no \\x1b[31msuch\\nplace [bold]here[/bold]")
            case "repair":
                return Repair("the row is broken")
            case "later":
                return Retry("busy", timedelta(hours=1))
            case "talk":
                print("noise \\x1b]0;title\\x07 of a stage", flush=True)
            case "slow":
                if not (ROOT / "go").exists():
                    (ROOT / "running").open("w").close()  # a named pipe: blocks until the test reads
                while not (ROOT / "go").exists() and not ctx.cancelled():
                    time.sleep(0.01)
        return Done(draft=Draft(topic.title, "", topic.title))


class Check(Stage):
    def run(self, topic, ctx):
        if topic.brief.get("mood") == "reject":
            return Reject([Finding("too-short", "write more"), Finding("no-link", "link somewhere")])
        return Done()


class Release(Stage):
    width = 1
    target = "files"
    retry = Backoff(attempts=2, first=timedelta(0))

    def run(self, topic, ctx):
        data = ctx.draft.body.encode()
        file = ctx.site.output / topic.path / "index.html"

        def look():
            return Found(hashlib.sha256(file.read_bytes()).hexdigest(), "") if file.exists() else None

        def act():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            return ""

        digest = hashlib.sha256(data).hexdigest()
        ctx.ledger.publish("files", topic.path, digest, look, act, topic_id=topic.id, revision=ctx.revision)
        return Done()


class Assemble(SiteStage):
    def run(self, site, ctx):
        return Done()


PIPELINE = (Write, Check, Release)
ASSEMBLE = Assemble
"""
TOML = 'name = "Demo"\nbase_url = "https://demo.example"\n'
HEADER = "lane,position,slug,title,type,mood"


@dataclass(frozen=True, slots=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document on standard output."""
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)


@dataclass(slots=True)
class Door:
    """Runs the command in a project. Whatever it does, it shows no password, and no traceback."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PIPELINE_", "DATABASE_", "PG"))}
        quiet = {"PYTHONPATH": str(ROOT), "COLUMNS": "80", "PYTHONDONTWRITEBYTECODE": "1"}
        return inherited | quiet | self.env | dict(more or {})

    def start(self, *words: str, env: Mapping[str, str] | None = None, **streams: Any) -> Process:
        """The command as a process of its own, with pipes for what it says, or with the streams that are named."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return Process(MODULE, words, cwd=self.root, env=self.environment(env), **(pipes | streams))

    def cold(self, *words: str, env: Mapping[str, str] | None = None) -> Said:
        """The same from the start of the interpreter, as a shell starts it."""
        process = subprocess.Popen(
            [*PIPELINE, *words],
            cwd=self.root,
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return self.end(process)

    def end(self, process: Process | subprocess.Popen[str]) -> Said:
        try:
            out, err = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert process.returncode is not None
        said = Said(process.returncode, out, err)
        harmless(said.out + said.err)
        return said

    def __call__(self, *words: str, env: Mapping[str, str] | None = None) -> Said:
        return self.end(self.start(*words, env=env))

    def rows(self, *rows: str, header: str = HEADER) -> None:
        (self.root / "sites/demo/topics.csv").write_text("\n".join([header, *rows]) + "\n")

    def moods(self, **moods: str) -> None:
        """Two lanes of three topics, all well but those named: ``a1="fail"``."""
        self.rows(*(f"{t[0]},{t[1]},{t},Title of {t},page,{moods.get(t, '')}" for t in TOPICS))

    def wait_until_slow(self) -> None:
        """Return when a stage says that it runs."""
        with (self.root / "running").open():
            pass

    def stages(self, text: str) -> None:
        (self.root / "stages/__init__.py").write_text(text)


TOPICS = ("a1", "a2", "a3", "b1", "b2", "b3")


def harmless(text: str) -> None:
    assert not any(canary in text for canary in CANARIES), text
    assert "Traceback" not in text, text
    assert not any(ord(c) < 32 and c not in "\n" for c in text), repr(text)


def write_project(root: Path) -> Door:
    (root / "sites/demo").mkdir(parents=True)
    (root / "sites/demo/site.toml").write_text(TOML)
    (root / "stages").mkdir()
    os.mkfifo(root / "running")
    door = Door(root)
    door.stages(STAGES)
    door.moods()
    return door
