"""A site's verbs: list, pause, resume, remove; floor 2. Each is noted in events with actor and reason."""

from dataclasses import asdict, dataclass

from sqlalchemy import Connection

from pipeline.errors import NotFound, Refused
from pipeline.service.base import Service
from pipeline.service.lanes import Pause, Turned, note
from pipeline.sql import plan, sites
from pipeline.sql.batch import bound


@dataclass(frozen=True, slots=True)
class SiteLine:
    """One site in a list."""

    id: int
    slug: str
    name: str
    base_url: str
    state: str
    topics: int
    live: int
    paused: Pause | None


@dataclass(frozen=True, slots=True)
class Contents:
    """How much the database has of a site."""

    unfinished: int
    live: int
    lanes: int
    topics: int
    jobs: int
    attempts: int
    revisions: int


@dataclass(frozen=True, slots=True)
class Underway:
    """The unfinished pass of a topic."""

    job_id: int
    state: str
    stage: str
    reserved_by: str | None


class Sites(Service):
    """What people do to sites."""

    def list(self) -> list[SiteLine]:
        """Every site that the database knows, by slug."""
        with self._reading() as connection:
            return [
                SiteLine(
                    row.id, row.slug, row.name, row.base_url, row.state, row.topics, row.live,
                    None if row.paused_at is None else Pause(row.paused_at, row.paused_by, row.paused_reason),
                )
                for row in connection.execute(sites.listing())
            ]  # fmt: skip

    def pause(self, site_id: int, *, actor: str, reason: str = "", dry_run: bool = False) -> Turned:
        """Let nothing of a site be claimed any more; what is reserved finishes. Raises Refused when it is paused."""
        return self._write(lambda cn: self._turn(cn, site_id, actor, reason, paused=True), dry_run=dry_run)

    def resume(self, site_id: int, *, actor: str, reason: str = "", dry_run: bool = False) -> Turned:
        """Let a paused site go on."""
        return self._write(lambda cn: self._turn(cn, site_id, actor, reason, paused=False), dry_run=dry_run)

    def _turn(self, connection: Connection, site_id: int, actor: str, reason: str, *, paused: bool) -> Turned:
        at = bound(site_id=site_id)
        turned = connection.execute(sites.turn(paused=paused), at).one_or_none()
        row = connection.execute(sites.state(), at).one_or_none()
        if row is None:
            raise NotFound("the site is gone; see: pipeline sites list")
        if turned is None:
            raise Refused(f"site {row.slug!r} is {row.state} already")
        before = "active" if paused else "paused"
        verb = "pause" if paused else "resume"
        note(connection, verb, actor, reason, site_id=site_id, from_state=before, to_state=row.state)
        return Turned(row.slug, before, row.state, 0, connection.execute(sites.running(), at).scalar_one())

    def contents(self, site_id: int) -> Contents:
        with self._reading() as connection:
            return Contents(*connection.execute(sites.contents(), bound(site_id=site_id)).one())

    def remove(self, site_id: int, slug: str, *, actor: str, reason: str = "") -> Contents:
        """Delete all that the database has of a site; returns how much that was, which one event keeps.

        Raises Refused, and deletes nothing, while anything of it is unfinished or live.
        """
        return self._write(lambda cn: self._remove(cn, site_id, slug, actor, reason))

    def _remove(self, connection: Connection, site_id: int, slug: str, actor: str, reason: str) -> Contents:
        at = bound(site_id=site_id)
        connection.execute(plan.lock_lanes(), at).all()
        connection.execute(sites.lock_gates(), at).all()
        if connection.execute(sites.lock(), at).one_or_none() is None:
            raise NotFound(f"no site {slug!r} in the database; see: pipeline sites list")
        # Only now: whoever was about to add something to the site has done so, or waits for its row.
        found = Contents(*connection.execute(sites.contents(), at).one())
        refuse_unless_over(found, slug)
        connection.execute(sites.forget_revisions(), at)
        for statement in sites.deletions():
            connection.execute(statement, at)
        note(connection, "remove", actor, reason, details={"site": slug, **asdict(found)})
        return found

    def underway(self, site_id: int, slug: str) -> Underway | None:
        """The unfinished pass of a topic, if there is one."""
        with self._reading() as connection:
            row = connection.execute(sites.newest_pass(), bound(site_id=site_id, slug=slug)).one_or_none()
            return None if row is None else Underway(row.id, row.state, row.stage, row.reserved_by)


def refuse_unless_over(found: Contents, slug: str) -> None:
    """Raise Refused with the counts and the next step while anything of a site is unfinished or live."""
    if found.live:
        raise Refused(
            f"site {slug!r} has {_count(found.live, 'live file')}, which would stay there and be known to nobody;"
            f" let it rest instead: pipeline sites pause {slug}"
        )
    if found.unfinished:
        raise Refused(
            f"site {slug!r} has {_count(found.unfinished, 'unfinished job')}; see: pipeline jobs list --site {slug},"
            " and give them up: pipeline jobs skip ID..."
        )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing if number == 1 else thing + 's'}"
