"""Does a threaded run compute what a serial one does? Losses of a trial against those of its reference process.

The reference runs the same configuration with one drafter at a time on one thread, so no other thread can disturb it.
What a lock strategy, a warm-up or the number of targets may change is *when* things are computed, never what; so those
axes are not part of a reference's configuration (`reference_scenario`).

A difference is a doubt until further runs of the reference have told how far honest runs differ (`drift`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis.drift import ENOUGH, FACTOR, Drift, Workers, losses_of, pairs, relative
from harness.core.outcome import OK
from harness.core.scenario import Scenario

# Largest relative difference of a step's loss that is not called in doubt, by dtype of the computation. On the CPU
# two runs of one configuration agree to the bit; the room is for another order of summation on a GPU, which training
# steps then amplify. A larger one is put to the test: the reference is run again.
TOLERANCE: dict[str, float] = {"float64": 1e-8, "float32": 1e-4, "float16": 1e-2, "bfloat16": 3e-2}
FROM_ITSELF = "the reference from itself"
NOT_AGAIN = "the reference could not be run again"
NOT_TOLD = "the references themselves do not agree well enough to tell where losses are finite"
NOT_MOVED = "the references agree to the bit, as a device to themselves makes them, and the workload has no nudge to move them"


@dataclass(frozen=True)
class Difference:
    """A step at which a drafter's loss leaves its reference by more than the tolerance.

    `relative`: from the first run of the reference; `nearest`: from that of the `runs` which is the nearest.
    `itself`: the most by which any two of them differ until a little later; 0 where they have this drafter's losses alike to
    the bit, whatever others do; None if but one tells that step. `told`: whether they tell how far honest runs differ: not
    where losses are finite in some of them alone, and not where they are `still`, alike for want of anything that moves them.
    """

    worker: str
    step: int
    loss: float
    reference: float
    relative: float
    tolerance: float
    nearest: float
    itself: float | None = None
    runs: int = 1
    told: bool = True
    still: bool = False

    @property
    def excused(self) -> bool:
        """Whether it is one that an honest run may show. Further references excuse more, never less."""
        within = self.itself is not None and self.nearest <= max(self.tolerance, FACTOR * self.itself)
        return self.told and within

    @property
    def at_once(self) -> bool:
        """Whether it stands, however few the references are: they agree to the bit."""
        return self.told and not self.excused and self.itself == 0

    @property
    def stands(self) -> bool:
        """Whether it is more than what the reference differs from itself, by enough runs of it to tell."""
        return self.at_once or (self.told and not self.excused and self.runs >= ENOUGH)

    @property
    def in_doubt(self) -> bool:
        """Whether further runs of the reference may settle it."""
        return self.told and not self.excused and not self.stands

    @property
    def weight(self) -> int:
        """Of a drafter's differences that of the most weight is told; an excused one never."""
        return 3 if self.stands else 2 if self.in_doubt else 0 if self.excused else 1

    def __str__(self) -> str:
        itself = "" if self.itself is None else f", {FROM_ITSELF} {self.itself:.2g}{_in_runs(self.runs)}"
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


def differences(
    workers: Workers,
    reference: Workers,
    *,
    dtype: str,
    synchronised: bool = False,
    others: Sequence[Workers] = (),
    still: bool = False,
) -> list[Difference]:
    """Of each drafter, in order of name, its first difference that stands; else that is in doubt; else that is not excused.

    `others` are the further runs of the reference; without them all are doubts. `still`: that those agree to the bit tells
    nothing. Of another workload: of each worker that tells losses.

    A drafter is compared up to its first step that raised (its loss is None there). With synchronised replicas the
    first such step of *any* drafter ends the comparison for all: from then on the others average without it.
    """
    first: dict[str, Difference] = {}
    for found in _beyond(workers, reference, dtype, synchronised, others, still):
        known = first.get(found.worker)
        if found.weight > (known.weight if known else 0):
            first[found.worker] = found
    return list(first.values())


def agreement(
    workers: Workers, reference: Workers, *, dtype: str, synchronised: bool = False, others: Sequence[Workers] = ()
) -> str:
    """The oracle's word for a trial without `differences`: `ok`, and what was seen where that was beyond the tolerance."""
    found = list(_beyond(workers, reference, dtype, synchronised, others, still=False))
    if not found:
        return OK
    most = max(found, key=lambda one: one.relative)
    return (
        f"{OK} ({most.worker} off by up to {most.relative:.2g} at step {most.step}, tolerance {most.tolerance:.2g}; "
        f"{FROM_ITSELF} by {most.itself or 0.0:.2g}{_in_runs(most.runs)})"
    )


def agrees(said: str) -> bool:
    """Whether an oracle's word is that of a trial that agreed."""
    return said == OK or within_noise(said)


def within_noise(said: str) -> bool:
    """Whether it agreed only as its reference differs from itself."""
    return said.startswith(f"{OK} (")


def unsettled(found: Sequence[Difference], why: str) -> str:
    """What to say behind differences of which none stands; `why` the reference could not be run as often as it takes, "" where
    it was, and its further runs ended before that step."""
    if any(one.in_doubt for one in found):
        return f"; {NOT_AGAIN}: {why or 'its further runs end before that step'}"
    return f"; {NOT_MOVED if any(one.still for one in found) else NOT_TOLD}"


def is_unsettled(said: str) -> bool:
    """Whether it tells of a difference that might be one of the reference from itself."""
    return f"; {NOT_AGAIN}: " in said or said.endswith((f"; {NOT_TOLD}", f"; {NOT_MOVED}"))


def compared(workers: Workers, reference: Workers, *, synchronised: bool = False) -> int:
    """How many losses `differences` has to look at: at none, it finds nothing and says nothing."""
    return sum(len(found) for found in pairs(workers, reference, synchronised).values())


def _beyond(
    workers: Workers, reference: Workers, dtype: str, synchronised: bool, others: Sequence[Workers], still: bool
) -> Iterator[Difference]:
    """Every step of every drafter that is off by more than the tolerance."""
    tolerance = TOLERANCE.get(dtype, TOLERANCE["float32"])  # another workload may call anything its dtype
    drift = Drift([reference, *others], synchronised)
    further = [losses_of(other, synchronised) for other in others]
    for name, found in pairs(workers, reference, synchronised).items():
        for step, (loss, wanted) in enumerate(found):
            off = relative(loss, wanted)
            if off <= tolerance:
                continue
            from_others = (relative(loss, of[name][step]) for of in further if step < len(of.get(name, ())))
            nearest = min([off, *from_others])
            runs = drift.runs(name, step)
            alike = runs > 1 and drift.own(name, step) == 0
            itself = 0.0 if alike else drift.any(step) if runs > 1 else None
            # Where honest runs drift, one may overflow a little earlier than another.
            finite = itself is None or (math.isfinite(itself) and (math.isfinite(nearest) or drift.finite(name, step)))
            told = not still if alike else finite
            yield Difference(name, step, loss, wanted, off, tolerance, nearest, itself, runs, told, still and alike)


def _in_runs(runs: int) -> str:
    return f" in {runs} runs" if runs > 2 else ""
