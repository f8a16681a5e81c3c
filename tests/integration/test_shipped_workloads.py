"""The inference server and the trainer as trials: what they report, and that their checks see a fault."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.numerics import differences
from harness.control.executors import LocalExecutor
from harness.control.request import TrialRequest
from harness.core.scenario import Scenario

HERE = Path(__file__).parent


DOCS = HERE.parents[1] / "docs" / "workloads.md"
README = HERE.parents[1] / "README.md"


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    shown = tmp_path_factory.mktemp("shown")
    for name, page in (("mytrainer", DOCS), ("readme_trainer", README)):
        (program,) = [part.split("```")[0] for part in page.read_text().split("```python\n") if "class Trainer" in part]
        (shown / f"{name}.py").write_text(program)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(shown), os.environ.get("PYTHONPATH", "")]))
        found = LocalExecutor(jobs=2)
        yield found
        found.close()


def run(executor: LocalExecutor, folder: Path, **trials: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """name → row; of each trial its axes, and `pipeline` and `extra`."""
    rows: dict[str, dict[str, Any]] = {}
    requests = []
    for name, axes in trials.items():
        (folder / name).mkdir()
        pipeline, extra = axes.pop("pipeline", {}), axes.pop("extra", {})
        axes = {"drafters": 2, "steps": 2, "lock": "compile_gate", **axes}
        requests.append(
            TrialRequest(name, Scenario(**axes), 0, folder / name, pipeline=pipeline, timeout_s=120.0, extra=extra)
        )
    executor.run(requests, lambda _: None, lambda row: rows.update({row["trial"]: row}))
    return rows


def test_both_run_and_agree_with_their_serial_reference(executor: LocalExecutor, tmp_path: Path) -> None:
    rows = run(
        executor,
        tmp_path,
        server={"workload": "inference_server", "shapes": "variable"},
        server_serial={"workload": "inference_server", "shapes": "variable", "lock": "none", "extra": {"reference": True}},
        trainer={"workload": "trainer", "checkpoint": "non_reentrant"},
        trainer_serial={"workload": "trainer", "checkpoint": "non_reentrant", "lock": "none", "extra": {"reference": True}},
    )
    for name, role in (("server", "server"), ("trainer", "trainer")):
        row, serial = rows[name], rows[f"{name}_serial"]
        assert row["outcomes"] == serial["outcomes"] == ["ok"], (row["reason"], row["errors"], serial["reason"])
        assert (row["steps_ok"], row["dense_calls"]) == (4, 0)
        assert row["startup_s"] is not None
        assert {worker["role"] for worker in row["workers"].values()} == {role}
        assert differences(row["workers"], serial["workers"], dtype="float32") == []
        off = {worker: {**told, "losses": [x + 0.1 for x in told["losses"]]} for worker, told in row["workers"].items()}
        assert len(differences(off, serial["workers"], dtype="float32")) == 2


def test_faults_are_seen_limits_said_and_the_shown_program_runs(executor: LocalExecutor, tmp_path: Path) -> None:
    rows = run(
        executor,
        tmp_path,
        wrong_answer={"workload": "spoilt_workloads:WrongAnswer"},
        frozen_weight={"workload": "spoilt_workloads:FrozenWeight"},
        bad_size={"workload": "trainer", "pipeline": {"widht": 64}},
        bad_value={"workload": "inference_server", "pipeline": {"width": 33}},
        shown={"workload": "mytrainer:Trainer", "pipeline": {"rate": 0.05}},
        readme={"workload": "readme_trainer:Trainer", "lock": "first_step"},
        no_backward={"workload": "inference_server", "checkpoint": "reentrant"},
    )
    assert rows["shown"]["outcomes"] == ["ok"], "the program in docs/workloads.md"
    assert rows["shown"]["steps_ok"] == 4
    assert rows["readme"]["outcomes"] == ["ok"], "the program in README.md, under a strategy that looks at its mask"
    assert rows["wrong_answer"]["outcomes"] == ["numerics"]
    assert "server-1" in rows["wrong_answer"]["reason"]
    assert "from eager" in rows["wrong_answer"]["reason"]
    assert rows["frozen_weight"]["outcomes"] == ["no_grad"]
    assert "head.bias" in rows["frozen_weight"]["reason"]
    assert rows["bad_size"]["outcomes"] == ["setup_error"]
    assert '(did you mean "width"?)' in rows["bad_size"]["reason"]
    assert "no multiple of" in rows["bad_value"]["reason"]
    assert rows["no_backward"]["outcomes"] == ["skipped"]
    assert "has only checkpoint=none" in rows["no_backward"]["reason"]
