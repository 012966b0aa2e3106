"""Run one stage on one claim and turn what came of it into an acknowledgement; engine room.

Everything that a stage may do wrong ends here: exceptions, results that are no outcome, a target without ledger entry.
Nothing is written here but through the ledger.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pydantic import ValidationError

from pipeline.build import Services
from pipeline.errors import LeaseLost, PathTaken
from pipeline.project.loading import Stages
from pipeline.project.site import Site
from pipeline.retry import Backoff
from pipeline.service.ledger import Occupied
from pipeline.service.work import Ack, Verb
from pipeline.stages import Done, Fail, Hold, Reject, Repair, Retry, SiteStage, Snooze, Stage
from pipeline.states import ASSEMBLE
from pipeline.views import Claim, Draft, Finding, Found, LivePage, PageCard

MARGIN = 0.1  # of the lease: we let go before it ends


def now() -> float:
    """Seconds since boot, time asleep included: a machine that slept past its leases knows it at once."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


@dataclass(slots=True)
class Holding:
    """One reservation in our hands. ``until`` is our own clock's idea of when we must have let go."""

    claim: Claim
    until: float
    site: Site
    started: bool = False
    lost: bool = False
    cancel: bool = False
    stop: bool = False
    deadline: datetime | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def ours(self) -> bool:
        """Whether the lease can still be relied on."""
        return not self.lost and now() < self.until

    def extend(self, asked_at: float) -> None:
        self.until = asked_at + self.claim.lease.total_seconds() * (1 - MARGIN)

    def cancelled(self) -> bool:
        late = self.deadline is not None and datetime.now(UTC) >= self.deadline
        return self.cancel or self.stop or late or not self.ours()


class _Ledger:
    """The ledger as a stage sees it: bound to one reservation."""

    def __init__(self, services: Services, holding: Holding) -> None:
        self._services = services
        self._holding = holding
        self.confirmed = False

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
        done = self._services.ledger.publish(
            self._holding.claim,
            target=target,
            key=key,
            hash=hash,
            look=look,
            act=act,
            still_ours=self._holding.ours,
            topic_id=topic_id,
            revision=revision,
            inputs=inputs,
        )
        self.confirmed = True
        return done


class _Corpus:
    """The other pages of the site, as the database has them."""

    def __init__(self, services: Services, claim: Claim, target: str) -> None:
        self._reading = services.reading
        self._claim = claim
        self._target = target

    def unknown(self, paths: Collection[str]) -> set[str]:
        return self._reading.unknown_paths(self._claim.site_id, paths)

    def twins(self, draft: Draft) -> Mapping[str, Sequence[str]]:
        assert self._claim.topic is not None
        return self._reading.twins(self._claim.site_id, self._claim.topic.id, draft)

    def lane(self, name: str) -> Sequence[PageCard]:
        return self._reading.lane(self._claim.site_id, name, self._target)


@dataclass(frozen=True, slots=True)
class Context:
    """What a stage gets beside its topic (``pipeline.stages.StageContext``)."""

    site: Site
    fence: int
    attempt: int
    deadline: datetime | None
    draft: Draft | None
    revision: int | None
    findings: Sequence[Finding]
    corpus: _Corpus
    ledger: _Ledger
    cancelled: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class SiteContext:
    """What the assemble job gets (``pipeline.stages.AssembleContext``)."""

    fence: int
    corpus: _Corpus
    ledger: _Ledger
    cancelled: Callable[[], bool]
    pages: Callable[[], Iterator[LivePage]]


