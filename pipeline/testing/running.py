"""Run one stage on one topic, and hold what it returns against what the engine asks of a stage; a door.

The engine turns a stage's mistakes into repair; here they are failures of the test that met them. What the stage raises
comes through as it is.
"""

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

from pipeline.stages import Done, Outcome, Reject, SiteStage, Stage
from pipeline.testing.awaited import AwaitedContext
from pipeline.testing.context import Context
from pipeline.views import Draft, Finding, TopicView, content_hash


def run_stage(stage: Stage | type[Stage], topic: TopicView, ctx: Context) -> Outcome:
    """What the stage returns for the topic. ``async def run`` gets a context to await, on an event loop of its own.

    Raises AssertionError when that is no outcome, cannot be stored, or says Done for a stage with a target that
    published nothing through ``ctx.ledger``.
    """
    made = stage() if inspect.isclass(stage) else stage
    ctx.corpus.topic = topic
    before = len(ctx.ledger.calls)
    outcome = _checked(made, _run(made, topic, ctx))
    if isinstance(outcome, Done) and made.target is not None and len(ctx.ledger.calls) == before:
        raise AssertionError(
            f"{type(made).__name__} has the target {made.target!r} and said Done, but published nothing through"
            " ctx.ledger; the engine would send this to repair"
        )
    return outcome


def run_site_stage(stage: SiteStage | type[SiteStage], ctx: Context) -> Outcome:
    """What a site's own job (``ASSEMBLE``) returns for ``ctx.site``, checked in the same way."""
    made = stage() if inspect.isclass(stage) else stage
    return _checked(made, made.run(ctx.site, ctx))


def _run(stage: Stage, topic: TopicView, ctx: Context) -> Any:
    if not inspect.iscoroutinefunction(stage.run):
        return stage.run(topic, ctx)
    run: Any = stage.run

    async def on_loop() -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        ctx.on_cancel(lambda: loop.is_closed() or loop.call_soon_threadsafe(task.cancel))
        return await run(topic, AwaitedContext(ctx))

    # In a thread of its own: the test itself may run on an event loop.
    with ThreadPoolExecutor(1, thread_name_prefix="stage") as thread:
        return thread.submit(asyncio.run, on_loop()).result()


def _checked(stage: Stage | SiteStage, outcome: Any) -> Outcome:
    name = type(stage).__name__
    if not isinstance(outcome, get_args(Outcome)):
        known = ", ".join(kind.__name__ for kind in get_args(Outcome))
        raise AssertionError(
            f"{name}.run returned {type(outcome).__name__} ({outcome!r}); it must return one of {known}"
        )
    if isinstance(outcome, Done | Reject):
        _check_findings(name, outcome)
    if isinstance(outcome, Done):
        _check_storable(name, outcome)
    found: Outcome = outcome
    return found


def _check_findings(name: str, outcome: Done | Reject) -> None:
    for finding in outcome.findings:
        if not isinstance(finding, Finding):
            raise AssertionError(f"{name}.run returned {finding!r} among its findings; each must be a Finding")


def _check_storable(name: str, outcome: Done) -> None:
    if outcome.draft is not None and not isinstance(outcome.draft, Draft):
        raise AssertionError(f"{name}.run returned the draft {outcome.draft!r}; it must be a Draft or None")
    parts: dict[str, Any] = {"metrics": outcome.metrics}
    if outcome.draft is not None:
        parts |= {"fields": outcome.draft.fields, "lineage": outcome.draft.lineage}
    for part, value in parts.items():
        try:
            content_hash(dict(value))
        except (TypeError, ValueError) as error:
            raise AssertionError(f"{name}.run returned {part} that cannot be stored as JSON: {error}") from error
