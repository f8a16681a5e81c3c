"""What the control side asks an executor for, and the file it hands to the subject."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from harness.core.scenario import Scenario

SPEC_SCHEMA = 1
Row = dict[str, Any]


@dataclass(frozen=True)
class TrialRequest:
    """One trial to run. `folder` exists and is the trial's own; times are seconds."""

    trial_id: str
    scenario: Scenario
    repeat: int
    folder: Path
    pipeline: Mapping[str, Any] = field(default_factory=dict)
    timeout_s: float = 300.0
    hang_timeout_s: float = 30.0
    probes: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)

    def write_spec(self) -> Path:
        """Write `spec.json` into the folder and say where it is."""
        path = self.folder / "spec.json"
        spec = {
            "schema": SPEC_SCHEMA,
            "trial": self.trial_id,
            "scenario": self.scenario.to_dict(),
            "repeat": self.repeat,
            "folder": str(self.folder.resolve()),
            "pipeline": dict(self.pipeline),
            "hang_timeout_s": self.hang_timeout_s,
            "probes": self.probes,
            "extra": dict(self.extra),
        }
        path.write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
        return path


OnStart = Callable[[TrialRequest], bool | None]
"""Told of a trial before it starts. It may say False: not needed any more. Then it does not start, and has no row."""


class Executor(Protocol):
    """Runs trials, each in a fresh process, and reports a row for each as it ends."""

    def run(
        self,
        trials: Sequence[TrialRequest],
        on_start: OnStart,
        on_row: Callable[[Row], None],
    ) -> None:
        """Run all; on KeyboardInterrupt end what runs (rows `interrupted`) and raise it again."""

    def close(self) -> None:
        """End every process that is left."""
