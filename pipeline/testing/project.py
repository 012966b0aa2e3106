"""A project as a test sees it: a private copy of its files, its own stages, an empty database; a door."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.build import Services
from pipeline.errors import NotFound
from pipeline.project.loading import Stages
from pipeline.project.site import Site, load_site, sites
from pipeline.project.topics import load_topics
from pipeline.testing.draining import Drained, drain
from pipeline.views import Planned
from pipeline.wanted import fingerprints, hashed, specs


@dataclass(frozen=True, slots=True)
class ProjectCopy:
    """One site of a project. ``root`` is the copy: what a test changes there, or publishes, is gone afterwards."""

    root: Path
    slug: str
    stages: Stages
    services: Services  # every verb, on the test's database

    @property
    def site(self) -> Site:
        """The site as its files are now."""
        return load_site(self.root, self.slug)

    def plan(self) -> Planned:
        """Bring the topics file into the database, as ``pipeline run`` does at its start."""
        site = self.site
        topics = hashed(site, self.stages, load_topics(site))
        site_id = self.services.planning.register(site, specs(self.stages), fingerprints(site, self.stages, topics))
        return self.services.planning.plan(site_id, topics)

    def drain(self, *, timeout: float = 60) -> Drained:
        """Run the project's stages in this process until nothing is due; see ``pipeline.testing.drain``."""
        return drain(self.services, self.root, self.slug, timeout=timeout, stages=self.stages)

    def states(self) -> dict[str, tuple[str | None, str | None]]:
        """Where each topic's newest pass stands: ``{slug: (stage, state)}``, by lane and position."""
        return {line.slug: (line.stage, line.state) for line in self.services.reading.topics(self._id())}

    def attempts(self, slug: str) -> list[Mapping[str, Any]]:
        """The reservations of a topic's newest pass that ended, in their order: stage, outcome, error and more."""
        return list(self.services.reading.topic(self._id(), slug).attempts)

    def published(self) -> dict[str, str]:
        """What the ledger calls live, ``{path: hash}``: pages by lane and position, then what belongs to the site."""
        site_id = self._id()
        targets = [stage.target for stage in self.stages.pipeline.values()]
        targets.append(self.stages.assemble.target if self.stages.assemble else None)
        return {
            page.path: page.hash
            for target in dict.fromkeys(targets)
            if target is not None
            for page in self.services.reading.live(site_id, target)
        }

    def _id(self) -> int:
        row = self.services.reading.site(self.slug)
        if row is None:
            raise NotFound(f"the database knows no site {self.slug!r}; call plan() first")
        return row.id


def copy_project(root: Path, to: Path) -> Path:
    """Copy what describes a project, not what it published or keeps."""
    to.mkdir(parents=True)
    shutil.copytree(root / "sites", to / "sites")
    if (root / "pipeline.toml").is_file():
        shutil.copy2(root / "pipeline.toml", to)
    return to


def choose_site(root: Path, wanted: str | None) -> str:
    """The site that is meant; without a word, the only one. Raises NotFound."""
    known = sites(root)
    if wanted is None and len(known) != 1:
        have = f"there are {len(known)}: {', '.join(known)}" if known else f"there is no sites/NAME/site.toml in {root}"
        raise NotFound(f"which site? {have}; override the fixture pipeline_site, which returns a slug")
    return load_site(root, wanted or known[0]).slug
