"""Where the links of a page lead: one reading of addresses for rules and pages; beside the floors."""

from urllib.parse import unquote, urljoin, urlsplit

from pipeline.project.site import Site

# What the site itself serves beside its pages.
ARTEFACTS = frozenset({"", "feed.xml", "robots.txt", "sitemap.xml", "style.css"})


def prefix(site: Site) -> str:
    """The path below which the site is served, without a slash at its end: ``/blog``, or nothing."""
    return urlsplit(site.base_url).path.rstrip("/")


def href(site: Site, path: str) -> str:
    """The root-relative address of a page: ``japan/`` is ``/blog/japan/``."""
    return f"{prefix(site)}/{path}"


def canonical(site: Site, path: str) -> str:
    """The whole address of a page."""
    return f"{site.base_url}/{path}"


def target(site: Site, path: str, address: str) -> tuple[str, str] | None:
    """Site-relative path and fragment of a link on the page at ``path``, or None when it leads elsewhere.

    A root-relative address in a text counts from the site's own root: it is written without the path of the base URL.
    """
    if address.startswith("/") and not address.startswith("//"):
        address = site.base_url + address
    try:
        parts = urlsplit(urljoin(canonical(site, path), address))
        base = urlsplit(site.base_url)
    except ValueError:
        return None
    inside = parts.path == base.path or parts.path.startswith(f"{base.path}/")
    if parts.scheme not in ("http", "https") or parts.netloc.lower() != base.netloc.lower() or not inside:
        return None
    return unquote(parts.path[len(base.path) + 1 :]), unquote(parts.fragment)
