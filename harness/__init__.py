"""Find out why multi-threaded ``torch.compile`` training breaks, and which lock strategy is safe.

PYTEST_DONT_REWRITE: under `harness watch` this is imported before pytest, which else warns that it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from harness.frames import Run

__version__ = "0.1.0"

_regions: Callable[[str, str], AbstractContextManager[None]] | None = None


class _Nowhere:
    """The region of a program that nobody watches."""

    __slots__ = ()

    def __enter__(self) -> None:
        return

    def __exit__(self, *_: object) -> None:
        return


_NOWHERE = _Nowhere()


def region(name: str, worker: str = "") -> AbstractContextManager[None]:
    """A named stretch of a program's step, for `harness watch`: `with harness.region("forward"):`.

    `worker` is the thread's name unless given. Where nobody watches it does nothing, at the cost of a call.
    """
    return _NOWHERE if _regions is None else _regions(name, worker)


def watch_regions(regions: Callable[[str, str], AbstractContextManager[None]] | None) -> None:
    """From now on `region` makes what `regions` makes; None: nothing."""
    global _regions
    _regions = regions


def load(run_dir: str | Path) -> Run:
    """A run folder as pandas frames: ``trials``, ``errors``, and ``events`` by trial.

    Raises RunFolderError (``harness.core.errors``): it is none, is damaged, or a newer harness wrote it.
    """
    from harness.frames import load_run  # pandas takes its time, and few who import this need it

    return load_run(run_dir)
