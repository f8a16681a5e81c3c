"""The import arrows of the design: who may import whom, and where private names of torch may stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from import_scan import Found, imports, module_name, private_torch_names

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "harness" / "hazards" / "scripts"
"""Data: programs for bug reports, which import nothing of the harness and are no part of the package."""
FILES = sorted(path for path in (ROOT / "harness").rglob("*.py") if SCRIPTS not in path.parents)

CONTROL = {"control", "report", "analysis"}
TOP = {"commands", "cli", "pytest_plugin", "pytest_support", "__main__"}
SHARED = {"core", "hazards"}

ARROWS: dict[str, set[str]] = {
    "core": set(),
    "locks": set(),
    "hazards": {"core"},
    "torch_internals": {"core"},
    "pipeline": {"core.workload", "core.errors"},  # errors: every bad input is a UserError
    "workloads": {"core.workload", "core.errors"},
    "subject": {"pipeline", "torch_internals", "locks", *SHARED},
    "matrices": set(),
    **dict.fromkeys(CONTROL, CONTROL | SHARED),
    **dict.fromkeys(TOP, TOP | CONTROL | SHARED | {"frames"}),
    "frames": {"control", *SHARED},
    "": {"frames", "locks", *SHARED},  # harness/__init__.py
}
"""Part of the harness → what it may import of the others. A part is a file or folder below ``harness``."""

ONLY_STDLIB = {"core", "locks", "hazards"}
ONLY_TORCH = {
    "subject": {"torch", "triton"},  # it comes with torch's CUDA builds; a small program has a kernel of its own
    "torch_internals": {"torch"},
    "pipeline": {"torch", "transformers", "safetensors"},
    "workloads": {"torch"},
}
NEVER_ON_CONTROL = {"torch", "transformers", "safetensors", "tokenizers", "triton", "accelerate"}


def part_of(module: str) -> str:
    """``harness.core.axes`` → ``core``; ``harness`` itself → ``""``."""
    return [*module.split("."), ""][1]


def allowed(part: str, imported: str) -> bool:
    """Whether a module in ``part`` may import a name of the harness."""
    if imported.startswith("harness.__"):  # harness.__version__
        return True
    inside = imported.removeprefix("harness").removeprefix(".")
    if not inside:
        return part not in ("core", "locks", "hazards")
    if inside.split(".")[0] == part:
        return True
    return any(inside == arrow or inside.startswith(arrow + ".") for arrow in ARROWS[part])


def forbidden_imports(source: str, module: str, is_package: bool = False) -> list[Found]:
    """Imports in a module of the harness that its arrows do not permit."""
    part = part_of(module)
    wrong = []
    for found in imports(source, module, is_package):
        top = found.name.split(".")[0]
        if top == "harness":
            wrong += [] if allowed(part, found.name) else [found]
        elif top in sys.stdlib_module_names:
            continue
        elif part in ONLY_STDLIB or part == "":
            wrong.append(found)
        elif part in ONLY_TORCH:
            wrong += [] if top in ONLY_TORCH[part] else [found]
        elif top in NEVER_ON_CONTROL:
            wrong.append(found)
    return wrong


def listed(path: Path, found: list[Found]) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{each.line}: {each.name}" for each in found]


def test_every_part_has_its_arrows() -> None:
    assert FILES
    parts = {part_of(module_name(path, ROOT)) for path in FILES}
    assert parts - set(ARROWS) == set()


@pytest.mark.parametrize("part", sorted(ARROWS))
def test_imports_follow_the_arrows(part: str) -> None:
    wrong: list[str] = []
    for path in FILES:
        module = module_name(path, ROOT)
        if part_of(module) == part:
            source = path.read_text(encoding="utf-8")
            wrong += listed(path, forbidden_imports(source, module, path.name == "__init__.py"))
    assert not wrong, "\n".join(wrong)


def test_arrows_between_parts_make_no_circle() -> None:
    edges: dict[str, set[str]] = {part: set() for part in ARROWS}
    for path in FILES:
        module = module_name(path, ROOT)
        part = part_of(module)
        for found in imports(path.read_text(encoding="utf-8"), module, path.name == "__init__.py"):
            other = part_of(found.name)
            if found.name.startswith("harness.") and other in ARROWS and other != part:
                edges[part].add(other)
    left = dict(edges)
    while free := [part for part, others in left.items() if not others & set(left)]:
        for part in free:
            del left[part]
    assert left == {}, "these parts import each other"


def test_private_names_of_torch_stand_in_torch_internals_only() -> None:
    wrong: list[str] = []
    for path in FILES:
        module = module_name(path, ROOT)
        if part_of(module) != "torch_internals":
            wrong += listed(path, private_torch_names(path.read_text(encoding="utf-8"), module))
    assert not wrong, "\n".join(wrong)


def test_no_module_of_the_control_side_brings_torch_along() -> None:
    """Third parties could import torch, which no reading of our source shows; so this one runs them."""
    modules = [module_name(path, ROOT) for path in FILES]
    modules = [module for module in modules if part_of(module) not in ("subject", "pipeline", "torch_internals", "workloads")]
    modules = [module for module in modules if part_of(module) != "__main__"]  # it runs when imported
    script = (
        "import importlib, sys\n"
        f"for name in {modules!r}:\n"
        "    importlib.import_module(name)\n"
        f"    found = sorted({NEVER_ON_CONTROL!r} & set(sys.modules))\n"
        "    assert not found, f'{name} brings {found}'\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("harness.core.axes", "import tomllib\nfrom harness.core.errors import nearest", []),
        ("harness.core.axes", "import torch", ["torch"]),
        ("harness.core.axes", "import numpy", ["numpy"]),
        ("harness.core.axes", "from harness.hazards import x", ["harness.hazards.x"]),
        ("harness.core.axes", "from .. import hazards", ["harness.hazards"]),
        ("harness.core.axes", "from ..hazards.fx import x", ["harness.hazards.fx.x"]),
        ("harness.core.axes", "from . import errors", []),
        ("harness.locks", "from harness.core import errors", ["harness.core.errors"]),
        ("harness.locks", "import harness", ["harness"]),
        ("harness.hazards.fx", "from harness.core.plan import Plan", []),
        ("harness.hazards.fx", "from harness.locks import make_strategy", ["harness.locks.make_strategy"]),
        ("harness.control.run", "import pandas\nimport harness\nfrom harness.analysis import rate", []),
        ("harness.control.run", "from harness import __version__", []),
        ("harness.control.run", "def f():\n    import torch.nn", ["torch.nn"]),
        ("harness.control.run", "import importlib\nimportlib.import_module('torch')", ["torch"]),
        ("harness.control.run", "from harness.subject import entry", ["harness.subject.entry"]),
        ("harness.control.run", "from harness import subject", ["harness.subject"]),
        ("harness.control.run", "import harness.pipeline.config", ["harness.pipeline.config"]),
        ("harness.control.run", "from harness.commands import run", ["harness.commands.run"]),
        ("harness.control.run", "from harness.corelike import x", ["harness.corelike.x"]),
        ("harness.cli", "import typer\nfrom harness.commands import run", []),
        ("harness.cli", "from harness.torch_internals import flag", ["harness.torch_internals.flag"]),
        ("harness.subject.entry", "import torch\nfrom harness.pipeline import Pipeline", []),
        ("harness.subject.entry", "import transformers", ["transformers"]),
        ("harness.subject.entry", "from harness.control import run", ["harness.control.run"]),
        ("harness.pipeline.data", "import torch, transformers, safetensors.torch", []),
        ("harness.pipeline.data", "import tokenizers", ["tokenizers"]),
        ("harness.pipeline.data", "from harness.core.workload import Context", []),
        ("harness.pipeline.data", "from harness.core.matrix import Matrix", ["harness.core.matrix.Matrix"]),
        ("harness", "from harness.core.scenario import Scenario", []),
        ("harness", "import torch", ["torch"]),
    ],
)
def test_the_scan_sees_a_wrong_import(module: str, source: str, wrong: list[str]) -> None:
    assert [found.name for found in forbidden_imports(source, module, module == "harness")] == wrong


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import torch\ntorch.compile(f)", []),
        ("import torch\nx = torch.nn.Module.__call__", []),
        ("import torch._dynamo", ["torch._dynamo"]),
        ("from torch import _dynamo", ["torch._dynamo"]),
        ("from torch.fx._symbolic_trace import Tracer", ["torch.fx._symbolic_trace.Tracer"]),
        ("import torch\ntorch._dynamo.config", ["torch._dynamo.config", "torch._dynamo"]),
        (
            "import torch.nn.attention.flex_attention as flex\nflex._validate_device",
            [
                "torch.nn.attention.flex_attention._validate_device",
            ],
        ),
        ("from torch.nn import functional as F\nF._scaled", ["torch.nn.functional._scaled"]),
        ("import torch\ngetattr(torch.fx, '_symbolic_trace')", ["torch.fx._symbolic_trace"]),
        ("import importlib\nimportlib.import_module('torch._inductor')", ["torch._inductor"]),
        ("class A:\n    def f(self):\n        return self._torch._x", []),
    ],
)
def test_the_scan_sees_a_private_name(source: str, names: list[str]) -> None:
    assert [found.name for found in private_torch_names(source, "harness.subject.x")] == names
