"""The pipeline with the remedy of `cudagraph-importer-ends`: drafters take the references that torch 2.11 does not take.

Imported by subjects, through `tests/soak/importer_ends.matrix`.
"""

from __future__ import annotations

import ctypes
import dataclasses
import sys
from collections.abc import Callable
from functools import partial

from harness.core.workload import Worker
from harness.pipeline import Pipeline

TREES = "torch._inductor.cudagraph_trees"
NAMES = ("tree_manager_containers", "tree_manager_locks")


class Cured(Pipeline):
    """As the pipeline, but for the end of its drafters."""

    def workers(self) -> list[Worker]:
        """Those of the pipeline; a drafter's thread takes the references when it is through, however it ends."""
        return [_cured(worker) if worker.role == "drafter" else worker for worker in super().workers()]


def _cured(worker: Worker) -> Worker:
    return dataclasses.replace(worker, run=partial(_ending_with_references, worker.run))


def _ending_with_references(run: Callable[[], None]) -> None:
    try:
        run()
    finally:
        take_references()


def take_references() -> int:
    """One to each dictionary that this thread has put into torch's thread-local storage; to how many.

    Only the thread that imported the module has any.
    """
    trees = sys.modules.get(TREES)
    held = [getattr(trees.local, name) for name in NAMES if trees is not None and hasattr(trees.local, name)]
    for dictionary in held:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(dictionary))
    return len(held)
