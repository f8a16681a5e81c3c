"""Does a threaded run compute what a serial one does? Losses of a trial against those of its reference process.

The reference runs the same configuration with one drafter at a time on one thread, so no other thread can disturb it.
What a lock strategy, a warm-up or the number of targets may change is *when* things are computed, never what; so those
axes are not part of a reference's configuration (`reference_scenario`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.scenario import Scenario

# Largest relative difference of a step's loss that is not called a difference, by dtype of the computation. On the CPU
# two runs of one configuration agree to the bit; the room is for another order of summation on a GPU, which training
# steps then amplify.
TOLERANCE: dict[str, float] = {"float64": 1e-8, "float32": 1e-4, "float16": 1e-2, "bfloat16": 3e-2}
FLOOR = 1e-3  # losses below this are compared as if they were this large


@dataclass(frozen=True)
class Difference:
    """The first step at which a drafter's loss leaves its reference."""

    worker: str
    step: int
    loss: float
    reference: float
    relative: float
    tolerance: float

    def __str__(self) -> str:
        return (
            f"{self.worker}, step {self.step}: loss {self.loss:.6g}, reference {self.reference:.6g} "
            f"(off by {self.relative:.2g}, tolerance {self.tolerance:.2g})"
        )


def reference_scenario(scenario: Scenario) -> Scenario:
    """The configuration a reference is run in: no lock, no warm-up, one target, nothing that only moves work about.

    Its recompile limit is raised, so that a reference never falls to dense attention.
    """
    return scenario.replace(
        lock="none",
        lock_owner="worker",
        warmup="none",
        cudagraphs="off",
        code="shared",
        dynamo="limit_in_main",
        cache="cold",
        schedule="none",
        targets=1,
    )


def reference_key(scenario: Scenario, pipeline: Mapping[str, Any]) -> str:
    """Name of the reference's folder: equal for scenarios that share one."""
    document = {"scenario": reference_scenario(scenario).to_dict(), "pipeline": dict(pipeline)}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def differences(
    workers: Mapping[str, Mapping[str, Any]],
    reference: Mapping[str, Mapping[str, Any]],
    *,
    dtype: str,
    synchronised: bool = False,
) -> list[Difference]:
    """Each drafter's first difference, drafters in order of name; of another workload, each worker's that tells losses.

    A drafter is compared up to its first step that raised (its loss is None there). With synchronised replicas the
    first such step of *any* drafter ends the comparison for all: from then on the others average without it.
    """
    tolerance = TOLERANCE.get(dtype, TOLERANCE["float32"])  # another workload may call anything its dtype
    result = []
    for name, pairs in _pairs(workers, reference, synchronised).items():
        for step, (loss, wanted) in enumerate(pairs):
            relative = abs(loss - wanted) / max(abs(wanted), FLOOR)
            if relative > tolerance:
                result.append(Difference(name, step, loss, wanted, relative, tolerance))
                break
    return result


def compared(
    workers: Mapping[str, Mapping[str, Any]], reference: Mapping[str, Mapping[str, Any]], *, synchronised: bool = False
) -> int:
    """How many losses `differences` has to look at: at none, it finds nothing and says nothing."""
    return sum(len(pairs) for pairs in _pairs(workers, reference, synchronised).values())


def _pairs(
    workers: Mapping[str, Mapping[str, Any]], reference: Mapping[str, Mapping[str, Any]], synchronised: bool
) -> dict[str, list[tuple[float, float]]]:
    """By drafter, in order of name: (loss, reference's) of each step from the first that both have."""
    losses = {name: _until_none(found["losses"]) for name, found in workers.items() if found["role"] != "target"}
    if synchronised and losses:
        common = min(len(found) for found in losses.values())
        losses = {name: found[:common] for name, found in losses.items()}
    expected = {name: _until_none(reference.get(name, {}).get("losses", [])) for name in losses}
    return {name: list(zip(losses[name], expected[name], strict=False)) for name in sorted(losses)}


def _until_none(losses: list[float | None]) -> list[float]:
    found: list[float] = []
    for loss in losses:
        if loss is None:
            break
        found.append(loss)
    return found
