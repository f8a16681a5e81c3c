"""The adapters that exist for schedules: each reports its points where they are, and nothing once uninstalled."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from internals_support import clean_dynamo, in_thread, installed, qkv  # noqa: F401
from torch.nn.attention.flex_attention import flex_attention
from torch.utils.checkpoint import checkpoint

from harness.core.points import POINTS
from harness.torch_internals.compiling_read import CompilingRead
from harness.torch_internals.cuda_capture import CudaCapture
from harness.torch_internals.dynamo_config import DynamoSettings, settings
from harness.torch_internals.dynamo_state import ConfigRead, StanceSet
from harness.torch_internals.eager_operators import EagerOperators
from harness.torch_internals.flex_cpu import flex_on_cpu
from harness.torch_internals.rng_draw import RngDraw
from harness.torch_internals.saved_globals import SavedGlobals

pytestmark = pytest.mark.usefixtures("clean_dynamo")


class Passing:
    """Keeps the points; `on` runs at one of them."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.on: dict[str, Callable[[], None]] = {}

    def passing(self, point: str, info: str) -> None:
        assert point in POINTS
        text = f"{point} {info}".strip()
        self.seen.append(text)
        if text in self.on:
            self.on[text]()


@pytest.fixture
def sink() -> Iterator[Passing]:
    return Passing()  # type: ignore[return-value]


