"""The ceiling: ``pgbench`` running our own compiled claim and acknowledgement, and nothing else."""

import os
import re
import subprocess
from math import ceil
from typing import Any

from sqlalchemy import case, func
from sqlalchemy.dialects.postgresql import psycopg as dialect
from sqlalchemy.engine import make_url

from bench.cpu import Meter
from bench.ground import Ground
from bench.ours import PACE, asking, number
from pipeline.clock import DatabaseClock
from pipeline.sql import claim, transitions
from pipeline.sql.claim import Which

EMPTY = "'{}'"
TOKEN = "00000000-0000-4000-8000-000000000001"

# It begins where the last one ended, as a worker's does.
PREFIXES = (
    "json_build_array(json_build_object('n', 0, 'site_id', {site}, 'stage', 'work', 'priority', 2, 'share', {batch},"
    " 'lease_seconds', 30, 'floor_at', CAST(:run_at AS text), 'floor_id', CAST(:id AS bigint)))"
)


def script(site: int, batch: int) -> str:
    """What each client does again and again: a claim, then the acknowledgement of all that it brought."""
    asked = claim.claim(DatabaseClock(), Which.TOGETHER)
    found = asked.selected_columns
    in_order = [found.run_at, found.id]
    said = func.json_build_object("job_id", found.id, "token", TOKEN, "delay_seconds", 0)
    # A claim's last row carries what is said of all of them; pgbench puts it into a variable.
    last = func.lead(found.id).over(order_by=in_order).is_(None)
    acks = case((last, func.json_agg(said).over())).label("acks")
    prefixes = PREFIXES.format(site=site, batch=batch)
    worker = "'pgbench/' || :client_id"
    claimed = _text(asked.add_columns(acks), prefixes=prefixes, p_token=f"'{TOKEN}'", p_worker=worker)
    return f"{claimed} \\aset\n{_text(transitions.advance(DatabaseClock()), acks=':acks', gates=EMPTY)};\n"


def _text(statement: Any, **values: str) -> str:
    """The statement as the driver would send it, with an expression in the place of each parameter."""
    compiled = statement.compile(dialect=dialect.dialect())  # type: ignore[no-untyped-call]
    for name, value in compiled.params.items():
        if name not in values:
            if value is None:
                raise RuntimeError(f"the ceiling has no value for the parameter {name!r}: see bench/ceiling.py")
            values[name] = str(value) if isinstance(value, int) else "'{}'".format(str(value).replace("'", "''"))
    text = re.sub(r"%\((\w+)\)s", lambda found: values[found[1]], compiled.string)
    return text.replace("%%", "%")


def ceiling(ground: Ground, url: str, wanted: int, batch: int, clients: int) -> dict[str, float]:
    """Jobs a second by the record, of ``wanted`` pending ones at one unlimited stage; the processor time of a job."""
    with asking(url) as connection:
        site = int(number(connection, "SELECT id FROM sites"))
        file = ground.folder / "claim-and-acknowledge.sql"
        file.write_text(script(site, batch))
        file.chmod(0o644)
        at = make_url(url)
        command = [
            str(ground.binaries / "pgbench"), "--no-vacuum", "--protocol=prepared", f"--client={clients}",
            f"--jobs={clients}", f"--transactions={ceil(wanted / batch / clients) + 2}", f"--file={file}",
            "--define=run_at=1970-01-01", "--define=id=0", "--define=acks=[]",
            "-h", str(at.host), "-p", str(at.port), "-U", str(at.username), str(at.database),
        ]  # fmt: skip
        env = dict(os.environ, PGOPTIONS="-c search_path=pipeline")
        meter = Meter(ground, [])
        meter.begin()
        said = subprocess.run(command, env=env, capture_output=True, text=True)
        done = number(connection, "SELECT count(*) FROM jobs WHERE state = 'done'")
        if said.returncode or done < wanted:
            raise RuntimeError(f"pgbench finished {done:g} of {wanted} jobs: {said.stderr[-1500:]}")
        cost = meter.each(wanted)
        return {"rate": number(connection, PACE), "server_us": cost["server_us"], "batch": batch}
