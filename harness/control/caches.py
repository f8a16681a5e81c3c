"""Warm compiler caches: `cache = "warm"` means that somebody has compiled this scenario before, and never the trial itself.

A priming trial fills caches under `caches/<id>/` of the run folder; its result is not counted anywhere. Each trial that
follows begins with a copy of them, so none is warmer for the trials before it. What the pipeline compiles does not depend on
the lock, so all its strategies begin with the same caches, filled under one that lets no compile fail. Cold and warm trials
are different scenarios, so they are never pooled.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable
from pathlib import Path

from harness.core.scenario import Scenario

from .request import Executor, TrialRequest

FOLDER = "caches"
PRIMED = "primed"
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
        filled = str(self._base / self._filled_by(request.scenario).id / OWN)
        return dataclasses.replace(request, extra={**request.extra, "cache_from": filled})

    def prime(self, requests: Iterable[TrialRequest], executor: Executor) -> None:
        """Run one trial for each of the caches that are not filled yet."""
        missing: dict[str, TrialRequest] = {}
        for request in requests:
            if request.scenario.cache == "warm":
                scenario = self._filled_by(request.scenario)
                if not (self._base / scenario.id / PRIMED).exists():
                    missing.setdefault(scenario.id, dataclasses.replace(request, scenario=scenario))
        primers = []
        for name, request in missing.items():
            folder = self._base / name
            shutil.rmtree(folder, ignore_errors=True)  # half-filled by a run that was killed
            (folder / "trial").mkdir(parents=True)
            extra = {**request.extra, "cache_dir": str(folder / OWN)}
            primers.append(
                dataclasses.replace(request, trial_id=f"prime-{name}", folder=folder / "trial", extra=extra)
            )
        if primers:
            executor.run(primers, lambda _: None, lambda _: None)
        for name in missing:
            (self._base / name / PRIMED).touch()

    def _filled_by(self, scenario: Scenario) -> Scenario:
        """Which scenario's priming trial fills the caches of this one. A workload of one's own may hang under another lock."""
        if self._apart or scenario.workload != "dflash":
            return scenario
        return scenario.replace(lock="every_step", lock_owner=Scenario().lock_owner, schedule="none")


def begin_with(request: TrialRequest) -> Path:
    """The folder of the caches that a trial is to use, with what it begins with."""
    own = Path(request.extra.get("cache_dir", request.folder.resolve() / OWN))
    filled = request.extra.get("cache_from")
    if filled and Path(filled).exists():  # a priming trial that failed may have left nothing
        shutil.copytree(filled, own)
    return own
