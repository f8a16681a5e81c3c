"""`result.json`: what a trial came to, by the subject's own account. Written once, last and atomically."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.causes import labels_by_time, mark_consequences
from harness.core.outcome import primary
from harness.core.scenario import Scenario

from . import out_of_memory
from .record import Trial

NO_STEP = "no worker took a step: a workload tells of each with ctx.step(…), or with ctx.step_failed(…)"


def outcomes(
    trial: Trial, scenario: Scenario, stuck: str, torch_version: str = "", ran: bool = False
) -> tuple[list[str], str]:
    """The labels, earliest cause first and consequences left out, and the reason for those that are no exception.

    `ran`: all workers have ended. Where nothing went wrong then, and no step was taken, nothing was learnt.
    """
    mark_consequences(trial.errors, torch_version)
    dense = sum(tally.dense_calls for tally in trial.workers.values()) + trial.other_dense_calls
    dense_ns = trial.first_dense_ns or 0 if dense and scenario.compile != "none" else None
    labels = labels_by_time(trial.errors, [(at, label) for at, label, _ in trial.problems], dense_ns)
    if stuck:
        labels.append(stuck)
    reason = "; ".join(text for _, _, text in trial.problems[:5])
    if ran and not labels and not any(t.steps_ok or t.steps_failed for t in trial.workers.values()):
        return ["setup_error"], NO_STEP
    return labels or ["ok"], reason


def build(
    trial: Trial,
    scenario: Scenario,
    *,
    stuck: tuple[str, str],
    probes: Mapping[str, str],
    extra: Mapping[str, Any],
    torch_version: str,
    ran: bool = False,
    stopped: str = "",
) -> dict[str, Any]:
    """The whole document. `stuck`: label and reason of a deadlock or hang, or two empty texts; `ran`: all workers have
    ended; `stopped`: why they have not, where that was wanted; `extra`: keys beside, among them `memory`, the peaks by
    device."""
    labels, reason = outcomes(trial, scenario, stuck[0], torch_version, ran)
    reason = stuck[1] or reason or (stopped if labels == ["ok"] else "")
    if out_of_memory.LABEL in labels:
        peak = out_of_memory.reason(extra.get("memory", {}))
        parts = [peak, reason] if primary(labels) == out_of_memory.LABEL else [reason, peak]
        reason = "; ".join(part for part in parts if part)
    startup, rate = trial.window()
    steppers = trial.steppers()
    return {
        "schema": 1,
        "outcomes": labels,
        "outcome": primary(labels),
        "reason": reason,
        "fx_errors": sum(1 for e in trial.errors if e.label == "fx_error"),
        "dense_calls": sum(t.dense_calls for t in trial.workers.values()) + trial.other_dense_calls,
        "compiles": sum(t.compiles for t in trial.workers.values()) + trial.other_compiles,
        "startup_s": startup,
        "tokens_per_s": rate,
        "steps_ok": sum(t.steps_ok for t in steppers),
        "steps_failed": sum(t.steps_failed for t in steppers),
        "steps_expected": scenario.steps * scenario.drafters,
        "errors": [error.as_json() for error in trial.errors],
        "errors_dropped": trial.errors_dropped,
        "problems": [{"label": label, "text": text} for _, label, text in trial.problems],
        "workers": {name: tally.as_json() for name, tally in sorted(trial.workers.items())},
        "probes": dict(probes),
        "torch": torch_version,
        "python": platform.python_version(),
        **extra,
    }


def write(folder: Path, document: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    partial = folder / "result.part"
    partial.write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
    os.replace(partial, folder / "result.json")
