"""Find out why multi-threaded ``torch.compile`` training breaks, and which lock strategy is safe."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from harness.frames import Run

__version__ = "0.1.0"


def load(run_dir: str | Path) -> Run:
    """A run folder as pandas frames: ``trials``, ``errors``, and ``events`` by trial.

    Raises RunFolderError (``harness.core.errors``): it is none, is damaged, or a newer harness wrote it.
    """
    from harness.frames import load_run  # pandas takes its time, and few who import this need it

    return load_run(run_dir)
