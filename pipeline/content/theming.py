"""The theme: page templates and style that come with the package, filled with a site's facts; beside the floors."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.content import links
from pipeline.content.markup import clean
from pipeline.project.site import Site
from pipeline.views import content_hash

FOLDER = Path(__file__).parent / "theme"


def site_facts(site: Site) -> dict[str, str]:
    """What the theme may know of the site."""
    facts = {"name": site.name, "tagline": site.tagline, "description": site.description, "locale": site.locale}
    return {key: clean(value) for key, value in facts.items()} | {
        "base_url": site.base_url,
        "home": links.href(site, ""),
    }


def facts_hash(site: Site) -> str:
    """Hash of what the theme may know of the site."""
    return _facts_hash(site.name, site.tagline, site.description, site.locale, site.base_url)


@lru_cache(maxsize=64)
def _facts_hash(*facts: str) -> str:
    return content_hash([clean(fact) for fact in facts])


def fill(name: str, site: Site, **variables: Mapping[str, Any] | list[Any]) -> str:
    """One template of the theme, whole; every value is escaped but what is Markup already."""
    shared = {"style": links.href(site, "style.css"), "feed": links.href(site, "feed.xml"), "nav": []}
    return _environment().get_template(name).render(site=site_facts(site), **shared, **variables)


def style() -> bytes:
    return (FOLDER / "style.css").read_bytes()


@lru_cache(maxsize=1)
def theme_hash() -> str:
    """Hash of all files of the theme; they do not change while a process runs."""
    files = sorted(path for path in FOLDER.iterdir() if path.is_file())
    return content_hash([[path.name, path.read_text(encoding="utf-8")] for path in files])


@lru_cache(maxsize=1)
def _environment() -> Environment:
    loader = FileSystemLoader(FOLDER)
    return Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )
