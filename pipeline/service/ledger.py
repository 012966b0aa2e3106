"""The publish ledger: the only way to act outside; floor 2.

Intent, committed under the token → look at what the target has → act → confirmation under the token. An outcome that is
unknown is resolved by looking, never by repeating.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from pipeline.errors import LeaseLost, PathTaken, PipelineError
from pipeline.service.base import Service
from pipeline.sql import ledger
from pipeline.sql.batch import bound
from pipeline.views import Claim, Found


class Occupied(PipelineError):
    """Another live reservation is about to write this path; try again in a moment."""


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
        """Make ``key`` at ``target`` be ``hash``; True when something was done there.

        Raises LeaseLost when the reservation is gone, PathTaken when another topic has the path, Occupied when another
        reservation is at it just now.
        """
        values = bound(
            job_id=claim.job_id,
            token=claim.token,
            fence=claim.fence,
            site_id=claim.site_id,
            topic_id=topic_id,
            target=target,
            path=key,
            hash=hash,
            revision=revision,
            inputs=inputs,
        )
        try:
            publication_id = self._write(lambda cn: self._intend(cn, values))
        except IntegrityError as error:
            raise PathTaken(f"{target}:{key} belongs to another topic") from error
        found = look()
        done = found is None or found.hash != hash
        if done:
            # The last look at our own clock before the world changes: a process that was stopped past its lease and
            # resumed must not write.
            if not still_ours():
                raise LeaseLost(f"job {claim.job_id}: the lease ran out before {key} was written")
            remote = act()
        elif found is not None:
            remote = found.remote
        self._write(lambda cn: self._confirm(cn, values | bound(publication_id=publication_id, remote=remote)))
        return done

    def _intend(self, connection: Connection, values: dict[str, Any]) -> int:
        self._reserved(connection, values)
        connection.execute(ledger.put(), values)
        owner = connection.execute(ledger.owner(), values).one_or_none()
        if owner is not None:
            raise PathTaken(f"{values['p_target']}:{values['p_path']} belongs to {owner.slug or 'the site itself'}")
        row = connection.execute(ledger.lock(), values).one()
        written = connection.execute(ledger.intend(self._clock), values | bound(publication_id=row.id)).one_or_none()
        if written is None:
            raise Occupied(f"{values['p_target']}:{values['p_path']} is being written by another worker")
        return int(written.id)

    def _confirm(self, connection: Connection, values: dict[str, Any]) -> None:
        self._reserved(connection, values)
        if connection.execute(ledger.confirm(self._clock), values).one_or_none() is None:
            raise LeaseLost(f"job {values['p_job_id']}: the intent for {values['p_path']} is no longer ours")

    def _reserved(self, connection: Connection, values: dict[str, Any]) -> None:
        if connection.execute(ledger.reservation(), values).one_or_none() is None:
            raise LeaseLost(f"job {values['p_job_id']}: it is no longer ours; {values['p_path']} is left alone")
