"""The publish ledger: the only way to act outside; floor 2.

Intent, committed under the token → look at what the target has → act → confirmation under the token. An outcome that is
unknown is resolved by looking, never by repeating.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from pipeline.errors import LeaseLost, PathTaken, PipelineError
from pipeline.service.base import Service
from pipeline.sql import ledger
from pipeline.sql.batch import bound
from pipeline.views import Claim, Found, Page


class Occupied(PipelineError):
    """Another live reservation is about to write this path; try again in a moment."""


class Away(Occupied):
    """The database went away in the middle of it; try again in a moment."""


class LedgerService(Service):
    """Publishing under a reservation."""

    def publish(
        self,
        claim: Claim,
        *,
        target: str,
        key: str,
        hash: str,
        look: Callable[[], Found | None],
        act: Callable[[], str],
        still_ours: Callable[[], bool],
        topic_id: int | None,
        revision: int | None,
        inputs: str,
    ) -> bool:
        """Publish one page (see ``publish_all``); True when something was done."""
        page = Page(key, hash, look, act, topic_id, revision, inputs)
        return self.publish_all(claim, target, [page], still_ours=still_ours)[0]

    def publish_all(
        self, claim: Claim, target: str, pages: Sequence[Page], *, still_ours: Callable[[], bool]
    ) -> list[bool]:
        """Make each page be at the target what its hash says; for each, whether something was done there.

        One intent and one confirmation for all of them; what was done before one of them failed is confirmed. Raises
        LeaseLost when the reservation is gone, PathTaken when another topic has a path, Occupied when another
        reservation is at one just now.
        """
        if not pages:
            return []
        here = bound(job_id=claim.job_id, token=claim.token, fence=claim.fence, site_id=claim.site_id, target=target)
        try:
            ids = self._write(lambda cn: self._intend(cn, here, pages))
        except IntegrityError as error:
            raise PathTaken(f"{target}: another topic was faster at one of {[p.key for p in pages]}") from error
        done: list[bool] = []
        remotes: list[str] = []
        try:
            for page in pages:
                acted, remote = self._act(claim, page, still_ours)
                done.append(acted)
                remotes.append(remote)
        finally:
            settled = [
                {"publication_id": id, "hash": page.hash, "remote": remote}
                for id, page, remote in zip(ids, pages, remotes, strict=False)
            ]
            if settled:
                self._write(lambda cn: self._confirm(cn, here, settled))
        return done

    def _act(self, claim: Claim, page: Page, still_ours: Callable[[], bool]) -> tuple[bool, str]:
        found = page.look()
        if found is not None and found.hash == page.hash:
            return False, found.remote
        # The last look at our own clock before the world changes: a process that was stopped past its lease and
        # resumed must not write.
        if not still_ours():
            raise LeaseLost(f"job {claim.job_id}: the lease ran out before {page.key} was written")
        return True, page.act()

    def _intend(self, connection: Connection, here: dict[str, Any], pages: Sequence[Page]) -> list[int]:
        """The ids of the publications, in the order of the pages."""
        self._reserved(connection, here)
        asked = [
            {"topic_id": p.topic_id, "path": p.key, "hash": p.hash, "revision": p.revision, "inputs": p.inputs}
            for p in pages
        ]
        connection.execute(ledger.put(), {**here, "pages": asked})
        owner = connection.execute(ledger.owners(), {**here, "pages": asked}).first()
        if owner is not None:
            raise PathTaken(f"{here['p_target']}:{owner.path} belongs to {owner.slug or 'the site itself'}")
        of: dict[int | str, int] = {}
        for row in connection.execute(ledger.lock(), {**here, "pages": asked}):
            of[row.intent_path if row.topic_id is None else row.topic_id] = row.id
        ids = [of[p.key if p.topic_id is None else p.topic_id] for p in pages]
        wanted = [row | {"publication_id": id} for row, id in zip(asked, ids, strict=True)]
        written = set(connection.execute(ledger.intend(self._clock), {**here, "pages": wanted}).scalars())
        for page, id in zip(pages, ids, strict=True):
            if id not in written:
                raise Occupied(f"{here['p_target']}:{page.key} is being written by another worker")
        return ids

    def _confirm(self, connection: Connection, here: dict[str, Any], settled: Sequence[dict[str, Any]]) -> None:
        self._reserved(connection, here)
        confirmed = connection.execute(ledger.confirm(self._clock), {**here, "pages": settled}).all()
        if len(confirmed) < len(settled):
            raise LeaseLost(f"job {here['p_job_id']}: an intent is no longer ours")

    def _reserved(self, connection: Connection, here: dict[str, Any]) -> None:
        if connection.execute(ledger.reservation(), here).one_or_none() is None:
            raise LeaseLost(f"job {here['p_job_id']}: the reservation is no longer ours; the target is left alone")
