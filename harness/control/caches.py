"""Warm compiler caches: `cache = "warm"` means that somebody has compiled this scenario before, and never the trial itself.

A priming trial fills caches under `caches/<id>/` of the run folder; its result is not counted anywhere. Each trial that
follows begins with a copy of them, so none is warmer for the trials before it. With fixed sizes what the pipeline compiles
does not depend on the lock, so all its strategies begin with the same caches, filled under one that lets no compile fail.
Cold and warm trials are different scenarios, so they are never pooled.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from harness.core.errors import RunFolderError
from harness.core.outcome import OK
from harness.core.scenario import Scenario

from .request import Executor, OnStart, Row, TrialRequest

FOLDER = "caches"
PRIMED = "primed"
UNFIT = "unfit"
"""Of a filling for all locks that failed: each scenario is primed by itself."""
OWN = "cache"
"""In a trial's folder: its caches, until it has ended."""


class WarmCaches:
    """The warm caches of one run folder.

    `apart`: filled for every scenario by itself, for where several processes run scenarios of the folder at the same time.
    """

    def __init__(self, run_dir: Path, *, apart: bool = False) -> None:
        self._base = run_dir.resolve() / FOLDER
        self._apart = apart

    def use(self, request: TrialRequest) -> TrialRequest:
        """The request, told which caches it begins with if it wants warm ones."""
        if request.scenario.cache != "warm":
            return request
        filled = str(self._base / self._filled_by(request).id / OWN)
        return dataclasses.replace(request, extra={**request.extra, "cache_from": filled})

    def prime(self, requests: Iterable[TrialRequest], executor: Executor) -> None:
        """Run one trial for each of the caches that are not filled yet; where that failed for all, one for each scenario."""
        warm = [request for request in requests if request.scenario.cache == "warm"]
        for _ in ("for all", "for each"):
            missing: dict[str, TrialRequest] = {}
            for request in warm:
                scenario = self._filled_by(request)
                folder = self._base / scenario.id
                if not ((folder / PRIMED).exists() and (folder / OWN).is_dir()):
                    missing.setdefault(scenario.id, dataclasses.replace(request, scenario=scenario))
            if missing:
                self._fill(missing, {request.scenario.id for request in warm}, executor)

    def _fill(self, missing: Mapping[str, TrialRequest], own: Collection[str], executor: Executor) -> None:
        primers = []
        for name, request in missing.items():
            folder = self._base / name
            shutil.rmtree(folder, ignore_errors=True)  # half-filled by a run that was killed
            (folder / "trial").mkdir(parents=True)
            (folder / OWN).mkdir()
            extra = {**request.extra, "cache_dir": str(folder / OWN)}
            primers.append(
                dataclasses.replace(request, trial_id=f"prime-{name}", folder=folder / "trial", extra=extra)
            )
        outcomes: dict[str, str] = {}
        executor.run(primers, lambda _: None, lambda row: outcomes.update({row["trial"]: row["outcome"]}))
        for name in missing:
            # What fails as its own trials will has compiled what these compile.
            failed = outcomes.get(f"prime-{name}") != OK and name not in own
            (self._base / name / (UNFIT if failed else PRIMED)).touch()

    def _filled_by(self, request: TrialRequest) -> Scenario:
        """Which scenario's priming trial fills the caches of this one.

        Its own: of a workload of one's own, which may hang under another lock; of CUDA-graph trees, which no lock makes safe
        in several threads; and with dynamic shapes "auto", where who comes first decides what is compiled.
        """
        own = request.scenario
        alone = self._apart or own.workload != "dflash" or own.cudagraphs == "trees"
        if alone or request.pipeline.get("dynamic") == "auto":
            return own
        shared = own.replace(lock="every_step", lock_owner=Scenario().lock_owner, schedule="none")
        return own if (self._base / shared.id / UNFIT).exists() else shared


class PrimedExecutor:
    """An executor for trials that no run has primed: replays, orders of a search, plans of a case.

    One that wants warm caches begins with a copy of those that it is told of, as long as they are there, else of some that
    are filled under `folder` first, by a trial without its schedule.
    """

    def __init__(self, executor: Executor, folder: Path) -> None:
        self._executor = executor
        self._caches = WarmCaches(folder)

    def run(self, trials: Sequence[TrialRequest], on_start: OnStart, on_row: Callable[[Row], None]) -> None:
        """As the executor does; of priming trials nothing is told."""
        primers = {trial.trial_id: _unscheduled(trial) for trial in trials if _wants_caches(trial)}
        self._caches.prime(primers.values(), self._executor)
        ready = []
        for trial in trials:
            primer = primers.get(trial.trial_id)
            told = {} if primer is None else {"cache_from": self._caches.use(primer).extra["cache_from"]}
            ready.append(dataclasses.replace(trial, extra={**trial.extra, **told}))
        self._executor.run(ready, on_start, on_row)

    def close(self) -> None:
        """As the executor does."""
        self._executor.close()


def _wants_caches(request: TrialRequest) -> bool:
    told = request.extra.get("cache_from")
    return request.scenario.cache == "warm" and not (isinstance(told, str) and Path(told).is_dir())


def _unscheduled(request: TrialRequest) -> TrialRequest:
    """For its priming trial: a plan, a recording or a seed would only disturb that."""
    return dataclasses.replace(request, scenario=request.scenario.replace(schedule="none"), extra={})


def begin_with(request: TrialRequest) -> Path:
    """The folder of the caches that a trial is to use, with what it begins with. Raises RunFolderError: no room for a copy."""
    own = Path(request.extra.get("cache_dir", request.folder.resolve() / OWN))
    filled = request.extra.get("cache_from")
    if filled and Path(filled).exists():  # where priming failed, there may be nothing
        try:
            shutil.copytree(filled, own, symlinks=True)
        except OSError as error:  # shutil's own error has one for each file
            shutil.rmtree(own, ignore_errors=True)
            why = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
            said = f"{own}: warm caches cannot be copied there: {why}; make room and go on with --resume"
            raise RunFolderError(said) from error
    return own
