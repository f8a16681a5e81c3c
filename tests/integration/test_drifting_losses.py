"""`harness run` where losses leave their reference: real processes, on the CPU."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from harness import cli
from harness.control.executors import LocalExecutor
from harness.control.request import Row, TrialRequest
from harness.core.scenario import Scenario
from harness.subject.nudging import nudge

MATRIX = """\
schema = 1
[defaults]
workload = "drifting_workloads:{name}"
repeats = 2
steps = 4
drafters = 1
[axes]
lock = ["none"]
"""


@pytest.mark.parametrize(
    ("name", "references", "said"),
    [
        ("Drifting", 2, "ok (drafter-0 off by up to 0.057 at step 3, tolerance 0.0001; the reference from itself by 0.11)"),
        (
            "Diverging",
            4,
            "drafter-0, step 0: loss nan, reference 4 (off by inf, tolerance 0.0001, the reference from itself 0.15 in 4 runs)",
        ),
    ],
)
def test_doubts_are_settled_by_further_processes(
    name: str, references: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("DRIFT_FILE", str(tmp_path / "drift"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.toml").write_text(MATRIX.format(name=name))
    with pytest.raises(SystemExit):
        cli.main(["run", "m.toml", "--out", "run", "--json"])
    rows = [json.loads(line) for line in Path("run", "results.jsonl").read_text().splitlines()]
    assert len(list(Path("run", "references").glob("*/result.json"))) == references
    assert rows[0]["oracles"]["numerics"] == said


def referenced(name: str, seed: int | None, folder: Path) -> Row:
    """The row of a reference of this workload, nudged or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("DRIFT_FILE", str(folder / "drift"))
        executor = LocalExecutor(jobs=1)
        rows: list[Row] = []
        scenario = Scenario(workload=f"drifting_workloads:{name}", drafters=1, steps=2)
        request = TrialRequest("t", scenario, 0, folder, timeout_s=60, extra={"reference": True, "nudged": seed})
        try:
            executor.run([request], lambda _: None, rows.append)
        finally:
            executor.close()
    return rows[0]


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_reference_is_nudged_before_it_runs(seed: int | None, tmp_path: Path) -> None:
    weights = torch.ones(64)
    if seed is not None:
        nudge([weights], seed)
    row = referenced("Nudged", seed, tmp_path)
    assert row["workers"]["drafter-0"]["losses"] == [4.0, 4.0 * (1 + int((weights > 1).sum()))]
    assert row["facts"].get("nudged") is (None if seed is None else True)


def test_a_reference_that_cannot_be_nudged_says_so(tmp_path: Path) -> None:
    assert referenced("Drifting", 1, tmp_path)["facts"]["nudged"] is False
