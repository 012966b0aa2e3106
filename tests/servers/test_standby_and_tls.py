"""A hot standby is refused; TLS is spoken when the URL asks for it."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline import migrate
from pipeline.testing.database import SCHEMA
from tests.doors.scene import Door
from tests.servers.scratch import Scratch

SYSTEMS = Path("/usr/lib/postgresql")


def speaks_tls(binaries: Path) -> bool:
    """Whether a server was built with it; that of the usual wheel was not."""
    linked = subprocess.run(["ldd", binaries / "postgres"], capture_output=True, text=True, check=False).stdout
    return "libssl" in linked


@pytest.fixture
def own(scratch_folder: Path) -> Iterator[Scratch]:
    """A server for one test."""
    folder = scratch_folder / "own"
    folder.mkdir(mode=0o700)
    server = Scratch(folder)
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_a_hot_standby_is_refused(project: Door, own: Scratch) -> None:
    """It answers, and takes no writes: one sentence that names the setting, for every command that connects."""
    own.start()
    migrate.upgrade(own.url(), SCHEMA)
    own.stop()
    (own.data / "standby.signal").touch()
    own.start()
    assert own.run("SELECT pg_is_in_recovery()") == [(True,)]
    project.env["PIPELINE_DATABASE_URL"] = own.url().render_as_string(hide_password=False)

    for words in ("run --site demo", "worker", "status", "jobs requeue 1", "db upgrade", "db check"):
        said = project(*words.split())
        assert (said.code, said.out) == (3, "")
        assert said.err == "error: the server is a read-only standby; name the primary in PIPELINE_DATABASE_URL\n"


@pytest.fixture
def with_tls(scratch_folder: Path) -> Iterator[tuple[Scratch, Path]]:
    """A server that has a certificate for its address, and the file of who signed it."""
    found = [path for path in sorted(SYSTEMS.glob("*/bin"), reverse=True) if speaks_tls(path)]
    if not found or shutil.which("openssl") is None:
        pytest.skip("no server with TLS here, or no openssl to make it a certificate")
    folder = scratch_folder / "tls"
    folder.mkdir(mode=0o700)
    server = Scratch(folder, {"ssl": "on"}, binaries=found[0])
    names = ["-keyout", str(server.data / "server.key"), "-out", str(server.data / "server.crt")]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
            "-addext", "subjectAltName=IP:127.0.0.1"]  # fmt: skip
    subprocess.run([*make, *names], capture_output=True, check=True)
    for file in ("server.key", "server.crt"):
        (server.data / file).chmod(0o600)
        shutil.chown(server.data / file, server.user.uid, server.user.gid)
    server.start()
    yield server, server.data / "server.crt"
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_tls_as_the_url_asks_for_it(project: Door, with_tls: tuple[Scratch, Path], tmp_path: Path) -> None:
    """A server that proves who it is is worked with, by migrations and workers alike; one that cannot is refused."""
    server, certificate = with_tls
    url = server.url().render_as_string(hide_password=False)
    mine = tmp_path / "root.crt"
    mine.write_bytes(certificate.read_bytes())
    project.env["PIPELINE_DATABASE_URL"] = f"{url}?sslmode=verify-full&sslrootcert={mine}"

    assert project("db", "upgrade").code == 0
    assert project("run", "--site", "demo", "--workers", "1").code == 0
    server.run("ALTER SYSTEM SET log_connections = on", "SELECT pg_reload_conf()")
    assert project("status").code == 0
    assert "application_name=pipeline status SSL enabled" in server.log.read_text()

    for query, part in (
        (
            "sslmode=verify-full&sslrootcert=/nowhere/root.crt",
            'root certificate file "/nowhere/root.crt" does not exist',
        ),
        ("sslmode=verify-full&sslrootcert=system", "certificate verify failed"),
    ):
        project.env["PIPELINE_DATABASE_URL"] = f"{url}?{query}"
        for words in ("status", "run --site demo"):
            said = project(*words.split())
            assert (said.code, said.out) == (3, "")
            assert said.err.startswith("error: the database cannot be reached: ")
            assert part in said.err
            assert said.err.count("\n") == 1
