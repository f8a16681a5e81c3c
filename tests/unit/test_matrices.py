"""The matrix files that ship: they load, and `full.toml` covers every pair of values of the CPU's axes."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from harness.core.axes import AXES
from harness.core.lockspec import NAMES
from harness.core.matrix import load_matrix

SCENARIOS = Path(__file__).parents[2] / "scenarios"
VALUES: dict[str, list[object]] = {
    **{axis.name: list(axis.choices) for axis in AXES if axis.kind == "choice" and axis.name != "cudagraphs"},
    "lock": [*NAMES, "each:mask+forward", "span:mask..backward"],
    "backend": ["auto", "aot_eager", "eager"],
    "drafters": [2, 3],
    "targets": [1, 2],
}
APART = {("replicas", "synchronised", "lock", "process")} | {
    ("warmup", kind, "lock", "process") for kind in ("main_no_grad", "main_grad", "per_device")
}
"""Pairs that cannot go together; the workload says why (`harness.subject.split`)."""


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_matrix_loads(path: Path) -> None:
    assert load_matrix(path).scenarios


def test_full_covers_every_pair_of_values_on_the_cpu() -> None:
    found = {
        (a, scenario.value(a), b, scenario.value(b))
        for scenario in load_matrix(SCENARIOS / "full.toml").scenarios
        if scenario.devices == "cpu"
        for a, b in itertools.permutations(VALUES, 2)
    }
    wanted = {
        (a, x, b, y) for a, b in itertools.combinations(VALUES, 2) for x in VALUES[a] for y in VALUES[b]
    } - APART  # fmt: skip
    missing = {pair for pair in wanted if pair not in found}
    assert not missing, sorted(map(str, missing))[:20]


def test_full_names_every_value_of_every_axis() -> None:
    scenarios = load_matrix(SCENARIOS / "full.toml").scenarios
    for axis in AXES:
        for choice in axis.choices:
            assert any(scenario.value(axis.name) == choice for scenario in scenarios), f"{axis.name}={choice}"
