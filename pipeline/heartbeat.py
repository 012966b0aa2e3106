"""Keep the leases of what this process holds; engine room. A thread and a connection of its own, nothing else's.

One statement for all held jobs, well within a third of the shortest lease. The answer moves our own idea of when we
must have let go, counted from before the question was sent.
"""

import logging
import threading

from sqlalchemy.exc import SQLAlchemyError

from pipeline.db import Prepare, make_engine, reason
from pipeline.holding import Holding, now
from pipeline.service.work import Work

log = logging.getLogger("pipeline")

PATIENCE = 5.0  # seconds: a beat that takes longer is worth less than another one on a new connection


class Heartbeat:
    """Renews what is in ``held`` until told to stop."""

    def __init__(self, url: str, schema: str, name: str, *, prepare: Prepare = "auto") -> None:
        self._engine = make_engine(
            url, schema=schema, connections=1, name=f"{name} heartbeat", prepare=prepare, patience=PATIENCE, steady=True
        )
        self._work = Work(self._engine)
        self._held: dict[int, Holding] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = False
        self._well = True
        self._thread = threading.Thread(target=self._beat_for_ever, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hold(self, holdings: list[Holding]) -> None:
        with self._lock:
            self._held.update({h.claim.fence: h for h in holdings})
        self._wake.set()

    def drop(self, fences: list[int]) -> None:
        with self._lock:
            for fence in fences:
                self._held.pop(fence, None)

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        self._thread.join(timeout=1)
        self._engine.dispose()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _beat_for_ever(self) -> None:
        last = now()
        while not self._stopped:
            with self._lock:
                shortest = min((h.claim.lease.total_seconds() for h in self._held.values()), default=3.0)
            # Somewhat less than a third: the question itself takes time. Unwell, each second is worth a try.
            pause = shortest * 0.3 if self._well else min(shortest * 0.3, 1.0)
            if self._wake.wait(timeout=max(last + pause - now(), 0)):
                self._wake.clear()  # something new is held, and its lease may be shorter
                continue
            last = now()
            self._beat()

    def _beat(self) -> None:
        with self._lock:
            held = {fence: h for fence, h in self._held.items() if not h.lost}
        if not held:
            return
        asked_at = now()
        try:
            answers = self._work.renew(h.claim for h in held.values())
        except SQLAlchemyError as error:
            if self._well:
                log.warning("heartbeats do not reach the database: %s", reason(error))
            self._well = False
            return
        if not self._well:
            log.warning("heartbeats reach the database again")
        self._well = True
        with self._lock:
            for fence, holding in held.items():
                answer = answers.get(fence)
                if answer is None:
                    # Gone; or acknowledged by us a moment ago, and then no longer in our hands either.
                    holding.lost = fence in self._held
                    continue
                kind, cancel = answer
                holding.cancel = holding.cancel or cancel
                if kind == "renewed":
                    holding.extend(asked_at)
