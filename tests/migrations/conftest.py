"""A new database for each test, on the server that TEST_DATABASE_URL names."""

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from sqlalchemy import create_engine, make_url, text


@pytest.fixture(scope="session")
def server_url() -> str:
    return os.environ.get("TEST_DATABASE_URL") or pytest.skip("TEST_DATABASE_URL names no server")


@pytest.fixture
def fresh_database(server_url: str) -> Iterator[str]:
    name = f"migrations_{uuid4().hex}"
    server = create_engine(server_url, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} OWNER pipeline"))
    url = make_url(server_url).set(username="pipeline", database=name)
    yield url.render_as_string(hide_password=False)
    with server.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    server.dispose()
