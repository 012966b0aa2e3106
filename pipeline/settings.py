"""Settings: defaults, then ``pipeline.toml``, then the environment, then flags, the later the stronger; ground floor.

Each has one name in the file and one variable (``database_url`` has two), and ``origins`` tells which of them counted.
Values are never quoted in messages: any of them may hold a secret.
"""

import difflib
import os
import re
import tomllib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, StringConstraints, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from pipeline.errors import ProjectError, UsageError

FILE = "pipeline.toml"
MAX_FILE_BYTES = 1 << 20
MOST_WORKERS = 256

# A password as SQLAlchemy reads it: from the first colon of what stands before the "@"; or in the query.
_PASSWORD = re.compile(r"://[^:/]*:[^@]+@|[?&][^=&]*password[^=&]*=", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?")


def _number(value: object) -> object:
    """TOML's ``true`` is no number, whatever Python thinks."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _seconds(value: object) -> object:
    """Variables are texts: a number among them is one of seconds, as it is in the file."""
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value.strip()) else _number(value)


def _days(value: timedelta) -> timedelta:
    if timedelta(0) < value < timedelta(days=1):
        raise ValueError("must be a day (86400) or longer; 0 for never")
    return value


Count = Annotated[int, BeforeValidator(_number)]
Duration = Annotated[timedelta, BeforeValidator(_seconds)]
Age = Annotated[Duration, Field(ge=timedelta(0), le=timedelta(days=36500)), AfterValidator(_days)]


def _cores() -> int:
    return min(os.cpu_count() or 1, MOST_WORKERS)


class Settings(BaseSettings):
    """What every command may be told. An empty variable counts as unset."""

    model_config = SettingsConfigDict(extra="ignore", hide_input_in_errors=True, frozen=True)

    database_url: SecretStr | None = Field(default=None, min_length=1)
    db_schema: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]{0,62}$")] = "pipeline"
    workers: Count = Field(default_factory=_cores, ge=1, le=MOST_WORKERS)  # processes of a run
    concurrency: Count = Field(default=8, ge=1, le=256)  # stages at once in one worker process
    poll: Duration = Field(default=timedelta(seconds=1), gt=timedelta(0), le=timedelta(days=1))
    wake: bool = True  # tell idle workers of new work; they look every ``poll`` without it too
    reap: Duration = Field(default=timedelta(seconds=10), gt=timedelta(0), le=timedelta(days=1))
    grace: Duration = Field(default=timedelta(seconds=30), ge=timedelta(0), le=timedelta(days=1))
    prune_after: Age = timedelta(0)  # what workers keep of finished passes; 0: all, until somebody prunes
    prepare: Literal["auto", "always", "never"] = "auto"  # statements; auto: unless a pooler stands in between

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, _Environment(settings_cls), _File(settings_cls, toml_file=project_root() / FILE)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a setting's value came from: ``default``, ``file``, ``environment`` or ``flag``; and its name there."""

    kind: str
    name: str = ""

    def __str__(self) -> str:
        match self.kind:
            case "default":
                return "default"
            case "file":
                return FILE
            case "environment":
                return f"environment variable {self.name}"
        return f"flag {self.name}"


def key(field: str) -> str:
    """What the file calls a setting."""
    return "schema" if field == "db_schema" else field


def variables(field: str) -> tuple[str, ...]:
    """The variables that may set it, the strongest first."""
    own = f"PIPELINE_{key(field).upper()}"
    return (own, "DATABASE_URL") if field == "database_url" else (own,)


def load_settings(**flags: Any) -> Settings:
    """The settings of the project around the current folder; ``flags`` that are None were not given.

    Raises UsageError naming the flag, the variable, or the file and its key; values are never shown.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        field = str(first["loc"][0])
        fact = first["msg"].removeprefix("Value error, ")
        origin = origins(**given)[field]
        if origin.kind == "file":
            raise ProjectError(f"{_place(key(field))}: {key(field)}: {fact}") from error
        raise UsageError(f"{origin}: {fact}") from error


def origins(**flags: Any) -> dict[str, Origin]:
    """Where the value of each setting comes from."""
    path = project_root() / FILE
    file = read_file(path) if path.is_file() else {}
    found = {}
    for field in Settings.model_fields:
        if flags.get(field) is not None:
            found[field] = Origin("flag", f"--{key(field)}")
        elif variable := _variable(field):
            found[field] = Origin("environment", variable)
        else:
            found[field] = Origin("file", key(field)) if field in file else Origin("default")
    return found


def project_root(start: Path | None = None) -> Path:
    """The nearest folder, from here upwards, that holds ``sites/`` or ``pipeline.toml``; else the current one."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / FILE).is_file() or (folder / "sites").is_dir():
            return folder
    return here


def read_file(path: Path) -> dict[str, Any]:
    """The values of a ``pipeline.toml`` by field.

    Raises ProjectError with file and line for one that is broken, holds a key that nothing reads, or a password.
    """
    try:
        raw = path.read_bytes()
        if len(raw) > MAX_FILE_BYTES:
            raise ProjectError(f"{FILE} is {len(raw)} bytes; at most {MAX_FILE_BYTES} are read")
        found = tomllib.loads(raw.decode("utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        raise ProjectError(f"{FILE}: {error}") from error
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ProjectError(f"{FILE}: not UTF-8 (at line {line})") from error
    except OSError as error:
        raise ProjectError(f"{FILE}: {error.strerror}") from error
    fields = {key(field): field for field in Settings.model_fields}
    for name in found:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there is: {', '.join(fields)}"
            raise ProjectError(f"{_place(name, raw)}: no key {name[:60]!r}; {hint}")
    if _PASSWORD.search(str(found.get("database_url", ""))):
        raise ProjectError(
            f"{_place('database_url', raw)}: database_url holds a password, which does not belong into a file;"
            " set PIPELINE_DATABASE_URL in the environment instead"
        )
    return {fields[name]: value for name, value in found.items()}


class _Environment(PydanticBaseSettingsSource):
    """Each setting from its variable, as text."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        name = _variable(field_name)
        return os.environ[name] if name else None, field_name, False

    def __call__(self) -> dict[str, Any]:
        return {field: os.environ[name] for field in self.settings_cls.model_fields if (name := _variable(field))}


class _File(TomlConfigSettingsSource):
    """The project's file, read by our own rules."""

    def _read_file(self, file_path: Any) -> dict[str, Any]:
        return read_file(Path(file_path))


def _variable(field: str) -> str:
    """The variable that sets it now; empty when none does."""
    return next((name for name in variables(field) if os.environ.get(name)), "")


def _place(name: str, raw: bytes | None = None) -> str:
    """The file, and the line on which a key or table of that name begins, as far as that can be told."""
    text = (raw if raw is not None else (project_root() / FILE).read_bytes()).decode("utf-8-sig")
    quoted = re.escape(name)
    for number, line in enumerate(text.splitlines(), start=1):
        if re.match(rf"""\s*\[*\s*["']?{quoted}["']?\s*[\].=]""", line):
            return f"{FILE} (at line {number})"
    return FILE
