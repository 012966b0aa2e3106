"""Add a site to a project: its folder, its ``site.toml``, an empty topics file; ground floor."""

import contextlib
import json
from pathlib import Path

from pydantic import ValidationError

from pipeline.errors import Refused, UsageError
from pipeline.project.site import MAX_SLUG_BYTES, SLUG, Site
from pipeline.project.topics import CONTROL, DEVICES
from pipeline.project.whole import whole

HEADER = "lane,position,slug,title,type\n"


def add_site(root: Path, slug: str, facts: dict[str, str]) -> list[Path]:
    """Make ``sites/<slug>/`` with these facts of ``site.toml``; returns the files that were made.

    Raises UsageError for a name or fact that no site can have, Refused when something is there already. The site is
    there once its ``site.toml`` is, which comes last and whole.
    """
    if not SLUG.fullmatch(slug) or len(slug) > MAX_SLUG_BYTES or slug in DEVICES:
        raise UsageError(f"{slug[:60]!r} is no name for a site; use lower-case letters and digits, words joined by '-'")
    for name, value in facts.items():
        if CONTROL.search(value) or "\n" in value or "\t" in value:
            raise UsageError(
                f"--{name.replace('_', '-')}: holds a control character; write it as plain text on one line"
            )
    folder = root / "sites" / slug
    try:
        Site.model_validate({**facts, "slug": slug, "folder": folder, "output": root / "public" / slug})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        option = str(first["loc"][0]).replace("_", "-")
        raise UsageError(f"--{option}: {first['msg'].removeprefix('Value error, ')}") from error
    if not (root / "sites").is_dir() and not (root / "pipeline.toml").is_file():
        raise Refused(f"{root} is no project: it has no sites/ and no pipeline.toml; go to its folder, or make one")
    topics, toml = folder / "topics.csv", folder / "site.toml"
    try:
        folder.parent.mkdir(exist_ok=True)
        folder.mkdir()
    except FileExistsError as error:
        what = (
            "a site already; see: pipeline sites show " + slug if toml.exists() else "there, but no site: move it away"
        )
        raise Refused(f"sites/{slug} is {what}") from error
    except OSError as error:
        raise Refused(f"sites/{slug}: {error.strerror}") from error
    try:
        topics.write_text(HEADER, encoding="utf-8")
        lines = [f"{key} = {_quoted(value)}\n".encode(errors="replace") for key, value in facts.items()]
        with whole(toml, lines) as new:
            new.replace(toml)
    except BaseException:
        with contextlib.suppress(OSError):
            topics.unlink(missing_ok=True)
            folder.rmdir()
        raise
    return [toml, topics]


def _quoted(text: str) -> str:
    """The text as a basic string of TOML: JSON's escapes are all among its own, but DEL must be escaped as well."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
