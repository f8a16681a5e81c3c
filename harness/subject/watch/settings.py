"""What the control side tells a watched process: one JSON file, named by an environment variable."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "HARNESS_WATCH"


@dataclass(frozen=True)
class Settings:
    """`run`: the run folder. `path`: PYTHONPATH as the user had it, None where there was none. Times in seconds.

    `control`: the process number of the control side, which may read the stacks of this process; 0 for nobody.
    """

    file: Path
    run: Path
    path: str | None
    follow: bool
    hang_timeout_s: float
    live: bool
    control: int = 0


def read_settings(file: Path) -> Settings:
    """The settings in `file`, which the control side wrote a moment ago."""
    found = json.loads(file.read_text(encoding="utf-8"))
    return Settings(
        file,
        Path(found["run"]),
        found["path"],
        bool(found["follow"]),
        float(found["hang_timeout_s"]),
        bool(found["live"]),
        int(found["control"]),
    )


def clean_environment(settings: Settings) -> None:
    """Leave no trace of the watch to children: they start as they would have started without it."""
    os.environ.pop(VARIABLE, None)
    if settings.path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = settings.path
