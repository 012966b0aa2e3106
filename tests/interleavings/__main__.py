"""All orders of all scenarios at all three levels: ``python -m tests.interleavings [NAME...]``.

A line for each scenario, those that broke something with the order that did, and a summary. Exit 1 when one did.
"""

import sys
import time
import traceback

from pipeline.db import make_engine
from pipeline.testing import database
from pipeline.testing.database import SCHEMA, Server
from tests.interleavings.ground import ground as on_ground
from tests.interleavings.orders import LEVELS, SCENARIOS, Count
from tests.interleavings.playing import play_at_all

NAME = "interleavings"


def main(names: list[str]) -> int:
    began, total, broken = time.monotonic(), Count(), 0
    with database.run_folder("pipeline-interleavings") as folder, database.server_url(folder) as server_url:
        server = Server(server_url)
        server.drop(NAME)
        url = server.create(NAME, server.template())
        engine = make_engine(url, schema=SCHEMA, connections=4, name=NAME)
        try:
            for name in names or SCENARIOS:
                start = time.monotonic()
                # A ground of its own, so that one which broke leaves nothing behind.
                with on_ground(url.render_as_string(hide_password=False)) as ground:
                    try:
                        count = play_at_all(SCENARIOS[name], url.render_as_string(hide_password=False), engine, ground)
                    except Exception:
                        broken += 1
                        print(f"{name:<60}BROKEN")
                        traceback.print_exc()
                        continue
                total += count
                print(f"{name:<60}{count}  ({time.monotonic() - start:.1f} s)", flush=True)
        finally:
            engine.dispose()
            server.drop(NAME)
    print(
        f"{total.scenarios} scenarios in all orders at {len(LEVELS)} levels: {total}; {broken} broken;"
        f" {time.monotonic() - began:.0f} s"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
