"""What tools use to follow compiles: a backend of one's own by name, and torch's callback at the start of a compile.

Private names: `torch._dynamo.{lookup_backend, register_backend}`, `torch._dynamo.callback.on_compile_start`. Verified on
torch 2.11, 2.13 and 2.14.1. AttributeError where this torch has no such name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from harness.torch_internals.base import hide, quiet


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
