"""A content pipeline orchestrator on PostgreSQL: what stages and projects may import."""

from pipeline.project.site import Site
from pipeline.retry import Backoff
from pipeline.stages import (
    AssembleContext,
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
from pipeline.views import Draft, Finding, Found, LivePage, PageCard, Severity, TopicView

__version__ = "0.1.0"

__all__ = [
    "AssembleContext",
    "Backoff",
    "Done",
    "Draft",
    "Fail",
    "Finding",
    "Found",
    "Hold",
    "LivePage",
    "Outcome",
    "PageCard",
    "Reject",
    "Repair",
    "Retry",
    "Severity",
    "Site",
    "SiteStage",
    "Snooze",
    "Stage",
    "StageContext",
    "TopicView",
]
