"""The FX and deadlock hazards of the catalogue that need no GPU: by their plan each comes, by the counterfactual none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from harness.control.executors import LocalExecutor
from harness.control.reproduce import Reproduction, reproduce
from harness.hazards import cuda_graphs, deadlocks, find, fx_flag, fx_globals, fx_recompute
from harness.hazards.base import NEEDS, Hazard

OURS = (*fx_flag.HAZARDS, *fx_recompute.HAZARDS, *fx_globals.HAZARDS, *deadlocks.HAZARDS)
ON_THE_CPU = [hazard for hazard in OURS if not NEEDS[hazard.needs]]
ON_CUDA = [hazard for hazard in (*OURS, *cuda_graphs.HAZARDS) if NEEDS[hazard.needs]]


Once = Callable[[Hazard], Reproduction]


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    found = LocalExecutor()
    try:
        found.wait_ready()
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def once(executor: LocalExecutor, tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Runs a hazard's small program once, and its counterfactual once if that reproduced it; for all tests of this file."""
    ran: dict[str, Reproduction] = {}

    def run(hazard: Hazard) -> Reproduction:
        if hazard.id not in ran:
            folder = tmp_path_factory.mktemp(hazard.id)
            ran[hazard.id] = reproduce(
                hazard.program, executor, folder, times=1, note=lambda _: None, timeout_s=60
            )
        return ran[hazard.id]

    return run


@pytest.mark.parametrize("hazard", ON_THE_CPU, ids=lambda hazard: hazard.id)
def test_it_comes_by_its_plan_and_not_by_the_counterfactual(hazard: Hazard, executor: LocalExecutor, once: Once) -> None:
    found = once(hazard)
    if hazard.applies(executor.torch):
        assert found.ending.name == "reproduced", found.ending.reason
        assert (found.counterfactual_reproduced, found.counterfactual_ordered) == (0, 1)
        assert found.exit_code == 0
    else:
        assert executor.torch in hazard.why_not(executor.torch)
        assert found.ending.name in ("harmless", "unreachable"), found.ending.reason


def test_the_thread_that_traced_is_named(executor: LocalExecutor, once: Once) -> None:
    hazard = find("fx-flag-collision-backward")
    if not hazard.applies(executor.torch):
        pytest.skip(hazard.why_not(executor.torch))
    error = next(error for error in once(hazard).row["errors"] if error["label"] == "fx_error")
    assert error["worker"] == "caller"
    assert [tracer["worker"] for tracer in error["tracers"]] == ["tracer"]
    assert error["tracers"][0]["region"] == "backward"


def test_two_interleaved_traces_leave_the_process_unusable(executor: LocalExecutor, once: Once) -> None:
    facts = once(find("fx-flag-stuck")).row["facts"]
    assert facts["module_patched"] is True
    assert facts["flag_stuck"] is find("fx-flag-collision").applies(executor.torch)  # the flag is global up to 2.13


@pytest.mark.parametrize("name", ["user-lock-inversion", "replica-barrier-deadlock"])
def test_a_deadlock_is_named_by_both_of_its_waits(once: Once, name: str) -> None:
    reason = once(find(name)).row["reason"]
    whos = {"user-lock-inversion": ("compiler", "holder"), "replica-barrier-deadlock": ("drafter-0", "drafter-1")}[name]
    assert all(f"{who} waits for" in reason for who in whos)
    assert "held by" in reason


@pytest.mark.parametrize("hazard", ON_CUDA, ids=lambda hazard: hazard.id)
def test_what_needs_a_gpu_is_skipped_with_the_reason(hazard: Hazard, executor: LocalExecutor, once: Once) -> None:
    if not executor.torch.endswith("+cpu"):
        pytest.skip("only a build without CUDA surely has no device")
    assert hazard.why_not(executor.torch, cuda=0) in ("needs cuda", f"torch {executor.torch} is not {hazard.versions}")
    found = once(hazard)
    assert found.row["outcome"] == "skipped", json.dumps(found.to_json())
    assert "CUDA device" in found.row["reason"]
    assert found.exit_code == 3
