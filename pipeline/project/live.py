"""Addresses of a site that are live already and not ours: ``sites/<site>/live.txt``, one a line; ground floor.

They come from the site's old sitemap, so that no new topic takes the place of a page that readers know. Whoever wants
to take one over deletes its line.
"""

import unicodedata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pipeline.errors import ProjectError
from pipeline.project.site import Site

FILE = "live.txt"
MAX_BYTES = 64 << 20
DEFAULT = {"http": 80, "https": 443}


def live_file(site: Site) -> Path:
    return site.folder / FILE


def live_paths(site: Site) -> dict[str, str]:
    """Each address, as ``comparable`` writes it, with the place where it is noted."""
    path = live_file(site)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ProjectError(f"sites/{site.slug}/{FILE} is longer than {MAX_BYTES} bytes; shorten it")
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise ProjectError(f"sites/{site.slug}/{FILE} is not UTF-8; save it as UTF-8") from error
    except OSError as error:
        raise ProjectError(f"sites/{site.slug}/{FILE}: {error.strerror}; make it readable") from error
    return {
        comparable(line.strip()): f"sites/{site.slug}/{FILE}:{number}"
        for number, line in enumerate(lines, start=1)
        if line.strip() and not line.startswith("#")
    }


def comparable(path: str) -> str:
    """A path below the site's root as addresses are compared: unescaped, case folded, ending in ``/``."""
    plain = unicodedata.normalize("NFC", unquote(path)).casefold().strip("/")
    plain = plain.removesuffix("index.html").removesuffix("index.php").rstrip("/")
    return f"{plain}/" if plain else ""


def path_of(site: Site, url: str) -> str | None:
    """The path of an address below the site's root, escaped as it is; None when it belongs to another site."""
    try:
        parts, base = urlsplit(url.strip()), urlsplit(site.base_url)
        here = (parts.hostname or "").removeprefix("www."), parts.port or DEFAULT.get(parts.scheme)
        home = (base.hostname or "").removeprefix("www."), base.port or DEFAULT.get(base.scheme)
    except ValueError:
        return None
    if parts.scheme not in DEFAULT or here[0] != home[0] or (here[1] != home[1] and {here[1], home[1]} != {80, 443}):
        return None
    prefix = base.path.rstrip("/") + "/"
    path = parts.path or "/"
    return path[len(prefix) :] if path.startswith(prefix) else None
