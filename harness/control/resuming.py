"""`harness run --resume`: the folder that is meant, whether what it holds can be gone on with, and the options it had."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.analysis.selection import where_for
from harness.analysis.summary import RunSummary
from harness.control import results, rundir
from harness.control.recovery import recover
from harness.control.rundir import RunFolder
from harness.control.runner import Plan
from harness.core.errors import RunFolderError
from harness.core.matrix import Matrix
from harness.core.rowshape import is_text
from harness.core.where import parse_where

_OF_SPEED = {"jobs": "--jobs", "executor": "--executor"}
"""Options that trials of one run may differ in, and their speed with them."""


@dataclass(frozen=True)
class RunOptions:
    """What the user asked for; None means not said. On --resume, what was said then stands in for it."""

    matrix: str | None = None
    out: Path | None = None
    resume: bool = False
    python: str | None = None
    executor: str | None = None
    jobs: int | None = None
    repeats: int | None = None
    only: str | None = None
    timeout_s: float | None = None


def resumed_folder(options: RunOptions) -> Path:
    """The folder to go on in. Raises RunFolderError: there is none, or it holds something else, which the line names."""
    folder = _folder_to_resume(options)
    if what := results.bisected(folder):
        command = f"harness bisect {what} --resume --out {shlex.quote(str(folder))}"
        raise RunFolderError(f"{folder} is a bisection's folder, which chooses its trials itself; go on with: {command}")
    return folder


def _folder_to_resume(options: RunOptions) -> Path:
    if options.out is not None:
        other = rundir.not_a_run(options.out)
        if other and rundir.holds_trials(options.out):
            raise RunFolderError(f"{options.out} {other}; name another with --out")
        if other:
            there = "holds no run to resume" if options.out.is_dir() else "is no run folder: there is nothing to resume"
            raise RunFolderError(f"{options.out} {there}; name another with --out, or leave out --resume to begin one")
        return options.out
    latest = Path("reports") / "latest"
    if not latest.exists():
        raise RunFolderError("nothing to resume: there is no reports/latest; name the run folder with --out")
    folder = latest.resolve()
    if other := rundir.not_a_run(folder):
        raise RunFolderError(f"nothing to resume: {folder} {other}, and it is reports/latest; name a run folder with --out")
    return folder


def read_earlier(folder: Path) -> dict[str, Any]:
    """environment.json of a run that goes on; {} when there is none.

    Raises RunFolderError: what it says of the options or the machine is not what a run writes there.
    """
    environment = results.read_environment(folder)
    if wrong := _environment_fault(environment):
        raise RunFolderError(f"{folder / results.ENVIRONMENT}: {wrong}; mend it, or choose another --out")
    return environment


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0 and math.isfinite(value)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _are_gpus(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(gpu, dict) and is_text(gpu.get("name")) for gpu in value)


def _are_lists(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(one, list) for one in value.values())


_Shapes = Mapping[str, tuple[Callable[[object], bool], str]]
_FACTS: _Shapes = {
    **dict.fromkeys(("torch", "python", "executable"), (is_text, "a string")),
    "gpus": (_are_gpus, "a list of objects, each with a name"),
    "cores_usable": (_is_count, "a whole number above 0"),
    "variables": (_is_object, "an object"),
    "options": (_is_object, "an object"),
}
_OPTIONS: _Shapes = {
    **dict.fromkeys(("matrix", "only", "executor"), (is_text, "a string")),
    **dict.fromkeys(("repeats", "jobs"), (_is_count, "a whole number above 0")),
    "timeout_s": (_is_time, "a number above 0"),
    "varied": (_are_lists, "an object of lists"),
}
"""Each may be null: it was not said."""


def _environment_fault(environment: Mapping[str, Any]) -> str:
    for key, (holds, words) in _FACTS.items():
        if key in environment and not holds(environment[key]):
            return f'"{key}" is not {words}'
    options = environment.get("options", {})
    for key, (holds, words) in _OPTIONS.items():
        if options.get(key) is not None and not holds(options[key]):
            return f'"options.{key}" is not {words}'
    return ""


def check_rows(folder: Path, matrix: Matrix, file: Path | None) -> None:
    """Read all rows of a run that goes on. Raises RunFolderError: one cannot be counted.

    `file`: the matrix file that was named since the folder has none; refused as well when it lacks a scenario of the rows.
    """
    known = {scenario.id for scenario in matrix.scenarios}
    for row in results.counted_rows(folder):
        if file is not None and row["scenario_id"] not in known:
            raise RunFolderError(
                f"{folder} holds trials of {row['scenario_id']}, which {file} does not have: "
                "name the matrix that it was begun with, or choose another --out"
            )


def with_earlier(options: RunOptions, environment: Mapping[str, Any]) -> RunOptions:
    """What the run was begun with holds until said otherwise."""
    earlier = environment.get("options") or {}
    return dataclasses.replace(
        options,
        python=options.python or environment.get("executable"),
        executor=options.executor or earlier.get("executor") or "local",
        jobs=options.jobs or earlier.get("jobs") or 1,
        repeats=options.repeats or earlier.get("repeats"),
        only=options.only or earlier.get("only"),
        timeout_s=options.timeout_s or earlier.get("timeout_s"),
    )


def recorded(
    options: RunOptions,
    matrix: Matrix,
    before: Mapping[str, Any],
    folder: RunFolder,
    plan: Plan,
    note: Callable[[str], None],
) -> dict[str, Any]:
    """The options for environment.json, `before` being what that said.

    Where trials were run with several values of an option that their speed depends on, `varied` lists them by option, in the
    order in which they came; `note` is told of a change. Where nothing is left to run, the options that trials ran
    with stay as they were.
    """
    earlier = before.get("options") or {}
    now: dict[str, Any] = {"executor": options.executor, "jobs": options.jobs}
    if not plan.requests:
        now = {key: earlier.get(key) or value for key, value in now.items()}
    varied = {key: list(values) for key, values in (earlier.get("varied") or {}).items()}
    for key, value in now.items():
        was = earlier.get(key)
        if was in (None, value) or not _any_ended(folder, plan):
            continue
        values = varied.setdefault(key, [was])
        if value not in values:
            values.append(value)
        note(f"{_OF_SPEED[key]} was {was} for trials of this run and is {value} now: their speeds are not alike")
    return {
        **earlier,
        "matrix": earlier.get("matrix") or matrix.file,
        "repeats": options.repeats or matrix.repeats,
        "only": options.only,
        "timeout_s": options.timeout_s,
        **now,
        **({"varied": varied} if varied else {}),
    }


def _any_ended(folder: RunFolder, plan: Plan) -> bool:
    """Whether any trial of an earlier part counts; a killed run leaves some without their rows."""
    return bool(folder.finished) or any(recover(request) is not None for request in plan.requests)


def widened(matrix: Matrix, summary: RunSummary, only: str | None) -> str:
    """What `--only` has to say for a resume to mean every scenario that has trials; "" where it means them as it stands."""
    ran = {item.id for item in summary.scenarios}
    scenarios = [scenario for scenario in matrix.scenarios if scenario.id in ran]
    if only is None or all(map(parse_where(only).matches, scenarios)):
        return ""
    return " or ".join(where_for(scenarios, [scenario for scenario in matrix.scenarios if scenario.id not in ran]))
