"""What a user names (a hazard, a file) → the case to reproduce, and the folder its trials land in."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from harness.control.rundir import default_folder, is_run_folder
from harness.core.case import Case, read_case
from harness.core.errors import RunFolderError, UserError


def find_case(name: str, *, lock: str | None, where: str | None) -> Case:
    """The case of a hazard's small program or of the pipeline (`where`; None: as fits), or of a file.

    Raises UserError: no such hazard (the nearest is named) or file, no such lock, or no case for the pipeline.
    """
    if name.endswith(".json") or "/" in name:
        if where is not None:
            raise UserError("--in: a file says itself what it runs; leave the option out")
        case = read_case(Path(name))
    else:
        from harness import hazards

        hazard = hazards.find(name)
        wants_pipeline = where == "pipeline" or (where is None and lock is not None and hazard.in_pipeline)
        if wants_pipeline and not hazard.in_pipeline:
            raise UserError(f"{name}: it cannot occur in the pipeline; leave out --in, or use --in program")
        case = hazard.pipeline_case() if wants_pipeline else hazard.program_case()
    if lock is not None:
        case = dataclasses.replace(case, scenario=case.scenario.replace(lock=lock))
    return case


def trials_folder(out: Path | None, name: str) -> Path:
    """A new folder for trials. Raises RunFolderError when the one that was asked for is in use or cannot be made."""
    folder = out or default_folder(name)
    if folder.exists() and (is_run_folder(folder) or any(folder.iterdir())):
        raise RunFolderError(f"{folder} is not empty: choose another folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"cannot make {folder}: {error.strerror}; choose another with --out") from error
    return folder
