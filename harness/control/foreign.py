"""A workload of the user's own, checked before any trial: its module is there, and names the factory.

Nothing is imported. What cannot be told from files (another interpreter, an import hook, a name made at run time) is left
to the trial, which says the same in its reason.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from harness.core.errors import SettingError, nearest
from harness.core.parsing import parse
from harness.core.scenario import Scenario
from harness.core.shipped import SHIPPED


def check_workloads(scenarios: Iterable[Scenario], python: str) -> None:
    """Raises SettingError for a workload of which it is certain that no trial can load it."""
    for name in dict.fromkeys(scenario.workload for scenario in scenarios):
        _check(name, python)


def _check(name: str, python: str) -> None:
    if name in SHIPPED:
        return
    module, colon, attribute = name.partition(":")
    at = f'workload = "{name}"'
    if not colon:
        ships = ", ".join(SHIPPED)
        raise SettingError(
            f'{at}: no such workload{nearest(name, SHIPPED)}; ships: {ships}; your own is written "package.module:factory"'
        )
    if not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise SettingError(f'{at}: write it "package.module:factory", with names of Python')
    file = _find(module, python, at)
    if file is not None:
        _check_name(file, attribute, at)


def _find(module: str, python: str, at: str) -> Path | None:
    """The module's file; None where that cannot be told."""
    own = python == sys.executable
    here = [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    search: list[str] | None = [path for path in here if path] + (sys.path if own else [])
    found = ""
    spec = None
    for part in module.split("."):
        found = f"{found}.{part}" if found else part
        spec = importlib.machinery.PathFinder.find_spec(found, search)
        if spec is None:
            if not own or (found == part and _by_hook(part)):
                return None
            raise SettingError(
                f'{at}: no module "{found}" in {os.getcwd()} or on PYTHONPATH; run harness in the folder that holds it, '
                "or with PYTHONPATH=FOLDER"
            )
        search = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        if search is None and found != module:
            raise SettingError(f'{at}: "{found}" is a module and no package, so there is no "{module}"')
    origin = None if spec is None else spec.origin
    return Path(origin) if origin and origin.endswith(".py") else None


def _by_hook(name: str) -> bool:
    """Whether an import hook (an editable installation) knows a package of that name."""
    if name in sys.builtin_module_names:
        return True
    return any(
        getattr(finder, "find_spec", None) is not None and finder.find_spec(name, None) is not None
        for finder in sys.meta_path
    )


def _check_name(file: Path, attribute: str, at: str) -> None:
    try:
        tree = parse(file.read_text(encoding="utf-8"))
    except SyntaxError as error:
        raise SettingError(f"{at}: {file}, line {error.lineno}: {error.msg}") from None
    except (OSError, ValueError):
        return
    names = _bound(tree)
    first = attribute.split(".")[0]
    if "*" not in names and "__getattr__" not in names and first not in names:
        raise SettingError(f'{at}: {file} has no "{first}"{nearest(first, names)}')


def _bound(tree: ast.Module) -> set[str]:
    """Every name that the module's text binds anywhere outside of functions and classes; "*" for a star import."""
    found: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("globals", "exec", "setattr"):
            found.add("*")
        waiting += ast.iter_child_nodes(node)
    return found
