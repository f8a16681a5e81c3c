"""`thread_local_fx`: a context in which torch 2.11 and 2.13 keep the FX-tracing flag by thread, as torch 2.14 does.

For a training loop of one's own:

    from harness.torch_internals.fx_context import thread_local_fx

    with thread_local_fx():
        ...  # start the threads, and wait for them

Inside, no thread gets "Detected that you are using FX to symbolically trace a dynamo-optimized function" because another
one traces. What it leaves open:

* `compile-lock-engine-deadlock`, on CUDA: one thread compiles `flex_attention` with gradients, which needs the device's
  autograd thread while it holds torch's compile lock; that thread runs another worker's backward, whose lowering waits for
  the compile lock. The two hang. Two of seven trials on two GPUs did; a lock that keeps first steps apart from all
  other steps of the same device avoids it (`compile_gate`, `warmup_barrier`).
* `module-call-under-trace`: `symbolic_trace` in one thread still patches `nn.Module.__call__` for all, as in 2.14.
* Threads that meet the same cold function compile it each: more graphs, and a later start, than with a lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from harness.core.errors import UserError
from harness.torch_internals.thread_local_fx import ThreadLocalFx


@contextmanager
def thread_local_fx() -> Iterator[None]:
    """Enter and leave on the main thread, while no thread compiles.

    Raises UserError on a torch that it was not tested on, on one that has a flag for each thread already, and while a
    thread is tracing; nothing is changed then.
    """
    installed = ThreadLocalFx()
    found = installed.install()
    if not found.ok:
        raise UserError(f"thread_local_fx: {found.reason}")
    try:
        yield
    finally:
        installed.uninstall()
