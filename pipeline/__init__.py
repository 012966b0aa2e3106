"""A content pipeline orchestrator on PostgreSQL: what stages and projects may import."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.errors import Conflict
    from pipeline.inside import aplan, plan
    from pipeline.project.site import Site
    from pipeline.retry import Backoff
    from pipeline.service.append import PlannedTopic
    from pipeline.service.payload import Topic
    from pipeline.stages import (
        AssembleContext,
        AsyncStageContext,
        Done,
        Fail,
        Hold,
        Outcome,
        Reject,
        Repair,
        Retry,
        SiteStage,
        Snooze,
        Stage,
        StageContext,
    )
    from pipeline.views import Draft, Finding, Found, LivePage, Page, PageCard, Severity, TopicView

__version__ = "0.1.0"

__all__ = [
    "AssembleContext",
    "AsyncStageContext",
    "Backoff",
    "Conflict",
    "Done",
    "Draft",
    "Fail",
    "Finding",
    "Found",
    "Hold",
    "LivePage",
    "Outcome",
    "Page",
    "PageCard",
    "PlannedTopic",
    "Reject",
    "Repair",
    "Retry",
    "Severity",
    "Site",
    "SiteStage",
    "Snooze",
    "Stage",
    "StageContext",
    "Topic",
    "TopicView",
    "aplan",
    "plan",
]

_HOMES = {
    **dict.fromkeys(("Site",), "pipeline.project.site"),
    **dict.fromkeys(("Backoff",), "pipeline.retry"),
    **dict.fromkeys(("Conflict",), "pipeline.errors"),
    **dict.fromkeys(("PlannedTopic",), "pipeline.service.append"),
    **dict.fromkeys(("Topic",), "pipeline.service.payload"),
    **dict.fromkeys(("aplan", "plan"), "pipeline.inside"),
    **dict.fromkeys(
        ("Draft", "Finding", "Found", "LivePage", "Page", "PageCard", "Severity", "TopicView"), "pipeline.views"
    ),
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for: ``pipeline --help`` is spared what stages need."""
    if name not in __all__:
        raise AttributeError(f"module 'pipeline' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "pipeline.stages")), name)
