"""A drafter's loop: what it waits for, and whose failure a failure is. On the CPU; the copy to a device is played."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from harness.core.workload import NullContext, WaitsFor
from harness.pipeline.drafter_worker import DrafterWorker, Recipe, Regions
from harness.pipeline.items import Item
from harness.pipeline.optimizer import DrafterOptimizer
from harness.pipeline.queues import OrderedQueue, QueueAborted
from harness.pipeline.replicas import GradientAverager
from harness.pipeline.target_worker import ItemQueue
from harness.pipeline.transfer import Arriving, Transfer

LENGTH = 8
CPU = torch.device("cpu")
RECIPE = Recipe(
    block_size=2,
    anchors=2,
    mask_token_id=0,
    gamma=None,
    loss_chunk=0,
    loss_gradient="recompute",
    capture_error_mode="",
    skip_errors=False,
)


class Context(NullContext):
    """Notes each wait, and what happened inside of one."""

    def __init__(self) -> None:
        super().__init__({})
        self.waits: list[str] = []
        self.inside = ""

    def waiting(
        self, worker: str, what: str, on: WaitsFor = (), *, any_of: bool = False
    ) -> AbstractContextManager[None]:
        if what == "transfer":
            assert callable(on)
            assert on() == (), "no worker can end it: it ends by itself"
        return self._noted(what)

    @contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        self.waits.append(what)
        self.inside = what
        try:
            yield
        finally:
            self.inside = ""


class Event:
    """Of a copy. `waited_in`: the wait that each of those who waited for it was told to be in."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.waited_in: list[str] = []

    def synchronize(self) -> None:
        self.waited_in.append(self.ctx.inside)


class Copies(Transfer):
    """To a device that is played: copies are begun early. `fails`: indices of items whose copy raises."""

    def __init__(self, ctx: Context, *, fails: Sequence[int] = ()) -> None:
        super().__init__(CPU)
        self.ctx, self.fails = ctx, fails
        self.events: list[Event] = []

    @property
    def ahead(self) -> bool:
        return True

    def start(self, item: Item, anchors: Tensor, keep: Tensor) -> Arriving:
        if item.index in self.fails:
            raise torch.OutOfMemoryError(f"no room for item {item.index}")
        self.events.append(Event(self.ctx))
        return replace(super().start(item, anchors, keep), event=cast(Any, self.events[-1]))

    def finish(self, arriving: Arriving) -> Arriving:
        assert self.events[-1].waited_in, "the features are looked at before they are there"
        return arriving


class Worker(DrafterWorker):
    """Its step is the sum of one weight. `step_fails`: indices of items whose step raises."""

    step_fails: Sequence[int] = ()

    def _gradients(self, item: Item, anchors: Tensor, keep: Tensor) -> Tensor:
        if item.index in self.step_fails:
            raise ValueError(f"step {item.index}")
        loss = self.drafter(item.features).mean()
        loss.backward()
        return cast(Tensor, loss)


def make(ctx: Context, *, items: int = 3, averager: GradientAverager | None = None, skip: bool = False) -> Worker:
    """With a closed queue of so many items."""
    queue: ItemQueue = OrderedQueue(10)
    for index in range(items):
        queue.put(index, item(index))
    queue.close()
    drafter = cast(Any, nn.Linear(4, 1))
    optimizer = DrafterOptimizer(
        list(drafter.parameters()), learning_rate=0.1, weight_decay=0.0, clip=1.0, total_steps=9, warmup_steps=1
    )
    return Worker(
        "drafter-0", CPU, drafter=drafter, embedding=nn.Embedding(9, 4), lm_head=nn.Linear(4, 9), build_mask=_no_mask,
        optimizer=optimizer, recipe=replace(RECIPE, skip_errors=skip), queue=queue, producers=tuple, drafters=1,
        averager=averager, seed=0, code="shared", regions=Regions(ctx, "drafter-0"), ctx=ctx,
    )


_no_mask = cast(Callable[..., Any], None)


def item(index: int) -> Item:
    size = (1, LENGTH)
    features = torch.randn(1, LENGTH, 4, generator=torch.Generator().manual_seed(index))
    zeros = torch.zeros(size, dtype=torch.int64)
    ones = torch.ones(size, dtype=torch.bool)
    return Item(index, features, features, zeros, ones, zeros, torch.arange(LENGTH)[None], ((LENGTH,),), LENGTH)


def good_steps(ctx: Context) -> int:
    return len(ctx.steps.get("drafter-0", []))


def test_on_the_cpu_nobody_waits_for_a_transfer() -> None:
    ctx = Context()
    make(ctx).run()
    assert (good_steps(ctx), set(ctx.waits)) == (3, {"queue.get"})


def test_a_copy_is_waited_for_as_a_wait_and_then_read() -> None:
    ctx = Context()
    worker = make(ctx)
    worker._transfer = copies = Copies(ctx)
    worker.run()
    assert good_steps(ctx) == 3
    assert [event.waited_in for event in copies.events] == [["transfer"]] * 3


@pytest.mark.parametrize("skip", [False, True])
def test_an_item_that_cannot_be_copied_early_fails_its_own_step_and_draws_its_anchors_once(skip: bool) -> None:
    ctx = Context()
    worker = make(ctx, skip=skip)
    worker._transfer = Copies(ctx, fails=[1])
    worker.run()
    assert [str(error) for _, error in ctx.failures] == ["no room for item 1"]
    assert good_steps(ctx) == (2 if skip else 1), "the step before it was applied, and counts as good"
    assert dict(worker.outcomes) == ({"consumed": 3} if skip else {"consumed": 2})
    drawn = torch.Generator().manual_seed(0)
    once = make(Context())
    once._anchor_generator = drawn
    for index in range(3 if skip else 2):
        once._begin(item(index))
    assert torch.equal(worker._anchor_generator.get_state(), drawn.get_state())


def test_an_early_failure_is_told_though_its_item_is_never_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = Context()
    worker = make(ctx)
    worker._transfer = Copies(ctx, fails=[1])

    def fails(*_: object) -> None:
        raise ValueError("the end of step 0")

    monkeypatch.setattr(ctx, "step", fails)
    worker.run()
    assert [str(error) for _, error in ctx.failures] == ["the end of step 0", "no room for item 1"]
    assert dict(worker.outcomes) == {"consumed": 1, "unused": 1}


class Failing(GradientAverager):
    """Raises `error` at the mean of each round."""

    error: Exception

    def average(self, member: str, gradients: Any) -> list[Tensor | None]:
        raise self.error


@pytest.mark.parametrize("skip", [False, True])
def test_a_replica_whose_mean_fails_reports_it_and_leaves(skip: bool) -> None:
    ctx = Context()
    averager = Failing(["drafter-0", "drafter-1"])
    averager.error = torch.OutOfMemoryError("no room for the mean")
    worker = make(ctx, averager=averager, skip=skip)
    worker.run()
    assert [error for _, error in ctx.failures] == [averager.error]
    assert averager.missing() == ["drafter-1"], "nobody waits for the one that has left"
    assert (good_steps(ctx), dict(worker.outcomes)) == (0, {"consumed": 1})


def test_a_replica_that_is_shut_down_at_the_barrier_has_not_failed() -> None:
    ctx = Context()
    averager = Failing(["drafter-0"])
    averager.error = QueueAborted()
    make(ctx, averager=averager).run()
    assert ctx.failures == []
