"""Plots as SVG, drawn by hand: lines over an axis, or bars."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 84, 160, 54, 56
LETTER = 7.4  # about how wide one is
COLOURS = ("#0b5fa5", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#be185d", "#475569")
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2937}.title{font-size:15px;font-weight:600}"
    ".grid{stroke:#e5e7eb}.axis{stroke:#6b7280}.small{font-size:12px;fill:#4b5563}"
)


Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Lines:
    """Named lines over an axis that begins at 0."""

    title: str
    x: str
    y: str
    series: Mapping[str, Points]


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar for each name; those in ``ours`` in another colour."""

    title: str
    values: Mapping[str, float]
    ours: Collection[str] = ("ours",)


def draw(asked: Lines | Bars, foot: str = "") -> str:
    """One plot as an SVG document."""
    parts = _bars(asked) if isinstance(asked, Bars) else _lines(asked)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{escape(asked.title)}"><style>{STYLE}</style>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
        f"{_text(16, 24, asked.title, 'title')}{_text(16, HEIGHT - 8, foot, 'small')}{''.join(parts)}</svg>\n"
    )


class _Axis:
    """From values, 0 and up, to places between ``start`` and ``end``, with round ticks."""

    def __init__(self, values: Iterable[float], start: float, end: float) -> None:
        self._start, self._end = start, end
        self.ticks = _round_steps(max([1e-9, *values]))

    def at(self, value: float) -> float:
        return self._start + value / self.ticks[-1] * (self._end - self._start)


def _round_steps(highest: float) -> list[float]:
    """0 and up, in at most six steps of 1, 2 or 5 times a power of ten."""
    rough = highest / 5
    power = 10.0 ** floor(log10(rough))
    step = next(times * power for times in (1, 2, 5, 10) if times * power >= rough)
    return [step * n for n in range(ceil(highest / step) + 1)]


def _lines(asked: Lines) -> Iterable[str]:
    everything = [point for points in asked.series.values() for point in points]
    across = _Axis((x for x, _ in everything), LEFT, WIDTH - RIGHT)
    up = _Axis((y for _, y in everything), HEIGHT - BOTTOM, TOP)
    yield from _grid(up)
    for tick in across.ticks:
        yield _text(across.at(tick), HEIGHT - BOTTOM + 18, _number(tick), "small", "middle")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 36, asked.x, "small", "middle")
    yield _text(LEFT, TOP - 10, asked.y, "small")
    names = _apart({name: up.at(points[-1][1]) for name, points in asked.series.items()})
    for colour, (name, points) in zip(_colours(len(asked.series)), asked.series.items(), strict=True):
        places = [(across.at(x), up.at(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        if len(places) <= 20:
            yield "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places)
        yield f'<text x="{WIDTH - RIGHT + 8}" y="{names[name] + 4:.1f}" style="fill:{colour}">{escape(name)}</text>'


def _bars(asked: Bars) -> Iterable[str]:
    start = 24 + LETTER * max(map(len, asked.values))
    along = _Axis(asked.values.values(), start, WIDTH - 80)
    height = min((HEIGHT - TOP - BOTTOM) / len(asked.values), 40)
    for place, (name, value) in enumerate(asked.values.items()):
        y = TOP + place * height
        colour = COLOURS[0] if name in asked.ours else COLOURS[-1]
        yield (
            f'<rect x="{start:.1f}" y="{y + 3:.1f}" width="{max(along.at(value) - start, 1):.1f}"'
            f' height="{height - 6:.1f}" fill="{colour}"/>'
        )
        yield _text(start - 8, y + height / 2 + 4, name, "", "end")
        yield _text(along.at(value) + 6, y + height / 2 + 4, _number(value), "small")


def _grid(up: _Axis) -> Iterable[str]:
    for tick in up.ticks:
        y = up.at(tick)
        kind = "axis" if tick == up.ticks[0] else "grid"
        yield f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(LEFT - 8, y + 4, _number(tick), "small", "end")


def _apart(wanted: Mapping[str, float], room: float = 16) -> dict[str, float]:
    """Places near the wanted ones, of which none covers another."""
    placed: dict[str, float] = {}
    for name, y in sorted(wanted.items(), key=lambda item: item[1]):
        placed[name] = max([y, *(other + room for other in placed.values())])
    return placed


def _colours(count: int) -> list[str]:
    return [COLOURS[n % len(COLOURS)] for n in range(count)]


def _number(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g}M"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'
