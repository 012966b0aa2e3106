"""Frozen records that cross floors: what stages, doors and tests see instead of rows; ground floor."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import UUID

from pipeline.states import JobState


def content_hash(value: object) -> str:
    """SHA-256, as hex, of the value's canonical JSON: the same for equal values on every machine."""
    return hashlib.sha256(_canonical(value).encode()).hexdigest()


_canonical = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class Severity(StrEnum):
    ERROR = "error"  # rejects the draft
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule's complaint about a draft. ``rule`` is a stable id; line and column count from 1."""

    rule: str
    message: str
    severity: Severity = Severity.ERROR
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """The content of one revision: Markdown body and front matter, nothing rendered."""

    title: str
    description: str
    body: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    lineage: Mapping[str, Any] = field(default_factory=dict)  # where it came from; not part of the content hash

    @property
    def hash(self) -> str:
        return content_hash([self.title, self.description, self.body, dict(self.fields)])


@dataclass(frozen=True, slots=True)
class TopicView:
    """One page to be, as a stage sees it. ``brief`` is the data row; ``path`` where it lives (``japan/kyoto/``)."""

    id: int
    site: str
    lane: str
    slug: str
    title: str
    type: str
    path: str
    position: int
    brief: Mapping[str, Any]
    number: int = 1  # of the pass, 1 for the first
    round: int = 0  # how often validate has sent this pass back


@dataclass(frozen=True, slots=True)
class TopicText:
    """The file with a topic's text, and the hash of its bytes."""

    path: Path
    hash: str


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic as a file of the project describes it. ``line`` is where, for messages."""

    lane: str
    slug: str
    title: str
    type: str
    path: str
    order: int  # within its lane, as the file says
    brief: Mapping[str, Any]
    line: int = 0
    input_hash: str = ""  # of all that generation depends on; a change plans a new pass
    text: TopicText | None = None  # there already: nothing is to be generated


@dataclass(frozen=True, slots=True)
class PageCard:
    """What one page needs to know of another to link to it."""

    topic_id: int
    lane: str
    position: int
    type: str
    path: str
    title: str
    description: str
    live: bool


@dataclass(frozen=True, slots=True)
class Found:
    """What a target has at one path: the hash of its bytes, and the target's own version tag."""

    hash: str
    remote: str


@dataclass(frozen=True, slots=True)
class Page:
    """What is to be at one path of a target.

    ``look`` answers what the target has there now, or None; ``act`` changes the target and answers its version tag.
    Without a topic it is an artefact of the site. With ``seen`` it takes the place of what has that hash and of nothing
    else: what became live meanwhile stays, and so does what another is at.
    """

    key: str
    hash: str
    look: Callable[[], Found | None]
    act: Callable[[], str]
    topic_id: int | None = None
    revision: int | None = None
    inputs: str = ""
    seen: str | None = None


@dataclass(frozen=True, slots=True)
class LivePage:
    """One live publication, without its text. ``card`` is None for an artefact of the site (home, sitemap)."""

    path: str
    hash: str
    remote: str  # the target's own version tag
    inputs: str  # hash of all that the rendered bytes were made from
    first_at: datetime
    changed_at: datetime  # last significant change: the content's, not that of links around it
    card: PageCard | None = None
    revision: int | None = None  # of the live content
    content: str = ""  # hash of that


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to work on one job until its lease ends; void once its token changes.

    ``topic`` is None for a site's own job. ``lease`` runs from the database's clock.
    """

    job_id: int
    site: str
    site_id: int
    stage: str
    token: UUID
    fence: int
    attempt: int  # 1 for the first reservation at this stage
    max_attempts: int
    gated: bool  # it holds a slot: a lane waits for its end
    lease: timedelta
    topic: TopicView | None = None
    draft: Draft | None = None
    revision_id: int | None = None
    findings: tuple[Finding, ...] = ()
    input_hash: str = ""
    approved: bool = False  # a person said yes to this very draft, at this stage
    begins: bool = False  # it stands at the first stage: what it reads now is what the pass is made from
    run_at: datetime | None = None
    priority: int = 2
    deadline: timedelta | None = None  # its lane's, instead of its stage's


@dataclass(frozen=True, slots=True)
class JobView:
    """One pass of one topic, for people."""

    id: int
    site: str
    lane: str | None
    topic: str | None
    position: int | None
    number: int
    stage: str
    state: JobState
    round: int
    attempts: int
    max_attempts: int
    run_at: datetime | None
    reserved_by: str | None
    lease_expires_at: datetime | None
    error_class: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Planned:
    """What one planning did."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    busy: int = 0  # changed, but a pass is unfinished: planned once that ends
    absent: tuple[str, ...] = ()  # topics that the file no longer names; they stay as they are
    appended: tuple[str, ...] = ()  # new rows placed at the end of a lane that had already gone past their position
    closed: tuple[str, ...] = ()  # new or changed rows of lanes that are closed: left out
