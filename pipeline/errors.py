"""Everything that pipeline refuses, in one tree; ground floor, imports nothing.

A class docstring is the default message. Each error knows the exit code that a command ends with.
"""

from typing import ClassVar


class PipelineError(Exception):
    """Something was refused."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class UsageError(PipelineError):
    """The command or a file of the project cannot be understood."""

    exit_code = 2


class ProjectError(UsageError):
    """A file of the project is wrong: site.toml, topics, stages."""


class StagesError(UsageError):
    """``stages:PIPELINE`` cannot be used."""


class NotFound(UsageError):
    """Nothing of that name is here."""


class DatabaseError(PipelineError):
    """The database cannot be used."""

    exit_code = 3


class SchemaError(DatabaseError):
    """The schema is not the one that this release needs."""


class Refused(PipelineError):
    """The state of things does not allow this."""


class Conflict(Refused):
    """A topic of this name, or at this path, is planned already, with other content."""


class LeaseLost(PipelineError):
    """The reservation is no longer ours: drop the work, nothing was written."""


class PathTaken(PipelineError):
    """Another topic of this site already lives, or is about to live, at this path."""


class TargetError(PipelineError):
    """The target refused the page."""
