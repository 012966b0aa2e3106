"""``python -m bench quick | full | plot | install | NAME``: see ``bench/README.md``."""

import argparse
import importlib
import json
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.ground import Ground, ground
from bench.install import RELEASES, install
from bench.measure import Ratio, Size

MEASURES = ("drain", "order", "pickup", "late", "others", "claims", "snapshot", "planning", "naive", "site")


def main() -> int:
    there = [name for name in MEASURES if find_spec(f"bench.{name}") is not None]
    parser = argparse.ArgumentParser(prog="python -m bench", description="How fast it is, as ratios.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("quick", "full", *there):
        told = {"quick": "all in small, in less than five minutes", "full": "all, at the sizes of the README"}
        one = verbs.add_parser(verb, help=told.get(verb, "this measure alone"))
        one.add_argument("--json", type=Path, metavar="FILE", help="write one document with all that was measured")
        if verb in there:
            one.add_argument("--full", action="store_true", help="at its full size")
    plot = verbs.add_parser("plot", help="SVG from the document of a full run")
    plot.add_argument("document", type=Path)
    plot.add_argument("folder", type=Path, nargs="?", default=Path("bench/plots"))
    some = verbs.add_parser("install", help="make the environments of the peers")
    some.add_argument("peer", nargs="*", choices=[*RELEASES, []], help="default: all")
    told_to = parser.parse_args()

    if told_to.verb == "install":
        return _install(told_to.peer)
    if told_to.verb == "plot":
        from bench.plot import plot as draw

        for path in draw(json.loads(told_to.document.read_text()), told_to.folder):
            print(path)
        return 0
    size = Size.FULL if told_to.verb == "full" or getattr(told_to, "full", False) else Size.QUICK
    document = run([told_to.verb] if told_to.verb in there else there, size)
    if told_to.json:
        told_to.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(row["reached"] for row in document["ratios"]) and not document["failed"] else 1


def run(names: Sequence[str], size: Size) -> dict[str, Any]:
    """Measure, telling the table as it grows; all that was found, as one document."""
    began = time.monotonic()
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    with ground() as here:
        document: dict[str, Any] = {"size": size, "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", **_machine(here)}
        print(f"{document['machine']}; {document['server']}; Python {document['python']}; {document['date']}")
        print(f"{'name':56} {'value':>9} {'bar':>8} {'aim':>8}  reached  seconds", flush=True)
        for name in names:
            start = time.monotonic()
            try:
                found = importlib.import_module(f"bench.{name}").measure(here, size)
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"
                print(f"{name:56} failed: {failed[name]}", flush=True)
                continue
            took = time.monotonic() - start
            for row in found:
                rows.append(_row(name, row, took))
                print(_line(row, took), flush=True)
    took = time.monotonic() - began
    print(f"{took:.0f} s in all")
    return document | {"seconds": round(took, 1), "ratios": rows, "failed": failed}


def _row(name: str, row: Ratio, took: float) -> dict[str, Any]:
    return {
        "measure": name, "name": row.name, "value": row.value, "bar": row.bar, "aim": row.aim, "lower": row.lower,
        "reached": row.reached, "seconds": round(took, 1), "detail": dict(row.detail),
    }  # fmt: skip


def _line(row: Ratio, took: float) -> str:
    sign = "≤" if row.lower else "≥"
    limits = [f"{sign} {limit:g}" if limit is not None else "" for limit in (row.bar, row.aim)]
    told = "" if row.bar is None else "yes" if row.reached else "NO"
    return f"{row.name:56} {row.value:9.3g} {limits[0]:>8} {limits[1]:>8}  {told:7}  {took:.0f}"


def _machine(here: Ground) -> dict[str, Any]:
    """What it was measured on: machine, server, and the releases of all that took part."""
    facts = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.split(":", 1)[1].strip() for line in facts.splitlines() if line.startswith("model name")]
    cores = f"{len(models)} x {models[0]}" if models else platform.processor()
    frozen = subprocess.run([sys.executable, "-m", "pip", "freeze"], capture_output=True, text=True).stdout
    server = str(here.scratch.run("SELECT version()")[0][0]).split(" on ")[0]
    peers = {name: list(release.pins) for name, release in RELEASES.items() if release.installed}
    libraries = [line for line in frozen.splitlines() if line.lower().startswith(("psycopg", "sqlalchemy", "embedded"))]
    return {
        "machine": f"{cores}, {platform.system()} {platform.release()}",
        "server": server,
        "python": platform.python_version(),
        "libraries": libraries,
        "peers": peers,
    }


def _install(names: Sequence[str]) -> int:
    said = install(names)
    for name, told in said.items():
        print(f"{name}: {told}")
    return 0 if all(RELEASES[name].installed for name in said) else 1


if __name__ == "__main__":
    raise SystemExit(main())
