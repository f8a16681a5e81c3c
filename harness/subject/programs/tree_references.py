"""The remedy of hazard `cudagraph-importer-ends`, for programs that show something else: what is in use is not freed."""

from __future__ import annotations

import ctypes
import sys

TREES = "torch._inductor.cudagraph_trees"
NAMES = ("tree_manager_containers", "tree_manager_locks")


def take_references() -> int:
    """One to each dictionary that this thread has put into torch's thread-local storage; to how many.

    Only the thread that imported the module has any. Torch 2.11 takes none of its own and gives one up when that thread ends;
    on a later one the dictionaries then live as long as the process, which is as long as they are used.
    """
    trees = sys.modules.get(TREES)
    held = [getattr(trees.local, name) for name in NAMES if trees is not None and hasattr(trees.local, name)]
    for dictionary in held:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(dictionary))
    return len(held)
