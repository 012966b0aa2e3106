"""Print what mixtures of all verbs reached: ``python -m tests.stateful``.

Exit 0: the services did what the model says, and every verb was met in every state, allowed or refused.
"""

import argparse
import random
import sys

from pipeline.build import services
from pipeline.db import make_engine
from pipeline.testing import database
from pipeline.testing.database import SCHEMA, Server
from tests.stateful.compare import Reader
from tests.stateful.coverage import Coverage
from tests.stateful.machine import run
from tests.stateful.stand import Ground

NAME = "stateful"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.stateful", description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--as-found", action="store_true", help="do not look for the shortest sequence")
    given = parser.parse_args(arguments)
    print(f"{given.examples} examples of {given.steps} steps, seed {given.seed}", flush=True)

    with database.run_folder() as folder, database.server_url(folder) as url:
        server = Server(url)
        server.drop(NAME)
        where = server.create(NAME, server.template())
        engine = make_engine(where, schema=SCHEMA, connections=4, name="test")
        reader = Reader(where.render_as_string(hide_password=False))
        coverage = Coverage()
        try:
            ground = Ground(engine, services(engine), reader, coverage)
            run(ground, examples=given.examples, steps=given.steps, seed=given.seed, shrink=not given.as_found)
        finally:
            print(coverage.table(), flush=True)
            reader.close()
            engine.dispose()
            server.drop(NAME)
    missing = sorted(coverage.missing())
    print(f"\nnot met: {', '.join(f'{verb} from {state}' for verb, state in missing) or 'nothing'}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
