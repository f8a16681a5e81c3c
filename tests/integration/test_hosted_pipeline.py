"""The pipeline on the device in host memory computes what it computes on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from harness.analysis.numerics import differences
from harness.control.executors import LocalExecutor
from harness.control.request import TrialRequest
from harness.core.scenario import Scenario

DEVICES = ("cpu", "hosted:0")
CHECKPOINTS = ("none", "non_reentrant", "reentrant")
Rows = Mapping[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """(device, checkpoint) → the row of a trial in which nothing can race."""
    folder, found = tmp_path_factory.mktemp("hosted"), dict[str, dict[str, Any]]()
    names = {f"{device}-{kind}".replace(":", ""): (device, kind) for device in DEVICES for kind in CHECKPOINTS}
    requests = []
    for name, (device, kind) in names.items():
        (folder / name).mkdir()
        scenario = Scenario().replace(
            lock="every_step", devices=device, checkpoint=kind, shapes="per_drafter", drafters=2, steps=2
        )
        requests.append(TrialRequest(name, scenario, 0, folder / name, timeout_s=180.0))
    executor = LocalExecutor(jobs=2)

    def keep(row: dict[str, Any]) -> None:
        found[row["trial"]] = row

    try:
        executor.wait_ready()
        executor.run(requests, lambda _: None, keep)
    finally:
        executor.close()
    return {names[name]: row for name, row in found.items()}


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_losses_are_those_of_the_cpu(rows: Rows, kind: str) -> None:
    hosted, cpu = rows["hosted:0", kind], rows["cpu", kind]
    assert (hosted["outcomes"], cpu["outcomes"]) == (["ok"], ["ok"]), hosted["reason"]
    assert hosted["workers"]["drafter-1"]["losses"], "nothing was compared"
    assert differences(hosted["workers"], cpu["workers"], dtype="float32", synchronised=False) == []
