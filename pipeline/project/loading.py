"""Load ``stages:PIPELINE`` of a project; ground floor."""

import importlib
import inspect
import sys
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType

from pipeline.errors import StagesError
from pipeline.stages import SiteStage, Stage, stage_name
from pipeline.states import ASSEMBLE

EXECUTORS = ("thread", "process")


@dataclass(frozen=True, slots=True)
class Stages:
    """The project's stages, each made once, in their order; and the site's own job, if there is one."""

    pipeline: dict[str, Stage]
    assemble: SiteStage | None

    def leases(self) -> dict[str, timedelta]:
        """What each renewal gives, by name; the site's own job included."""
        own = {ASSEMBLE: (self.assemble or SiteStage()).lease}
        return {name: stage.lease for name, stage in self.pipeline.items()} | own


def load_stages(root: Path) -> Stages:
    """Import the project's ``stages`` package and take ``PIPELINE`` (and ``ASSEMBLE``) from it.

    Raises StagesError with the thing, the fact and the next step.
    """
    module = _import(root)
    found = getattr(module, "PIPELINE", None)
    if found is None:
        raise StagesError("stages/__init__.py defines no PIPELINE; end it in: PIPELINE = (Generate, Validate, Publish)")
    if not isinstance(found, tuple | list):
        raise StagesError(f"stages:PIPELINE is a {type(found).__name__}; it must be a tuple of Stage classes")
    if not found:
        raise StagesError("stages:PIPELINE is empty; name at least one Stage class")
    pipeline: dict[str, Stage] = {}
    for place, item in enumerate(found, start=1):
        stage = _stage(place, item)
        name = stage_name(type(stage))
        if name in pipeline:
            raise StagesError(f"stages:PIPELINE names {name!r} twice; give one of the classes another name")
        pipeline[name] = stage
    return Stages(pipeline, _assemble(getattr(module, "ASSEMBLE", None)))


def _import(root: Path) -> ModuleType:
    if not (root / "stages" / "__init__.py").is_file() and not (root / "stages.py").is_file():
        raise StagesError(f"no stages/__init__.py in {root}; a project keeps its Stage classes there")
    path = str(root)
    if path not in sys.path:
        sys.path.insert(0, path)
    try:
        module = importlib.import_module("stages")
    except Exception as error:
        # The last frame inside the project is what its author can mend.
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(path)]
        where = f" ({Path(frames[-1].filename).relative_to(root)}, line {frames[-1].lineno})" if frames else ""
        raise StagesError(f"stages cannot be imported{where}: {type(error).__name__}: {error}") from error
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).resolve().is_relative_to(root.resolve()):
        raise StagesError(f"another module named 'stages' is in the way: {file}")
    return module


def _stage(place: int, item: object) -> Stage:
    if not (inspect.isclass(item) and issubclass(item, Stage)):
        hint = f"; write {type(item).__name__}, the class, not an instance of it" if isinstance(item, Stage) else ""
        raise StagesError(f"item {place} of stages:PIPELINE is {item!r}, which is no Stage class{hint}")
    name = stage_name(item)
    if not name.isidentifier() or len(name) > 63 or name == ASSEMBLE:
        raise StagesError(f"stage name {name!r} ({item.__name__}) cannot be used; choose another word")
    if item.run is Stage.run:
        raise StagesError(f"stage {item.__name__} defines no run(self, topic, ctx)")
    if inspect.isgeneratorfunction(item.run) or inspect.isasyncgenfunction(item.run):
        raise StagesError(f"stage {item.__name__}.run yields; it must return one outcome")
    if item.executor not in EXECUTORS:
        raise StagesError(
            f"stage {item.__name__} asks for executor {item.executor!r}; there is 'thread' (for async run: the event"
            " loop) and 'process'"
        )
    if item.executor == "process" and inspect.iscoroutinefunction(item.run):
        raise StagesError(
            f"stage {item.__name__} is async and asks for executor 'process'; a process runs plain functions:"
            " write def run, or leave executor out"
        )
    for key in ("deadline", "lease"):
        time = getattr(item, key)
        if not (isinstance(time, timedelta) and time > timedelta(0)) and not (key == "deadline" and time is None):
            raise StagesError(f"stage {item.__name__} has {key} {time!r}; use a timedelta greater than 0")
    if item.width is not None and (not isinstance(item.width, int) or item.width < 1):
        raise StagesError(f"stage {item.__name__} has width {item.width!r}; use 1, a greater number, or None")
    try:
        return item()
    except Exception as error:
        raise StagesError(f"stage {item.__name__} cannot be made: {type(error).__name__}: {error}") from error


def _assemble(item: object) -> SiteStage | None:
    if item is None:
        return None
    if not (inspect.isclass(item) and issubclass(item, SiteStage)):
        raise StagesError(f"stages:ASSEMBLE is {item!r}, which is no SiteStage class")
    if inspect.iscoroutinefunction(item.run) or getattr(item, "executor", "thread") != "thread":
        raise StagesError(f"stages:ASSEMBLE {item.__name__} must have a plain def run; it runs in a thread")
    return item()
