"""Facts of the interpreter this runs in, without importing torch.

Also run by its text under other interpreters (`python -c`), so: standard library only, nothing of the
harness, and no syntax that an older Python would stumble over before it could say its version.
"""

import ast
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys

PACKAGES = ("transformers", "triton", "numpy", "safetensors", "py-spy")


def torch_facts():
    # type: () -> dict[str, str | None]
    """Torch's exact version (with its local part, as in 2.11.0+cu130) and the CUDA version it was built with.

    The wheel's metadata may lack the local part, so torch/version.py is read, as text.
    """
    found = {"torch": None, "cuda": None}  # type: dict[str, str | None]
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return found
    try:
        found["torch"] = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        found["torch"] = "unknown"  # a build tree has no metadata
    path = os.path.join(spec.submodule_search_locations[0], "version.py")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as stream:
            written = _assigned(stream.read())
        if isinstance(written.get("__version__"), str):
            found["torch"] = str(written["__version__"])
        if isinstance(written.get("cuda"), str):
            found["cuda"] = str(written["cuda"])
    return found


def _assigned(source):
    # type: (str) -> dict[str, object]
    """Names that a module assigns a literal at its top level."""
    values = {}  # type: dict[str, object]
    for node in ast.parse(source).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Constant):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name):
                values[target.id] = node.value.value
    return values


def interpreter_facts():
    # type: () -> dict[str, object]
    """python, executable, implementation, torch, cuda, packages."""
    packages = {}  # type: dict[str, str]
    for name in PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    facts = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "implementation": platform.python_implementation(),
        "packages": packages,
    }  # type: dict[str, object]
    facts.update(torch_facts())
    return facts


def main():
    # type: () -> None
    """Print the facts as JSON."""
    print(json.dumps(interpreter_facts()))
