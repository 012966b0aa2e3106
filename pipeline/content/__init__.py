"""Drafts, rules, rendering and the files target: what the ready-made stages are made of."""

from pipeline.content.artefacts import Entry, entry_of, feed, home, robots, sitemaps
from pipeline.content.files import FILES, FilesTarget, file_key
from pipeline.content.generate import fingerprint, generate
from pipeline.content.pages import (
    Lane,
    PageModel,
    article,
    article_in,
    card_of,
    inputs,
    lane_around,
    lane_of,
    model,
    render,
    same_text,
    site_hash,
)
from pipeline.content.rules import check
from pipeline.content.theming import style
from pipeline.errors import ProjectError, TargetError
from pipeline.project.texts import text_of

__all__ = [
    "FILES",
    "Entry",
    "FilesTarget",
    "Lane",
    "PageModel",
    "ProjectError",
    "TargetError",
    "article",
    "article_in",
    "card_of",
    "check",
    "entry_of",
    "feed",
    "file_key",
    "fingerprint",
    "generate",
    "home",
    "inputs",
    "lane_around",
    "lane_of",
    "model",
    "render",
    "robots",
    "same_text",
    "site_hash",
    "sitemaps",
    "style",
    "text_of",
]
