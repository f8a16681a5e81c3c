"""The shortest `where` that means some scenarios of a matrix and no other: what a person would have written."""

from __future__ import annotations

import glob
from collections.abc import Collection, Iterable, Mapping

from harness.core.axes import AXES
from harness.core.scenario import Scenario
from harness.core.where import Match

Cube = Mapping[str, str]
"""Axis → value, as text: the scenarios that have all of these."""


def where_for(wanted: Collection[Scenario], others: Collection[Scenario]) -> list[str]:
    """`where` expressions that together match every wanted scenario and no other one, each a conjunction.

    Every scenario is generalised as far as the others permit, which keeps the axes that stand first; then the fewest of
    these are taken, greedily. Raises ValueError when a scenario is both wanted and another.
    """
    if set(wanted) & set(others):
        raise ValueError("a scenario cannot be both wanted and excluded")
    axes = [axis.name for axis in AXES if len({s.value(axis.name) for s in (*wanted, *others)}) > 1]
    cubes = [_generalised(scenario, others, axes) for scenario in wanted]
    left = list(wanted)
    chosen: list[str] = []
    while left:
        best = max(cubes, key=lambda cube: sum(_in(scenario, cube) for scenario in left))
        left = [scenario for scenario in left if not _in(scenario, best)]
        chosen.append(as_where(best))
    return chosen


def _generalised(scenario: Scenario, others: Iterable[Scenario], axes: list[str]) -> Cube:
    cube = {axis: str(scenario.value(axis)) for axis in axes}
    for axis in reversed(axes):
        wider = {name: value for name, value in cube.items() if name != axis}
        if not any(_in(other, wider) for other in others):
            cube = wider
    return cube


def _in(scenario: Scenario, cube: Cube) -> bool:
    return all(str(scenario.value(axis)) == value for axis, value in cube.items())


def as_where(cube: Cube) -> str:
    """The conjunction that matches what has these values, by axis."""
    if not cube:
        return f"{AXES[0].name}=*"
    # A quote cannot stand in a where expression, but any one character can stand for it.
    return " and ".join(str(Match(axis, glob.escape(value).replace('"', "?"))) for axis, value in cube.items())
