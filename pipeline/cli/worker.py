"""``pipeline worker``: work on for ever; floor 4.

It plans nothing and lays no schema: ``pipeline run`` and ``pipeline db upgrade`` do, once, wherever they are started.
Any number of these, on any number of machines, share what there is to do.
"""

import time
from typing import Annotated

import typer

from pipeline.cli.completion import site_names
from pipeline.cli.display import Display
from pipeline.cli.guard import Interrupted
from pipeline.cli.house import project, refuse_nothing
from pipeline.cli.render import count
from pipeline.cli.run import AT_ONCE, answers_only, interruptible

LOOK = 0.2  # seconds between two looks at the processes


def worker(
    site: Annotated[
        str | None, typer.Option("--site", help="Only this site.", metavar="NAME", autocompletion=site_names)
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", help="Worker processes; default: one for each core.", min=1, max=256, metavar="N"),
    ] = None,
) -> None:
    """Work until told to stop, on one site or on all; for servers and containers.

    Takes what is due, whoever planned it, and replaces processes that die. SIGTERM and Ctrl-C end it with 0: what is in
    hand is finished within the grace period, or given back; a second one ends it at once, with 130.

    Example: pipeline worker --workers 4
    """
    settings, root = project()
    refuse_nothing(settings, root, site)
    from pipeline import migrate
    from pipeline.build import connect, open_database
    from pipeline.crew import Crew
    from pipeline.project.loading import load_stages
    from pipeline.project.site import load_site

    size = workers or settings.workers
    with Display() as display, interruptible(display) as heard, answers_only(display):
        try:
            if site is not None:
                load_site(root, site)
            load_stages(root)
            with open_database(settings, root) as url:
                with connect(url, settings, name="pipeline worker", connections=1) as services:
                    migrate.check_schema(services.engine, settings.db_schema)
                crew = Crew(root, size, site=site, grace=settings.grace)
                try:
                    display.say(f"{count(size, 'process', 'processes')} at work on {site or 'all sites'}")
                    while True:
                        crew.watch()
                        time.sleep(LOOK)
                finally:
                    crew.stop()
        except KeyboardInterrupt:
            if len(heard) > 1:
                raise Interrupted(AT_ONCE) from None
            display.say("stopped; what was in hand was finished or given back")
