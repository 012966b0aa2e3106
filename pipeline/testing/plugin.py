"""The pytest plugin: a throw-away database, and the project on it; a door.

pytest loads this in every project where the package is installed, so it defines fixtures and nothing else: whatever is
needed is imported when a test first asks for it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pipeline.testing.database import Server
    from pipeline.testing.project import ProjectCopy


@pytest.fixture(scope="session")
def pipeline_server() -> "Iterator[Server]":
    """A PostgreSQL server for this test run: the one that TEST_DATABASE_URL names, else an embedded one.

    All processes of a run (``pytest -n``) share it.
    """
    import os

    from pipeline.testing import database

    with database.run_folder("pipeline-plugin") as folder, database.server_url(folder) as url:
        # On a server that somebody named, whatever login it has is used; a role of ours may be unable to log in.
        yield database.Server(url, None if os.environ.get(database.VARIABLE) else database.OWNER)


@pytest.fixture(scope="session")
def _pipeline_template(pipeline_server: "Server") -> str:
    return pipeline_server.template()


@pytest.fixture
def pipeline_database(pipeline_server: "Server", _pipeline_template: str) -> Iterator[str]:
    """URL of a migrated, empty database of this test alone."""
    from uuid import uuid4

    name = f"pipeline_test_{uuid4().hex[:16]}"
    try:
        yield pipeline_server.create(name, _pipeline_template).render_as_string(hide_password=False)
    finally:
        pipeline_server.drop(name)


@pytest.fixture
def pipeline_root(pytestconfig: pytest.Config) -> Path:
    """The project under test: the nearest folder with ``sites/``, from pytest's root upwards. Override to change it."""
    from pipeline.settings import project_root

    return project_root(pytestconfig.rootpath)


@pytest.fixture
def pipeline_site() -> str | None:
    """The slug of the site under test; None: the only one. Override, or parametrize, where there are several."""
    return None


@pytest.fixture
def pipeline_project(
    pipeline_root: Path, pipeline_site: str | None, pipeline_database: str, tmp_path: Path
) -> "Iterator[ProjectCopy]":
    """The project with its own stages, on ``pipeline_database``; its sites are copied, so nothing real is published."""
    from pipeline.build import connect
    from pipeline.project.loading import load_stages
    from pipeline.settings import Settings
    from pipeline.testing.database import SCHEMA
    from pipeline.testing.project import ProjectCopy, choose_site, copy_project

    stages = load_stages(pipeline_root)
    slug = choose_site(pipeline_root, pipeline_site)
    root = copy_project(pipeline_root, tmp_path / "project")
    with connect(pipeline_database, Settings.model_construct(db_schema=SCHEMA), name="pipeline test") as services:
        yield ProjectCopy(root, slug, stages, services)
