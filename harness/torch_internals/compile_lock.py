"""Dynamo's compile lock, made to say who waits for it, who holds it and how deep.

Private name: `torch._dynamo.convert_frame.compile_lock`. Verified on torch 2.11, 2.12.1, 2.13 and 2.14.1.
Missing, or no re-entrant lock: unavailable.

Who takes it: Dynamo's frame callback (a global of `convert_frame`), `torch._dynamo.reset` and
`reset_code_caches` (an attribute of `convert_frame`), and inductor's lowering of a backward graph (`from …
import` in the body of `compile_fx_backward`). All look it up when they run, so replacing the attribute is
enough; names bound in other modules before `install` are found by identity and replaced as well, and a module
that imports the name later gets the recording lock. The recording lock wraps *the same* inner lock: a thread
that took it through a copy we did not find still excludes everybody else, and is merely not named as owner.

The lazy lowering of the `aot_eager` backend takes no compile lock: only inductor's does.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

from harness.torch_internals.base import AVAILABLE, Availability, Patches, hide, missing, nothing, quiet

_MODULE, _NAME = "torch._dynamo.convert_frame", "compile_lock"


class CompileLockSink(Protocol):
    def compile_lock_wait(self) -> None: ...

    def compile_lock_acquired(self) -> None: ...

    def compile_lock_released(self) -> None: ...


class RecordingLock:
    """A re-entrant lock that reports. `wait` only where the thread must really wait; `acquired` and
    `released` for the outermost hold only, `released` after the lock is free again, so a hook never holds
    it longer.

    `owner` (thread ident, or None), `depth` and `waiters()` never block; read from another thread they are a
    snapshot that may be outdated at once.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._waiters: dict[int, None] = {}
        self.owner: int | None = None
        self.depth = 0
        self.trying: Callable[..., None] = nothing  # called on a thread that holds nothing and is about to try
        self.connect(nothing, nothing, nothing)

    def connect(
        self, wait: Callable[..., None], acquired: Callable[..., None], released: Callable[..., None]
    ) -> None:
        self._wait, self._acquired, self._released = wait, acquired, released

    def waiters(self) -> tuple[int, ...]:
        """Idents of the threads that wait, in the order in which they came."""
        return tuple(self._waiters)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = threading.get_ident()
        if self.owner != me:
            self.trying()
        if not self._inner.acquire(False):
            if not blocking:
                return False
            self._waiters[me] = None
            try:
                self._wait()
                if not self._inner.acquire(True, timeout):
                    return False
            finally:
                del self._waiters[me]
        self.depth += 1
        if self.depth == 1:
            self.owner = me
            try:
                self._acquired()
            except BaseException:
                # A `with` block that was never entered is never left: let go here.
                self.release()
                raise
        return True

    def release(self) -> None:
        if self.owner != threading.get_ident():
            # Not ours to count down; the inner lock raises what a lock raises.
            self._inner.release()
            return
        self.depth -= 1
        outermost = self.depth == 0
        if outermost:
            self.owner = None
        self._inner.release()
        if outermost:
            self._released()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()


hide(RecordingLock.acquire)
hide(RecordingLock.release)
hide(RecordingLock.__enter__)
hide(RecordingLock.__exit__)


def bindings(value: object) -> list[tuple[ModuleType, str]]:
    """Every module attribute, in all modules imported so far, that is `value`."""
    found: list[tuple[ModuleType, str]] = []
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            found.extend((module, name) for name, bound in list(vars(module).items()) if bound is value)
    return found


class CompileLock:
    """Calls a `CompileLockSink`; `lock` is the recording lock while installed, else None."""

    name = "compile_lock"

    def __init__(self) -> None:
        self._patches = Patches()
        self.lock: RecordingLock | None = None

    def install(self, sink: CompileLockSink) -> Availability:
        self._patches.refuse_second_install(self.name)
        module = importlib.import_module(_MODULE)
        inner = getattr(module, _NAME, None)
        if not hasattr(inner, "acquire") or not hasattr(inner, "release"):
            return missing(_MODULE, _NAME)
        lock = RecordingLock(inner)
        lock.connect(
            quiet(sink.compile_lock_wait),
            quiet(sink.compile_lock_acquired),
            quiet(sink.compile_lock_released),
        )
        for owner, name in bindings(inner):
            self._patches.set(owner, name, lock)
        self.lock = lock
        return AVAILABLE

    def before_trying(self, callback: Callable[[], None]) -> None:
        """Calls `callback` on each thread that is about to try; it may wait there. Only while installed."""
        if self.lock is not None:
            self.lock.trying = quiet(callback)

    def uninstall(self) -> None:
        self._patches.remove()
        if self.lock is not None:
            self.lock.connect(nothing, nothing, nothing)
            self.lock.trying = nothing
            self.lock = None
