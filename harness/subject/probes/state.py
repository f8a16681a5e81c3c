"""Sync points that only a schedule wants to hear of: state that torch saves, draws, settings read and set.

Without a schedule none of these is installed, and torch runs as it is.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from harness.torch_internals.base import Availability
from harness.torch_internals.compiling_read import CompilingRead
from harness.torch_internals.cuda_capture import CudaCapture
from harness.torch_internals.dynamo_state import ConfigRead, StanceSet
from harness.torch_internals.eager_operators import EagerOperators
from harness.torch_internals.passing import PassingSink
from harness.torch_internals.rng_draw import RngDraw
from harness.torch_internals.saved_globals import SavedGlobals

from .base import MakeProbe, Quiet, Scope, said


class _Adapter(Protocol):
    name: str

    def install(self, sink: PassingSink) -> Availability: ...


class PointProbe(Quiet):
    """Passes an adapter's points on."""

    def __init__(self, make: type[_Adapter], scope: Scope) -> None:
        self._adapter = make()
        self._points = scope.points
        self._threads = scope.threads
        self.name = self._adapter.name

    def install(self) -> str:
        """ "" where no schedule listens."""
        return said(self._adapter.install(self)) if self._points.on else ""

    def passing(self, point: str, info: str) -> None:
        """On the thread that is there. What a compile draws it draws from fakes: the generator stays as it was."""
        if point == "rng.draw" and self._threads.current().compiling:
            return
        self._points.reach(point, info)


_ADAPTERS: tuple[type[_Adapter], ...] = (
    SavedGlobals,
    RngDraw,
    CompilingRead,
    StanceSet,
    ConfigRead,
    EagerOperators,
    CudaCapture,
)
POINT_PROBES: tuple[MakeProbe, ...] = tuple(partial(PointProbe, make) for make in _ADAPTERS)
