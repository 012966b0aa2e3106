"""A worker as a process of its own: ``python -m pipeline.child``; engine room.

Its orders come as one line of JSON on standard input, so that nothing secret is seen in a process list. When that pipe
closes, the parent is gone, and the worker winds down. SIGTERM and SIGINT do the same; either of them a second time ends
it. (One of each is what Ctrl-C in a terminal and the parent's own request amount to.)
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from pipeline.build import open_database
from pipeline.errors import PipelineError
from pipeline.project.loading import load_stages
from pipeline.settings import load_settings
from pipeline.worker import Worker

OVERTIME = 4.5  # seconds beyond the grace period; a worker that is well needs three, and one for what it leaves


def main() -> int:
    """Work as told until told to stop; returns the exit code."""
    heard = sys.stdin.readline()
    if not heard:
        return 0  # there was no work, or whoever started this is gone
    orders = json.loads(heard)
    root = Path(orders["root"])
    settings = load_settings()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"worker {orders['number']}: %(message)s"))
    logging.getLogger("pipeline").addHandler(handler)
    logging.getLogger("pipeline").setLevel(logging.INFO)
    try:
        # A client of the embedded server in its own right: the server outlives a parent that is killed.
        with open_database(settings, root) as url:
            worker = Worker(url, settings, root, load_stages(root), site=orders.get("site"))
            _heed_signals(worker)
            threading.Thread(target=_end_in_time, args=(worker, settings.grace.total_seconds()), daemon=True).start()
            threading.Thread(target=_heed_parent, args=(worker,), daemon=True).start()
            worker.run()
    except PipelineError as error:
        print(f"worker {orders['number']}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _heed_signals(worker: Worker) -> None:
    heard: set[int] = set()

    def stop(number: int, frame: FrameType | None) -> None:
        if number in heard:
            os._exit(130)
        first = not heard
        heard.add(number)
        if first:  # another signal may come in the middle of set(), which must not be entered twice
            worker.end()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def _end_in_time(worker: Worker, grace: float) -> None:
    """However long a database that does not answer keeps the worker from giving back what it holds."""
    while not worker.stop.is_set():
        time.sleep(0.2)  # not in wait(): the signal's handler would find its lock taken
    time.sleep(grace + OVERTIME)
    logging.getLogger("pipeline").warning("the database does not answer; what is in hand is taken back by others")
    os._exit(1)


def _heed_parent(worker: Worker) -> None:
    # Read through the descriptor: the buffered object's lock would be held when the process ends.
    while os.read(0, 1024):
        pass
    worker.end()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # A stage that did not heed cancelled() may still run in its thread; its reservation has been given back.
    os._exit(code)
