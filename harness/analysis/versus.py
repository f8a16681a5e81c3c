"""Two runs, scenario by scenario: better, worse, or no change that can be told.

Failures by Fisher's exact test, throughput and start-up by a rank test (the permutation test of ranks, exact without
ties) with a bootstrap interval of the ratio of medians. All tests of a comparison are one family, under Holm's
correction; those that could not tell a difference whatever came out of them do not count towards it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.analysis.compare import ALPHA, CANNOT_TELL, Comparison, Counts, compare_rates, compare_values
from harness.analysis.fairness import Alone, Fairness, alone
from harness.analysis.holm import holm, least_p_of_rates, least_p_of_trials, least_p_of_values, trials_to_tell

Word = Literal["better", "worse", "better and worse", "no change that can be told", "not compared"]

FAILURES, THROUGHPUT, STARTUP = "failures", "throughput", "start-up"
TESTS = {
    FAILURES: "Fisher's exact test",
    THROUGHPUT: "rank test (Mann-Whitney)",
    STARTUP: "rank test (Mann-Whitney)",
}
_WORSE = ("more failures", "slower")


@dataclass(frozen=True)
class Side:
    """The trials of a scenario in one run: failures of those that tell something, seconds, tokens a second."""

    scenario: Mapping[str, Any]
    counts: Counts
    startup_s: Sequence[float] = ()
    tokens_per_s: Sequence[float] = ()


@dataclass(frozen=True)
class Test:
    """One measure of one scenario. `p` as the test gave it, `adjusted` by Holm; `unfair`: why it is not counted.

    `could_tell` is False where so few trials could not have told any difference.
    """

    measure: str
    found: Comparison
    adjusted: float
    could_tell: bool
    unfair: str = ""

    @property
    def told(self) -> bool:
        """Whether a difference is told."""
        return self.found.told

    @property
    def worse(self) -> bool:
        """Whether what is told is for the worse."""
        return self.told and self.found.word in _WORSE


@dataclass(frozen=True)
class ScenarioComparison:
    """A scenario that both runs have."""

    scenario_id: str
    scenario: Mapping[str, Any]
    before: Side
    after: Side
    tests: tuple[Test, ...]
    why_not: str = ""

    @property
    def word(self) -> Word:
        """What can be said in all."""
        if self.why_not:
            return "not compared"
        worse = any(test.worse for test in self.tests)
        better = any(test.told and not test.worse for test in self.tests)
        if better and worse:
            return "better and worse"
        return "worse" if worse else "better" if better else "no change that can be told"

    @property
    def deciding(self) -> tuple[Test, ...]:
        """The tests that told a difference."""
        return tuple(test for test in self.tests if test.told)


@dataclass(frozen=True)
class RunComparison:
    """Two runs. `family`: how many tests the correction counts; `most`: how many it could count, were there more trials."""

    scenarios: tuple[ScenarioComparison, ...]
    only_before: tuple[Alone, ...]
    only_after: tuple[Alone, ...]
    fair: Fairness
    family: int
    most: int
    alpha: float

    def having(self, *words: str) -> list[ScenarioComparison]:
        """The scenarios of which one of these words is said."""
        return [item for item in self.scenarios if item.word in words]

    @property
    def comparable(self) -> bool:
        """Whether there is a scenario that could be compared at all."""
        return any(not item.why_not for item in self.scenarios)

    @property
    def too_few(self) -> int:
        """How many tests could not have told any difference, for want of trials."""
        return sum(not test.could_tell and not test.unfair for item in self.scenarios for test in item.tests)

    @property
    def needed(self) -> int:
        """Trials on either side that suffice to tell the clearest difference of one test here.

        With more trials every test that could tell nothing may come to count, so the correction is taken over all of them.
        """
        return trials_to_tell(max(1, self.most), self.alpha)

    @property
    def exit_code(self) -> int:
        """0 nothing is worse, 1 something is, 3 nothing could be compared."""
        if not self.comparable:
            return 3
        return 1 if self.having("worse", "better and worse") else 0


def compare_runs(
    before: Mapping[str, Side], after: Mapping[str, Side], fair: Fairness, alpha: float = ALPHA
) -> RunComparison:
    """Compare the scenarios that both have, in the order of `after`."""
    shared = [name for name in after if name in before]
    raw = {name: _tests(before[name], after[name], fair) for name in shared if not fair.refused}
    family = [
        (name, place)
        for name, tests in raw.items()
        for place, (test, least) in enumerate(tests)
        if not test.unfair and least <= alpha
    ]
    adjusted = dict(zip(family, holm([raw[name][place][0].found.p for name, place in family]), strict=True))
    items = []
    for name in shared:
        tests = tuple(
            _decided(
                test, _possible(test, least, before[name], after[name]), adjusted.get((name, place)), alpha, len(family)
            )
            for place, (test, least) in enumerate(raw.get(name, ()))
        )
        why = "; ".join(fair.refused) or ("" if tests else "one of the runs has no trial of it that tells anything")
        items.append(ScenarioComparison(name, after[name].scenario, before[name], after[name], tests, why))
    sides = [{name: side.scenario for name, side in run.items()} for run in (before, after)]
    both = set(shared)
    return RunComparison(
        tuple(items),
        tuple(alone(sides[0], sides[1], both)),
        tuple(alone(sides[1], sides[0], both)),
        fair,
        len(family),
        0 if fair.refused else _most([(before[name], after[name]) for name in shared], fair),
        alpha,
    )


def _most(pairs: Sequence[tuple[Side, Side]], fair: Fairness) -> int:
    """How many tests could count with more trials: of failures, and of each measure that any trial here has given."""
    sides = [side for pair in pairs for side in pair]
    measures = any(side.tokens_per_s for side in sides) + any(side.startup_s for side in sides)
    return sum(1 + (0 if _unfair(after, fair) else measures) for _, after in pairs)


def _unfair(side: Side, fair: Fairness) -> str:
    """Why the speed of this scenario is not compared; "" where it can be."""
    return "; ".join(fair.speed_of(str(side.scenario.get("devices", "cpu"))))


def _tests(before: Side, after: Side, fair: Fairness) -> list[tuple[Test, float]]:
    """The tests of a scenario, uncorrected, each with the smallest p-value that it could give."""
    found: list[tuple[Test, float]] = []
    if before.counts.trials and after.counts.trials:
        rates = compare_rates(before.counts, after.counts)
        found.append((Test(FAILURES, rates, rates.p, True), least_p_of_rates(before.counts, after.counts)))
    unfair = _unfair(after, fair)
    measured: list[tuple[str, Sequence[float], Sequence[float], Literal["higher", "lower"]]] = [
        (THROUGHPUT, before.tokens_per_s, after.tokens_per_s, "higher"),
        (STARTUP, before.startup_s, after.startup_s, "lower"),
    ]
    for measure, old, new, better in measured:
        if old and new and min(*old, *new) > 0:
            values = compare_values(old, new, better=better)
            found.append((Test(measure, values, values.p, True, unfair), least_p_of_values(len(old), len(new))))
    return found


def _possible(test: Test, least: float, before: Side, after: Side) -> float:
    """p of the clearest difference that so many trials can show: of failures, none here and nothing but there."""
    return least_p_of_trials(before.counts.trials, after.counts.trials) if test.measure == FAILURES else least


def _decided(test: Test, possible: float, adjusted: float | None, alpha: float, family: int) -> Test:
    """The test with its difference told, or not, by the adjusted p-value. `possible`: p of the clearest difference."""
    p = 1.0 if adjusted is None else adjusted
    told = p <= alpha and test.found.told
    at_odds = p <= alpha and test.found.at_odds
    found = replace(test.found, told=told, word=test.found.word if told else CANNOT_TELL, at_odds=at_odds)
    return replace(test, found=found, adjusted=p, could_tell=possible <= alpha / max(1, family))
