"""Does a threaded run compute what a serial one does? Losses of a trial against those of its reference process.

The reference runs the same configuration with one drafter at a time on one thread, so no other thread can disturb it.
What a lock strategy, a warm-up or the number of targets may change is *when* things are computed, never what; so those
axes are not part of a reference's configuration (`reference_scenario`).

A difference is a doubt until a second run of the reference has told how far two honest runs differ (`FACTOR`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import Any

from harness.core.losses import read
from harness.core.outcome import OK
from harness.core.scenario import Scenario

# Largest relative difference of a step's loss that is not called in doubt, by dtype of the computation. On the CPU
# two runs of one configuration agree to the bit; the room is for another order of summation on a GPU, which training
# steps then amplify. A larger one is put to the test: the reference is run a second time.
TOLERANCE: dict[str, float] = {"float64": 1e-8, "float32": 1e-4, "float16": 1e-2, "bfloat16": 3e-2}
FLOOR = 1e-3  # losses below this are compared as if they were this large
FACTOR = 3.0
"""How many times what two runs of one reference differ by a trial must differ from it, besides by the tolerance.

On a GPU kernels that add in whatever order (atomics) make two honest runs drift apart, and by how much is the model's, the
learning rate's and the number of steps', so no tolerance of a dtype covers it. An honest trial's distance from its reference is
drawn as that of the second reference is; the largest of several steps of one is hardly ever three times that of the other. A
larger factor would excuse real differences. Where two references agree to the bit (CPU), any factor excuses nothing.
"""
AHEAD = 0.5
"""What two references differ by is looked at up to the step in question and this share of its number further, `LEAST_AHEAD` at
least. Honest runs drift apart faster and faster, and one may be a step or two ahead of another: simulated with the drift that
was measured on two H200s (two drafters, bfloat16, 22 steps; nearly every trial is in doubt there), 3 to 7 honest trials in 100
would be accused if it were looked at up to the step alone, and fewer than 1 in 100 are so.
"""
LEAST_AHEAD = 2
FROM_ITSELF = "the reference from itself"
NOT_AGAIN = "the reference could not be run again"


@dataclass(frozen=True)
class Difference:
    """A step at which a drafter's loss leaves its reference by more than the tolerance.

    `itself`: the most by which two runs of the reference differ until a little after (`AHEAD`); None if there is but one.
    """

    worker: str
    step: int
    loss: float
    reference: float
    relative: float
    tolerance: float
    itself: float | None = None

    @property
    def stands(self) -> bool:
        """Whether it is more than what the reference differs from itself."""
        return self.itself is None or self.relative > FACTOR * self.itself

    def __str__(self) -> str:
        itself = "" if self.itself is None else f", {FROM_ITSELF} {self.itself:.2g}"
        return (
            f"{self.worker}, step {self.step}: loss {self.loss:.6g}, reference {self.reference:.6g} "
            f"(off by {self.relative:.2g}, tolerance {self.tolerance:.2g}{itself})"
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


Workers = Mapping[str, Mapping[str, Any]]


def differences(
    workers: Workers, reference: Workers, *, dtype: str, synchronised: bool = False, again: Workers | None = None
) -> list[Difference]:
    """Each drafter's first difference, drafters in order of name; of another workload, each worker's that tells losses.

    Without `again`, a second run of the reference, they are doubts; with it, those of them that stand.

    A drafter is compared up to its first step that raised (its loss is None there). With synchronised replicas the
    first such step of *any* drafter ends the comparison for all: from then on the others average without it.
    """
    first: dict[str, Difference] = {}
    for found in _beyond(workers, reference, dtype, synchronised, again):
        if found.stands:
            first.setdefault(found.worker, found)
    return list(first.values())


def agreement(
    workers: Workers, reference: Workers, *, dtype: str, synchronised: bool = False, again: Workers | None = None
) -> str:
    """The oracle's word for a trial without `differences`: `ok`, and what was seen where that was beyond the tolerance."""
    found = list(_beyond(workers, reference, dtype, synchronised, again))
    if not found:
        return OK
    most = max(found, key=lambda one: one.relative)
    return (
        f"{OK} ({most.worker} off by up to {most.relative:.2g} at step {most.step}, tolerance {most.tolerance:.2g}; "
        f"{FROM_ITSELF} by {most.itself or 0.0:.2g})"
    )


def agrees(said: str) -> bool:
    """Whether an oracle's word is that of a trial that agreed."""
    return said == OK or within_noise(said)


def within_noise(said: str) -> bool:
    """Whether it agreed only as its reference differs from itself."""
    return said.startswith(f"{OK} (")


def is_unsettled(said: str) -> bool:
    """Whether it tells of a difference that might be one of the reference from itself."""
    return f"; {NOT_AGAIN}: " in said


def compared(workers: Workers, reference: Workers, *, synchronised: bool = False) -> int:
    """How many losses `differences` has to look at: at none, it finds nothing and says nothing."""
    return sum(len(pairs) for pairs in _pairs(workers, reference, synchronised).values())


def _beyond(
    workers: Workers, reference: Workers, dtype: str, synchronised: bool, again: Workers | None
) -> Iterator[Difference]:
    """Every step of every drafter that is off by more than the tolerance."""
    tolerance = TOLERANCE.get(dtype, TOLERANCE["float32"])  # another workload may call anything its dtype
    spread = None if again is None else _spread(reference, again, synchronised)
    for name, pairs in _pairs(workers, reference, synchronised).items():
        for step, (loss, wanted) in enumerate(pairs):
            relative = _relative(loss, wanted)
            if relative > tolerance:
                itself = spread[min(step + max(LEAST_AHEAD, int(AHEAD * step)), len(spread) - 1)] if spread else None
                yield Difference(name, step, loss, wanted, relative, tolerance, itself)


def _spread(reference: Workers, again: Workers, synchronised: bool) -> list[float]:
    """By step: the most by which any drafter of one reference differed from the other, up to that step.

    Of all drafters and steps, since each is one draw of what the machine does: two runs may cross by chance at any of them.
    """
    pairs = _pairs(again, reference, synchronised).values()
    by_step = zip_longest(*([_relative(*pair) for pair in found] for found in pairs), fillvalue=0.0)
    return list(accumulate(map(max, by_step), max))


def _relative(loss: float, wanted: float) -> float:
    """Infinite where one is no finite number and the other is another; two that are alike are no difference."""
    if loss == wanted or (math.isnan(loss) and math.isnan(wanted)):
        return 0.0
    relative = abs(loss - wanted) / max(abs(wanted), FLOOR)
    return relative if math.isfinite(relative) else math.inf  # nan compares with nothing


def _pairs(workers: Workers, reference: Workers, synchronised: bool) -> dict[str, list[tuple[float, float]]]:
    """By drafter, in order of name: (loss, reference's) of each step from the first that both have."""
    losses = {name: _until_none(found["losses"]) for name, found in workers.items() if found["role"] != "target"}
    if synchronised and losses:
        common = min(len(found) for found in losses.values())
        losses = {name: found[:common] for name, found in losses.items()}
    expected = {name: _until_none(reference.get(name, {}).get("losses", [])) for name in losses}
    return {name: list(zip(losses[name], expected[name], strict=False)) for name in sorted(losses)}


def _until_none(losses: Iterable[object]) -> list[float]:
    found: list[float] = []
    for loss in map(read, losses):
        if loss is None:
            break
        found.append(loss)
    return found