class Runner:
    """Runs claims with the project's stages."""

    def __init__(self, services: Services, stages: Stages, default_target: str = "files") -> None:
        self._services = services
        self._stages = stages
        self._target = default_target

    def run(self, holding: Holding) -> Ack:
        """Run the claim's stage; never raises but for what ends the process."""
        claim = holding.claim
        if claim.stage == ASSEMBLE:
            return self._assemble(holding)
        stage = self._stages.pipeline[claim.stage]
        assert claim.topic is not None
        if stage.deadline is not None:
            holding.deadline = datetime.now(UTC) + stage.deadline
        ledger = _Ledger(self._services, holding)
        context = Context(
            site=holding.site,
            fence=claim.fence,
            attempt=claim.attempt,
            deadline=holding.deadline,
            draft=claim.draft,
            revision=claim.revision_id,
            findings=claim.findings,
            corpus=_Corpus(self._services, claim, stage.target or self._target),
            ledger=ledger,
            cancelled=holding.cancelled,
        )
        try:
            outcome: object = stage.run(claim.topic, context)
        except BaseException as error:  # sys.exit() too: in a thread it would end nothing, and the job stand for ever
            return _raised(claim, error, stage.retry, touches=stage.target is not None)
        if isinstance(outcome, Done) and stage.target is not None and not ledger.confirmed:
            outcome = Repair(f"{type(stage).__name__} said done, but published nothing through ctx.ledger")
        return _said(claim, outcome, stage)

    def _assemble(self, holding: Holding) -> Ack:
        claim = holding.claim
        stage = self._stages.assemble
        row = self._services.reading.site(claim.site)
        assert row is not None
        if stage is None:
            return Ack(claim, Verb.ADVANCE, built=(row.changed, ""))
        target = stage.target or self._target
        reading = self._services.reading
        context = SiteContext(
            fence=claim.fence,
            corpus=_Corpus(self._services, claim, target),
            ledger=_Ledger(self._services, holding),
            cancelled=holding.cancelled,
            pages=lambda: reading.live(claim.site_id, target, with_content=True),
        )
        try:
            outcome: object = stage.run(holding.site, context)
        except BaseException as error:  # sys.exit() too: in a thread it would end nothing, and the job stand for ever
            return _raised(claim, error, stage.retry, touches=False)
        ack = _said(claim, outcome, stage)
        if ack.verb is Verb.ADVANCE:
            # Built up to the value read before the pages were: what changed since is built again.
            return Ack(claim, Verb.ADVANCE, built=(row.changed, stage.fingerprint(holding.site)), metrics=ack.metrics)
        return ack


def _said(claim: Claim, outcome: object, stage: Stage | SiteStage) -> Ack:
    """The acknowledgement for an outcome; repair when its parts are not what they should be."""
    try:
        return _understood(claim, outcome, stage)
    except Exception as error:
        text = f"{type(stage).__name__}.run returned a {type(outcome).__name__} that cannot be used: {error}"
        touches = stage.target is not None
        return Ack(claim, Verb.REPAIR, error_class=type(error).__name__, error=text, touches=touches)


def _understood(claim: Claim, outcome: object, stage: Stage | SiteStage) -> Ack:
    touches = stage.target is not None
    match outcome:
        case Done(draft, findings, metrics):
            return Ack(claim, Verb.ADVANCE, draft=draft, findings=findings, metrics=metrics, touches=touches)
        case Reject(findings, to):
            first = next(iter(findings), None)
            text = "; ".join(f"{f.rule}: {f.message}" for f in findings) or "rejected without a finding"
            error_class = first.rule if first else None
            return Ack(
                claim, Verb.REJECT, findings=findings, to_stage=to, error_class=error_class, error=text, touches=touches
            )
        case Retry(reason, after):
            delay = stage.retry.delay(claim.attempt) if after is None else max(after, timedelta(0))
            return Ack(claim, Verb.RETRY, delay=delay, error_class="retry", error=reason, touches=touches)
        case Snooze(until, reason):
            delay = max(until, timedelta(seconds=1))
            return Ack(claim, Verb.SNOOZE, delay=delay, error=reason or None, touches=touches)
        case Hold(reason):
            return Ack(claim, Verb.HOLD, hold=reason or "approval", touches=touches)
        case Fail(reason):
            return Ack(claim, Verb.FAIL, error_class="fail", error=reason, touches=touches)
        case Repair(reason):
            return Ack(claim, Verb.REPAIR, error_class="repair", error=reason, touches=touches)
        case _:
            text = f"{type(stage).__name__}.run returned {type(outcome).__name__}; it must return an outcome"
            return Ack(claim, Verb.REPAIR, error_class="TypeError", error=text, touches=touches)


def _raised(claim: Claim, error: BaseException, retry: Backoff, *, touches: bool) -> Ack:
    """The acknowledgement for an exception: retryable, unless it cannot be helped by time."""
    name = type(error).__name__
    try:
        text = str(error) or name
    except Exception:
        text = f"{name} (its message cannot be read)"
    if isinstance(error, Occupied):
        return Ack(claim, Verb.SNOOZE, delay=timedelta(seconds=1), error=text, touches=touches)
    if isinstance(error, PathTaken | ValidationError | UnicodeError):
        return Ack(claim, Verb.REPAIR, error_class=name, error=text, touches=touches)
    if isinstance(error, LeaseLost):
        # Answered lost by the guard, as it must be; the worker says so.
        return Ack(claim, Verb.RELEASE, error_class=name, error=text, touches=touches)
    # The traceback would pin the stage's locals; only its text is kept.
    return Ack(claim, Verb.RETRY, delay=retry.delay(claim.attempt), error_class=name, error=text, touches=touches)
