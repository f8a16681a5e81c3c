"""What a user names (a hazard, a file) → the case to reproduce, and the folder its trials land in."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from harness.control.rundir import default_folder, is_run_folder
from harness.core.case import Case, Reproducible, read_case
from harness.core.errors import RunFolderError, UserError
from harness.hazards import find

_PROGRAMS = "harness.subject.programs."

def find_case(name: str, *, lock: str | None, where: str | None) -> Case:
    """The case of a hazard's small program or of the pipeline (`where`; None: as fits), or of a file.

    Raises UserError: no such hazard (the nearest is named) or file, no such lock, or no case for the pipeline.
    """
    if name.endswith(".json") or "/" in name:
        if where is not None:
            raise UserError("--in: a file says itself what it runs; leave the option out")
        case = read_case(Path(name))
    else:
        case = _hazards_case(find(name), name, lock=lock, where=where)
    if lock is not None:
        case = dataclasses.replace(case, scenario=case.scenario.replace(lock=lock))
    return case


def on_device(case: Case, device: str) -> Case:
    """The case with its axis `devices` replaced, as in "cuda:0".

    Raises UserError: no such device can be named, or its small program is of the CPU alone, or of devices alone.
    """
    moved = dataclasses.replace(case, scenario=case.scenario.replace(devices=device))
    program = case.scenario.workload.startswith(_PROGRAMS)
    if program and "cpu" in (case.scenario.devices, device) and case.scenario.devices != device:
        own = "on the CPU" if case.scenario.devices == "cpu" else "on a device that autograd has a thread for"
        raise UserError(
            f"--device {device}: the small program of {case.name} runs {own} ({case.scenario.devices}); "
            "leave the option out, or try --in pipeline"
        )
    return moved


def _hazards_case(hazard: Reproducible, name: str, *, lock: str | None, where: str | None) -> Case:
    """Strategies lock regions of a training step, so with a lock the pipeline is meant, where the hazard occurs there."""
    order = ("pipeline", "program") if lock is not None else ("program", "pipeline")
    for place in order if where is None else (where,):
        case = hazard.case(place)
        if case is not None:
            return case
    raise UserError(f"{name}: it does not occur in the {where}; leave out --in, or choose the other one")


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
