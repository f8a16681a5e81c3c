"""How far the runs of one reference leave each other: by so much more than that a trial must leave all of them.

On a GPU kernels that add in whatever order (atomics) make two honest runs drift apart, and by how much is the model's, the
learning rate's and the number of steps', so no tolerance of a dtype covers it. On the CPU runs agree to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, combinations, zip_longest
from typing import Any

from harness.core.losses import read

FLOOR = 1e-3  # losses below this are compared as if they were this large
REFERENCES = 4
"""How many runs of a reference there are at most, for trials that two do not acquit."""
ENOUGH = 3
"""With fewer that drift, nothing is settled against a trial: where further runs fail, these have to be there."""
FACTOR = 3.0
"""How many times what runs of one reference differ by a trial must differ from each of them, besides by the tolerance.

All trials of a bisection are held against the same runs, and one `numerics` calls a strategy unsafe. `REFERENCES` and `FACTOR`
are chosen by simulation (python -m tests.benchmarks.numerics_alarms 1000): 59 trials of 22 steps in bfloat16, whose losses
leave what all runs share by 2 % and by 5 % (standard deviation; at the last step where drift grows). For 1, 2 and 3 drafters,
in percent, the worse of the two drifts: bisections in which a healthy strategy is called unsafe by two runs of the reference,
and by four; then, by four and of each drift, trials found of which one drafter's losses are 50 % too large from some step on.

    independent steps            14, 3.6, 2.1    0.3, 0.0, 0.0    100, 100, 100 and 43, 25, 15
    0.7 of the step before       19, 6.8, 2.5    0.1, 0.0, 0.0    100, 100, 100 and 53, 36, 28
    random walk                  44, 23, 9.1     1.5, 0.1, 0.0    100, 100, 100 and 86, 76, 71
    amplified, × 1.25 a step     46, 27, 17      6.5, 1.0, 0.2    92, 87, 82 and 65, 58, 56

One drafter whose drift is amplified is but one draw a run: there four runs are too few for 1 %. Of strategies of which one
trial in ten is wrong, 99 % and more are found, but at a drift of 5 % of independent steps 80, 62, 48, and of the second row
88, 79, 68. A larger factor would find less, a smaller one accuse more.
"""
AHEAD = 0.5
"""What the references differ by is looked at up to the step in question and this share of its number further, `LEAST_AHEAD` at
least. Honest runs drift apart faster and faster, and one may be a step or two ahead of another.
"""
LEAST_AHEAD = 2

Workers = Mapping[str, Mapping[str, Any]]


class Drift:
    """What the runs of one reference differ by, up to a step and a little further (`AHEAD`)."""

    def __init__(self, references: Sequence[Workers], synchronised: bool) -> None:
        self._each = [losses_of(reference, synchronised) for reference in references]
        apart: dict[str, list[list[float]]] = {}
        for one, other in combinations(self._each, 2):
            for name in one.keys() & other.keys():
                found = [relative(*pair) for pair in zip(other[name], one[name], strict=False)]
                apart.setdefault(name, []).append(found)
        self._own = {name: _most_so_far(found) for name, found in apart.items()}
        self._any = _most_so_far(self._own.values())
        self._finite = {name: min(_finite(found.get(name, [])) for found in self._each) for name in {*self._each[0]}}

    def runs(self, worker: str, step: int) -> int:
        """How many of them tell this drafter's loss of that step: those that end before it say nothing of it."""
        return sum(step < len(found.get(worker, [])) for found in self._each)

    def own(self, worker: str, step: int) -> float | None:
        """The most by which any two differ in this drafter's losses; None where there are no two."""
        return _until(self._own.get(worker, []), step)

    def any(self, step: int) -> float | None:
        """Of all drafters, since each is one draw of what the machine does: two runs may cross by chance at any of them."""
        return _until(self._any, step)

    def finite(self, worker: str, step: int) -> bool:
        """Whether this drafter's losses are finite in all of them."""
        return _ahead(step) < self._finite.get(worker, 0)


def relative(loss: float, wanted: float) -> float:
    """Infinite where one is no finite number and the other is another; two that are alike are no difference."""
    if loss == wanted or (math.isnan(loss) and math.isnan(wanted)):
        return 0.0
    found = abs(loss - wanted) / max(abs(wanted), FLOOR)
    return found if math.isfinite(found) else math.inf  # nan compares with nothing


def pairs(workers: Workers, reference: Workers, synchronised: bool) -> dict[str, list[tuple[float, float]]]:
    """By drafter, in order of name: (loss, reference's) of each step from the first that both have."""
    losses = losses_of(workers, synchronised)
    expected = {name: _until_none(reference.get(name, {}).get("losses", [])) for name in losses}
    return {name: list(zip(losses[name], expected[name], strict=False)) for name in sorted(losses)}


def losses_of(workers: Workers, synchronised: bool) -> dict[str, list[float]]:
    """By drafter, up to its first step that raised; of synchronised replicas up to anybody's."""
    losses = {name: _until_none(found["losses"]) for name, found in workers.items() if found["role"] != "target"}
    if synchronised and losses:
        common = min(len(found) for found in losses.values())
        losses = {name: found[:common] for name, found in losses.items()}
    return losses


def _until_none(losses: Iterable[object]) -> list[float]:
    found: list[float] = []
    for loss in map(read, losses):
        if loss is None:
            break
        found.append(loss)
    return found


def _finite(losses: Sequence[float]) -> float:
    """How many steps have a finite loss before the first that has not; infinite where all have."""
    return next((step for step, loss in enumerate(losses) if not math.isfinite(loss)), math.inf)


def _most_so_far(found: Iterable[Sequence[float]]) -> list[float]:
    return list(accumulate(map(max, zip_longest(*found, fillvalue=0.0)), max))


def _until(most: Sequence[float], step: int) -> float | None:
    return most[min(_ahead(step), len(most) - 1)] if most else None


def _ahead(step: int) -> int:
    return step + max(LEAST_AHEAD, int(AHEAD * step))
