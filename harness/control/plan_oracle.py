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
from harness.control.batches import Work, always, together
from harness.control.bisect_evidence import FROM_LOCKS, from_locks_only, known_as, reason_of, witness_of
from harness.control.bisect_question import Question
from harness.control.plan_account import PlanAccount, accounts_of, of_all
from harness.control.plan_answers import read_plans
from harness.control.plan_failure import PlanFailure
from harness.control.reproduce import Reproduction, reproducing
from harness.control.request import Executor, Row
from harness.control.skips import visible_gpus
from harness.core.case import Case
from harness.core.plan import HARMLESS, REPRODUCED, UNDECIDED, UNREACHABLE
from harness.core.scenario import Scenario
from harness.hazards import HAZARDS

FOLDER = "plans"
TIMEOUT_S = 300.0
NOTED = 90
"""Characters of a reason in a note of progress; all of it is in `plans.jsonl`."""


Keep = Callable[[PlanResult], None]


def forget(told: PlanResult) -> None:
    """For whoever asks once and keeps nothing."""
    del told


class PlanOracle(Protocol):
    """Answers by carrying plans out."""

    def hazards(self) -> Sequence[str]:
        """Whose plans can be asked about here; none is fine."""
        ...

    def by_locks(self) -> Collection[str]:
        """Those of the hazards that a lock can bring about by itself."""
        ...

    def ask(
        self, asks: Sequence[Ask], may_start: Callable[[], bool] = always, keep: Keep = forget
    ) -> Iterator[PlanResult]:
        """Carry each hazard's plan out under its strategy, all at the same time; an answer as soon as it is there.

        `may_start` is asked before each trial; once it says no, a plan that needs more of them has no answer. `keep` is told
        what a plan said of one scenario before it had its answer, and how many trials ended in one that it said nothing of.
        """
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

    def ask(
        self, asks: Sequence[Ask], may_start: Callable[[], bool] = always, keep: Keep = forget
    ) -> Iterator[PlanResult]:
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

    A scenario that has answered in this folder before is not searched again. Raises RunFolderError: its answers are damaged.
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
        self._accounts = accounts_of(read_plans(run_dir))

    def hazards(self) -> Sequence[str]:
        """All that were given."""
        return tuple(self._cases)

    def by_locks(self) -> Collection[str]:
        """Those that show as a deadlock or a hang and as nothing else."""
        return {name for name, case in self._cases.items() if set(case.effect.labels) <= set(FROM_LOCKS)}

    def ask(
        self, asks: Sequence[Ask], may_start: Callable[[], bool] = always, keep: Keep = forget
    ) -> Iterator[PlanResult]:
        """One time each, without counterfactual; bindings are searched through as `harness reproduce` does."""
        failures = {ask.strategy: PlanFailure() for ask in asks}
        works = {f"{a.hazard}--{a.strategy}": self._work(a, failures[a.strategy], keep) for a in asks}
        told: set[Ask] = set()
        try:
            for result in self._in_order(together(self._executor, works, may_start), failures, told):
                told.add(Ask(result.hazard, result.strategy))
                reason = f" ({textwrap.shorten(result.reason, NOTED, placeholder=' …')})" if result.reason else ""
                self._note(f"plan of {result.hazard} under {result.strategy}: {result.ending}{reason}")
                yield result
        finally:
            for ask in asks:
                cut = None if ask in told else self._account(ask).cut_short(ask)
                if cut is not None:
                    self._account(ask).add(cut)
                    keep(cut)

    def _in_order(
        self, ended: Iterator[tuple[str, PlanResult]], failures: Mapping[str, PlanFailure], told: Collection[Ask]
    ) -> Iterator[PlanResult]:
        """A failure's answer before those that were not tried to the end for its sake, and also when Ctrl-C or the budget ends
        the rest: a race that was seen once may not come again."""
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
            yield from self._untold(failures, told)
            yield from late
            raise
        yield from self._untold(failures, told)
        yield from late

    def _untold(self, failures: Mapping[str, PlanFailure], told: Collection[Ask]) -> Iterator[PlanResult]:
        for strategy, failed in failures.items():
            ask = Ask(failed.hazard, strategy)
            if failed.row is not None and ask not in told:
                yield self._failed_otherwise(ask, failed, failed.row, self._account(ask).trials)

    def _work(self, ask: Ask, failure: PlanFailure, keep: Keep) -> Work[PlanResult]:
        account = self._account(ask)
        for number, context in enumerate(self._contexts):
            if number in account.said:
                continue  # by an earlier run, in this folder
            scenario = context.replace(lock=ask.strategy)
            case = dataclasses.replace(self._cases[ask.hazard], scenario=scenario, settings=self._pipeline)
            folder = self._folder(f"{ask.hazard}--{scenario.replace(schedule='none').id}--{number}")
            account.begin(number)
            found = yield from reproducing(
                case,
                folder,
                times=1,
                note=lambda _: None,
                timeout_s=self._timeout_s,
                counterfactual=False,
                watcher=failure.of(ask.hazard, account.ended),
            )
            said = self._result(ask, found, number)
            account.add(said)
            if said.ending == REPRODUCED:
                return of_all(said, account)
            if failure.row is not None:
                return self._failed_otherwise(ask, failure, failure.row, account.trials)
            if len(account.said) < len(self._contexts):  # else the plan's answer comes now
                keep(said)
        return of_all(_decisive([account.said[number] for number in sorted(account.said)]), account)

    def _account(self, ask: Ask) -> PlanAccount:
        return self._accounts.setdefault(ask, PlanAccount())

    def _result(self, ask: Ask, found: Reproduction, context: int) -> PlanResult:
        witness = None
        if found.ending.name == REPRODUCED:
            witness = {
                "hazard": ask.hazard,
                "trial": self._named(Path(found.trial)),
                "label": str(found.row["outcome"]),
                "steps": list(found.ending.schedule.get("witness", ())),
            }
        return PlanResult(
            ask.hazard,
            ask.strategy,
            found.ending.name,
            from_locks_only(found.row),
            witness,
            found.ending.reason,
            found.tried,
            context,
        )

    def _failed_otherwise(self, ask: Ask, failure: PlanFailure, row: Row, trials: int) -> PlanResult:
        """What stood against the plan was not looked for to the end, so nothing is excluded."""
        if failure.hazard != ask.hazard:
            reason = f"not tried to the end: {ask.strategy} failed while the plan of {failure.hazard} was tried"
            return PlanResult(ask.hazard, ask.strategy, UNDECIDED, reason=reason, trials=trials)
        known = known_as(failure.folder)
        witness = {**witness_of(row), "trial": self._named(failure.folder), "plan": ask.hazard, "known_as": known}
        reason = f"it failed beside the plan's order: {reason_of(row)}"
        return PlanResult(ask.hazard, ask.strategy, UNDECIDED, from_locks_only(row), witness, reason, trials)

    def _named(self, folder: Path) -> str:
        return str(folder.relative_to(self._run_dir))

    def _folder(self, name: str) -> Path:
        base = self._run_dir / FOLDER
        folder, number = base / name, 2
        while folder.exists():  # of an attempt that was interrupted
            folder, number = base / f"{name}-{number}", number + 1
        folder.mkdir(parents=True)
        return folder


def _decisive(said: Sequence[PlanResult]) -> PlanResult:
    """Of a plan in several scenarios, the one that says it: nothing is excluded unless it is in all of them."""
    for name in (REPRODUCED, UNDECIDED, HARMLESS, UNREACHABLE):
        for one in said:
            if one.ending == name:
                return one
    return said[0]
