"""The start server with subjects that import no torch and end after a few milliseconds.

What a subject reports depends on its trial's name alone, so two runs of one matrix have the same summary. Each subject
notes in `started.txt`, beside the run folder, that it was started.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import types
from pathlib import Path
from typing import Any

from harness.subject import server

ENTRY = "harness.subject.entry"


def write_python(path: Path) -> Path:
    """An interpreter for `harness run --python`: this one, but for the start server, which is this file."""
    path.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        f'  *harness.subject.server*) shift 2; exec "{sys.executable}" "{Path(__file__).resolve()}" "$@" ;;\n'
        f'  *) exec "{sys.executable}" "$@" ;;\n'
        "esac\n"
    )
    path.chmod(0o755)
    return path


def result_of(trial: str) -> dict[str, Any]:
    """What the subject of a trial reports."""
    chance = random.Random(trial)
    reference = trial.startswith("reference-")  # which this workload does not have
    label = "skipped" if reference else chance.choice(["ok", "ok", "ok", "fx_error", "dense"])
    return {
        "schema": 1,
        "outcomes": [label],
        "outcome": label,
        "reason": "",
        "fx_errors": int(label == "fx_error"),
        "dense_calls": chance.randint(1, 9) if label == "dense" else 0,
        "compiles": chance.randint(1, 4),
        "startup_s": chance.random() if label == "ok" else None,
        "tokens_per_s": chance.random() if label == "ok" else None,
        "errors": [],
        "workers": {},
        "torch": "2.13.0+cpu",
    }


def run_trial(path: Path) -> int:
    """As `harness.subject.entry.run_trial`."""
    spec = json.loads(path.read_text())
    folder = Path(spec["folder"])
    with open(folder.parents[2] / "started.txt", "a") as file:
        file.write(spec["trial"] + "\n")
    (folder / "ready").touch()
    time.sleep(random.Random(spec["trial"]).uniform(0.0, 0.03))
    partial = folder / "result.part"
    partial.write_text(json.dumps(result_of(spec["trial"])))
    os.replace(partial, folder / "result.json")
    return 0


if __name__ == "__main__":
    entry = types.ModuleType(ENTRY)
    entry.run_trial = run_trial  # type: ignore[attr-defined]
    sys.modules[ENTRY] = entry
    server.preload = lambda kind: ("2.13.0+cpu", True, "")
    server.main()
