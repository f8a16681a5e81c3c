"""Trials of a bisection: rows of a run folder that say what they were run for, and results made of rows.

Any row carries `bisect`: purpose, strategy, number of the scenario, schedule (of the portfolio: its family, since each
trial has a seed of its own), and whether it ran alone. That is all that `--resume` needs. It stands in the trial's `spec.json`,
too: what a trial that ended without a row was for, and whether it ran alone, is what it was when it began.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.analysis.ladder import Result, Run
from harness.control.bisect_evidence import from_locks_only, kind_of, reason_of, witness_of
from harness.control.bisect_question import Question
from harness.control.caches import WarmCaches
from harness.control.listener import Listener
from harness.control.recovery import recover
from harness.control.references import References
from harness.control.request import Executor, Row, TrialRequest
from harness.control.results import is_finished, read_rows
from harness.control.rows import skipped_row
from harness.control.rundir import TRIALS, RunFolder, open_run
from harness.control.runner import Plan, carry_out, trial_id
from harness.control.skips import skip_reason
from harness.core.errors import UserError
from harness.core.jsontext import parse_json
from harness.core.scenario import Scenario

Tag = Mapping[str, Any]


class TaggedRunFolder(RunFolder):
    """A run folder whose rows say what they were run for."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        super().__init__(path, lock_fd)
        self.tags: dict[str, Tag] = {}
        self.fresh_rows: list[Row] = []

    def __enter__(self) -> TaggedRunFolder:
        return self

    def append(self, row: Row) -> None:
        """With the tag of its trial."""
        row["bisect"] = dict(self.tags[row["trial"]])
        super().append(row)
        self.fresh_rows.append(row)


def open_tagged(path: Path, *, resume: bool) -> TaggedRunFolder:
    """As `open_run`, and raises as it does."""
    return TaggedRunFolder(path, open_run(path, resume=resume)._lock_fd)  # which frees it when it is closed


@dataclass
class Budget:
    """When to stop. `trials`: of the whole bisection, those of earlier parts included; `minutes`: of this part."""

    max_trials: int | None = None
    max_minutes: float | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._begun = self.clock()

    def left(self, trials: int) -> int | None:
        """Trials that may still be run; None for no limit."""
        return None if self.max_trials is None else max(0, self.max_trials - trials)

    def spent(self, trials: int) -> str:
        """What is used up, or ""."""
        if self.max_trials is not None and trials >= self.max_trials:
            return f"--max-trials {self.max_trials} reached"
        if self.max_minutes is not None and self.clock() - self._begun >= 60 * self.max_minutes:
            return f"--max-minutes {self.max_minutes:g} reached"
        return ""

    def starts(self, trials: int) -> Callable[[], bool]:
        """To be asked before each further trial starts: whether it may, with so many that ran before the first of them."""
        begun = trials

        def may_start() -> bool:
            nonlocal begun
            if self.spent(begun):
                return False
            begun += 1
            return True

        return may_start


