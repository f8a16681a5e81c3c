"""Calls something at the end of a module's import, whenever and on whichever thread that happens.

The finder stands first on `sys.meta_path`, answers only for the names that are waited for, and lets the others find
them. It replaces one method on the loader instance for the time of the import: the module, its spec and its loader are
afterwards what they would have been.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_IMPORTLIB, _LEFT_OUT = "<frozen importlib._bootstrap>", "_call_with_frames_removed"


class AfterImport:
    """`at(name, call)`, then `install()`. `call` must not raise. A module that is there already is answered at once."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callable[[], None]] = {}
        self._asking = threading.local()

    def at(self, name: str, call: Callable[[], None]) -> None:
        """Call once the module was imported without an error."""
        if name in sys.modules:
            call()
        else:
            self._waiting[name] = call

    def install(self) -> None:
        """Begin to wait."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The others' answer, for a name that is waited for."""
        if name not in self._waiting or getattr(self._asking, "name", "") == name:
            return None
        self._asking.name = name
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = None if finder is self or find is None else find(name, path, target)
                if spec is not None:
                    self._follow(spec)
                    return spec
        finally:
            self._asking.name = ""
        return None

    def _follow(self, spec: ModuleSpec) -> None:
        loader: Any = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the class's own shows again
            execute(module)
            call = self._waiting.pop(spec.name, None)
            if call is not None:
                call()

        # A frame of that name in that file is one that the interpreter leaves out of the traceback of a failed import.
        exec_module.__code__ = exec_module.__code__.replace(co_filename=_IMPORTLIB, co_name=_LEFT_OUT)
        try:
            loader.exec_module = exec_module
        except AttributeError:  # a loader that is a class of C or has slots: its module goes unwatched, and is said to be
            return
