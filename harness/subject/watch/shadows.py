"""Modules of the program that bear the name of one of the standard library's: it must get its own, as without a watch.

The watch begins before the program and has imported by then what it needs, such as `json` and `platform`. A `platform.py`
beside the program's script would not be imported any more. So those names, and only those, are forgotten again; the watch
keeps the modules that it has.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from importlib.machinery import all_suffixes
from types import ModuleType

_ours: list[ModuleType] = []


def uncover(before: Collection[str]) -> None:
    """Forget what was imported since `before`, the names of modules, and has a namesake where the program looks first."""
    folder = _first_folder()
    try:
        there = set(os.listdir(folder)) if folder is not None else set()
    except OSError:
        return
    fresh = {name.partition(".")[0] for name in sys.modules.keys() - set(before)} - {"harness"}
    shadowed = {name for name in fresh if name not in before and folder is not None and _has(folder, there, name)}
    names = [name for name in sys.modules if name.partition(".")[0] in shadowed]
    _ours.extend(sys.modules.pop(name) for name in names)


def _first_folder() -> str | None:
    """What will be the first of `sys.path`; None for nothing of the program's."""
    if sys.flags.safe_path or not sys.argv:
        return None
    program = sys.argv[0]
    if program in ("-c", "-m", ""):
        return os.getcwd()
    program = os.path.realpath(program)
    return program if os.path.isdir(program) else os.path.dirname(program)


def _has(folder: str, there: Collection[str], name: str) -> bool:
    spec = getattr(sys.modules.get(name), "__spec__", None)
    origin = getattr(spec, "origin", None)
    if origin in (None, "built-in", "frozen") or os.path.dirname(origin) in (folder, os.path.join(folder, name)):
        return False  # found before any folder is looked into, or the program's own already
    package = name in there and os.path.exists(os.path.join(folder, name, "__init__.py"))
    return package or any(name + suffix in there for suffix in all_suffixes())
