"""The moment at which a compiled callable asks whether an FX trace is going on.

Private name: `torch.fx._symbolic_trace.is_fx_symbolic_tracing`, through `fx_flag`. Verified on torch 2.11,
2.12.1, 2.13 and 2.14.1. Missing: unavailable.

`check_enter()` comes right before the flag is read, `checked(answer)` right after, both on the calling thread
with Dynamo's frame evaluation off (the wrapper of a compiled callable has switched it off by then). A True
answer is followed by the "Detected that you are using FX" error, or by running uncompiled where
`error_on_nested_fx_trace` is off. Compiled callables made before `install` are reported too. Only checks by
Dynamo's callables are reported, not those of `torch.export`'s unflattened modules.
A call that Dynamo inlines while it traces a caller makes no check, and is not reported.
"""

from __future__ import annotations

from harness.torch_internals.base import AVAILABLE, Availability
from harness.torch_internals.fx_flag import SEAT, CheckObserver

FlagCheckSink = CheckObserver


class FlagCheck:
    """Calls a `FlagCheckSink` twice for each call of a compiled callable."""

    name = "flag_check"

    def __init__(self) -> None:
        self._sink: FlagCheckSink | None = None

    def install(self, sink: FlagCheckSink) -> Availability:
        if SEAT.observer is not None:
            raise RuntimeError("the adapter 'flag_check' is installed already; uninstall it first")
        if SEAT.unavailable:
            return Availability(False, SEAT.unavailable)
        SEAT.use_observer(sink)
        self._sink = sink
        return AVAILABLE

    def uninstall(self) -> None:
        if self._sink is not None:
            self._sink = None
            SEAT.use_observer(None)
