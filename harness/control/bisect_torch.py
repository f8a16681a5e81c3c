"""`harness bisect torch`: one scenario under several interpreters, to find where its verdict changes.

The folder holds a run folder for each version, named after it, and `bisect.json`.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.analysis.ladder import PlanResult
from harness.analysis.plan_questions import Ask
from harness.analysis.turning import Turn, TurningPoints, Version
from harness.control import rundir
from harness.control.bisect_evidence import kind_of, reason_of, witness_of
from harness.control.bisect_folder import (
    EXIT_OPEN,
    EXIT_SAFE,
    EXIT_UNSAFE,
    INTERRUPTED,
    BisectOptions,
    Phase,
    check_budget,
    environment_of,
    once_begun,
    open_folder,
    resumed_folder,
)
from harness.control.bisect_question import QUESTION, Question, make_question, resume_question
from harness.control.bisect_trials import Budget, TaggedRunFolder, TrialRunner, without_row
from harness.control.interrupts import Interrupts, continues
from harness.control.listener import Listener
from harness.control.plan_answers import append_plan, read_plans
from harness.control.plan_oracle import MakeOracle, PlanOracle, no_plans
from harness.control.request import Row
from harness.control.results import is_finished, read_rows
from harness.control.session import MakeExecutor
from harness.core.errors import RunFolderError, UserError
from harness.core.versions import parse_version

PYTHONS = "pythons"


@dataclass(frozen=True)
class TorchAnswer:
    """`answer`: the first version with another verdict than those before it, None where it does not change.

    `verdict`: "changes", or the one verdict of all versions, or "undecided".
    """

    answer: str | None
    verdict: str
    conclusion: str
    turns: tuple[Turn, ...]
    versions: tuple[Version, ...]
    trials_total: int
    p_min: float
    confidence: float
    open: tuple[str, ...]
    stopped: str


@dataclass(frozen=True)
class TorchResult:
    """The answer and where it comes from. `pythons`: version → interpreter."""

    run_dir: Path
    question: Question
    pythons: Mapping[str, str]
    answer: TorchAnswer

    @property
    def exit_code(self) -> int:
        """0 it changes, or is safe in every version; 1 it fails in every version; 3 undecided or interrupted."""
        if self.answer.stopped == INTERRUPTED or self.answer.verdict in ("undecided", "incomplete"):
            return EXIT_OPEN
        return EXIT_UNSAFE if self.answer.verdict == "unsafe" else EXIT_SAFE

    def to_json(self) -> dict[str, Any]:
        """The document of `bisect torch --json`."""
        document = dataclasses.asdict(self.answer)
        for version in document["versions"]:
            version["python"] = self.pythons[version["version"]]
        scenario = self.question.contexts[0].to_dict()
        return {**document, "scenario": scenario, "run_dir": str(self.run_dir.resolve())}


def bisect_torch(
    options: BisectOptions,
    make_executor: MakeExecutor,
    listener: Listener,
    note: Callable[[str], None],
    make_oracle: MakeOracle = no_plans,
) -> TorchResult:
    """Find where the verdict changes. Raises UserError for what cannot be asked."""
    check_budget(options)
    resumed = resumed_folder(options) if options.resume else None
    question = resume_question(resumed, options.asked) if resumed else make_question(options.asked)
    environments = _environments(options, question, resumed)
    path = resumed or options.out or rundir.default_folder("bisect-torch")
    if resumed is None and path.exists() and any(path.iterdir()):
        raise RunFolderError(f"{path} is not empty: continue it with --resume, or choose another folder with --out")
    path.mkdir(parents=True, exist_ok=True)
    problem = rundir.point_latest(path)
    if problem:
        note(problem)
    pythons = {version: str(environment["executable"]) for version, environment in environments.items()}
    _write(path, question, pythons, None)
    with Interrupts(listener.interrupting, continues("harness bisect torch", path)) as interrupts:
        search = _Search(question, options, path, environments, once_begun(listener, options), interrupts, note)
        answer = search.run(make_executor, make_oracle)
    _write(path, question, pythons, dataclasses.asdict(answer))
    return TorchResult(path, question, pythons, answer)


class _Search:
    def __init__(
        self,
        question: Question,
        options: BisectOptions,
        path: Path,
        environments: Mapping[str, dict[str, Any]],
        listener: Listener,
        interrupts: Interrupts,
        note: Callable[[str], None],
    ) -> None:
        self._question, self._options, self._path = question, options, path
        self._environments, self._listener, self._interrupts, self._note = environments, listener, interrupts, note
        self._points = TurningPoints(list(environments), p_min=question.p_min, alpha=question.alpha)
        self._budget = Budget(options.max_trials, options.max_minutes)
        self._trials = 0
        self._unanswered: Counter[tuple[str, str]] = Counter()  # (version, hazard) → trials of a plan without an answer
        self._asked: dict[str, set[str]] = {version: set() for version in environments}
        for version in environments:
            if (path / version).is_dir():
                for told in read_plans(path / version):
                    self._record_plan(version, told)
                for row in read_rows(path / version):
                    if row["outcome"] != INTERRUPTED:
                        self._record(version, row)

    def run(self, make_executor: MakeExecutor, make_oracle: MakeOracle) -> TorchAnswer:
        phase = Phase(self._note)
        for version in self._environments:  # also those that the search does not come to again
            folder = self._path / version
            if folder.is_dir() and without_row(folder, {row["trial"] for row in read_rows(folder) if is_finished(row)}):
                stopped = self._one_version(version, make_executor, make_oracle, settle_only=True)
                if stopped:
                    return self._conclude(stopped)
        while (following := self._points.next()) is not None:
            phase.say(f"torch {following}")
            stopped = self._one_version(following, make_executor, make_oracle)
            if stopped:
                return self._conclude(stopped)
        return self._conclude("")

    def _one_version(
        self, version: str, make_executor: MakeExecutor, make_oracle: MakeOracle, *, settle_only: bool = False
    ) -> str:
        """Carry plans out, then run it until it is settled; why it was not, or "". `settle_only`: only what had no row."""
        environment = self._environments[version]
        folder = self._path / version
        with ExitStack() as stack:
            opened: TaggedRunFolder = stack.enter_context(
                open_folder(folder, self._question, environment, resume=folder.exists(), note=self._note)
            )
            executor = make_executor(self._options.executor, python=environment["executable"], jobs=self._options.jobs)

            def close() -> None:
                with self._interrupts.held():
                    executor.close()

            stack.callback(close)
            runner = TrialRunner(self._question, opened, environment, executor, self._listener, self._interrupts.held)
            if self._settle(version, runner):
                return INTERRUPTED
            if settle_only:
                return ""
            oracle = make_oracle(self._question, environment, executor, folder, self._note)
            stopped = self._plans(version, oracle, folder)
            if stopped:
                return stopped
            tag = {"purpose": "version", "strategy": version, "context": 0, "schedule": ""}
            while not runner.interrupted and self._points.verdict(version) == "undecided":
                stopped = self._budget.spent(self._trials)
                if stopped:
                    return stopped
                left = self._budget.left(self._trials)
                size = min(self._options.jobs, self._points.left(version), left or self._options.jobs)
                for row in runner.run([(self._question.contexts[0], tag)] * size):
                    self._record(version, row)
            if runner.interrupted:
                return INTERRUPTED
        return ""

    def _settle(self, version: str, runner: TrialRunner) -> bool:
        """Whether it was interrupted."""
        for row in runner.settle():
            self._record(version, row)
        return runner.interrupted

    def _plans(self, version: str, oracle: PlanOracle, folder: Path) -> str:
        """Ask the plans that were not asked yet, up to the first that is reproduced; what ended that, or ""."""

        def keep(told: PlanResult) -> None:
            append_plan(folder, told)
            self._record_plan(version, told)

        for hazard in oracle.hazards():
            if hazard in self._asked[version]:
                continue
            if self._points.verdict(version) != "undecided":
                break
            stopped = self._budget.spent(self._trials)
            if stopped:
                return stopped
            ask = Ask(hazard, self._question.contexts[0].lock)
            try:
                for told in oracle.ask([ask], self._budget.starts(self._trials), keep):
                    keep(told)
            except KeyboardInterrupt:
                return INTERRUPTED
        return ""

    def _record_plan(self, version: str, told: PlanResult) -> None:
        """Of one in which the search was cut short nothing but the trials, until the plan has its answer."""
        self._trials += told.trials
        if told.context is not None:
            self._unanswered[version, told.hazard] += told.trials
            return
        self._trials -= self._unanswered.pop((version, told.hazard), 0)
        self._asked[version].add(told.hazard)
        witness = told.witness
        if witness is not None and "trial" in witness:
            witness = {**witness, "trial": f"{version}/{witness['trial']}"}
        self._points.record_plan(version, dataclasses.replace(told, witness=witness))

    def _record(self, version: str, row: Row) -> None:
        kind = kind_of(row)
        failed = None if kind in ("incomplete", "skipped") else kind == "failed"
        self._trials += kind != "skipped"
        witness = witness_of(row) if failed else None
        if witness is not None:
            witness["trial"] = f"{version}/{witness['trial']}"
        self._points.record(version, failed, reason=reason_of(row) if failed is None else "", witness=witness)

    def _conclude(self, stopped: str) -> TorchAnswer:
        turns, versions = self._points.turns(), self._points.report()
        verdicts = {version.verdict for version in versions}
        said = verdicts & {"safe", "unsafe"}
        open_lines = [
            f"torch {version.version}: {version.reason or f'0/{version.trials} failed, which is not enough'}"
            for version in versions
            if version.verdict in ("incomplete", "undecided")
        ]
        conclusion = "; ".join(f"{turn.was} in {turn.older}, {turn.now} in {turn.newer}" for turn in turns)
        if turns:
            verdict = "undecided" if stopped and any(turn.between for turn in turns) else "changes"
        elif not said:
            verdict = "incomplete" if verdicts == {"incomplete"} else "undecided"
        else:
            verdict = "undecided" if stopped or "undecided" in verdicts else next(iter(said))
        return TorchAnswer(
            answer=turns[0].newer if turns else None,
            verdict=verdict,
            conclusion=conclusion or (f"{verdict} in every version" if verdict in ("safe", "unsafe") else verdict),
            turns=turns,
            versions=versions,
            trials_total=self._trials,
            p_min=self._question.p_min,
            confidence=1 - self._question.alpha,
            open=tuple(open_lines),
            stopped=stopped,
        )


def _environments(options: BisectOptions, question: Question, resumed: Path | None) -> dict[str, dict[str, Any]]:
    """Torch version → facts of its interpreter, oldest first. Raises UserError: fewer than two, or two alike."""
    pythons = list(options.pythons)
    if resumed is not None:
        known = json.loads((resumed / QUESTION).read_text("utf-8")).get(PYTHONS, {})
        pythons = pythons or list(known.values())
    if len(pythons) < 2:
        raise UserError("bisect torch compares versions: name two interpreters or more, --python A --python B")
    found: dict[str, dict[str, Any]] = {}
    for python in pythons:
        environment = environment_of(python, options, question)
        version = str(environment["torch"])
        if version in found:
            raise UserError(f"--python {python}: torch {version} is there already, in {found[version]['executable']}")
        found[version] = environment
    return dict(sorted(found.items(), key=lambda item: parse_version(item[0])))


def _write(path: Path, question: Question, pythons: Mapping[str, str], answer: Mapping[str, Any] | None) -> None:
    document = {**question.to_json(), PYTHONS: dict(pythons), "answer": answer}
    (path / QUESTION).write_text(json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n", "utf-8")
