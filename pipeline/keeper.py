"""Processes for stages that ask for one: started, kept for the next job, talked with, killed; engine room.

A process works on one job at a time. The thread that talks with it never waits without looking at the reservation, and
kills it at the stage's deadline, when the lease is lost, and when the worker stops for good. Orders and answers are
lines of JSON (``pipeline.wire``). The stage acts in its process; intent and confirmation are written here.
"""

import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline import verdict, wire
from pipeline.access import Corpus, Ledger
from pipeline.holding import Holding, now
from pipeline.service.acknowledging import Ack
from pipeline.spawned import Cut, Gone, Process
from pipeline.stages import Stage
from pipeline.views import Found
from pipeline.wire import Message

READY = 60.0  # seconds that a process may take to load the project's stages


class _Raised(Exception):
    """``look`` or ``act`` raised in the process, which keeps the exception and raises it there."""


class Keeper:
    """The processes of one worker."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._idle: list[Process] = []
        self._busy: set[Process] = set()

    def run(self, holding: Holding, stage: Stage, ledger: Ledger, corpus: Corpus) -> Ack:
        """Run the claim's stage in a process; never raises."""
        claim = holding.claim
        try:
            process = self._take()
        except OSError as error:
            return verdict.raised(claim, stage, error)
        clean = False
        try:
            ack = _Talk(process, holding, stage, ledger, corpus).run()
            clean = True
        except Cut:
            process.kill()
            ack = verdict.ended(holding, stage) or verdict.told(
                claim, stage, "", verdict.DIED, f"its process was not ready after {READY:g} s"
            )
        except Gone as gone:
            how = process.kill()
            # Killed by us in another thread, perhaps: then it is told why.
            said = f"its process {str(gone) or how}"
            ack = verdict.ended(holding, stage) or verdict.told(claim, stage, "", verdict.DIED, said)
        finally:
            self._give_back(process, clean)
        return ack

    def cut(self) -> None:
        """Kill what is at work, and see it gone."""
        with self._lock:
            busy = list(self._busy)
        for process in busy:
            process.kill()

    def close(self) -> None:
        """Kill all."""
        self.cut()
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.kill()
            process.close()

    def _take(self) -> Process:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.runs():
                    self._busy.add(process)
                    return process
                process.close()
        process = Process(self._root)
        with self._lock:
            self._busy.add(process)
        return process

    def _give_back(self, process: Process, clean: bool) -> None:
        if not clean:
            process.kill()
        with self._lock:
            self._busy.discard(process)
            dead = [p for p in self._idle if not p.runs()]
            self._idle = [p for p in self._idle if p not in dead]
            if clean and process.runs():
                self._idle.append(process)
            else:
                dead.append(process)
        for one in dead:
            one.close()


class _Talk:
    """The conversation about one job."""

    def __init__(self, process: Process, holding: Holding, stage: Stage, ledger: Ledger, corpus: Corpus) -> None:
        self._process = process
        self._holding = holding
        self._stage = stage
        self._ledger = ledger
        self._corpus = corpus
        self._fence = holding.claim.fence
        self._told = False
        self._ready_by = now() + READY

    def run(self) -> Ack:
        claim, stage = self._holding.claim, self._stage
        if not self._process.ready:
            self._process.send({"do": "load", "root": str(self._process.root)}, self._look)
            self._process.receive(self._look)
            self._process.ready = True
        self._holding.begin(self._holding.claim.deadline or stage.deadline)
        try:
            self._process.send(self._order(), self._look)
        except wire.Unfit as error:
            return verdict.unfit(claim, stage, "Unfit", f"nothing: its topic cannot be passed on: {error}")
        answer = self._hear()
        match answer["say"]:
            case "outcome":
                try:
                    outcome = wire.outcome_in(answer)
                except (wire.Unfit, KeyError, TypeError, ValueError) as error:
                    raise Gone("said what is no answer") from error
                return verdict.said(claim, outcome, stage, confirmed=self._ledger.confirmed)
            case "unfit":
                return verdict.unfit(claim, stage, "Unfit", str(answer["text"]))
            case "raised":
                return verdict.told(claim, stage, answer["kind"], str(answer["name"]), str(answer["text"]))
        raise Gone("said what is no answer")

    def _order(self) -> Message:
        holding, claim = self._holding, self._holding.claim
        assert claim.topic is not None
        return {
            "do": "run",
            "fence": claim.fence,
            "stage": claim.stage,
            "site": claim.site,
            "attempt": claim.attempt,
            "deadline": None if holding.deadline is None else holding.deadline.isoformat(),
            "due": holding.due,
            "topic": wire.topic_out(claim.topic),
            "draft": wire.draft_out(claim.draft),
            "revision": claim.revision_id,
            "findings": [wire.finding_out(f) for f in claim.findings],
            "approved": claim.approved,
        }

    def _look(self) -> None:
        """Raises when the process must go; tells it once that its result is no longer wanted."""
        holding = self._holding
        if holding.stop or holding.late() or not holding.ours():
            raise Cut
        if not self._process.ready and now() > self._ready_by:
            raise Cut

    def _hear(self) -> Message:
        """What it says next, once its questions are answered."""
        while True:
            said = self._process.receive(self._look_and_tell)
            match said["say"]:
                case "ask":
                    self._answer(lambda said=said: self._asked(said))  # type: ignore[misc]
                case "publish":
                    self._answer(lambda said=said: self._publish(said))  # type: ignore[misc]
                case _:
                    return said

    def _look_and_tell(self) -> None:
        self._look()
        if self._holding.cancel and not self._told:
            self._told = True
            self._process.send({"do": "cancel", "fence": self._fence}, self._look)

    def _answer(self, question: Callable[[], Any]) -> None:
        try:
            answer = {"do": "answer", "value": question()}
        except (Cut, Gone):
            raise
        except _Raised:
            answer = {"do": "own"}
        except Exception as error:
            kind = verdict.kind(error)
            answer = {"do": "refuse", "kind": kind, "name": type(error).__name__, "text": wire.words(error)}
        self._process.send(answer, self._look)

    def _asked(self, said: Message) -> Any:
        match said["about"], said["value"]:
            case "unknown", paths:
                return sorted(self._corpus.unknown(paths))
            case "twins", draft:
                found = wire.draft_in(draft)
                assert found is not None
                return {key: list(slugs) for key, slugs in self._corpus.twins(found).items()}
            case "lane", name:
                return [asdict(card) for card in self._corpus.lane(name)]
            case "near", [most, also]:
                return [asdict(card) for card in self._corpus.near(most, also)]
        raise Gone("asked what nobody can answer")

    def _publish(self, said: Message) -> bool:
        return self._ledger.publish(
            said["target"],
            said["key"],
            said["hash"],
            self._found,
            self._acted,
            topic_id=said["topic_id"],
            revision=said["revision"],
            inputs=said["inputs"],
        )

    def _found(self) -> Found | None:
        answer = self._let("look")
        return None if answer is None else Found(**answer)

    def _acted(self) -> str:
        # It looks at the clock, which is the same for both, once more: this message may be read much later.
        return str(self._let("act"))

    def _let(self, what: str) -> Any:
        self._process.send({"do": what, "until": self._holding.until}, self._look)
        answer = self._hear()
        if answer["say"] == "failed":
            raise _Raised
        if answer["say"] != what:
            raise Gone("said what is no answer")
        return answer["value"]
