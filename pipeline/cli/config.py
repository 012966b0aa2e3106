"""``pipeline config``: what counts, and where it comes from; floor 4."""

from datetime import timedelta
from typing import Annotated, Any

import typer

from pipeline.cli.render import as_json, out, safe, table
from pipeline.cli.status import JsonOption

MASKED = "***"


def config(
    workers: Annotated[
        int | None, typer.Option("--workers", help="As a run would be given it.", min=1, max=256, metavar="N")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show each setting, and where its value comes from.

    Defaults are weakest, then come pipeline.toml, the environment, and flags.

    Example: pipeline config
    """
    from pipeline.settings import FILE, Settings, key, load_settings, origins, project_root

    settings, root = load_settings(workers=workers), project_root()
    found = origins(workers=workers)
    values = {field: _plain(getattr(settings, field)) for field in Settings.model_fields}
    if json:
        rows = [
            {"name": key(field), "value": value, "from": found[field].kind, "source": found[field].name or None}
            for field, value in values.items()
        ]
        file = root / FILE
        out(as_json({"root": str(root), "file": str(file) if file.is_file() else None, "settings": rows}))
        return
    out(f"project: {safe(root)}\n")
    rows_ = [(key(field), _shown(field, values[field], settings), str(found[field])) for field in values]
    out(table(("setting", "value", "from"), rows_))


def _plain(value: Any) -> Any:
    """The value as JSON shows it: durations in seconds, secrets masked."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    return _without_password(value.get_secret_value()) if hasattr(value, "get_secret_value") else value


def _shown(field: str, value: Any, settings: object) -> str:
    if value is None:
        return "none: the embedded server in .pipeline/"
    return f"{value:g} s" if isinstance(getattr(settings, field), timedelta) else str(value)


def _without_password(text: str) -> str:
    from pipeline.cli.db import without_password
    from pipeline.db import parse_url
    from pipeline.errors import UsageError

    try:
        return without_password(parse_url(text))
    except UsageError:
        return f"{MASKED} (no URL of PostgreSQL)"
