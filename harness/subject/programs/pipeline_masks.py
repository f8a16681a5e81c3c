"""The DFlash pipeline with marks at the sort inside `create_block_mask`, where torch passes no sync point. CPU."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

from harness.core.workload import Context, Scenario
from harness.pipeline import Pipeline

from .fx_globals import AtSort


class MarkedMasks(Pipeline):
    """As `Pipeline`; each drafter marks `sorting` and `sorted` while it builds its mask, which must not be compiled."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        """Builds the pipeline with a context that watches its region `mask`."""
        super().setup(scenario, cast(Context, _MarkingContext(ctx)))


class _MarkingContext:
    """As the context it is given, but for one region."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    @contextmanager
    def region(self, name: str, worker: str, key: Hashable = None) -> Iterator[None]:
        with self._ctx.region(name, worker, key):
            if name != "mask":
                yield
                return
            with AtSort(partial(self._ctx.mark, worker)):
                yield