class TrialRunner:
    """Runs trials of one interpreter in one run folder."""

    def __init__(
        self,
        question: Question,
        folder: TaggedRunFolder,
        environment: Mapping[str, Any],
        executor: Executor,
        listener: Listener,
        held: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._question = question
        self._folder = folder
        self._environment = environment
        self._executor = executor
        self._listener = listener
        self._held = held
        self._references = References(folder.path, dtype=str(question.pipeline.get("dtype", "float32")))
        self._caches = WarmCaches(folder.path)
        self._used: defaultdict[str, set[int]] = defaultdict(set)  # repeats that have a row, by scenario id
        self._seeds: Counter[str] = Counter()  # the next of each family
        self.earlier: list[Row] = []
        for row in read_rows(folder.path):
            if is_finished(row) and "bisect" in row:  # not of a `harness run` that older releases let go on here
                self.earlier.append(row)
                self._learn(row)
        self.interrupted = False

    def settle(self) -> list[Row]:
        """The rows of trials that had ended when an earlier part was stopped, and had none yet: they waited for a reference,
        or the part was killed. The search may never ask for them again, and what was lost so would be failures above all, for
        only losses that differ wait for long. Fewer than there are: it was interrupted.
        """
        requests = []
        for path in without_row(self._folder.path, self._folder.finished):
            request, tag = self._ended(path)
            if request is not None:
                requests.append(request)
                self._folder.tags[request.trial_id] = tag
        return self._carry_out(Plan(tuple(requests), (), 0), references_first=False) if requests else []

    def _ended(self, folder: Path) -> tuple[TrialRequest | None, Tag]:
        """The request of a trial that has ended, and what it was for; None for one that has not, or is damaged."""
        try:
            spec = parse_json((folder / "spec.json").read_text("utf-8"))
            found = spec["extra"]["bisect"]
            tag = {"context": int(found["context"]), **{key: str(found[key]) for key in ("purpose", "strategy", "schedule")}}
            if "alone" in found:
                tag["alone"] = found["alone"] is True
            request = self._request(Scenario.from_dict(spec["scenario"]), int(spec["repeat"]), tag)
        except (OSError, ValueError, LookupError, TypeError, UserError):
            return None, {}  # half-written, or of an older release
        return (request if request.folder == folder and recover(request) is not None else None), tag

    def run(self, wanted: Sequence[tuple[Scenario, Tag]], *, references_first: bool = False) -> list[Row]:
        """Run these, each once; rows as they ended. Fewer rows than asked for: it was interrupted.

        `references_first`: what they are held against is not made beside them, as it is else.
        """
        requests: list[TrialRequest] = []
        skipped: list[Row] = []
        taken: defaultdict[str, set[int]] = defaultdict(set)
        for scenario, tag in wanted:
            scenario = self._with_seed(scenario, str(tag["schedule"]))
            # Of trials that ran side by side an interrupt may have cut short an earlier one than the last that has a row.
            used = self._used[scenario.id] | taken[scenario.id]
            repeat = next(number for number in itertools.count() if number not in used)
            taken[scenario.id].add(repeat)
            request = self._request(scenario, repeat, tag)
            self._folder.tags[request.trial_id] = tag
            reason = skip_reason(scenario, self._environment, self._question.pipeline)
            if reason:
                skipped.append(skipped_row(request, reason))
            else:
                requests.append(request)
        return self._carry_out(Plan(tuple(requests), tuple(skipped), 0), references_first=references_first)

    def _carry_out(self, plan: Plan, *, references_first: bool) -> list[Row]:
        self._folder.fresh_rows = []
        self.interrupted = carry_out(
            plan,
            self._folder,
            self._executor,
            self._listener,
            held=self._held,
            references=self._references,
            caches=self._caches,
            references_first=references_first,
        )
        finished = [row for row in self._folder.fresh_rows if is_finished(row)]
        for row in finished:
            self._learn(row)
        return finished

    def _learn(self, row: Row) -> None:
        """Neither its number nor its seed is given to another trial."""
        self._used[row["scenario_id"]].add(int(row["repeat"]))
        self._seeds[_family(row)] = max(self._seeds[_family(row)], _seed(row) + 1)

    def _request(self, scenario: Scenario, repeat: int, tag: Tag) -> TrialRequest:
        limits: dict[str, Any] = {
            "timeout_s": self._question.timeout_s,
            "hang_timeout_s": self._question.hang_timeout_s,
        }
        name = trial_id(scenario, repeat)
        return TrialRequest(
            name,
            scenario,
            repeat,
            self._folder.trial_folder(name),
            pipeline=self._question.pipeline,
            extra={"bisect": dict(tag)},
            **{key: value for key, value in limits.items() if value is not None},
        )

    def _with_seed(self, scenario: Scenario, family: str) -> Scenario:
        """The next member of a family of schedules; the scenario's own schedule where there is none."""
        if not family:
            return scenario
        seed = self._seeds[family]
        self._seeds[family] += 1
        return scenario.replace(schedule=family.replace("*", str(seed), 1))


def without_row(run_dir: Path, finished: Collection[str]) -> list[Path]:
    """Folders of trials that began and have no row among the `finished`; some may have ended."""
    return sorted(path.parent for path in run_dir.glob(f"{TRIALS}/*/spec.json") if path.parent.name not in finished)


def tag_of(run: Run, *, alone: bool) -> dict[str, Any]:
    """What a row keeps of the run it was for."""
    return {
        "purpose": run.purpose,
        "strategy": run.strategy,
        "context": run.context,
        "schedule": run.schedule,
        "alone": alone,
    }


def result_of(row: Row) -> Result:
    """What a row says of its strategy."""
    tag = row["bisect"]
    run = Run(tag["strategy"], int(tag["context"]), tag["schedule"], tag["purpose"])
    kind = kind_of(row)
    waits = [float(lock.get("wait_s") or 0.0) for lock in (row.get("locks") or {}).values()]
    return Result(
        run,
        kind,
        by_lock=from_locks_only(row),
        witness=witness_of(row) if kind == "failed" else None,
        reason=reason_of(row),
        startup_s=row.get("startup_s"),
        tokens_per_s=row.get("tokens_per_s"),
        wait_s=sum(waits),
        alone=tag.get("alone", False),
    )


def _family(row: Row) -> str:
    return str((row.get("bisect") or {}).get("schedule", ""))


def _seed(row: Row) -> int:
    """Which member of its family the row's schedule is; -1 for a scenario's own."""
    head, star, tail = _family(row).partition("*")
    schedule = str(row["scenario"]["schedule"])
    return int(schedule[len(head) : len(schedule) - len(tail)]) if star else -1
