"""Drafts from templates: ``sites/<site>/templates/<type>.md.j2`` and one topic's row make a Markdown body.

Beside the floors. The same row and template give the same bytes on every machine and day: there is no clock and no
chance in here. A template may include or import files whose names begin with ``_``; nothing else.

Why a sandbox: rows come from anywhere and are data, but templates are shared between sites and copied from the web. It
keeps them from reaching into Python; it is no limit on time, so a template is to be read before it is used.
"""

import hashlib
import re
import traceback
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateNotFound, TemplateSyntaxError, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.loaders import DictLoader
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pipeline.content.markup import first_paragraph, slugify
from pipeline.errors import ProjectError
from pipeline.project.site import Site
from pipeline.project.topics import TYPE
from pipeline.views import Draft, TopicView, content_hash

MAX_TEMPLATE_BYTES = 1 << 20
MAX_BODY_BYTES = 1 << 20
DESCRIPTION_LENGTH = 155  # what result pages show before they cut
# What a template can do wrong beside Jinja's own errors: all of it happens again on every try.
MISTAKES = (TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def generate(site: Site, topic: TopicView) -> Draft:
    """The draft of one topic. Raises ProjectError with the template's file and line when it cannot be made."""
    sources = _sources(site, topic.type)
    row = {"title": topic.title, "slug": topic.slug, "type": topic.type, "lane": topic.lane, "position": topic.position}
    facts = {"name": site.name, "locale": site.locale}
    body = _render(site, topic, sources, {**topic.brief, **row, "site": facts})
    lineage = {
        "template": f"{topic.type}.md.j2",
        "template_hash": content_hash(sources),
        "input_hash": content_hash([row, dict(topic.brief), facts]),
    }
    description = " ".join(str(topic.brief.get("description") or "").split()) or _shorten(first_paragraph(body))
    return Draft(title=topic.title, description=description, body=body, lineage=lineage)


def fingerprint(site: Site, type: str) -> str:
    """Hash of all that a draft depends on beside its topic's row; empty when there is no usable template."""
    try:
        return content_hash([_sources(site, type), site.name, site.locale])
    except ProjectError:
        return ""


def _folder(site: Site) -> Path:
    return site.folder / "templates"


def _label(site: Site, name: str) -> str:
    return f"sites/{site.slug}/templates/{name}"


def _sources(site: Site, type: str) -> tuple[tuple[str, str], ...]:
    """Name and text of the type's template, then of all that it may include."""
    name = f"{type}.md.j2"
    if not TYPE.fullmatch(type) or not (_folder(site) / name).is_file():
        raise ProjectError(f"{_label(site, name[:80])} is missing; write it, or change the type of the topic")
    partials = sorted(path.name for path in _folder(site).glob("_*") if path.is_file())
    return tuple((each, _read(site, each)) for each in (name, *partials))


def _read(site: Site, name: str) -> str:
    try:
        raw = (_folder(site) / name).read_bytes()
        if len(raw) > MAX_TEMPLATE_BYTES:
            raise ProjectError(f"{_label(site, name)} is {len(raw)} bytes; at most {MAX_TEMPLATE_BYTES} are read")
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ProjectError(f"{_label(site, name)}:{line}: not UTF-8; save the file as UTF-8") from error
    except OSError as error:
        raise ProjectError(f"{_label(site, name)}: {error.strerror}; make it readable") from error


def _render(site: Site, topic: TopicView, sources: tuple[tuple[str, str], ...], variables: dict[str, Any]) -> str:
    name = sources[0][0]
    parts: list[str] = []
    size = 0
    try:
        for part in _compiled(sources).generate(variables):
            size += len(part.encode())
            if size > MAX_BODY_BYTES:
                raise ProjectError(f"{_label(site, name)}: topic {topic.slug} gives more than {MAX_BODY_BYTES} bytes")
            parts.append(part)
    except TemplateSyntaxError as error:
        where = f"{_label(site, error.name or name)}:{error.lineno}"
        raise ProjectError(f"{where}: {error.message}; mend the template") from error
    except TemplateNotFound as error:
        where = _where(site, error, sources)
        raise ProjectError(
            f"{where}: no {error.name}; only files in its folder that begin with '_' may be used"
        ) from error
    except MISTAKES as error:
        columns = ", ".join(sorted(topic.brief)) or "none"
        hint = f"(topic {topic.slug}; columns of its row: {columns}); mend the template or the row"
        raise ProjectError(f"{_where(site, error, sources)}: {error} {hint}") from error
    return "".join(parts).strip() + "\n"


def _where(site: Site, error: Exception, sources: tuple[tuple[str, str], ...]) -> str:
    """File and line of the innermost template that the error passed through."""
    names = {name for name, _ in sources}
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in names]
    return f"{_label(site, frames[-1].filename)}:{frames[-1].lineno}" if frames else _label(site, sources[0][0])


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, with ``*`` and ``**`` kept small: they alone could fill the memory in one step."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        sizes = [len(each) if isinstance(each, Sequence) else abs(each) for each in (left, right)]
        if (operator == "**" and max(sizes) > 1000) or (
            any(isinstance(each, Sequence) for each in (left, right)) and sizes[0] * sizes[1] > MAX_TEMPLATE_BYTES
        ):
            raise SecurityError(f"{operator!r} would give too much")
        return super().call_binop(context, operator, left, right)


class _Loader(DictLoader):
    """Templates by name, as the files of their tracebacks too."""

    def get_source(self, environment: Any, template: str) -> Any:
        source, _, fresh = super().get_source(environment, template)
        return source, template, fresh


@lru_cache(maxsize=64)
def _compiled(sources: tuple[tuple[str, str], ...]) -> Template:
    environment = _Environment(
        loader=_Loader(dict(sources)),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # the result is Markdown; markup.py makes it safe as HTML
        keep_trailing_newline=True,
    )
    environment.filters |= {"split": _split, "number": _number, "slugify": slugify, "pick": _pick}
    return environment.get_template(sources[0][0])


def _split(text: str) -> list[str]:
    """``"a; b;"`` is ``["a", "b"]``."""
    return [part for piece in str(text).split(";") if (part := piece.strip())]


def _number(value: object) -> str:
    """``1460000`` is ``1,460,000``."""
    text = str(value).strip()
    if not re.fullmatch(r"-?[0-9]{1,30}(\.[0-9]{1,10})?", text):
        raise ValueError(f"{text[:60]!r} is no number")
    whole, point, rest = text.partition(".")
    return f"{int(whole):,}{point}{rest}"


@pass_context
def _pick(context: Context, choices: Sequence[object], key: str) -> object:
    """One of the choices: always the same for the same page and key."""
    if not choices:
        raise ValueError(f"nothing to pick from for {key!r}")
    digest = hashlib.sha256(f"{context.resolve('slug')}\n{key}".encode()).digest()
    return choices[int.from_bytes(digest) % len(choices)]


def _shorten(text: str) -> str:
    """The text, cut after a word when it is longer than a description should be."""
    if len(text) <= DESCRIPTION_LENGTH:
        return text
    head = text[:DESCRIPTION_LENGTH]
    return f"{head.rpartition(' ')[0] or head}".rstrip(" ,;:.-–—") + "…"
