"""What all adapters share: `Availability`, attribute patches, and keeping Dynamo away from hooks.

Private names: `torch._C._dynamo.eval_frame.{get_eval_frame_callback, set_eval_frame,
set_code_exec_strategy, _FrameAction, _FrameExecStrategy}`; verified on torch 2.11, 2.12.1, 2.13 and 2.14.1.
They have been there since 2.6; without them importing this module fails, since no hook could be made safe.

Why Dynamo matters here: while a compiled callable runs, its thread evaluates *every* Python frame through
Dynamo. A hook called in that state would be compiled itself (which takes the compile lock, counts as a
compile, and folds `is_dynamo_compiling()` to True), so each wrapper frame is `hide`-d, and what a sink does
is called through `quiet`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Protocol, TypeVar

import torch

_SinkT = TypeVar("_SinkT", contravariant=True)
_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])

_eval_frame: Any = torch._C._dynamo.eval_frame
_SKIP_THIS_FRAME_ONLY = _eval_frame._FrameExecStrategy(
    _eval_frame._FrameAction.SKIP, _eval_frame._FrameAction.DEFAULT
)


@dataclass(frozen=True)
class Availability:
    """Whether an adapter works on this torch; `reason` says why not, or what to know if it does."""

    ok: bool
    reason: str = ""


AVAILABLE = Availability(True)


class Adapter(Protocol[_SinkT]):
    """The common shape. `install` on an installed adapter raises RuntimeError; `uninstall` is idempotent."""

    name: str

    def install(self, sink: _SinkT) -> Availability: ...

    def uninstall(self) -> None: ...


def nothing(*_args: object) -> None:
    """The callback of an adapter that is not installed."""


def missing(owner: str, *names: str) -> Availability:
    """The answer of an adapter whose private names this torch does not have."""
    return Availability(False, f"torch {torch.__version__} has no {', '.join(f'{owner}.{n}' for n in names)}")


def hide(function: _FunctionT) -> _FunctionT:
    """Makes Dynamo never compile frames of `function`, by code object; frames below are not affected.

    It does not hide the function from tracing: a function that is *inlined* is traced as before.
    """
    assert isinstance(function, FunctionType)
    _eval_frame.set_code_exec_strategy(function.__code__, _SKIP_THIS_FRAME_ONLY)
    return function


def quiet(callback: Callable[..., None]) -> Callable[..., None]:
    """`callback`, called with Dynamo's frame evaluation switched off in this thread for its duration.

    Costs one Python call and one C call when no compiled callable is running above. Exceptions pass.
    """
    current: Callable[[], Any] = _eval_frame.get_eval_frame_callback
    switch: Callable[[Any], Any] = _eval_frame.set_eval_frame

    def call(*args: object) -> None:
        prior = current()
        if prior is None:
            callback(*args)
            return
        switch(None)
        try:
            callback(*args)
        finally:
            switch(prior)

    return hide(call)


class Patch:
    """One attribute of a module, class or object, replaced.

    `remove` puts the original back only where the replacement is still in place. Where somebody has wrapped
    it since, it stays in their chain; an uninstalled wrapper must therefore pass everything through.
    """

    def __init__(self, owner: Any, attribute: str, replacement: object) -> None:
        self._owner, self._attribute, self._replacement = owner, attribute, replacement
        self._original = getattr(owner, attribute)
        setattr(owner, attribute, replacement)

    def remove(self) -> None:
        if getattr(self._owner, self._attribute) is self._replacement:
            setattr(self._owner, self._attribute, self._original)


class Patches:
    """The patches of one adapter, removed in reverse order."""

    def __init__(self) -> None:
        self._made: list[Patch] = []

    def __bool__(self) -> bool:
        return bool(self._made)

    def refuse_second_install(self, name: str) -> None:
        """Raises RuntimeError if something is installed: two sinks of one adapter would hide each other."""
        if self._made:
            raise RuntimeError(f"the adapter {name!r} is installed already; uninstall it first")

    def set(self, owner: Any, attribute: str, replacement: object) -> None:
        self._made.append(Patch(owner, attribute, replacement))

    def remove(self) -> None:
        while self._made:
            self._made.pop().remove()
