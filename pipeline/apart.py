"""The process of a stage: ``python -m pipeline.apart``; engine room.

It loads the project's stages, and runs what it is told, one job at a time. It knows no database: questions and the
ledger's intents go over the pipe to the worker. What stages print becomes standard error. When the worker is gone, so
is this process, in the middle of whatever it does.
"""

import contextlib
import ctypes
import faulthandler
import io
import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from pipeline import wire
from pipeline.errors import LeaseLost, PathTaken, PipelineError
from pipeline.holding import Context, now
from pipeline.project.loading import Stages, load_stages
from pipeline.project.site import Site, load_site
from pipeline.views import Draft, Found, PageCard
from pipeline.wire import Message

PR_SET_PDEATHSIG = 1


class Refused(PipelineError):
    """The worker refused a call, for a reason that its kind tells it when it comes back."""

    def __init__(self, kind: str, name: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.name = name


class Pipe:
    """The two ends of the conversation with the worker."""

    def __init__(self, orders: int, answers: int) -> None:
        self._answers = answers
        self._orders: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._turn = threading.RLock()
        self.fence = 0  # of the job at hand
        self.cancelled = threading.Event()
        threading.Thread(target=self._listen, args=(orders,), daemon=True).start()

    def _listen(self, orders: int) -> None:
        with os.fdopen(orders, "rb") as stream:
            for line in stream:
                message = json.loads(line)
                if message["do"] != "cancel":
                    self._orders.put(message)
                elif message["fence"] == self.fence:
                    self.cancelled.set()
        os._exit(0)  # the worker is gone: what runs here is nobody's

    def order(self) -> Message:
        return self._orders.get()

    def say(self, message: Message) -> None:
        data = memoryview(wire.line(message))
        while data:
            data = data[os.write(self._answers, data) :]

    def ask(self, fence: int, message: Message, help: Mapping[str, Callable[[Message], Any]] | None = None) -> Any:
        """The worker's answer; meanwhile it may have us ``look`` and ``act``, as ``help`` says."""
        own: BaseException | None = None
        with self._turn:
            if fence != self.fence:
                raise LeaseLost("this job is over; its context cannot be used any more")
            self.say(message)
            while True:
                heard = self.order()
                match heard["do"]:
                    case "answer":
                        return heard["value"]
                    case "own" if own is not None:
                        raise own
                    case "refuse":
                        _refuse(heard)
                    case what:
                        try:
                            value = (help or {})[what](heard)
                            self.say({"say": what, "value": value})
                        except BaseException as error:
                            own = error
                            self.say({"say": "failed"})


def _refuse(heard: Message) -> NoReturn:
    match heard["name"]:
        case "LeaseLost":
            raise LeaseLost(heard["text"])
        case "PathTaken":
            raise PathTaken(heard["text"])
    raise Refused(heard["kind"], heard["name"], heard["text"])


class Ledger:
    """The ledger, by way of the worker."""

    def __init__(self, pipe: Pipe, fence: int) -> None:
        self._pipe = pipe
        self._fence = fence

    def publish(
        self,
        target: str,
        key: str,
        hash: str,
        look: Callable[[], Found | None],
        act: Callable[[], str],
        *,
        topic_id: int | None = None,
        revision: int | None = None,
        inputs: str = "",
    ) -> bool:
        def found(heard: Message) -> Message | None:
            there = look()
            return None if there is None else {"hash": there.hash, "remote": there.remote}

        def acted(heard: Message) -> str:
            if now() >= heard["until"]:
                raise LeaseLost(f"the lease ran out before {key} was written")
            return act()

        order = {"say": "publish", "target": target, "key": key, "hash": hash, "topic_id": topic_id}
        order |= {"revision": revision, "inputs": inputs}
        return bool(self._pipe.ask(self._fence, order, {"look": found, "act": acted}))


class Corpus:
    """The other pages of the site, by way of the worker."""

    def __init__(self, pipe: Pipe, fence: int) -> None:
        self._pipe = pipe
        self._fence = fence

    def unknown(self, paths: Collection[str]) -> set[str]:
        return set(self._ask("unknown", list(paths)))

    def twins(self, draft: Draft) -> Mapping[str, Sequence[str]]:
        return dict(self._ask("twins", wire.draft_out(draft)))

    def lane(self, name: str) -> Sequence[PageCard]:
        return [PageCard(**card) for card in self._ask("lane", name)]

    def near(self, most: int, also: int | None = None) -> Sequence[PageCard]:
        return [PageCard(**card) for card in self._ask("near", [most, also])]

    def _ask(self, about: str, value: Any) -> Any:
        return self._pipe.ask(self._fence, {"say": "ask", "about": about, "value": value})


class Workshop:
    """Runs what is ordered."""

    def __init__(self, root: Path, pipe: Pipe) -> None:
        self._root = root
        self._pipe = pipe
        self._stages: Stages | None = None
        self._sites: dict[str, Site] = {}

    def load(self) -> Stages:
        self._stages = self._stages or load_stages(self._root)
        return self._stages

    def run(self, order: Message) -> Message:
        """Run one job; returns what came of it, whatever it is."""
        fence = order["fence"]
        self._pipe.cancelled.clear()
        self._pipe.fence = fence
        try:
            # A mistake in the project is told like any other exception of the stage.
            stage = self.load().pipeline[order["stage"]]
            outcome: object = stage.run(wire.topic_in(order["topic"]), self._context(order))
            return wire.outcome_out(outcome)
        except wire.Unfit as error:
            return {"say": "unfit", "text": _unfit(error)}
        except BaseException as error:
            if isinstance(error, Refused):
                return {"say": "raised", "kind": error.kind, "name": error.name, "text": str(error)}
            kind, name = wire.meaning(error), type(error).__name__
            return {"say": "raised", "kind": kind, "name": name, "text": wire.words(error)[:100_000]}
        finally:
            self._pipe.fence = 0

    def _context(self, order: Message) -> Context:
        slug, fence, due = order["site"], order["fence"], order["due"]
        if slug not in self._sites:
            self._sites[slug] = load_site(self._root, slug)
        return Context(
            site=self._sites[slug],
            fence=fence,
            attempt=order["attempt"],
            deadline=None if order["deadline"] is None else datetime.fromisoformat(order["deadline"]),
            draft=wire.draft_in(order["draft"]),
            revision=order["revision"],
            findings=tuple(wire.finding_in(f) for f in order["findings"]),
            approved=order["approved"],
            corpus=Corpus(self._pipe, fence),
            ledger=Ledger(self._pipe, fence),
            cancelled=lambda: self._pipe.cancelled.is_set() or (due is not None and now() >= due),
        )


def _unfit(error: wire.Unfit) -> str:
    text = str(error)
    return text if text.endswith("must return an outcome") else f"what cannot be passed on as JSON: {text}"


def main() -> None:
    """Work until the worker closes the pipe."""
    faulthandler.enable()
    if sys.platform == "linux":
        # A stage that never lets another thread run would not notice that the worker was killed.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    orders, answers = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what was printed is seen, however this ends
    pipe = Pipe(orders, answers)
    workshop = Workshop(Path(pipe.order()["root"]), pipe)
    with contextlib.suppress(BaseException):
        workshop.load()  # before any deadline runs; what is wrong is told with the first job
    pipe.say({"say": "ready"})
    while True:
        done = workshop.run(pipe.order())
        try:
            pipe.say(done)
        except wire.Unfit as error:
            pipe.say({"say": "unfit", "text": _unfit(error)})


if __name__ == "__main__":
    main()
