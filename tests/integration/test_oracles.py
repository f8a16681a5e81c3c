"""A threaded run that computes something else than a serial one is seen; a clean one is not accused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.control.executors import LocalExecutor
from harness.control.references import References
from harness.control.request import TrialRequest
from harness.core.scenario import Scenario

PLANTS = ("WrongMask", "SwappedItem", "RewoundGenerator", "StaleWeight")
# The gate keeps the known races out: what is left to find is what was planted.
AXES: dict[str, Any] = {"drafters": 2, "steps": 4, "lock": "compile_gate"}


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
        found = LocalExecutor(jobs=2)
        yield found
        found.close()


def rows_of(executor: LocalExecutor, base: Path, workloads: list[str], seeds: list[int]) -> list[dict[str, Any]]:
    """Trials of these workloads, each held against the reference of the healthy pipeline with its seed."""
    references = References(base, dtype="float32")
    healthy = {seed: TrialRequest(f"h{seed}", Scenario(seed=seed, **AXES), 0, base / f"h{seed}") for seed in seeds}
    references.prepare(references.firsts(healthy.values()), executor)
    requests, rows = [], []
    for workload in workloads:
        for seed in seeds:
            folder = base / f"{workload}-{seed}".replace(":", "_")
            folder.mkdir(parents=True)
            requests.append(TrialRequest(folder.name, Scenario(workload=workload, seed=seed, **AXES), 0, folder))
    keys = {request.trial_id: references.key_of(healthy[request.scenario.seed]) for request in requests}

    def take(row: dict[str, Any]) -> None:
        row["reference"] = keys[row["trial"]]
        rows.append(row)

    executor.run(requests, lambda _: None, take)
    while needs := {key: healthy[row["scenario"]["seed"]] for row in rows for key in references.awaited(row)}:
        references.prepare(needs, executor)
    for row in rows:
        references.judge(row)
    return rows


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_corruption_is_caught_and_named(executor: LocalExecutor, tmp_path: Path, plant: str) -> None:
    for row in rows_of(executor, tmp_path, [f"corrupt_workloads:{plant}"], [0]):
        assert row["errors"] == [], "nothing raised: only the oracle can tell"
        assert "numerics" in row["outcomes"], row["oracles"]
        assert row["oracles"]["numerics"].startswith("drafter-1, step "), "the healthy drafter is not accused"
        assert "drafter-0" not in row["oracles"]["numerics"]
        assert row["oracles"]["numerics"].endswith(", the reference from itself 0)"), "run twice, alike to the bit"


def test_a_generator_that_was_put_back_is_a_state_leak(executor: LocalExecutor, tmp_path: Path) -> None:
    (row,) = rows_of(executor, tmp_path, ["corrupt_workloads:RewoundGenerator"], [3])
    assert "state_leak" in row["outcomes"]


def test_clean_threaded_trials_are_not_accused(executor: LocalExecutor, tmp_path: Path) -> None:
    for row in rows_of(executor, tmp_path, ["dflash"], [0, 3]):
        assert row["outcomes"] == ["ok"], (row["reason"], row["oracles"])
        assert row["oracles"] == {"numerics": "ok"}
