"""Hazards of process-wide state, recomputes and compiles: each by its plan once, and its counterfactual once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.control.executors import LocalExecutor
from harness.control.reproduce import Reproduction, reproduce
from harness.core.case import Case
from harness.hazards import checkpoints, compiles, dense, find, global_state, thread_end
from harness.hazards.base import Hazard

MINE = (*dense.HAZARDS, *global_state.HAZARDS, *checkpoints.HAZARDS, *compiles.HAZARDS, *thread_end.HAZARDS)


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    found = LocalExecutor()
    try:
        found.wait_ready()
        yield found
    finally:
        found.close()


def once(case: Case | None, executor: LocalExecutor, folder: Path) -> Reproduction:
    assert case is not None
    return reproduce(case, executor, folder, times=1, note=lambda _: None, timeout_s=60)


@pytest.mark.parametrize("hazard", MINE, ids=lambda hazard: hazard.id)
def test_it_happens_by_its_plan_where_it_applies_and_never_by_its_counterfactual(
    hazard: Hazard, executor: LocalExecutor, tmp_path: Path
) -> None:
    if not hazard.applies(executor.torch):
        assert executor.torch in hazard.why_not(executor.torch)
        assert hazard.versions in hazard.why_not(executor.torch)
    found = once(hazard.program, executor, tmp_path)
    if not hazard.applies(executor.torch):
        assert found.ending.name in ("harmless", "excluded", "unreachable"), found.ending.reason
        return
    assert dict(found.endings) == {"reproduced": 1}, found.ending.reason
    assert found.tried == 1, "the plan binds its roles at the first go"
    assert (found.counterfactual_reproduced, found.counterfactual_ordered) == (0, 1)


def test_a_compile_rewinds_both_generators_and_the_witness_says_who_did_what(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    found = once(find("rng-rewind").program, executor, tmp_path)
    assert found.row["facts"]["python_rewound"] is True
    assert found.ending.schedule["bindings"] == {"A": "compiler", "B": "drawer"}
    points = [line["point"] for line in found.ending.schedule["witness"] if line["event"] == "step"]
    assert points.index("globals.saved") < points.index("mark.drew") < points.index("globals.restoring")


@pytest.mark.parametrize("kind", ["reentrant", "non_reentrant"])
def test_either_kind_of_checkpoint_drops_other_units(kind: str, executor: LocalExecutor, tmp_path: Path) -> None:
    case = find("checkpoint-rng-rewind").program
    other = Case(case.name, case.title, case.scenario.replace(checkpoint=kind), case.plan, case.effect)
    assert once(other, executor, tmp_path).reproduced == 1


def test_under_a_lock_around_every_step_the_compile_and_the_draw_are_kept_apart(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    case = find("rng-rewind").program
    locked = Case(case.name, case.title, case.scenario.replace(lock="every_step"), case.plan, case.effect)
    found = once(locked, executor, tmp_path)
    assert found.ending.name == "excluded", found.ending.reason
    assert found.ending.schedule["lock"] == "the strategy lock (every_step)"
