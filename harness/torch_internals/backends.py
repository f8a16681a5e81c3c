"""What tools use to follow compiles: a backend of one's own by name, and torch's callback at the start of a compile.

Private names: `torch._dynamo.{lookup_backend, register_backend}`, `torch._dynamo.callback.on_compile_start`,
`torch._inductor.compile_fx.compile_fx` with its parameter `inner_compile`. Verified on torch 2.11, 2.13 and 2.14.1.
AttributeError where this torch has no such name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from harness.core.axes import INDUCTOR_EAGER
from harness.torch_internals.base import hide, quiet


def register_inductor_eager() -> None:
    """A backend that is inductor's front end: its passes over the joint graph, its cut into forward and backward, its locks,
    the lazy lowering of the backward. The graphs then run operator by operator, without the passes of code generation."""
    dynamo: Any = importlib.import_module("torch._dynamo")
    if INDUCTOR_EAGER in dynamo.list_backends(exclude_tags=()):
        return

    def as_it_is(graph: Any, example: list[Any], **_options: Any) -> Any:
        def run(arguments: list[Any]) -> Any:
            given = list(arguments)
            arguments.clear()  # inductor's calling convention: what it is given it owns
            return graph(*given)

        run._boxed_call = True  # type: ignore[attr-defined]
        return hide(run)

    def inductor_eager(graph: Any, example: list[Any], **_options: Any) -> Any:
        inductor: Any = importlib.import_module("torch._inductor.compile_fx")
        return inductor.compile_fx(graph, example, inner_compile=as_it_is)

    dynamo.register_backend(hide(inductor_eager), name=INDUCTOR_EAGER)


def on_compile_start(told: Callable[[str], None]) -> None:
    """`told` gets the kind of each compile that torch's callbacks tell of ("DYNAMO", "LAZY_BACKWARD"); stays for good."""
    callback: Any = importlib.import_module("torch._dynamo.callback")
    callback.on_compile_start(lambda args: told(args.callback_trigger.name))


def register_watched_backend(name: str, like: str, given: Callable[[], None]) -> None:
    """A backend `name` that does what `like` does and calls `given` first, once a graph, on the thread that compiles."""
    dynamo: Any = importlib.import_module("torch._dynamo")
    run: Callable[..., Any] = dynamo.lookup_backend(like)
    note = quiet(given)

    def watched(graph: Any, example: list[Any], **options: Any) -> Any:
        note()
        return run(graph, example, **options)

    dynamo.register_backend(hide(watched), name=name)
