"""State of the whole process that a frame compile saves and puts back, although somebody changed it in between.

Private names: `torch._dynamo.convert_frame.setup_compile_debug`, which torch calls right after it saved (torch's random
generators, default dtype, deterministic algorithms, float32 matmul precision), and the `close` of what it returns, called
right before it puts them back (see `saved_globals`, whose account of the order this relies on). Verified on torch 2.11,
2.13 and 2.14.1. Missing: unavailable.

A draw or a setting of another thread between the two is undone: its random numbers come again. The compile itself may
draw too (an autotuner's inputs); who called this has to know whether there was another thread.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Protocol

import torch

from harness.torch_internals.base import AVAILABLE, Availability, Patches, hide, missing, nothing, quiet

_MODULE, _NAME = "torch._dynamo.convert_frame", "setup_compile_debug"
GENERATOR = "the state of torch's random generator"


class CompileStateSink(Protocol):
    def saving(self) -> None:
        """A compile has saved the state."""

    def undone(self, what: str, before: str, now: str) -> None:
        """`what` is about to be put back from `now` to `before`; both "" for a generator."""


def snapshot() -> dict[str, Any]:
    """What holds in the process now. Two copies of a generator's state of 5 KB: for compiles, not for steps."""
    found: dict[str, Any] = {
        "the default dtype": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "the float32 matmul precision": torch.get_float32_matmul_precision(),
        GENERATOR: torch.default_generator.get_state(),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        for index, generator in enumerate(torch.cuda.default_generators):
            found[f"the state of cuda:{index}'s random generator"] = (generator.initial_seed(), generator.get_offset())
    return found


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(what, before, now) of all that changed."""
    changed = []
    for what, was in before.items():
        if isinstance(was, torch.Tensor):
            if was.tolist() != now[what].tolist():
                changed.append((what, "", ""))
        elif now.get(what) != was:
            seen = ("", "") if isinstance(was, tuple) else (str(was), str(now.get(what)))
            changed.append((what, *seen))
    return changed


class _Cleanup:
    """What `setup_compile_debug` returns, with a comparison before it is closed."""

    def __init__(self, inner: Any, before: dict[str, Any], compare: Callable[..., None]) -> None:
        self._inner, self._before, self._compare = inner, before, compare

    def close(self) -> None:
        self._compare(self._before)
        self._inner.close()


hide(_Cleanup.__init__)
hide(_Cleanup.close)


class CompileState:
    """Calls a `CompileStateSink` on the thread that compiled."""

    name = "compile_state"

    def __init__(self) -> None:
        self._patches = Patches()
        self._compare: Callable[..., None] = nothing
        self._save: Callable[..., None] = nothing

    def install(self, sink: CompileStateSink) -> Availability:
        self._patches.refuse_second_install(self.name)
        module: Any = importlib.import_module(_MODULE)
        if not hasattr(module, _NAME):
            return missing(_MODULE, _NAME)
        original: Callable[[], Any] = module.setup_compile_debug

        def save(into: dict[str, Any]) -> None:
            into.update(snapshot())
            sink.saving()

        def compare(before: dict[str, Any]) -> None:
            for what, was, now in differences(before, snapshot()) if before else ():
                sink.undone(what, was, now)

        self._save, self._compare = quiet(save), quiet(compare)

        @functools.wraps(original)
        def setup_compile_debug() -> _Cleanup:
            cleanup = original()
            before: dict[str, Any] = {}
            self._save(before)
            return _Cleanup(cleanup, before, self._compare)

        self._patches.set(module, _NAME, hide(setup_compile_debug))
        return AVAILABLE

    def uninstall(self) -> None:
        self._patches.remove()
        self._save = self._compare = nothing
