"""A chaos run by command: ``python -m tests.chaos --seconds 3600 --workers 8 --seed N [--server PATH/bin]``.

Prints the plan, and in the end what was measured; exit 1 when a promise was broken. ``--keep`` leaves the logs.
"""

import argparse
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from pipeline.testing.database import run_folder
from tests.chaos.faults import LONG, QUICK
from tests.chaos.run import Size, run
from tests.servers.scratch import folder_for

HOUR = 3600


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(1, 10**6))
    parser.add_argument("--server", type=Path, help="the bin folder of a PostgreSQL")
    parser.add_argument("--keep", type=Path, help="copy project, history and logs there in the end")
    told = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # what was started is stopped
    hours = told.seconds / HOUR
    counts = QUICK if told.seconds < 120 else {kind: max(round(count * hours), 1) for kind, count in LONG.items()}
    size = Size(
        seconds=told.seconds, workers=told.workers, sites=max(3, told.workers), backlog=400, pace=0.1, faults=counts
    )
    with run_folder("pipeline-chaos") as folder, folder_for(folder) as scratch:
        try:
            outcome = run(scratch, size, told.seed, binaries=told.server, say=_say)
        finally:
            if told.keep is not None:
                shutil.copytree(scratch / "project", told.keep / "project")
                shutil.copy2(scratch / "history.jsonl", told.keep)
                shutil.copy2(scratch / "server/log", told.keep / "server.log")
    print(outcome.summary())
    return 1 if outcome.broken else 0


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
