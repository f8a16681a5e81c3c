"""What a module imports, and which private torch names it uses, read from its source without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_IMPORTERS = ("import_module", "__import__")


@dataclass(frozen=True)
class Found:
    """A dotted name and the line it stands on."""

    name: str
    line: int


def module_name(path: Path, root: Path) -> str:
    """``harness/core/axes.py`` → ``harness.core.axes``; a package has the name of its folder."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, module: str, is_package: bool = False) -> list[Found]:
    """Absolute names of all that is imported, wherever in the module: ``from a import b`` gives ``a.b``.

    Relative imports are resolved; imports by a constant string (``importlib.import_module("a.b")``) count.
    """
    return list(_imports(ast.parse(source), module, is_package))


def _imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[Found]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Found(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = module.split(".")
                kept = here[: len(here) - node.level + is_package]
                base = ".".join([*kept, *([base] if base else [])])
            for alias in node.names:
                yield Found(base if alias.name == "*" else f"{base}.{alias.name}", node.lineno)
        elif isinstance(node, ast.Call) and node.args:
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            first = node.args[0]
            if name in _IMPORTERS and isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield Found(first.value, node.lineno)


def private_torch_names(source: str, module: str) -> list[Found]:
    """Names below ``torch`` with a part that begins with one underscore: imported, or read as attributes."""
    tree = ast.parse(source)
    found = [imported for imported in _imports(tree, module, False) if _is_private_torch(imported.name)]
    bound = _torch_bindings(tree)
    for node in ast.walk(tree):
        name = _dotted(node, bound)
        if name and _is_private_torch(name):
            found.append(Found(name, getattr(node, "lineno", 0)))
    return found


def _torch_bindings(tree: ast.AST) -> dict[str, str]:
    """Local names that stand for torch or something imported from it."""
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _below_torch(alias.name):
                    bound[alias.asname or "torch"] = alias.name if alias.asname else "torch"
        elif isinstance(node, ast.ImportFrom) and not node.level and _below_torch(node.module or ""):
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return bound


def _dotted(node: ast.AST, bound: dict[str, str]) -> str:
    """``torch.x.y`` for an attribute chain, or a ``getattr`` by constant name, from such a binding on."""
    if isinstance(node, ast.Name):
        return bound.get(node.id, "")
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value, bound)
        return f"{base}.{node.attr}" if base else ""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "getattr" and len(node.args) > 1:
        base, attribute = _dotted(node.args[0], bound), node.args[1]
        if base and isinstance(attribute, ast.Constant) and isinstance(attribute.value, str):
            return f"{base}.{attribute.value}"
    return ""


def _below_torch(name: str) -> bool:
    return name == "torch" or name.startswith("torch.")


def _is_private_torch(name: str) -> bool:
    parts = name.split(".")
    return parts[0] == "torch" and any(part.startswith("_") and not part.startswith("__") for part in parts)
