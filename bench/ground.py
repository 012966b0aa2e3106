"""The server and the databases of a bench: real, on the disk, and as durable as a production server is."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import make_url

from pipeline.testing.database import Server
from tests.servers.scratch import Scratch

DURABLE = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "autovacuum": "on",
    "shared_buffers": "1GB",
    "effective_cache_size": "8GB",
    "work_mem": "16MB",
    "maintenance_work_mem": "256MB",
    "wal_buffers": "64MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "max_wal_senders": "0",
    "random_page_cost": "1.1",
    "jit": "off",
    "max_connections": "200",
}
PYTHON = Path(sys.executable)


@dataclass(slots=True)
class Ground:
    """A server of the bench's own. Databases are made for a measure and dropped after it."""

    folder: Path  # on the disk that is measured
    scratch: Scratch
    _made: int = 0

    @property
    def binaries(self) -> Path:
        """Where ``psql``, ``pgbench`` and ``postgres`` are."""
        return self.scratch.binaries

    @contextmanager
    def database(self, *, ours: bool = True, like: str | None = None) -> Iterator[str]:
        """The SQLAlchemy URL of a new database: with our tables, or empty for a peer, or ``like`` that of another URL,
        to which nobody is connected."""
        self._made += 1
        name = f"bench_{self._made}"
        server = Server(self.scratch.url().render_as_string(hide_password=False))
        template = make_url(like).database if like else server.template() if ours else None
        url = server.create(name, template)
        try:
            yield url.render_as_string(hide_password=False)
        finally:
            server.drop(name)


@contextmanager
def ground(folder: Path | None = None) -> Iterator[Ground]:
    """A fresh server in ``folder`` (default: ``BENCH_FOLDER``, else a folder beside the system's temporary ones)."""
    base = folder or Path(os.environ.get("BENCH_FOLDER", "/var/tmp" if os.access("/var/tmp", os.W_OK) else "/tmp"))
    here = Path(tempfile.mkdtemp(prefix="pipeline-bench-", dir=base))
    here.chmod(0o711)
    server = here / "server"
    server.mkdir()
    scratch = Scratch(server, settings=DURABLE)
    try:
        scratch.start()
        scratch.run("CREATE ROLE pipeline LOGIN")
        yield Ground(here, scratch)
    finally:
        scratch.stop()
        shutil.rmtree(here, ignore_errors=True)
