"""The pipeline with the remedy of `cudagraph-importer-ends`: drafters take the references that torch 2.11 does not take.

Imported by subjects, through `tests/soak/importer_ends.matrix`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

from harness.core.workload import Worker
from harness.pipeline import Pipeline
from harness.subject.programs.tree_references import take_references


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
