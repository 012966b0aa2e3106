"""Which plots a full run gives: scaling, claims, decay under a snapshot, the naive claim, peers side by side."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.svg import Bars, Lines, draw

Row = Mapping[str, Any]
Plots = Iterator[tuple[str, Lines | Bars]]


def plot(document: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw what a document has the figures for into the folder; returns the files."""
    rows: Sequence[Row] = document["ratios"]
    foot = f"{document['machine']}; {document['server']}; {document['date']}"
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, asked in (*_scaling(rows), *_claims(rows), *_snapshot(rows), *_naive(rows), *_peers(rows), *_order(rows)):
        path = folder / f"{name}.svg"
        path.write_text(draw(asked, foot), encoding="utf-8")
        files.append(path)
    return files


def _scaling(rows: Sequence[Row]) -> Plots:
    for row in rows:
        if (found := row["detail"].get("scaling")) is not None:
            series = {who: sorted((float(n), rate) for n, rate in rates.items()) for who, rates in found.items()}
            yield "scaling", Lines("No-op jobs at one stage", "worker processes, or clients", "jobs a second", series)
            return


def _claims(rows: Sequence[Row]) -> Plots:
    """What a claim touches in each scene, and in the same one without the mass around it."""
    values: dict[str, float] = {}
    for row in rows:
        statement, _, scene = row["name"].partition(", pages: ")
        if row["measure"] == "claims" and statement == "claim" and scene:
            values |= {f"without {scene}": row["detail"]["alone"], f"with {scene}": row["detail"]["among"]}
    if values:
        masses = [name for name in values if name.startswith("with ")]
        yield "claims", Bars("Pages that a claim touches", values, ours=masses)


def _snapshot(rows: Sequence[Row]) -> Plots:
    for row in rows:
        rates = row["detail"].get("capacity_a_second")
        if row["measure"] == "snapshot" and rates:
            window = row["detail"]["window_seconds"]
            points = [((n + 1) * window, rate) for n, rate in enumerate(rates)]
            yield (
                "snapshot",
                Lines("Capacity while a snapshot is held", "seconds since", "jobs a second", {"ours": points}),
            )


def _naive(rows: Sequence[Row]) -> Plots:
    series = {
        row["name"].rpartition(": ")[2]: [(float(n), rate) for n, rate in row["detail"]["jobs_a_second"].items()]
        for row in rows
        if row["measure"] == "naive"
    }
    if series:
        yield "naive", Lines("Workers on a stage of 5 ms", "workers", "jobs a second", series)


def _peers(rows: Sequence[Row]) -> Plots:
    for row in rows:
        if row["measure"] == "others":
            values = {who: median(rates) for who, rates in row["detail"]["jobs_s"].items()}
            yield "peers", Bars("No-op jobs a second, two worker processes", _falling(values))


def _order(rows: Sequence[Row]) -> Plots:
    values = {
        who: median(run["jobs_s"] for run in runs)
        for row in rows
        if row["measure"] == "order" and row["name"].endswith("side by side")
        for who, runs in row["detail"].items()
    }
    if values:
        yield "order", Bars("Jobs a second in strict order, keys side by side", _falling(values))


def _falling(values: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(values.items(), key=lambda item: -item[1]))
