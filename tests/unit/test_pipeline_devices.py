"""Where workers run, how items get there, and the step as a CUDA graph."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from harness.core.scenario import Scenario
from harness.pipeline.graphed_step import WARM_STEPS, GraphedStep
from harness.pipeline.items import Item
from harness.pipeline.queues import OrderedQueue, QueueAborted
from harness.pipeline.support import devices_of, unsupported
from harness.pipeline.transfer import Transfer

CUDA = torch.device("cuda:0")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")


@pytest.mark.parametrize(
    ("devices", "targets", "drafters", "everything"),
    [
        ("cpu", ["cpu"], ["cpu"], ["cpu"]),
        ("cuda:0+cuda:1", ["cuda:0", "cuda:1"], ["cuda:0", "cuda:1"], ["cuda:0", "cuda:1"]),
        ("cuda:0/cuda:1+cuda:2", ["cuda:0"], ["cuda:1", "cuda:2"], ["cuda:0", "cuda:1", "cuda:2"]),
        ("cuda:0+cuda:1/cuda:1", ["cuda:0", "cuda:1"], ["cuda:1"], ["cuda:0", "cuda:1"]),
    ],
)
def test_roles_share_the_devices_or_have_their_own(
    devices: str, targets: list[str], drafters: list[str], everything: list[str]
) -> None:
    scenario = Scenario(devices=devices)
    assert [str(d) for d in devices_of(scenario, "target")] == targets
    assert [str(d) for d in devices_of(scenario, "drafter")] == drafters
    assert [str(d) for d in devices_of(scenario)] == everything


def test_a_graph_needs_fixed_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    manual = Scenario(devices="cuda:0", cudagraphs="manual")
    assert unsupported(manual) == ""
    assert unsupported(manual.replace(shapes="per_drafter")) == ""
    assert "fixed shapes" in unsupported(manual.replace(shapes="variable"))


def test_a_poll_takes_what_is_there_in_order_and_waits_for_nothing() -> None:
    queue: OrderedQueue[str] = OrderedQueue(3)
    assert queue.poll() is None
    queue.put(1, "b")
    assert queue.poll() is None, "its predecessor has not come"
    queue.put(0, "a")
    assert queue.poll() == "a"
    assert queue.get(timeout=5.0) == "b"
    assert queue.counts.taken == 2
    queue.abort()
    with pytest.raises(QueueAborted):
        queue.poll()


def item(seed: int, length: int = 8) -> Item:
    g = torch.Generator().manual_seed(seed)
    size = (1, length)
    return Item(
        index=seed,
        features=torch.randn(1, length, 4, generator=g),
        last_hidden=torch.randn(1, length, 4, generator=g),
        ids=torch.randint(0, 9, size, generator=g),
        loss_mask=torch.ones(size, dtype=torch.bool),
        document_ids=torch.zeros(size, dtype=torch.int64),
        positions=torch.arange(length)[None],
        lengths=((length,),),
        tokens=length,
    )


def test_on_the_cpu_a_transfer_copies_nothing_and_looks_at_nothing_early() -> None:
    transfer = Transfer(torch.device("cpu"))
    given = item(0)
    assert not transfer.ahead
    arrived = transfer.finish(transfer.start(given, torch.tensor([[1]]), torch.tensor([[True]])))
    assert arrived.item.features.data_ptr() == given.features.data_ptr()
    assert arrived.event is None
    arrived.wait()
    assert arrived.finite


@pytest.mark.cuda
@needs_cuda
def test_whether_all_is_finite_is_known_once_the_copy_is_there_whatever_else_the_device_does() -> None:
    transfer = Transfer(CUDA)
    bad = item(0).features
    bad[0, 3, 1] = float("nan")
    given = [one.mapped(Tensor.pin_memory) for one in (item(0), replace(item(0), features=bad))]

    def arrive(one: Item) -> tuple[bool, bool]:
        arriving = transfer.start(one, torch.tensor([[1]]), torch.tensor([[True]]))
        arriving.wait()
        return arriving.finite.is_cpu, bool(transfer.finish(arriving).finite)

    for one in given:  # memory is there from now on, and kernels are loaded: either can wait for all of the device
        arrive(one)
    idle = torch.cuda.Event()
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # about a second of this thread's stream
    idle.record()
    found = [arrive(one) for one in given]
    assert not idle.query(), "nobody waited for the other stream's work"
    assert found == [(True, True), (True, False)]
    torch.cuda.synchronize()


@pytest.mark.cuda
@needs_cuda
def test_a_copy_is_whole_for_the_stream_that_uses_it_and_its_memory_is_not_reused_meanwhile() -> None:
    transfer = Transfer(CUDA)
    assert transfer.ahead
    given = [replace(item(i), features=torch.full((1, 512, 4096), float(i)).pin_memory()) for i in range(8)]
    sums = []
    for one in given:  # each copy's memory is free for the next as soon as Python drops it
        arrived = transfer.finish(transfer.start(one, torch.tensor([[1]]), torch.tensor([[True]])))
        torch.cuda._sleep(2_000_000)  # the consuming stream is late
        sums.append(arrived.item.features.mean())
        del arrived
    assert [s.item() for s in sums] == [float(i) for i in range(8)]


class Step:
    """A tiny step with a Python counter, which a replay does not advance."""

    def __init__(self, device: torch.device) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 1).to(device)
        self.runs = 0

    def __call__(self, given: Item, anchors: Tensor, keep: Tensor) -> Tensor:
        self.runs += 1
        loss = (self.model(given.features).squeeze(-1) * given.loss_mask).square().mean() * keep.sum() + anchors.sum()
        loss.backward()
        return loss


@pytest.mark.cuda
@needs_cuda
@pytest.mark.parametrize("mode", ["thread_local", "global", "relaxed"])
def test_a_replayed_step_has_the_loss_and_the_gradients_of_the_step(mode: str) -> None:
    eager, captured = Step(CUDA), Step(CUDA)
    graphed = GraphedStep(captured, list(captured.model.parameters()), CUDA, mode)
    for seed in range(6):
        given = item(seed).to(CUDA)
        anchors, keep = torch.tensor([seed], device=CUDA), torch.tensor([True, seed % 2 == 0], device=CUDA)
        for parameter in (*eager.model.parameters(), *captured.model.parameters()):
            parameter.grad = None
        torch.testing.assert_close(graphed(given, anchors, keep), eager(given, anchors, keep))
        for one, other in zip(captured.model.parameters(), eager.model.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
    assert captured.runs == WARM_STEPS + 1, "the third call is the capture, and all from there are replays"


@pytest.mark.cuda
@needs_cuda
def test_another_shape_than_the_captured_one_is_refused() -> None:
    step = Step(CUDA)
    graphed = GraphedStep(step, list(step.model.parameters()), CUDA, "thread_local")
    some = torch.tensor([1], device=CUDA)
    for _ in range(WARM_STEPS + 1):
        graphed(item(0).to(CUDA), some, some)
    with pytest.raises(ValueError, match="captured for"):
        graphed(item(0, length=9).to(CUDA), some, some)


@pytest.mark.cuda
@needs_cuda
def test_after_a_capture_that_failed_the_thread_is_on_its_stream_and_the_step_says_so() -> None:
    class Forbidden(Step):
        def __call__(self, given: Item, anchors: Tensor, keep: Tensor) -> Tensor:
            loss = super().__call__(given, anchors, keep)
            if self.runs > WARM_STEPS:
                raise RuntimeError("not in a capture")
            return loss

    step = Forbidden(CUDA)
    graphed = GraphedStep(step, list(step.model.parameters()), CUDA, "thread_local")
    some = torch.tensor([1], device=CUDA)
    for _ in range(WARM_STEPS):
        graphed(item(0).to(CUDA), some, some)
    before = torch.cuda.current_stream(CUDA)
    with pytest.raises(RuntimeError, match="not in a capture"):
        graphed(item(0).to(CUDA), some, some)
    assert torch.cuda.current_stream(CUDA) == before
    with pytest.raises(RuntimeError, match="not tried again: RuntimeError: not in a capture"):
        graphed(item(0).to(CUDA), some, some)


@pytest.mark.cuda
@needs_two
def test_steps_on_two_devices_are_each_captured_on_their_own() -> None:
    devices = [torch.device("cuda:0"), torch.device("cuda:1")]
    eager, captured = [Step(device) for device in devices], [Step(device) for device in devices]
    graphed = [
        GraphedStep(step, list(step.model.parameters()), device, "thread_local")
        for step, device in zip(captured, devices, strict=True)
    ]
    for seed in range(WARM_STEPS + 3):
        for i, device in enumerate(devices):  # the current device is the first one throughout
            given, some = item(10 * seed + i).to(device), torch.tensor([True, seed % 2 == 0], device=device)
            anchors = torch.tensor([seed], device=device)
            for parameter in (*eager[i].model.parameters(), *captured[i].model.parameters()):
                parameter.grad = None
            torch.testing.assert_close(graphed[i](given, anchors, some), eager[i](given, anchors, some))
            for one, other in zip(captured[i].model.parameters(), eager[i].model.parameters(), strict=True):
                torch.testing.assert_close(one.grad, other.grad)
    assert [step.runs for step in captured] == [WARM_STEPS + 1] * 2
    assert torch.cuda.current_device() == 0
