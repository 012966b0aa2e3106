"""What came of a stage, as an acknowledgement; engine room.

Everything that a stage may do wrong ends here: exceptions, results that are no outcome, a target without ledger entry.
The three colours share this, so that they keep the same promises.
"""

from datetime import timedelta

from pipeline.holding import Holding
from pipeline.service.acknowledging import Ack, Verb
from pipeline.service.ledger import Occupied
from pipeline.stages import Done, Fail, Hold, Reject, Repair, Retry, SiteStage, Snooze, Stage
from pipeline.views import Claim
from pipeline.wire import meaning, words

DEADLINE = "deadline"  # the error class of a run that was ended at its stage's deadline
DIED = "died"  # of one whose process ended under it

AnyStage = Stage | SiteStage


def said(claim: Claim, outcome: object, stage: AnyStage, *, confirmed: bool = True) -> Ack:
    """The acknowledgement for an outcome; repair when its parts are not what they should be.

    ``confirmed``: something was published through the ledger, as a stage with a target must do before it is done.
    """
    if isinstance(outcome, Done) and stage.target is not None and not confirmed:
        outcome = Repair(f"{type(stage).__name__} said done, but published nothing through ctx.ledger")
    try:
        return _understood(claim, outcome, stage)
    except Exception as error:
        return unfit(claim, stage, type(error).__name__, f"a {type(outcome).__name__} that cannot be used: {error}")


def unfit(claim: Claim, stage: AnyStage, error_class: str, what: str) -> Ack:
    """A person must mend the stage: it returned what nobody can use."""
    text = f"{type(stage).__name__}.run returned {what}"
    return Ack(claim, Verb.REPAIR, error_class=error_class, error=text, touches=stage.target is not None)


def raised(claim: Claim, stage: AnyStage, error: BaseException) -> Ack:
    """The acknowledgement for an exception: retryable, unless it cannot be helped by time."""
    # The traceback would pin the stage's locals; only its text is kept.
    return told(claim, stage, kind(error), type(error).__name__, words(error))


def told(claim: Claim, stage: AnyStage, kind: str, name: str, text: str) -> Ack:
    """The same for an exception that was raised elsewhere and is known by its kind, name and message."""
    # A site's own job raises its site by itself; a page's end does it for what the stage may have written.
    touches = isinstance(stage, Stage) and stage.target is not None
    match kind:
        case "occupied":
            return Ack(claim, Verb.SNOOZE, delay=timedelta(seconds=1), error=text, touches=touches)
        case "broken":
            return Ack(claim, Verb.REPAIR, error_class=name, error=text, touches=touches)
        case "lost":
            # Answered lost by the guard, as it must be; the worker says so.
            return Ack(claim, Verb.RELEASE, error_class=name, error=text, touches=touches)
        case _:
            delay = stage.retry.delay(claim.attempt)
            return Ack(claim, Verb.RETRY, delay=delay, error_class=name, error=text, touches=touches)


def late(claim: Claim, stage: AnyStage) -> Ack:
    """Ended at the deadline of its lane or stage: tried again, and charged."""
    assert isinstance(stage, Stage)
    deadline = claim.deadline or stage.deadline
    assert deadline is not None
    text = f"ended at the deadline of {type(stage).__name__}, {deadline.total_seconds():g} s"
    return told(claim, stage, "", DEADLINE, text)


def stopped(claim: Claim, stage: AnyStage) -> Ack:
    """Ended because the worker stops: given back."""
    return Ack(claim, Verb.RELEASE, error="the worker stopped", touches=stage.target is not None)


def ended(holding: Holding, stage: AnyStage) -> Ack | None:
    """The acknowledgement for a run that was cut off, by why it was; None when nobody wanted that."""
    claim = holding.claim
    if holding.stop:
        return stopped(claim, stage)
    if not holding.ours():
        return told(claim, stage, "lost", "LeaseLost", "the lease ran out")
    if holding.late():
        return late(claim, stage)
    if holding.cancel:
        return told(claim, stage, "other", "cancelled", "cancelled as an operator asked")
    return None


def kind(error: BaseException) -> str:
    """What an exception means for its job; ``occupied`` is known on this side of the pipe only."""
    return "occupied" if isinstance(error, Occupied) else meaning(error)


def _understood(claim: Claim, outcome: object, stage: AnyStage) -> Ack:
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
            return unfit(claim, stage, "TypeError", f"{type(outcome).__name__}; it must return an outcome")
