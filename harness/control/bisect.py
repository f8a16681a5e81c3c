"""`harness bisect` from its options to its answer: what to run comes from the pure searches of `harness.analysis`.

The run folder is one of `harness run`, with `bisect.json` (the question, and in the end the answer) and `plans.jsonl`
besides; of `bisect torch` each version has such a folder of its own. What was run is read back from its rows, so a
bisection that was stopped goes on where it was.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.analysis.bisector import Bisector, Settings
from harness.analysis.ladder import MEASURING, PlanResult
from harness.analysis.order import strategy_order
from harness.analysis.plan_questions import Ask
from harness.analysis.regions import RegionAnswer, RegionSearch
from harness.analysis.verdicts import Answer
from harness.control import results, rundir
from harness.control.bisect_evidence import from_locks_only, kind_of, named, reason_of, witness_of
from harness.control.bisect_folder import (
    EXIT_OPEN,
    EXIT_SAFE,
    EXIT_UNSAFE,
    INTERRUPTED,
    BisectOptions,
    Phase,
    check_budget,
    environment_of,
    keep_answer,
    once_begun,
    open_folder,
    resumed_folder,
    stem_of,
)
from harness.control.bisect_question import Question, make_question, resume_question
from harness.control.bisect_trials import (
    Budget,
    TaggedRunFolder,
    TrialRunner,
    result_of,
    tag_of,
)
from harness.control.interrupts import Interrupts, continues
from harness.control.listener import Listener
from harness.control.plan_answers import append_plan, read_plans
from harness.control.plan_oracle import MakeOracle, PlanOracle, no_plans
from harness.control.request import Row
from harness.control.session import MakeExecutor
from harness.core.errors import UserError


@dataclass(frozen=True)
class BisectResult:
    """An answer and where it comes from."""

    run_dir: Path
    question: Question
    environment: Mapping[str, Any]
    answer: Answer | RegionAnswer
    jobs: int = 1  # of this part: the environment has those of the first

    @property
    def exit_code(self) -> int:
        """0 an answer was found, 1 nothing is safe, 3 undecided, incomplete or interrupted."""
        if self.answer.stopped == INTERRUPTED:
            return EXIT_OPEN
        return {"safe": EXIT_SAFE, "unsafe": EXIT_UNSAFE}.get(self.answer.verdict, EXIT_OPEN)

    def to_json(self) -> dict[str, Any]:
        """The document of `bisect … --json`."""
        document = dataclasses.asdict(self.answer)
        contexts = [context.to_dict() for context in self.question.contexts]
        return {
            **document,
            "scenarios": contexts,
            "run_dir": str(self.run_dir.resolve()),
            "environment": self.environment,
        }


@dataclass
class OpenBisection:
    """A folder that is ready: locked, with its question written."""

    question: Question
    folder: TaggedRunFolder
    environment: Mapping[str, Any]
    options: BisectOptions
    note: Callable[[str], None] = field(default=lambda text: None)
    plans: Callable[[int, int], None] = field(default=lambda done, asked: None)


@contextmanager
def open_bisection(
    options: BisectOptions,
    note: Callable[[str], None],
    plans: Callable[[int, int], None] = lambda done, asked: None,
) -> Iterator[OpenBisection]:
    """Check everything that can be checked, then make or reopen the run folder. Raises UserError before that.

    `plans` is told how many plans have answered, of how many that were asked.
    """
    check_budget(options)
    if len(options.pythons) > 1:
        raise UserError(
            f"--python: bisect {options.asked.what} runs under one interpreter; several are for bisect torch"
        )
    resumed = resumed_folder(options) if options.resume else None
    question = resume_question(resumed, options.asked) if resumed else make_question(options.asked)
    before = results.read_environment(resumed) if resumed else {}
    python = options.pythons[0] if options.pythons else before.get("executable")
    environment = environment_of(python, options, question)
    path = resumed or options.out or rundir.default_folder(f"bisect-{question.what}-{stem_of(question.target)}")
    with open_folder(path, question, environment, resume=options.resume, note=note) as folder:
        problem = rundir.point_latest(path)
        if problem:
            note(problem)
        yield OpenBisection(question, folder, environment, options, note, plans)


def run_bisection(
    opened: OpenBisection, make_executor: MakeExecutor, listener: Listener, make_oracle: MakeOracle = no_plans
) -> BisectResult:
    """Find the answer, as far as the budget goes."""
    options = opened.options
    budget = Budget(options.max_trials, options.max_minutes)
    then = continues(f"harness bisect {opened.question.what}", opened.folder.path)
    with Interrupts(listener.interrupting, then) as interrupts, ExitStack() as stack:
        executor = make_executor(options.executor, python=opened.environment["executable"], jobs=options.jobs)

        def close() -> None:
            with interrupts.held():
                executor.close()

        stack.callback(close)
        runner = TrialRunner(
            opened.question, opened.folder, opened.environment, executor, once_begun(listener, options), interrupts.held
        )
        if opened.question.what == "regions":
            answer: Answer | RegionAnswer = _regions(opened, runner, budget)
        else:
            oracle = make_oracle(opened.question, opened.environment, executor, opened.folder.path, opened.note)
            answer = _locks(opened, runner, budget, oracle)
    answer = _with_hazards(answer, opened.folder.path)
    result = BisectResult(opened.folder.path, opened.question, opened.environment, answer, options.jobs)
    keep_answer(opened.folder, opened.question, dataclasses.asdict(answer))
    return result


def _with_hazards(answer: Answer | RegionAnswer, run_dir: Path) -> Answer | RegionAnswer:
    """The answer with the hazards behind its witnesses, where they are known: one may be of a setting, which no lock mends."""
    if isinstance(answer, Answer):
        ladder = (dataclasses.replace(one, witness=named(one.witness, run_dir)) for one in answer.ladder)
        return dataclasses.replace(answer, ladder=tuple(ladder))
    tested = (dataclasses.replace(one, witness=named(one.witness, run_dir)) for one in answer.tested)
    return dataclasses.replace(answer, tested=tuple(tested))


# the two searches


def _locks(opened: OpenBisection, runner: TrialRunner, budget: Budget, oracle: PlanOracle) -> Answer:
    question = opened.question
    bisector = Bisector(
        strategy_order(question.locks),
        Settings(p_min=question.p_min, alpha=question.alpha, thorough=question.thorough),
        contexts=len(question.contexts),
        portfolio=question.portfolio,
        hazards=oracle.hazards(),
        by_locks=oracle.by_locks(),
    )
    answered = asked = 0
    for told in read_plans(opened.folder.path):
        bisector.record(told)
    for row in [*runner.earlier, *runner.settle()]:
        bisector.record(result_of(row))
    phase = Phase(opened.note)

    def keep(told: PlanResult) -> None:
        append_plan(opened.folder.path, told)
        bisector.record(told)

    while True:
        if runner.interrupted:
            return bisector.conclude(INTERRUPTED)
        step = bisector.batch(opened.options.jobs)
        if isinstance(step, Answer):
            return step
        stopped = budget.spent(bisector.ladder.trials)
        if stopped:
            return bisector.conclude(stopped)
        if isinstance(step, Ask):
            phase.say("carrying out plans")
            left = budget.left(bisector.ladder.trials)
            asks = bisector.asks(opened.options.jobs if left is None else min(left, opened.options.jobs))
            asked += len(asks)
            opened.plans(answered, asked)
            try:
                for told in oracle.ask(asks, budget.starts(bisector.ladder.trials), keep):
                    keep(told)
                    answered += 1
                    opened.plans(answered, asked)
            except KeyboardInterrupt:
                return bisector.conclude(INTERRUPTED)
            continue
        left = budget.left(bisector.ladder.trials)
        phase.say(_PHASES[step[0].purpose].format(step[0].strategy))
        measuring = step[0].purpose in MEASURING
        wanted = [
            (_scenario(question, run.context, run.strategy), tag_of(run, alone=measuring or opened.options.jobs == 1))
            for run in step[: len(step) if left is None else left]
        ]
        for row in runner.run(wanted, references_first=measuring):
            bisector.record(result_of(row))


def _regions(opened: OpenBisection, runner: TrialRunner, budget: Budget) -> RegionAnswer:
    question = opened.question
    search = RegionSearch(
        p_min=question.p_min, alpha=question.alpha, contexts=len(question.contexts), portfolio=question.portfolio
    )
    for row in [*runner.earlier, *runner.settle()]:
        _record_region(search, row)
    phase = Phase(opened.note)
    while True:
        if runner.interrupted:
            return search.conclude(INTERRUPTED)
        step = search.batch(opened.options.jobs)
        if isinstance(step, RegionAnswer):
            return step
        stopped = budget.spent(search.trials)
        if stopped:
            return search.conclude(stopped)
        left = budget.left(search.trials)
        phase.say(f"{'certifying' if step[0].purpose == 'certify' else 'trying'} {step[0].lock}")
        wanted = []
        for trial in step[: len(step) if left is None else left]:
            tag = {
                "purpose": trial.purpose,
                "strategy": trial.lock,
                "context": trial.context,
                "schedule": trial.schedule,
            }
            wanted.append((_scenario(question, trial.context, trial.lock), tag))
        for row in runner.run(wanted):
            _record_region(search, row)


def _record_region(search: RegionSearch, row: Row) -> None:
    tag = row["bisect"]
    kind = kind_of(row)
    failed = None if kind in ("incomplete", "skipped") else kind == "failed"
    search.record(
        search.trial_of(tag["strategy"], int(tag["context"]), tag["schedule"], tag["purpose"]),
        failed,
        spreads=not from_locks_only(row),
        reason=reason_of(row),
        witness=witness_of(row) if failed else None,
    )


def _scenario(question: Question, context: int, lock: str) -> Any:
    return question.contexts[context].replace(lock=lock)


_PHASES = {
    "portfolio": "does it fail at all? trying {}",
    "explore": "looking around: trying {}",
    "price": "measuring costs, a trial at a time, of each strategy in turn",
    "certify": "certifying {}",
    "provoke": "provoking {}",
    "compare": "measuring the answer and a faster one, a trial at a time, in turn",
    "refute": "trying to refute {}",
    "witness": "looking for a witness against {}",
}
