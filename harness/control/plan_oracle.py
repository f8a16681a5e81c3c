"""What a bisection asks of the hazards' plans: can this one come about under that strategy?"""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from harness.analysis.ladder import PlanResult
from harness.analysis.plan_questions import Ask
from harness.control.batches import Work, together
from harness.control.bisect_evidence import FROM_LOCKS, from_locks_only, known_as, reason_of, witness_of
from harness.control.bisect_question import Question
from harness.control.plan_failure import PlanFailure
from harness.control.reproduce import Reproduction, reproducing
from harness.control.request import Executor, Row
from harness.control.skips import visible_gpus
from harness.core.case import Case
from harness.core.endings import combine
from harness.core.plan import EXCLUDED, REPRODUCED, UNDECIDED
from harness.core.scenario import Scenario
from harness.hazards import HAZARDS

FOLDER = "plans"
TIMEOUT_S = 300.0
NOTED = 90
"""Characters of a reason in a note of progress; all of it is in `plans.jsonl`."""


class PlanOracle(Protocol):
    """Answers by carrying plans out."""

    def hazards(self) -> Sequence[str]:
        """Whose plans can be asked about here; none is fine."""
        ...

    def by_locks(self) -> Collection[str]:
        """Those of the hazards that a lock can bring about by itself."""
        ...

    def ask(self, asks: Sequence[Ask]) -> Iterator[PlanResult]:
        """Carry each hazard's plan out under its strategy, all at the same time; an answer as soon as it is there."""
        ...


MakeOracle = Callable[[Question, Mapping[str, Any], Executor, Path, Callable[[str], None]], PlanOracle]
"""(question, environment, executor, run folder, note) → who carries plans out."""


class NoPlans:
    """There are none: the catalogue has nothing for this torch, or the workload is not the pipeline."""

    def hazards(self) -> Sequence[str]:
        """None."""
        return ()

    def by_locks(self) -> Collection[str]:
        """None."""
        return ()

    def ask(self, asks: Sequence[Ask]) -> Iterator[PlanResult]:
        """Is never asked."""
        raise AssertionError(f"no plans to ask about: {asks}")


def no_plans(*_: object) -> PlanOracle:
    """For a bisection that asks none."""
    return NoPlans()


def oracle_for(
    question: Question,
    environment: Mapping[str, Any],
    executor: Executor,
    run_dir: Path,
    note: Callable[[str], None],
) -> PlanOracle:
    """The plans of the catalogue's hazards that can come about in these scenarios, if they are the pipeline's."""
    if any(context.workload != "dflash" or context.schedule != "none" for context in question.contexts):
        return NoPlans()
    if any(context.cache == "warm" for context in question.contexts):
        return NoPlans()  # their trials have cold caches, and what then happens may not happen with warm ones
    cuda = _cuda_devices(question.contexts, environment)
    cases: dict[str, Case] = {}
    for hazard in HAZARDS:
        case = hazard.case("pipeline") if hazard.applies(str(environment["torch"]), cuda) else None
        if case is not None and case.plan.steps and all(_fits(case.scenario, context) for context in question.contexts):
            cases[hazard.id] = case
    return ReproducingOracle(
        cases,
        question.contexts,
        question.pipeline,
        executor,
        run_dir,
        note=note,
        timeout_s=question.timeout_s or TIMEOUT_S,
    )


_FREE = ("lock", "lock_owner", "drafters", "targets", "steps", "seed", "devices", "backend")
"""Axes in which a scenario may differ from a hazard's case, and the hazard can still come about in it."""

_SECOND_COMPILE = "per_drafter"
"""What a case asks of `shapes` when all it needs is that drafters compile at different times; two devices do that too."""


def _fits(needed: Scenario, asked: Scenario) -> bool:
    """Whether a scenario has what a hazard's case sets up: its shapes, its checkpoint, its Dynamo configuration, and a device
    that autograd has a thread for where the case has one."""
    default = Scenario()
    if needed.devices != default.devices and asked.devices == default.devices:
        return False
    on_several = "+" in asked.devices.split("/")[-1]
    return all(
        value in (default.value(axis), asked.value(axis)) or (value == _SECOND_COMPILE and on_several)
        for axis, value in needed.to_dict().items()
        if axis not in _FREE
    )


def _cuda_devices(contexts: Sequence[Scenario], environment: Mapping[str, Any]) -> int:
    """How many CUDA devices a scenario here has at most: of those that it names, as many as there are."""
    named = max(len(set(re.findall(r"cuda:\d+", context.devices))) for context in contexts)
    return min(named, visible_gpus(environment))


