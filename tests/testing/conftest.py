"""The plugin's fixtures on the server that all tests share; loaded by hand, so that no installation is needed."""

import pytest

from pipeline.testing.database import Server
from pipeline.testing.plugin import (
    _pipeline_template,
    pipeline_database,
    pipeline_project,
    pipeline_root,
    pipeline_site,
)

__all__ = ["_pipeline_template", "pipeline_database", "pipeline_project", "pipeline_root", "pipeline_site"]


@pytest.fixture(scope="session")
def pipeline_server(server_url: str) -> Server:
    return Server(server_url)
