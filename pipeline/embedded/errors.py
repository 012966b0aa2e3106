"""What the embedded server refuses; engine room."""

from typing import ClassVar

from pipeline.errors import PipelineError

OWN_SERVER = "set PIPELINE_DATABASE_URL to a PostgreSQL of your own"


class EmbeddedError(PipelineError):
    """The embedded PostgreSQL cannot be used."""

    exit_code: ClassVar[int] = 3


class StillStarting(EmbeddedError):
    """The server runs, and needs longer than we wait, for example to recover after a crash."""
