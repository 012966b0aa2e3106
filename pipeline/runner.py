"""Run one stage on one claim, in the colour that it asks for, and turn what came of it into an acknowledgement; engine
room.

Nothing is written here but through the ledger. What is awaited, and what runs in another process, keeps every promise
that a plain function in a thread keeps: ``pipeline.verdict`` judges all three.
"""

import asyncio
import inspect
from concurrent.futures import Executor
from enum import StrEnum
from typing import Any, cast

from pipeline import verdict
from pipeline.access import AsyncCorpus, AsyncLedger, Corpus, Ledger, reached
from pipeline.build import Services
from pipeline.holding import Context, Holding, SiteContext
from pipeline.keeper import Keeper
from pipeline.project.loading import Stages
from pipeline.service.acknowledging import Ack, Verb
from pipeline.stages import SiteStage, Stage
from pipeline.states import ASSEMBLE
from pipeline.views import Claim


class Colour(StrEnum):
    """Where a stage runs."""

    THREAD = "thread"
    LOOP = "loop"
    PROCESS = "process"


class Runner:
    """Runs claims with the project's stages."""

    def __init__(self, services: Services, stages: Stages, default_target: str = "files") -> None:
        self._services = services
        self._stages = stages
        self._target = default_target
        self._colours = {name: _colour(stage) for name, stage in stages.pipeline.items()}

    def colour(self, claim: Claim) -> Colour:
        return self._colours.get(claim.stage, Colour.THREAD)  # an assembly is no stage of the pipeline's

    def stage(self, claim: Claim) -> Stage | SiteStage:
        if claim.stage == ASSEMBLE:
            return self._stages.assemble or SiteStage()
        return self._stages.pipeline[claim.stage]

    def run(self, holding: Holding) -> Ack:
        """Run the claim's stage in this thread."""
        claim = holding.claim
        if claim.stage == ASSEMBLE:
            return self._assemble(holding)
        stage = self._stages.pipeline[claim.stage]
        assert claim.topic is not None
        holding.begin(claim.deadline or stage.deadline)
        ledger, corpus = self._means(holding, stage)
        try:
            outcome: object = stage.run(claim.topic, _context(holding, ledger, corpus))
        except BaseException as error:  # sys.exit() too: in a thread it would end nothing, and the job stand for ever
            return verdict.raised(claim, stage, error)
        return verdict.said(claim, outcome, stage, confirmed=ledger.confirmed)

    async def run_on_loop(self, holding: Holding, threads: Executor) -> Ack:
        """Run the claim's async stage; its questions and its ledger take one of ``threads`` while they last."""
        claim = holding.claim
        stage = self._stages.pipeline[claim.stage]
        assert claim.topic is not None
        holding.begin(claim.deadline or stage.deadline)
        ledger, corpus = self._means(holding, stage)
        context = _context(holding, AsyncLedger(ledger, threads), AsyncCorpus(corpus, threads))
        try:
            outcome: object = await cast(Any, stage.run(claim.topic, context))
        except asyncio.CancelledError as error:
            return verdict.ended(holding, stage) or verdict.raised(claim, stage, error)
        except BaseException as error:  # sys.exit() would end the loop, and every other job on it
            return verdict.raised(claim, stage, error)
        return verdict.said(claim, outcome, stage, confirmed=ledger.confirmed)

    def run_apart(self, holding: Holding, keeper: Keeper) -> Ack:
        """Run the claim's stage in a process of its own; this thread talks with it."""
        stage = self._stages.pipeline[holding.claim.stage]
        ledger, corpus = self._means(holding, stage)
        return keeper.run(holding, stage, ledger, corpus)

    def _means(self, holding: Holding, stage: Stage) -> tuple[Ledger, Corpus]:
        corpus = Corpus(self._services, holding.claim, stage.target or self._target)
        return Ledger(self._services, holding), corpus

    def _assemble(self, holding: Holding) -> Ack:
        claim = holding.claim
        stage = self._stages.assemble
        with reached():
            row = self._services.reading.site(claim.site)
        assert row is not None
        if stage is None:
            return Ack(claim, Verb.ADVANCE, built=(row.changed, ""))
        target = stage.target or self._target

        corpus = Corpus(self._services, claim, target)
        context = SiteContext(
            fence=claim.fence,
            corpus=corpus,
            ledger=Ledger(self._services, holding),
            cancelled=holding.cancelled,
            pages=corpus.live,
        )
        try:
            outcome: object = stage.run(holding.site, context)
        except BaseException as error:  # sys.exit() too: in a thread it would end nothing, and the job stand for ever
            return verdict.raised(claim, stage, error)
        ack = verdict.said(claim, outcome, stage)
        if ack.verb is Verb.ADVANCE:
            # Built up to the value read before the pages were: what changed since is built again.
            return Ack(claim, Verb.ADVANCE, built=(row.changed, stage.fingerprint(holding.site)), metrics=ack.metrics)
        return ack


def _colour(stage: Stage) -> Colour:
    if inspect.iscoroutinefunction(stage.run):
        return Colour.LOOP
    return Colour.PROCESS if stage.executor == "process" else Colour.THREAD


def _context(holding: Holding, ledger: Ledger | AsyncLedger, corpus: Corpus | AsyncCorpus) -> Context:
    claim = holding.claim
    return Context(
        site=holding.site,
        fence=claim.fence,
        attempt=claim.attempt,
        deadline=holding.deadline,
        draft=claim.draft,
        revision=claim.revision_id,
        findings=claim.findings,
        approved=claim.approved,
        corpus=corpus,
        ledger=ledger,
        cancelled=holding.cancelled,
    )
