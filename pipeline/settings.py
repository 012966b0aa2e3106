"""Settings from the environment and the project's root; ground floor."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field, SecretStr, StringConstraints, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from pipeline.errors import UsageError


class Settings(BaseSettings):
    """What every command may be told by the environment. An empty variable counts as unset."""

    model_config = SettingsConfigDict(
        env_prefix="PIPELINE_", env_ignore_empty=True, extra="ignore", hide_input_in_errors=True, frozen=True
    )

    database_url: SecretStr | None = Field(
        default=None, validation_alias=AliasChoices("PIPELINE_DATABASE_URL", "DATABASE_URL")
    )
    db_schema: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]{0,62}$")] = Field(
        default="pipeline", validation_alias="PIPELINE_SCHEMA"
    )
    concurrency: int = Field(default=8, ge=1, le=256)  # stages at once in one worker process
    poll: timedelta = timedelta(seconds=1)
    reap: timedelta = timedelta(seconds=10)
    grace: timedelta = timedelta(seconds=30)


def load_settings() -> Settings:
    """The settings, or UsageError naming the variable that is wrong; values are never shown."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        name = str(first["loc"][0])
        variable = name if name.isupper() else f"PIPELINE_{name.upper()}"
        raise UsageError(f"environment variable {variable}: {first['msg']}") from error


def project_root(start: Path | None = None) -> Path:
    """The nearest folder, from here upwards, that holds ``sites/`` or ``pipeline.toml``; else the current one."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "pipeline.toml").is_file() or (folder / "sites").is_dir():
            return folder
    return here
