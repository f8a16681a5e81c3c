"""The files and folders that `[pipeline]` names, looked for before any trial."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.core.errors import SettingError, nearest, show
from harness.core.matrix import Matrix
from harness.core.scenario import Scenario

WORKLOAD = "dflash"
_MODELS = ("target_model", "drafter_model", "tokenizer")


def check_paths(matrix: Matrix, scenarios: Iterable[Scenario]) -> None:
    """Raises SettingError: a path of the table is not there, as seen from the current folder, where trials run too.

    Only for scenarios of the pipeline that is shipped: the keys of another workload are its own.
    """
    if not any(scenario.workload == WORKLOAD for scenario in scenarios):
        return
    for key in ("data", *_MODELS):
        value = str(matrix.pipeline.get(key, ""))
        if not value or (key, value) == ("tokenizer", "bytes"):
            continue
        path = Path(value).expanduser()
        wanted = "file or folder" if key == "data" else "folder"
        if path.exists() if key == "data" else path.is_dir():
            continue
        there = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
        origin = "" if path.is_absolute() else f", looked up from {Path.cwd()}"
        raise SettingError(
            f'{matrix.file}: [pipeline] key "{key}": no {wanted} {show(value)}{nearest(path.name, there)}{origin}; '
            "give an absolute path, or run harness from the folder that it starts in"
        )
