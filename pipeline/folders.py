"""The sites that a worker can work on: known to the database, with a folder here that can be read; engine room."""

import logging
from collections.abc import Iterable
from pathlib import Path

from pipeline.errors import PipelineError
from pipeline.project.site import Site, changed_at, load_site

log = logging.getLogger("pipeline")


class Folders:
    """``sites`` by id, as their files said when they were read last; with ``only``, that one alone."""

    def __init__(self, root: Path, only: str | None) -> None:
        self._root = root
        self._only = only
        self._stamps: dict[int, int] = {}
        self.sites: dict[int, Site] = {}

    @property
    def ids(self) -> list[int]:
        return sorted(self.sites)

    def look(self, known: Iterable[tuple[int, str]]) -> None:
        """Read those of the ``known`` ids and slugs that are new, or whose file changed.

        Before anything is claimed, so that a broken one stops no other.
        """
        for site_id, slug in known:
            if self._only is not None and slug != self._only:
                continue
            stamp = changed_at(self._root, slug)
            if self._stamps.get(site_id, -1) == stamp:
                continue
            self._stamps[site_id] = stamp
            try:
                self.sites[site_id] = load_site(self._root, slug)
            except PipelineError as error:
                self.sites.pop(site_id, None)
                log.warning("site %s is left to others: %s", slug, error)
