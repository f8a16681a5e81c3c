"""A small program that counts who holds torch's own objects once a thread has ended. On the CPU; it compiles nothing."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from .shown import Shown
from .tree_references import TREES, take_references

KEPT = 16
"""References of the program's own to each dictionary: with as many, giving up one too many frees nothing in this process."""
LIMIT_S = 30.0


class ImporterEnds(Shown):
    """`importer` imports torch's CUDA-graph trees and ends; `counter` counts the references to their dictionaries then.

    Effect: fewer than the program itself has. With the setting `references = "taken"`, which is the remedy, `importer` takes
    for torch those that it did not take.
    """

    def build(self) -> None:
        """Nothing is imported yet: it matters on which thread that is done."""
        self._kept: list[list[Any]] = []
        self._importer = 0
        self._missing = 0

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """Marks: `imported` once `importer` has no more to do; `counting` before `counter` waits for its end."""
        return {"importer": self._import, "counter": self._count}

    def _import(self) -> None:
        trees = importlib.import_module(TREES)
        if not hasattr(trees.local, "tree_manager_containers"):
            raise RuntimeError(f"{TREES} was imported on another thread before")
        for held in (trees.local.tree_manager_containers, trees.local.tree_manager_locks):
            self._kept.append([held] * KEPT)
        if self.ctx.settings.get("references") == "taken":
            take_references()
        self._importer = threading.get_native_id()
        self.ctx.mark("importer", "imported")

    def _count(self) -> None:
        self.ctx.mark("counter", "counting")
        until = time.monotonic() + LIMIT_S
        while os.path.exists(f"/proc/self/task/{self._importer}"):  # the storage goes after Python is done with the thread
            if time.monotonic() > until:
                raise RuntimeError(f"the importing thread has not ended within {LIMIT_S:g} s")
            time.sleep(0.001)
        self._missing = sum(max(0, KEPT + 1 - sys.getrefcount(held[0])) for held in self._kept)  # one is the call's own

    def effect(self) -> bool:
        """How many are missing is a fact of its own."""
        self.ctx.fact("", "references_missing", self._missing)
        return self._missing > 0
