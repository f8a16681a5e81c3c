"""A run by an executor that has `jobs` places and no processes: which of those that run ends next is each test's choice."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from fake_runs import make_row, matrix

from harness.control import results
from harness.control.references import References
from harness.control.request import Row, TrialRequest
from harness.control.rundir import RunFolder
from harness.control.runner import carry_out, make_plan
from harness.core.matrix import Matrix
from harness.report.progress import Progress

ONE = 'schema = 1\n[defaults]\nrepeats = 3\n[axes]\nlock = ["none"]\n'  # one reference
Pick = Callable[[list[TrialRequest]], TrialRequest]


def is_reference(request: TrialRequest) -> bool:
    return bool(request.extra.get("reference"))


def references_last(running: list[TrialRequest]) -> TrialRequest:
    """The oldest trial that runs; a reference only when no trial does."""
    return min(running, key=is_reference)


def oldest(running: list[TrialRequest]) -> TrialRequest:
    return running[0]


def loses(*losses: float) -> dict[str, Any]:
    return {"drafter-0": {"role": "drafter", "losses": list(losses)}}


def ends_ok(request: TrialRequest) -> Row:
    return make_row(request, workers=loses(5.0, 4.0), wall_s=7.25)


class Places:
    """Runs `jobs` requests at a time; `pick` says which ends next, `outcome` makes its row."""

    def __init__(self, jobs: int, pick: Pick, outcome: Callable[[TrialRequest], Row] = ends_ok) -> None:
        self.jobs, self.pick, self.outcome = jobs, pick, outcome
        self.calls: list[list[TrialRequest]] = []
        self.began: list[str] = []
        self.ended: list[str] = []

    def run(
        self,
        trials: Sequence[TrialRequest],
        on_start: Callable[[TrialRequest], object],
        on_row: Callable[[Row], None],
    ) -> None:
        self.calls.append(list(trials))
        waiting, running = list(trials), list[TrialRequest]()
        try:
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    request = waiting.pop(0)
                    if on_start(request) is False:
                        continue
                    assert request.folder.is_dir()
                    request.write_spec()
                    running.append(request)
                    self.began.append(request.trial_id)
                if not running:
                    break
                request = self.pick(running)
                running.remove(request)
                row = self.outcome(request)
                if row["outcome"] not in ("setup_error", "crash", "interrupted"):
                    result = {name: row[name] for name in ("trial", "outcome", "outcomes", "reason", "workers")}
                    (request.folder / "result.json").write_text(json.dumps(result))
                self.ended.append(request.trial_id)
                on_row(row)
        except KeyboardInterrupt:
            for request in running:
                on_row(make_row(request, "interrupted"))
            raise

    def close(self) -> None:
        return


def go(folder: RunFolder, executor: Places, text: str = ONE, **rest: Any) -> bool:
    """Run what is left of the matrix, as a command does; True when interrupted."""
    loaded: Matrix = matrix(text)
    plan = make_plan(loaded, loaded.scenarios, folder, repeats=loaded.repeats)
    rest = {"references": References(folder.path, "float32"), "listener": Progress(), **rest}
    return carry_out(plan, folder, executor, **rest)


def lines(folder: RunFolder) -> list[Row]:
    """The rows as they stand in the file, interrupted ones and all."""
    return [json.loads(line) for line in (folder.path / results.RESULTS).read_text().splitlines()]


class Killed(BaseException):
    """The end of the process, as far as a test can have one."""
