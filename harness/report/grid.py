"""Scenarios → grids of two axes, one for each combination of the others. Pure functions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from harness.core.axes import AXES, Value

Cell = TypeVar("Cell")
Scenarios = Mapping[str, Mapping[str, Value]]
"""Scenario id → its value on every axis."""


@dataclass(frozen=True)
class GridGroup(Generic[Cell]):
    """The scenarios that agree on every axis but the two. `cells[row][column]` is None where there is no scenario."""

    others: tuple[tuple[str, Value], ...]
    rows: tuple[Value, ...]
    columns: tuple[Value, ...]
    cells: tuple[tuple[Cell | None, ...], ...]

    @property
    def title(self) -> str:
        """`shapes=fixed, devices=cpu`: what the group has in common; "" when there is only one."""
        return ", ".join(f"{axis}={value}" for axis, value in self.others)


@dataclass(frozen=True)
class Grid(Generic[Cell]):
    """All groups. `row_axis` and `column_axis` are "" where fewer than one or two axes vary."""

    row_axis: str
    column_axis: str
    groups: tuple[GridGroup[Cell], ...]


def varying(scenarios: Scenarios) -> tuple[str, ...]:
    """The axes on which these scenarios differ, in axis order."""
    return tuple(axis.name for axis in AXES if len({values[axis.name] for values in scenarios.values()}) > 1)


def choose_axes(scenarios: Scenarios) -> tuple[str, str]:
    """(row axis, column axis): the two that vary most.

    That is, the pair whose grids together have the fewest cells, empty ones and headers included, so the fewest and
    fullest grids; of equal pairs the one first in axis order. The axis with more values makes the rows, since a page
    is longer than wide.
    """
    axes = varying(scenarios)
    if len(axes) < 2:
        return (axes[0], "") if axes else ("", "")
    size = {axis: len({values[axis] for values in scenarios.values()}) for axis in axes}

    def cells(pair: tuple[str, str]) -> int:
        others = [axis for axis in axes if axis not in pair]
        groups: dict[tuple[Value, ...], tuple[set[Value], set[Value]]] = {}
        for values in scenarios.values():
            used = groups.setdefault(tuple(values[axis] for axis in others), (set(), set()))
            for axis, found in zip(pair, used, strict=True):
                found.add(values[axis])
        return sum((len(rows) + 1) * (len(columns) + 1) for rows, columns in groups.values())

    first, second = min(itertools.combinations(axes, 2), key=cells)
    return (first, second) if size[first] >= size[second] else (second, first)


def lay_out(scenarios: Scenarios, cells: Mapping[str, Cell]) -> Grid[Cell]:
    """The grids of these scenarios, each with the rows and columns it needs, in order of first appearance."""
    row_axis, column_axis = choose_axes(scenarios)
    others = [axis for axis in varying(scenarios) if axis not in (row_axis, column_axis)]
    orders = {axis: _order(values.get(axis, "") for values in scenarios.values()) for axis in (row_axis, column_axis)}
    places: dict[tuple[tuple[str, Value], ...], dict[tuple[Value, Value], Cell]] = {}
    for name, values in scenarios.items():
        group = places.setdefault(tuple((axis, values[axis]) for axis in others), {})
        group[values.get(row_axis, ""), values.get(column_axis, "")] = cells[name]
    return Grid(
        row_axis,
        column_axis,
        tuple(_group(other, found, orders[row_axis], orders[column_axis]) for other, found in places.items()),
    )


def shared(scenarios: Scenarios, cells: Mapping[str, Cell]) -> tuple[Scenarios, dict[str, tuple[Cell, ...]]]:
    """Scenarios that agree on every axis share a cell: by the id of the first of them, their values, and the cell of each."""
    first: dict[tuple[tuple[str, Value], ...], str] = {}
    found: dict[str, list[Cell]] = {}
    for name, values in scenarios.items():
        found.setdefault(first.setdefault(tuple(values.items()), name), []).append(cells[name])
    return {name: scenarios[name] for name in found}, {name: tuple(members) for name, members in found.items()}


def _group(
    others: tuple[tuple[str, Value], ...],
    found: Mapping[tuple[Value, Value], Cell],
    row_order: Sequence[Value],
    column_order: Sequence[Value],
) -> GridGroup[Cell]:
    rows = tuple(value for value in row_order if any(place[0] == value for place in found))
    columns = tuple(value for value in column_order if any(place[1] == value for place in found))
    cells = tuple(tuple(found.get((row, column)) for column in columns) for row in rows)
    return GridGroup(others, rows, columns, cells)


def _order(values: Iterable[Value]) -> tuple[Value, ...]:
    return tuple(dict.fromkeys(values))
