"""Warm compiler caches: `cache = "warm"` means that somebody has compiled this scenario before, and never the trial itself.

For each such scenario one priming trial fills caches of the scenario's own, under `caches/<id>/` of the run folder; its
result is not counted anywhere. The trials that follow share those caches. Cold and warm trials are different scenarios,
so they are never pooled.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterable
from pathlib import Path

from .request import Executor, TrialRequest

FOLDER = "caches"
PRIMED = "primed"


class WarmCaches:
    """The warm caches of one run folder."""

    def __init__(self, run_dir: Path) -> None:
        self._base = run_dir.resolve() / FOLDER

    def use(self, request: TrialRequest) -> TrialRequest:
        """The request, told where its caches are if it wants warm ones."""
        if request.scenario.cache != "warm":
            return request
        folder = str(self._base / request.scenario.id)
        return dataclasses.replace(request, extra={**request.extra, "cache_dir": folder})

    def prime(self, requests: Iterable[TrialRequest], executor: Executor) -> None:
        """Run one trial for each scenario whose caches are not filled yet."""
        missing: dict[str, TrialRequest] = {}
        for request in requests:
            name = request.scenario.id
            if request.scenario.cache == "warm" and not (self._base / name / PRIMED).exists():
                missing.setdefault(name, request)
        primers = []
        for name, request in missing.items():
            folder = self._base / name
            shutil.rmtree(folder, ignore_errors=True)  # half-filled by a run that was killed
            (folder / "trial").mkdir(parents=True)
            primer = dataclasses.replace(request, trial_id=f"prime-{name}", folder=folder / "trial")
            primers.append(self.use(primer))
        if primers:
            executor.run(primers, lambda _: None, lambda _: None)
        for name in missing:
            (self._base / name / PRIMED).touch()
