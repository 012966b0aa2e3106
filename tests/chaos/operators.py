"""Operators: whatever people do to jobs, lanes, widths and places while all of it is at work.

What they do carries the call's id as its reason, by which the event is found.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from pipeline.service.operate import Moved
from pipeline.states import HALTING, JobState
from pipeline.views import JobView
from tests.chaos.clients import Client, Office, a_row

_OFTEN = ("cancel",)
_ALL = ("cancel", "cancel_now", "skip", "skip_now", "grant", "pause", "close", "width", "move", "away", "insert")
VERBS = (*_OFTEN, *_ALL, "stage", "prune")
"""By the names of the methods; some oftener than others."""

LIVE = [JobState.WAITING, JobState.PENDING, JobState.RESERVED]


class Operators(Office):
    """Their verbs, and those of one who mends what stands halted."""

    def operate(self, client: Client) -> None:
        site, site_id = self.site(client)
        verb = client.dice.choice(VERBS)
        getattr(self, f"_{verb}")(client, site, site_id)

    def _jobs(self, client: Client, site_id: int, states: Sequence[JobState], count: int) -> list[int]:
        found = [job.id for job in client.services.reading.jobs(site_id, states, 200) if job.topic is not None]
        return client.dice.sample(found, min(count, len(found)))

    def _do(self, verb: str, ids: list[int], act: Callable[[str], list[Moved]]) -> None:
        if ids:
            self.history.call(verb, act, lambda moved: [m.job_id for m in moved], jobs=ids)

    def _cancel(self, client: Client, site: str, site_id: int) -> None:
        ids = self._jobs(client, site_id, LIVE, client.dice.choice([1, 1, 3]))
        self._do("cancel", ids, lambda id: client.services.operate.cancel(ids, actor=client.name, reason=id))

    def _cancel_now(self, client: Client, site: str, site_id: int) -> None:
        ids = self._jobs(client, site_id, [JobState.RESERVED], 1)
        operate = client.services.operate
        self._do("cancel", ids, lambda id: operate.cancel(ids, actor=client.name, reason=id, force=True))

    def _skip(self, client: Client, site: str, site_id: int) -> None:
        ids = self._jobs(client, site_id, [JobState.WAITING, JobState.PENDING], 1)
        self._do("skip", ids, lambda id: client.services.operate.skip(ids, actor=client.name, reason=id))

    def _skip_now(self, client: Client, site: str, site_id: int) -> None:
        ids = self._jobs(client, site_id, [JobState.RESERVED], 1)
        operate = client.services.operate
        self._do("skip", ids, lambda id: operate.skip(ids, actor=client.name, reason=id, force=True))

    def _grant(self, client: Client, site: str, site_id: int) -> None:
        ids = self._jobs(client, site_id, LIVE, 2)
        operate = client.services.operate
        self._do("grant", ids, lambda id: operate.grant(ids, attempts=1, actor=client.name, reason=id))

    def _pause(self, client: Client, site: str, site_id: int) -> None:
        self._for_a_while(client, site_id, "pause", "resume")

    def _close(self, client: Client, site: str, site_id: int) -> None:
        self._for_a_while(client, site_id, "close", "open")

    def _for_a_while(self, client: Client, site_id: int, shut: str, reopen: str) -> None:
        lane = f"lane-{client.dice.randrange(self.lanes)}"
        for verb in (shut, reopen):
            act: Any = getattr(client.services.lanes, verb)
            self.history.call(
                f"lane-{verb}",
                lambda id, act=act: act(site_id, lane, actor=client.name, reason=id),  # type: ignore[misc]
                lambda turned: [turned.name],
                site=site_id, lane=lane,
            )  # fmt: skip
            self.over.wait(client.dice.uniform(0.1, 0.5))

    def _width(self, client: Client, site: str, site_id: int) -> None:
        lane, width = f"lane-{client.dice.randrange(self.lanes)}", client.dice.choice([1, 2, 3])
        self.history.call(
            "width",
            lambda id: client.services.widths.of_lane(
                site_id, lane, "check", {"width": width}, actor=client.name, reason=id
            ),
            lambda changed: [changed.name],
            site=site_id, lane=lane, width=width,
        )  # fmt: skip

    def _stage(self, client: Client, site: str, site_id: int) -> None:
        """Requeue at the first stage what stands halted anywhere."""
        ids = self._jobs(client, site_id, sorted(HALTING), 1)
        operate = client.services.operate
        self._do("requeue", ids, lambda id: operate.requeue(ids, actor=client.name, reason=id, stage="generate"))

    def _upcoming(self, client: Client, site_id: int) -> tuple[str, list[str]]:
        """A lane, and the slugs at its end that are not live yet."""
        lane = f"lane-{client.dice.randrange(self.lanes)}"
        lines = client.services.reading.topics(site_id, lane)[-12:]
        return lane, [line.slug for line in lines if line.live_path is None]

    def _move(self, client: Client, site: str, site_id: int) -> None:
        _, slugs = self._upcoming(client, site_id)
        if len(slugs) < 4:
            return
        one, other = client.dice.sample(slugs, 2)
        places = client.services.places
        self.history.call(
            "move",
            lambda id: places.move(site_id, one, before=other, actor=client.name, reason=id),
            lambda moved: [moved.slug],
            site=site, slug=one,
        )  # fmt: skip

    def _away(self, client: Client, site: str, site_id: int) -> None:
        """To the end of another lane."""
        _, slugs = self._upcoming(client, site_id)
        if len(slugs) < 4:
            return
        one, lane = client.dice.choice(slugs), f"lane-{client.dice.randrange(self.lanes)}"
        places = client.services.places
        self.history.call(
            "move",
            lambda id: places.move_to_lane(site_id, one, lane, actor=client.name, reason=id),
            lambda moved: [moved.slug],
            site=site, slug=one, lane=lane,
        )  # fmt: skip

    def _insert(self, client: Client, site: str, site_id: int) -> None:
        """A new topic in the middle of a lane."""
        lane, slugs = self._upcoming(client, site_id)
        if len(slugs) < 4 or self.planning.is_set():
            return
        row, before = a_row(lane, self.slug(client)), client.dice.choice(slugs)
        places = client.services.places
        self.history.call(
            "insert",
            lambda id: places.insert(site_id, row, before, actor=client.name, reason=id),
            lambda moved: [moved.slug],
            site=site, slugs=[row.slug],
        )  # fmt: skip

    def _prune(self, client: Client, site: str, site_id: int) -> None:
        """Nothing of a run is old enough to go; it is looked for all the same."""
        client.services.prune.prune(site_id, timedelta(days=1), actor=client.name, reason="chaos")

    def mend_all(self, client: Client) -> None:
        """What is halted or held goes on, so that lanes do."""
        for site_id in self.sites.values():
            self.mend(client, site_id, give_up=0.05)

    def mend(self, client: Client, site_id: int, *, give_up: float) -> int:
        """Requeue what is halted; skip some, and what no round is left for. How many jobs stand so."""
        halted = client.services.reading.jobs(site_id, sorted(HALTING), 100)
        for job in halted:
            self._put_right(client, job, gives_up=client.dice.random() < give_up)
        held = client.held(site_id)
        for job_id in held:
            self._approve(client, job_id)
        return len(halted) + len(held)

    def _put_right(self, client: Client, job: JobView, *, gives_up: bool) -> None:
        operate = client.services.operate
        stage = "generate" if job.error_class == "rejected" else None

        def skip(id: str) -> list[Moved]:
            return operate.skip([job.id], actor=client.name, reason=id)

        def requeue(id: str) -> list[Moved]:
            return operate.requeue([job.id], actor=client.name, reason=id, stage=stage)

        self._do("skip" if gives_up else "requeue", [job.id], skip if gives_up else requeue)

    def _approve(self, client: Client, job_id: int) -> None:
        operate = client.services.operate
        approve = getattr(operate, "approve", None)
        if approve is not None:
            self._do("approve", [job_id], lambda id: approve([job_id], actor=client.name, reason=id))
        else:  # cancelled, it comes back when it is requeued
            self._do("cancel", [job_id], lambda id: operate.cancel([job_id], actor=client.name, reason=id))
