"""Valid topics, sites and drafts, of which a test names only what it is about; a door."""

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.project.site import Site
from pipeline.views import Draft, TopicView

TITLE = "A first page about gardens and temples"


def a_topic(**changes: Any) -> TopicView:
    """A topic of the site ``acme``, in the lane ``guides``. A ``slug`` brings title, path and id along."""
    slug = changes.get("slug", "first-page")
    site = changes.get("site", "acme")
    facts: dict[str, Any] = {
        "id": zlib.crc32(f"{site}/{slug}".encode()),  # the same for the same topic, in every test
        "site": site,
        "lane": "guides",
        "slug": slug,
        "title": slug.replace("-", " ").capitalize() if "slug" in changes else TITLE,
        "type": "page",
        "path": f"{slug}/",
        "position": 1,
        "brief": {},
    }
    return TopicView(**(facts | changes))


def a_site(tmp_path: Path, **changes: Any) -> Site:
    """A site whose files are below ``tmp_path``: ``sites/acme`` and ``public/acme``. Neither folder is made."""
    unknown = sorted(set(changes) - set(Site.model_fields))
    if unknown:
        raise TypeError(f"a site has no {', '.join(unknown)}; it has: {', '.join(Site.model_fields)}")
    slug = changes.get("slug", "acme")
    facts: dict[str, Any] = {
        "slug": slug,
        "folder": tmp_path / "sites" / slug,
        "output": tmp_path / "public" / slug,
        "name": "Acme",
        "base_url": "https://acme.example",
    }
    return Site(**(facts | changes))


def a_draft(**changes: Any) -> Draft:
    """A draft to which the ready-made rules have no objection."""
    draft = Draft(
        title=TITLE,
        description="What to see there, what to eat, how to get around, and when in the year it is best to go.",
        body="Some words about it.\n",
    )
    return replace(draft, **changes)
