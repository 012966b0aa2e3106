"""A site as its ``site.toml`` describes it; ground floor."""

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from pipeline.errors import NotFound, ProjectError

SLUG = re.compile(r"^[a-z0-9]+(?:-[a-z0-9]+)*$")
MAX_SLUG_BYTES = 200
MAX_TOML_BYTES = 1 << 20


class Site(BaseModel):
    """One publication and where its files are. ``settings`` is the whole of ``site.toml``."""

    model_config = ConfigDict(frozen=True, extra="ignore", arbitrary_types_allowed=True)

    slug: str
    folder: Path  # sites/<slug>
    output: Path  # public/<slug>: where the files target writes
    name: str = Field(min_length=1, max_length=200)
    base_url: str = Field(max_length=500)
    tagline: str = ""
    description: str = ""
    locale: str = Field(default="en", pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$")
    time_zone: str = "UTC"
    topics: str = "topics.csv"
    paths: Mapping[str, str] = Field(default_factory=dict)  # type of page → pattern with {lane} and {slug}
    lanes: Mapping[str, str] = Field(default_factory=dict)  # lane → its name for readers
    settings: Mapping[str, Any] = Field(default_factory=dict)

    @field_validator("base_url")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if not re.fullmatch(r"https?://[^/\s?#]+(/[^\s?#]*)?", value):
            raise ValueError("must be an absolute http(s) URL without query, such as https://example.com")
        return value.rstrip("/")

    @field_validator("time_zone")
    @classmethod
    def _zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (OSError, ValueError, KeyError) as error:  # an unknown key is a KeyError
            raise ValueError("must be an IANA time zone such as Europe/Berlin") from error
        return value

    @field_validator("topics")
    @classmethod
    def _inside(cls, value: str) -> str:
        if Path(value).is_absolute() or ".." in Path(value).parts:
            raise ValueError("must be a file inside the site's own folder")
        return value

    @field_validator("paths")
    @classmethod
    def _patterns(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        for pattern in value.values():
            if not re.fullmatch(r"(?:(?:[a-z0-9-]|\{lane\}|\{slug\})+/)+", pattern):
                raise ValueError(f"{pattern!r}: use lower-case words, {{lane}} and {{slug}}, each part ending in '/'")
        return value

    def path(self, *, type: str, lane: str, slug: str) -> str:
        """Where a page of this type lives, relative to the site, ending in ``/``."""
        return page_path(self.paths, type=type, lane=lane, slug=slug)


def page_path(paths: Mapping[str, str], *, type: str, lane: str, slug: str) -> str:
    """Where a page of this type lives by these patterns of a site."""
    return paths.get(type, "{slug}/").format(lane=lane, slug=slug)


def sites(root: Path) -> list[str]:
    """The slugs of the project's sites."""
    return sorted(p.parent.name for p in root.glob("sites/*/site.toml"))


def changed_at(root: Path, slug: str) -> int:
    """When ``sites/<slug>/site.toml`` changed last, to tell whether to read it again; 0 when it is not there."""
    try:
        return (root / "sites" / slug / "site.toml").stat().st_mtime_ns
    except OSError:
        return 0


def load_site(root: Path, slug: str) -> Site:
    """Read ``sites/<slug>/site.toml``.

    Raises NotFound with the nearest name for an unknown site, ProjectError with file and line for a broken one.
    """
    known = sites(root)
    if slug not in known:
        near = difflib.get_close_matches(slug, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        listing = f"sites here: {', '.join(known)}" if known else f"no sites/NAME/site.toml below {root}"
        raise NotFound(f"no site {slug!r}; {hint}({listing})")
    if not SLUG.fullmatch(slug):
        raise ProjectError(f"sites/{slug}: rename the folder to lower-case words joined by '-'")
    folder = root / "sites" / slug
    file = folder / "site.toml"
    try:
        raw = file.read_bytes()
        if len(raw) > MAX_TOML_BYTES:
            raise ProjectError(f"sites/{slug}/site.toml is {len(raw)} bytes; at most {MAX_TOML_BYTES} are read")
        settings = tomllib.loads(raw.decode("utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        raise ProjectError(f"sites/{slug}/site.toml: {error}") from error
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ProjectError(f"sites/{slug}/site.toml: not UTF-8 (at line {line})") from error
    except OSError as error:
        raise ProjectError(f"sites/{slug}/site.toml: {error.strerror}") from error
    # Every site has a root of its own below the project, so that no two sites can write to one file.
    own = {"slug": slug, "folder": folder, "output": root / "public" / slug, "settings": settings}
    try:
        return Site.model_validate(settings | own)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        at = _line_of(raw.decode("utf-8-sig"), str(first["loc"][0]))
        where = f" (at line {at})" if at else ""
        what = "is missing" if first["type"] == "missing" else first["msg"].removeprefix("Value error, ")
        raise ProjectError(f"sites/{slug}/site.toml{where}: {key} {what}") from error


def _line_of(text: str, key: str) -> int | None:
    """The line on which a top-level key or table of that name begins."""
    for number, line in enumerate(text.splitlines(), start=1):
        if re.match(rf"\s*(\[\s*{re.escape(key)}\s*[\].]|{re.escape(key)}\s*=)", line):
            return number
    return None
