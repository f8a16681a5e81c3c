from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
import torch._dynamo
from internals_support import Recorder, clean_dynamo, installed

from harness.torch_internals.base import Patch, Patches, hide, missing, quiet
from harness.torch_internals.compiles import Compiles

pytestmark = pytest.mark.usefixtures("clean_dynamo")
__all__ = ["clean_dynamo"]


@pytest.fixture
def compiled() -> Iterator[Recorder]:
    """What is compiled in this test."""
    recorder = Recorder()
    with installed(Compiles(), recorder):
        yield recorder


def a_hook(x: torch.Tensor) -> None:
    torch.sin(x)


def add_two(x: torch.Tensor) -> torch.Tensor:
    return x + 2


def around(hook: object) -> object:
    """A compiled function that calls `hook` outside the graph, with Dynamo still watching the thread's frames."""

    @torch._dynamo.disable(recursive=False)
    def breaks(x: torch.Tensor) -> None:
        hook(x)  # type: ignore[operator]

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        breaks(y)
        return y * 2

    return torch.compile(function, backend="eager")


def test_a_hook_that_is_not_protected_is_compiled_itself(compiled: Recorder) -> None:
    """The danger that `quiet` is there for: without it the hook adds a graph."""
    around(a_hook)(torch.ones(2))  # type: ignore[operator]
    assert compiled.count("compile_end graph True") == 3


def test_a_quiet_hook_is_not_compiled(compiled: Recorder) -> None:
    around(quiet(a_hook))(torch.ones(2))  # type: ignore[operator]
    assert compiled.count("compile_end graph True") == 2


def test_a_hidden_frame_is_not_compiled(compiled: Recorder) -> None:
    def hidden(x: torch.Tensor) -> None:
        torch.cos(x)

    around(hide(hidden))(torch.ones(2))  # type: ignore[operator]
    assert compiled.count("compile_end graph True") == 2


def test_frames_below_a_hidden_one_are_compiled_as_ever(compiled: Recorder) -> None:
    def hidden(x: torch.Tensor) -> None:
        torch.cos(x)
        a_hook(x)
        torch.compile(add_two, backend="eager")(x)

    around(hide(hidden))(torch.ones(2))  # type: ignore[operator]
    assert compiled.count("compile_end graph True") == 4


def test_hiding_survives_a_reset(compiled: Recorder) -> None:
    hook = quiet(a_hook)
    torch._dynamo.reset()
    around(hook)(torch.ones(2))  # type: ignore[operator]
    assert compiled.count("compile_end graph True") == 2


def test_dynamo_watches_the_thread_again_after_a_quiet_hook_that_raises(compiled: Recorder) -> None:
    def fails(x: torch.Tensor) -> None:
        raise KeyError("hook")

    failing = quiet(fails)

    @torch._dynamo.disable(recursive=False)
    def breaks(x: torch.Tensor) -> None:
        with pytest.raises(KeyError, match="hook"):
            failing(x)
        a_hook(x)

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        breaks(y)
        return y * 2

    torch.compile(function, backend="eager")(torch.ones(2))
    assert compiled.count("compile_end graph True") == 3  # before the break, `a_hook`, after the break


def test_a_patch_is_taken_back() -> None:
    owner = SimpleNamespace(name=1)
    patch = Patch(owner, "name", 2)
    assert owner.name == 2
    patch.remove()
    assert owner.name == 1


def test_a_patch_that_was_wrapped_since_leaves_the_wrapper_alone() -> None:
    owner = SimpleNamespace(name=1)
    patch = Patch(owner, "name", 2)
    owner.name = 3
    patch.remove()
    assert owner.name == 3


def test_patches_of_one_attribute_are_taken_back_in_reverse() -> None:
    owner, patches = SimpleNamespace(name=1), Patches()
    patches.set(owner, "name", 2)
    patches.set(owner, "name", 3)
    patches.remove()
    assert owner.name == 1
    assert not patches


def test_a_second_install_is_refused() -> None:
    owner, patches = SimpleNamespace(name=1), Patches()
    patches.refuse_second_install("probe")
    patches.set(owner, "name", 2)
    with pytest.raises(RuntimeError, match="'probe' is installed already"):
        patches.refuse_second_install("probe")


def test_a_missing_name_says_which_and_on_which_torch() -> None:
    answer = missing("torch.fx", "a", "b")
    assert not answer.ok
    assert answer.reason == f"torch {torch.__version__} has no torch.fx.a, torch.fx.b"