def compiled(body: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(body, backend="aot_eager", fullgraph=True)


def test_a_compile_saves_and_puts_back(sink: Passing) -> None:
    with installed(SavedGlobals(), sink):
        compiled(lambda x: x * 2)(torch.ones(2))
    assert [text for text in sink.seen if text.endswith("frame")] == [
        "globals.saved frame",
        "globals.restoring frame",
        "globals.restored frame",
    ]
    sink.seen.clear()
    torch._dynamo.reset()
    compiled(lambda x: x * 3)(torch.ones(2))
    assert sink.seen == []


def test_what_another_thread_draws_between_saved_and_restored_is_drawn_again(sink: Passing) -> None:
    """That the points lie on the right side of the effect: this is the hazard `rng-rewind`."""
    drawn: list[float] = []
    sink.on["globals.saved frame"] = lambda: drawn.append(in_thread(lambda: torch.rand(1).item()))
    sink.on["globals.restored frame"] = lambda: drawn.append(in_thread(lambda: torch.rand(1).item()))
    with installed(SavedGlobals(), sink):
        compiled(lambda x: x * 4)(torch.ones(2))
    assert drawn[0] == drawn[1]


def test_an_error_in_the_frame_passes_restored_all_the_same(sink: Passing) -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return x

    with installed(SavedGlobals(), sink), pytest.raises(Exception, match="graph_break"):
        compiled(body)(torch.ones(2))
    assert sink.seen.count("globals.saved frame") == sink.seen.count("globals.restored frame") > 0


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_forks_the_generator_in_its_recompute(sink: Passing, reentrant: bool) -> None:
    x = torch.ones(4, requires_grad=True)
    with installed(SavedGlobals(), sink):
        y = checkpoint(torch.sin, x, use_reentrant=reentrant)
        assert sink.seen == []
        y.sum().backward()
    assert sink.seen == ["globals.saved fork_rng", "globals.restoring fork_rng", "globals.restored fork_rng"]


def test_draws_from_shared_generators_are_reported_and_others_are_not(sink: Passing) -> None:
    x = torch.ones(8)
    with installed(RngDraw(), sink):
        torch.rand(2)
        torch.rand(2, generator=torch.Generator())
        torch.nn.Dropout(0.5)(x)
        torch.nn.Dropout(0.5).eval()(x)
        random.random()
        random.Random(1).random()
    assert sink.seen == [
        "rng.draw torch.rand",
        "rng.draw torch.nn.functional.dropout",
        "rng.draw random.random",
    ]
    sink.seen.clear()
    torch.rand(2)
    random.random()
    assert sink.seen == []


def test_a_replaced_draw_draws_the_same_and_compiles(sink: Passing) -> None:
    torch.manual_seed(3)
    expected = torch.rand(3)

    def body(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5) + torch.rand(3)

    with installed(RngDraw(), sink):
        torch.manual_seed(3)
        assert torch.equal(torch.rand(3), expected)
        compiled(body)(torch.ones(3))
        sink.seen.clear()
        compiled(body)(torch.ones(3))
    assert sink.seen == []  # compiled code draws by itself


def test_is_compiling_is_reported_with_its_answer_and_compiled_code_folds_it(sink: Passing) -> None:
    with installed(CompilingRead(), sink):
        assert torch.compiler.is_compiling() is False
        assert sink.seen == ["is_compiling.read false"]
        sink.seen.clear()
        took = compiled(lambda x: x + (1 if torch.compiler.is_compiling() else 2))(torch.zeros(1))
        assert took.item() == 1
        assert sink.seen == []
    torch.compiler.is_compiling()
    assert sink.seen == []


def test_an_optimizer_asks(sink: Passing) -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.ones(2)
    with installed(CompilingRead(), sink):
        torch.optim.AdamW([parameter]).step()
    assert "is_compiling.read false" in sink.seen


def test_a_stance_is_reported_when_it_is_set_and_when_it_is_taken_back(sink: Passing) -> None:
    with installed(StanceSet(), sink):
        with torch.compiler.set_stance("force_eager"):
            assert set(sink.seen) == {"stance.set force_eager"}  # torch sets it when the object is made, and on entry
        assert sink.seen[-1] == "stance.set default"


def test_the_limit_is_read_as_this_thread_sees_it(sink: Passing) -> None:
    with installed(ConfigRead(), sink), settings(DynamoSettings(recompile_limit=5)):
        compiled(lambda x: x * 5)(torch.ones(2))
    assert sink.seen == ["config.read 5"]


def test_an_eager_operator_reports_what_it_set_and_before_it_puts_it_back(sink: Passing) -> None:
    with flex_on_cpu(), installed(EagerOperators(), sink), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it ran uncompiled, once a process
        flex_attention(*qkv())
    assert [text.split()[0] for text in sink.seen] == ["flex_eager.enter", "flex_eager.exit"]
    assert all(int(text.split()[-1]) > 1000 for text in sink.seen)


def test_a_compiled_operator_is_no_eager_one(sink: Passing) -> None:
    with flex_on_cpu(), installed(EagerOperators(), sink):
        compiled(flex_attention)(*qkv())
    assert sink.seen == []


def test_the_capture_adapter_can_be_installed_without_a_gpu(sink: Passing) -> None:
    with installed(CudaCapture(), sink):
        pass
    assert sink.seen == []


@pytest.mark.parametrize(
    "make", [SavedGlobals, RngDraw, CompilingRead, StanceSet, ConfigRead, EagerOperators, CudaCapture]
)
def test_a_second_install_is_refused(make: Any, sink: Passing) -> None:
    with installed(make(), sink):
        adapter = make()
        if make is CompilingRead:
            with pytest.raises(RuntimeError, match="installed already"):
                adapter.install(sink)
    adapter = make()
    adapter.install(sink)
    with pytest.raises(RuntimeError, match="installed already"):
        adapter.install(sink)
    adapter.uninstall()
    adapter.uninstall()


@pytest.mark.parametrize(
    ("make", "module", "name"),
    [
        (SavedGlobals, "torch._dynamo.convert_frame", "trace_frame"),
        (SavedGlobals, "torch._dynamo.utils", "preserve_rng_state"),
        (StanceSet, "torch._dynamo.eval_frame", "_set_stance"),
        (ConfigRead, "torch._dynamo.convert_frame", "exceeds_recompile_limit"),
        (EagerOperators, "torch._higher_order_ops.utils", "setup_compilation_env"),
    ],
)
def test_a_missing_hook_is_unavailable_and_says_which(
    make: Any, module: str, name: str, sink: Passing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(f"{module}.{name}")
    found = make().install(sink)
    assert not found.ok
    assert name in found.reason
