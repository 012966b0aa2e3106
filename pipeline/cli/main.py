"""The entry point: the app, its version, and what happens around every command; floor 4."""

import sys
from typing import Annotated

import typer

from pipeline import __version__
from pipeline.cli import (
    completion,
    config,
    db,
    doctor,
    explain,
    init,
    jobs,
    lanes,
    prune,
    run,
    sites,
    stages,
    status,
    topics,
    worker,
)
from pipeline.cli.guard import guarded
from pipeline.cli.render import out

app = typer.Typer(
    help="Move topics through generate, validate and publish, with many workers and strict lanes.\n\n"
    "Example: pipeline run --site acme",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
)
app.command("init")(init.init)
app.command("run")(run.run)
app.command("worker")(worker.worker)
app.command("status")(status.status)
app.command("explain")(explain.explain)
app.add_typer(sites.app, name="sites")
app.add_typer(lanes.app, name="lanes")
app.add_typer(topics.app, name="topics")
app.add_typer(jobs.app, name="jobs")
app.add_typer(stages.app, name="stages")
app.command("doctor")(doctor.doctor)
app.command("prune")(prune.prune)
app.add_typer(db.app, name="db")
app.command("config")(config.config)


def _version(asked: bool) -> None:
    if asked:
        out(f"pipeline {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """What ``pipeline`` runs."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character is no reason to fail
    # Bytes that are no text cannot be looked up anywhere; they are shown as what they are.
    arguments = [word.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for word in sys.argv[1:]]
    if completion.asked_for(arguments):
        app(arguments, prog_name="pipeline")  # ends here: the library answers the shell, and leaves
    sys.exit(guarded(lambda: app(arguments, prog_name="pipeline", standalone_mode=False)))


if __name__ == "__main__":
    main()