class ReproducingOracle:
    """Runs the pipeline's plan of each hazard, in each of the scenarios until one reproduces it, or fails otherwise.

    `cases`: hazard → its case for the pipeline; only the plan and its effect are taken from it.
    """

    def __init__(
        self,
        cases: Mapping[str, Case],
        contexts: Sequence[Scenario],
        pipeline: Mapping[str, Any],
        executor: Executor,
        run_dir: Path,
        *,
        note: Callable[[str], None],
        timeout_s: float,
    ) -> None:
        self._cases = dict(cases)
        self._contexts = tuple(contexts)
        self._pipeline = dict(pipeline)
        self._executor = executor
        self._run_dir = run_dir
        self._note = note
        self._timeout_s = timeout_s

    def hazards(self) -> Sequence[str]:
        """All that were given."""
        return tuple(self._cases)

    def by_locks(self) -> Collection[str]:
        """Those that show as a deadlock or a hang and as nothing else."""
        return {name for name, case in self._cases.items() if set(case.effect.labels) <= set(FROM_LOCKS)}

    def ask(self, asks: Sequence[Ask]) -> Iterator[PlanResult]:
        """One time each, without counterfactual; bindings are searched through as `harness reproduce` does."""
        failures = {ask.strategy: PlanFailure() for ask in asks}
        works = {f"{a.hazard}--{a.strategy}": self._work(a.hazard, a.strategy, failures[a.strategy]) for a in asks}
        told: set[Ask] = set()
        for result in self._in_order(together(self._executor, works), failures, told):
            told.add(Ask(result.hazard, result.strategy))
            reason = f" ({textwrap.shorten(result.reason, NOTED, placeholder=' …')})" if result.reason else ""
            self._note(f"plan of {result.hazard} under {result.strategy}: {result.ending}{reason}")
            yield result

    def _in_order(
        self, ended: Iterator[tuple[str, PlanResult]], failures: Mapping[str, PlanFailure], told: Collection[Ask]
    ) -> Iterator[PlanResult]:
        """A failure's answer before those that were not tried to the end for its sake, and also when Ctrl-C ends the rest:
        a race that was seen once may not come again."""
        late: list[PlanResult] = []
        try:
            for _, result in ended:
                failed = failures[result.strategy]
                first = failed.row is None or failed.hazard == result.hazard
                if first or Ask(failed.hazard, result.strategy) in told:
                    yield result
                else:
                    late.append(result)
        except KeyboardInterrupt:
            for strategy, failed in failures.items():
                if failed.row is not None and Ask(failed.hazard, strategy) not in told:
                    yield self._failed_otherwise(failed.hazard, strategy, failed, failed.row, failed.trials[failed.hazard])
            raise
        yield from late

    def _work(self, hazard: str, lock: str, failure: PlanFailure) -> Work[PlanResult]:
        done: list[Reproduction] = []
        for number, context in enumerate(self._contexts):
            scenario = context.replace(lock=lock)
            case = dataclasses.replace(self._cases[hazard], scenario=scenario, settings=self._pipeline)
            folder = self._folder(f"{hazard}--{scenario.replace(schedule='none').id}--{number}")
            found = yield from reproducing(
                case,
                folder,
                times=1,
                note=lambda _: None,
                timeout_s=self._timeout_s,
                counterfactual=False,
                watcher=failure.of(hazard),
            )
            done.append(found)
            if failure.row is not None or found.ending.name == REPRODUCED:
                break
        trials = sum(one.tried for one in done)
        decisive = _decisive(done)
        if decisive.ending.name != REPRODUCED and failure.row is not None:
            return self._failed_otherwise(hazard, lock, failure, failure.row, trials)
        return self._result(hazard, lock, decisive, trials)

    def _result(self, hazard: str, lock: str, found: Reproduction, trials: int) -> PlanResult:
        witness = None
        if found.ending.name == REPRODUCED:
            witness = {
                "hazard": hazard,
                "trial": self._named(Path(found.trial)),
                "label": str(found.row["outcome"]),
                "steps": list(found.ending.schedule.get("witness", ())),
            }
        return PlanResult(
            hazard, lock, found.ending.name, from_locks_only(found.row), witness, found.ending.reason, trials
        )

    def _failed_otherwise(self, hazard: str, lock: str, failure: PlanFailure, row: Row, trials: int) -> PlanResult:
        """What stood against the plan was not looked for to the end, so nothing is excluded."""
        if failure.hazard != hazard:
            reason = f"not tried to the end: {lock} failed while the plan of {failure.hazard} was tried"
            return PlanResult(hazard, lock, UNDECIDED, reason=reason, trials=trials)
        known = known_as(failure.folder)
        witness = {**witness_of(row), "trial": self._named(failure.folder), "plan": hazard, "known_as": known}
        reason = f"it failed beside the plan's order: {reason_of(row)}"
        return PlanResult(hazard, lock, UNDECIDED, from_locks_only(row), witness, reason, trials)

    def _named(self, folder: Path) -> str:
        return str(folder.relative_to(self._run_dir))

    def _folder(self, name: str) -> Path:
        base = self._run_dir / FOLDER
        folder, number = base / name, 2
        while folder.exists():  # of an attempt that was interrupted
            folder, number = base / f"{name}-{number}", number + 1
        folder.mkdir(parents=True)
        return folder


def _decisive(done: Sequence[Reproduction]) -> Reproduction:
    """Of a plan in several scenarios, the one that says it: nothing is excluded unless it is in all of them."""
    endings = [one.ending for one in done]
    if all(ending.name == EXCLUDED for ending in endings):
        return done[0]
    told = combine([ending for ending in endings if ending.name != EXCLUDED])
    return next(one for one in done if one.ending is told)
