"""What tests of a project's own stages use; a door.

Without a database: ``a_topic``, ``a_site``, ``a_draft``, ``Context`` and ``run_stage``. With a throw-away one:
``drain``, and the fixtures of ``pipeline.testing.plugin``, which pytest finds by itself. Nothing is imported before it
is asked for: pytest loads the plugin in every project where this package is installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.clock import FrozenClock
    from pipeline.testing.context import Context, MemoryCorpus, MemoryLedger, Published
    from pipeline.testing.draining import Drained, NotIdle, drain
    from pipeline.testing.project import ProjectCopy
    from pipeline.testing.running import run_site_stage, run_stage
    from pipeline.testing.samples import a_draft, a_site, a_topic

__all__ = [
    "Context",
    "Drained",
    "FrozenClock",
    "MemoryCorpus",
    "MemoryLedger",
    "NotIdle",
    "ProjectCopy",
    "Published",
    "a_draft",
    "a_site",
    "a_topic",
    "drain",
    "run_site_stage",
    "run_stage",
]

_HOMES = {
    "FrozenClock": "pipeline.clock",
    **dict.fromkeys(("Context", "MemoryCorpus", "MemoryLedger", "Published"), "pipeline.testing.context"),
    **dict.fromkeys(("Drained", "NotIdle", "drain"), "pipeline.testing.draining"),
    "ProjectCopy": "pipeline.testing.project",
    **dict.fromkeys(("run_site_stage", "run_stage"), "pipeline.testing.running"),
    **dict.fromkeys(("a_draft", "a_site", "a_topic"), "pipeline.testing.samples"),
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pipeline.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
