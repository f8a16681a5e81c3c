from __future__ import annotations

import pytest
import torch
import torch._dynamo
from internals_support import clean_dynamo, in_thread

from harness.torch_internals.compiling_flag import compiling_now, flag_is_global, set_by_compiles
from harness.torch_internals.versions import features

pytestmark = pytest.mark.usefixtures("clean_dynamo")
__all__ = ["clean_dynamo"]


def seen_by_another_thread_during_a_compile() -> tuple[bool | None, bool]:
    seen: list[tuple[bool | None, bool]] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        seen.append(in_thread(lambda: (compiling_now(), torch.compiler.is_compiling())))
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    return seen[0]


def test_nothing_compiles() -> None:
    assert compiling_now() is False
    assert flag_is_global() is True


def test_a_compile_is_seen_by_all_threads_where_it_sets_the_flag() -> None:
    sampled, asked = seen_by_another_thread_during_a_compile()
    assert sampled == asked == features().compiling_flag_covers_compiles
    assert set_by_compiles() == features().compiling_flag_covers_compiles
    assert compiling_now() is False


def test_an_export_is_seen_by_all_threads() -> None:
    seen: list[bool | None] = []

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    original = torch.compiler.is_exporting

    def during(*args: object) -> None:
        if original():
            seen.append(in_thread(compiling_now))

    module = Module()
    module.register_forward_pre_hook(during)
    torch.export.export(module, (torch.ones(2),), strict=False)
    assert True in seen


def test_a_torch_that_keeps_it_elsewhere_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.compiler, "_is_compiling_flag")
    assert compiling_now() is None
    assert flag_is_global() is None
