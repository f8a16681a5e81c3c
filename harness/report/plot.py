"""Line charts as the numbers an SVG needs: no markup, no library. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 360.0, 190.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 6.0, 8.0, 30.0
MOST_POINTS = 240
COLOURS = 8
LEAST = 1e-9
"""Values below it are drawn as it."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Tick:
    """A place on an axis and its text."""

    at: str
    text: str


@dataclass(frozen=True)
class Line:
    """One series. `style` is a number of a colour and a dash; `points` as SVG has them; `cells` for the table."""

    name: str
    style: int
    points: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Plot:
    """A chart and, as `columns` and the lines' cells, the same as a table."""

    title: str
    x_name: str
    y_name: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    columns: tuple[str, ...]
    left_out: int = 0


def plot(
    title: str,
    series: Sequence[tuple[str, Sequence[Point]]],
    x_name: str,
    y_name: str,
    *,
    log: bool = False,
    ends: tuple[float, float] | None = None,
    most: int = COLOURS,
) -> Plot:
    """Series of (x, y) with x ≥ 0 and y ≥ 0 → a chart. `log`: y on a logarithmic scale; `ends`: the least and the largest
    y of all charts that share this one's scale.

    At most `most` series are drawn, and so many points of each.
    """
    drawn = [(name, _thin(points)) for name, points in series if points][:most]
    xs = [x for _, points in drawn for x, _ in points] or [0.0, 1.0]
    ys = [y for _, points in drawn for _, y in points if y > 0 or not log] or [1.0]
    x_end = max(xs) or 1.0
    low, high = min(ys), max(ys)
    if ends is not None:
        low, high = min(low, ends[0]), max(high, ends[1])
    low, high = max(low, LEAST) if log else 0.0, max(high, LEAST)
    ticks = _powers(low, high) if log else _steps(high)
    low, high = (min(low, ticks[0]), max(high, ticks[-1]))

    def across(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * x / x_end

    def up(y: float) -> float:
        part = (y - low) / (high - low or 1.0)
        if log:
            part = math.log(max(y, low) / low) / (math.log(high / low) or 1.0)
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * part

    shown = _columns(drawn)
    lines = tuple(
        Line(
            name,
            number % COLOURS,
            " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points),
            tuple(_near(points, x) for x in shown),
        )
        for number, (name, points) in enumerate(drawn)
    )
    return Plot(
        title,
        x_name,
        y_name,
        lines,
        tuple(Tick(f"{across(x):.1f}", _text(x)) for x in _whole(x_end)),
        tuple(Tick(f"{up(y):.1f}", _text(y)) for y in ticks),
        tuple(_text(x) for x in shown),
        max(0, sum(bool(points) for _, points in series) - len(drawn)),
    )


def _thin(points: Sequence[Point]) -> Sequence[Point]:
    step = -(-len(points) // MOST_POINTS)
    return points[::step] if step > 1 else points


def _columns(drawn: Sequence[tuple[str, Sequence[Point]]], most: int = 12) -> list[float]:
    """The x values of the table: of the longest series, at most so many, ends included."""
    longest = max((points for _, points in drawn), key=len, default=())
    xs = [x for x, _ in longest]
    if len(xs) <= most:
        return xs
    return [xs[round(place * (len(xs) - 1) / (most - 1))] for place in range(most)]


def _near(points: Sequence[Point], x: float) -> str:
    found = [y for at, y in points if at == x]
    return _text(found[0]) if found else "–"


def _steps(high: float) -> list[float]:
    size = 10 ** math.floor(math.log10(high)) if high > 0 else 1.0
    step = next((size * part for part in (0.1, 0.2, 0.5, 1.0, 2.0) if high / (size * part) <= 5), size * 2)
    return [step * number for number in range(math.ceil(high / step - 1e-9) + 1)]


def _whole(high: float) -> list[float]:
    step = max(1.0, *(tick for tick in _steps(high)[1:2]))
    return [step * number for number in range(int(high / step + 1e-9) + 1)]


def _powers(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def _text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
