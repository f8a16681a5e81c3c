"""A run's scenarios against the expectations of its matrix: one loop for the exit code, the table and the report."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.analysis.intervals import CONFIDENCE, failure_rate_interval, failure_rate_upper
from harness.analysis.summary import RunSummary, ScenarioSummary
from harness.core.expectations import Expectation, Judgement, judge
from harness.core.matrix import Matrix
from harness.core.outcome import INCOMPLETE, OK, SKIPPED
from harness.core.scenario import Scenario

Kind = Literal["broken", "unexpected", "improved", "missing", "flaky", "met"]
KINDS: tuple[Kind, ...] = ("broken", "unexpected", "improved", "missing", "flaky", "met")
"""How a scenario can stand to an expectation, what needs looking at first."""

WORTH_SAYING = 0.2
"""What may fail and did not is news only where the trials exclude a failure rate above this one (14 trials at 95 %)."""

_SAYS_NOTHING = (*INCOMPLETE, SKIPPED)


@dataclass(frozen=True)
class Standing:
    """How one scenario stands to one expectation, or to none (`unexpected`).

    broken      an `only` did not hold
    unexpected  a failure that nothing permits
    improved    what must fail failed in no trial, or what may fail in none of many; the text says which rate that excludes
    missing     too few trials to judge, or none
    flaky       it held, and the trials differ: some failed as expected and some did not
    met         it held, in every trial alike
    """

    kind: Kind
    scenario_id: str
    text: str


def judge_run(matrix: Matrix, summary: RunSummary, torch: str, repeats: int) -> dict[str, list[Judgement]]:
    """Judgements by scenario id; scenarios that the matrix does not name are not judged.

    What must happen may still happen in trials that are missing: a scenario with fewer than `repeats` trials, or an
    interrupted one, is only held to what is permitted. Trials of one scenario under several torch are judged apart.
    """
    known = {scenario.id: scenario for scenario in matrix.scenarios}
    return {
        item.id: [
            Judgement(judgement.kind, _under(part, item) + judgement.text)
            for part in item.by_torch or (item,)
            for judgement in _judged(matrix, known[item.id], part, part.torch or torch, repeats)
        ]
        for item in summary.scenarios
        if item.id in known
    }


def standings(
    matrix: Matrix, summary: RunSummary, not_run: Mapping[str, Scenario], torch: str, repeats: int
) -> list[Standing]:
    """How every scenario of the matrix stands to every expectation that speaks of it, in the order of `KINDS`."""
    known = {scenario.id: scenario for scenario in matrix.scenarios}
    found: list[Standing] = []
    for item in summary.scenarios:
        for part in (item.by_torch or (item,)) if item.id in known else ():
            its = part.torch or torch
            stated = [one for one in matrix.expectations if one.applies(known[item.id], its)]
            stands = _of_scenario(part, stated, _judged(matrix, known[item.id], part, its, repeats), repeats)
            found += [dataclasses.replace(one, text=_under(part, item) + one.text) for one in stands]
    for name, scenario in not_run.items():
        found += [
            Standing("missing", name, f"{one}: no trial yet")
            for one in matrix.expectations
            if one.applies(scenario, torch)
        ]
    return sorted(found, key=lambda standing: KINDS.index(standing.kind))


def untried(matrix: Matrix, torch: str) -> list[Expectation]:
    """The expectations that speak of no scenario of the matrix under this torch."""
    return [
        one for one in matrix.expectations if not any(one.applies(scenario, torch) for scenario in matrix.scenarios)
    ]


def _judged(matrix: Matrix, scenario: Scenario, item: ScenarioSummary, torch: str, repeats: int) -> list[Judgement]:
    return judge(scenario, item.labels, torch, _held(matrix, item, repeats))


def _under(part: ScenarioSummary, item: ScenarioSummary) -> str:
    return f"{part.under}: " if item.by_torch else ""


def _held(matrix: Matrix, item: ScenarioSummary, repeats: int) -> list[Expectation]:
    if _whole(item, repeats):
        return list(matrix.expectations)
    return [
        dataclasses.replace(expectation, must=(), may=expectation.must) if expectation.must else expectation
        for expectation in matrix.expectations
    ]


def _whole(item: ScenarioSummary, repeats: int) -> bool:
    return item.trials >= repeats and "interrupted" not in item.outcomes


def _of_scenario(
    item: ScenarioSummary, stated: list[Expectation], judged: list[Judgement], repeats: int
) -> list[Standing]:
    """`judge` gives the matching expectations' judgements first, in their order, then what nothing permits."""
    if not item.conclusive:
        why = f"skipped: {item.reason}" if item.skipped else f"no trial says anything: {item.reason or 'incomplete'}"
        return [Standing("missing", item.id, f"{one}: {why}") for one in stated]
    found = [
        _standing(item, one, judgement, _whole(item, repeats))
        for one, judgement in zip(stated, judged[: len(stated)], strict=True)
    ]
    return found + [Standing("unexpected", item.id, judgement.text) for judgement in judged[len(stated) :]]


def _standing(item: ScenarioSummary, stated: Expectation, judgement: Judgement, whole: bool) -> Standing:
    trials = [set(labels) for labels in item.labels if not set(labels) <= set(_SAYS_NOTHING)]
    failing = [label for label in stated.must or stated.may if label != OK]
    counts = {label: sum(label in labels for labels in trials) for label in failing}
    absent = [label for label, count in counts.items() if not count]
    seen = {label: count for label, count in counts.items() if count}
    why = f" ({stated.reason})" if stated.reason else ""
    if stated.must and absent and not whole:
        text = f"no {', no '.join(absent)} in {_trials(len(trials))} so far, and more are to run"
        return Standing("missing", item.id, f"{stated}: {text}{why}")
    least = min(failure_rate_upper(0, len(trials)), 1.0)
    if failing and (absent if stated.must else not seen and least <= WORTH_SAYING):
        bound = f"excludes a rate above {100 * least:.3g} % at {100 * CONFIDENCE:.0f} % confidence"
        named = f"no {', no '.join(absent)} in {_trials(len(trials))}, which {bound}"
        return Standing("improved", item.id, f"{stated}: {named}{why}")
    if judgement.kind != "met":
        return Standing("broken", item.id, judgement.text)
    mixed = {label: count for label, count in seen.items() if count < len(trials)}
    if mixed:
        return Standing("flaky", item.id, f"{stated}: {_rates(mixed, len(trials))}{why}")
    return Standing("met", item.id, judgement.text)


def _rates(counts: Mapping[str, int], trials: int) -> str:
    said: Sequence[str] = [
        f"{label} in {count} of {_trials(trials)} ({100 * rate.low:.2g} – {100 * rate.high:.2g} %)"
        for label, count in counts.items()
        for rate in [failure_rate_interval(count, trials)]
    ]
    return ", ".join(said)


def _trials(count: int) -> str:
    return f"{count} trial{'' if count == 1 else 's'}"
