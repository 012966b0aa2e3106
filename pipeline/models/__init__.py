"""The tables, as typed declarative models; ground floor. Statements write rows; these objects never do."""

from pipeline.models.base import Base
from pipeline.models.content import Finding, Publication, Redirect, Revision
from pipeline.models.upkeep import Event, Limit, Schedule, ScheduleTick, Worker
from pipeline.models.work import FENCES, Attempt, Gate, Job, Lane, Site, Stage, Topic

__all__ = [
    "FENCES",
    "Attempt",
    "Base",
    "Event",
    "Finding",
    "Gate",
    "Job",
    "Lane",
    "Limit",
    "Publication",
    "Redirect",
    "Revision",
    "Schedule",
    "ScheduleTick",
    "Site",
    "Stage",
    "Topic",
    "Worker",
]
