"""Scenarios laid out on two axes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.core.axes import Value
from harness.core.scenario import Scenario
from harness.report.grid import Grid, choose_axes, lay_out, varying


def values(*scenarios: Scenario) -> dict[str, dict[str, Value]]:
    return {scenario.id: scenario.to_dict() for scenario in scenarios}


LOCKS = ("none", "per_call", "first_step", "compile_gate")
CHECKPOINTS = ("none", "reentrant", "non_reentrant")
PRODUCT = [Scenario(lock=lock, checkpoint=checkpoint) for lock in LOCKS for checkpoint in CHECKPOINTS]


def test_the_two_axes_that_vary_most_make_the_grid() -> None:
    more = [Scenario(lock=lock, checkpoint="non_reentrant", shapes="per_drafter") for lock in LOCKS[:2]]
    grid = lay_out(values(*PRODUCT, *more), {scenario.id: scenario for scenario in [*PRODUCT, *more]})
    assert (grid.row_axis, grid.column_axis) == ("lock", "checkpoint")
    assert [group.title for group in grid.groups] == ["shapes=fixed", "shapes=per_drafter"]
    first, second = grid.groups
    assert (first.rows, first.columns) == (LOCKS, CHECKPOINTS)
    assert (second.rows, second.columns) == (LOCKS[:2], ("non_reentrant",))
    assert first.cells[2][1] == Scenario(lock="first_step", checkpoint="reentrant")


def test_the_axis_with_more_values_makes_the_rows() -> None:
    scenarios = [Scenario(lock=lock, seed=seed) for lock in LOCKS[:2] for seed in range(5)]
    assert choose_axes(values(*scenarios)) == ("seed", "lock")


def test_the_fullest_grid_wins_over_an_axis_with_more_values() -> None:
    """`seed` has most values, but only along one scenario: a grid of it would be empty but for one row."""
    scenarios = [*PRODUCT, *(Scenario(seed=seed) for seed in range(1, 6))]
    assert choose_axes(values(*scenarios)) == ("lock", "checkpoint")


def test_one_axis_and_none() -> None:
    one = [Scenario(lock=lock) for lock in LOCKS]
    grid = lay_out(values(*one), {scenario.id: scenario for scenario in one})
    assert (grid.row_axis, grid.column_axis, grid.groups[0].rows, grid.groups[0].columns) == ("lock", "", LOCKS, ("",))
    alone = lay_out(values(Scenario()), {"default": 7})
    assert (alone.row_axis, alone.column_axis, alone.groups[0].cells) == ("", "", ((7,),))
    assert lay_out({}, {}).groups == ()


def test_a_hole_is_no_cell() -> None:
    scenarios = [Scenario(), Scenario(lock="per_call", checkpoint="reentrant")]
    grid = lay_out(values(*scenarios), {scenario.id: scenario for scenario in scenarios})
    assert grid.groups[0].cells == ((scenarios[0], None), (None, scenarios[1]))


scenarios = st.builds(
    Scenario,
    lock=st.sampled_from(LOCKS),
    checkpoint=st.sampled_from(CHECKPOINTS),
    seed=st.integers(0, 3),
    shapes=st.sampled_from(["fixed", "variable"]),
)


@given(st.sets(scenarios, max_size=20))
def test_every_scenario_is_in_one_cell_under_its_values(given: set[Scenario]) -> None:
    by_id = values(*given)
    grid = lay_out(by_id, {scenario.id: scenario for scenario in given})
    seen = []
    for group in grid.groups:
        for row, cells in zip(group.rows, group.cells, strict=True):
            for column, cell in zip(group.columns, cells, strict=True):
                if cell is not None:
                    seen.append(cell)
                    assert all(cell.value(axis) == value for axis, value in group.others)
                    assert not grid.row_axis or cell.value(grid.row_axis) == row
                    assert not grid.column_axis or cell.value(grid.column_axis) == column
    assert sorted(seen, key=str) == sorted(given, key=str)
    assert set(varying(by_id)) == {grid.row_axis, grid.column_axis, *(axis for axis, _ in _others(grid))} - {""}


def _others(grid: Grid[Scenario]) -> set[tuple[str, Value]]:
    return {pair for group in grid.groups for pair in group.others}
