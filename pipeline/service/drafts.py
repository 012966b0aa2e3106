"""A draft that a person writes: what there is to be edited, and the revision that comes of it; floor 2.

The revision is its own record, with actor and reason in its lineage: no job moves, so there is no event. Nothing is
overwritten: it is written only over the revision that was opened, and while no stage is at work on the topic.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from pipeline.errors import NotFound, Refused
from pipeline.service.base import Service, clean, revision
from pipeline.sql import content
from pipeline.sql.batch import bound
from pipeline.states import HALTING, JobState
from pipeline.views import Draft


@dataclass(frozen=True, slots=True)
class Opened:
    """A topic's current draft, and where its unfinished pass stands."""

    topic_id: int
    slug: str
    draft: Draft  # with the topic's title alone, where there is none yet
    revision_id: int | None
    number: int  # of that revision; 0 where there is none
    job_id: int
    state: JobState
    stage: str
    error_class: str | None
    first: str  # the site's first stage, where passes begin

    def refuse_resume(self) -> None:
        """Raise Refused when there is nothing to resume."""
        if self.state not in HALTING:
            raise Refused(
                f"topic {self.slug!r} needs no resuming: job {self.job_id} is {self.state} at {self.stage};"
                " leave --resume away"
            )

    @property
    def resume_at(self) -> str | None:
        """The stage to name when it is put back where it stood.

        One that was rejected in its last round goes on only where a stage is named, which begins rounds anew.
        """
        return self.stage if self.error_class == "rejected" else None


class Drafts(Service):
    """What people do to drafts."""

    def open(self, site_id: int, slug: str) -> Opened:
        """What there is to be edited. Raises NotFound, and Refused when no pass is unfinished, or a stage is at it."""
        with self._reading() as connection:
            return _opened(connection, site_id, slug)

    def save(
        self, site_id: int, seen: Opened, draft: Draft, *, actor: str, reason: str = "", dry_run: bool = False
    ) -> int:
        """Make the draft the topic's newest revision, over the one that was opened; returns its number.

        Raises Refused when there is another revision by now, or a stage is at work.
        """
        return self._write(lambda cn: self._save(cn, site_id, seen, draft, actor, reason), dry_run=dry_run)

    def _save(self, connection: Connection, site_id: int, seen: Opened, draft: Draft, actor: str, reason: str) -> int:
        at = bound(topic_id=seen.topic_id)
        # Jobs before topics. Whoever plans a pass meanwhile has the topic first, and is seen below.
        locked = connection.execute(content.lock_pass(), at).scalar_one_or_none()
        connection.execute(content.lock_topic(), at).all()
        now = _opened(connection, site_id, seen.slug)
        if now.job_id != locked:
            raise Refused(f"topic {seen.slug!r} got a new pass just now; nothing was written: try again")
        lineage = {"actor": clean(actor, 200), "reason": clean(reason), "edited": seen.number}
        given = {
            "drafts": [revision(draft, now.topic_id, None, lineage)],
            **bound(origin="human", seen=seen.revision_id),
        }
        added = connection.execute(content.add_revisions(guarded=True), given).one_or_none()
        if added is None:
            raise Refused(
                f"the draft of {seen.slug!r} is not the one that you opened: revision {now.number} came meanwhile, and"
                " yours was not written over it; look at both, then write it again"
            )
        return int(added.number)


def _opened(connection: Connection, site_id: int, slug: str) -> Opened:
    row: Any = connection.execute(content.draft(), bound(site_id=site_id, slug=slug)).one_or_none()
    if row is None:
        raise NotFound(f"no topic {slug!r} is planned in this site; see: pipeline topics list")
    if row.job_id is None:
        raise Refused(
            f"topic {slug!r} has no unfinished pass that would go on with it; change its row (--set, without --resume),"
            " and a run makes its page anew"
        )
    if row.state == JobState.RESERVED:
        raise Refused(
            f"topic {slug!r} is running: job {row.job_id} at {row.stage}, held by {row.reserved_by}; edit it when that"
            f" has ended, or stop it: pipeline jobs cancel {row.job_id}"
        )
    draft = (
        Draft(row.topic_title, "", "")
        if row.revision_id is None
        else Draft(row.title, row.description, row.body, row.front_matter, row.lineage)
    )
    return Opened(
        row.id, slug, draft, row.revision_id, row.number or 0, row.job_id, JobState(row.state), row.stage,
        row.error_class, row.first,
    )  # fmt: skip
