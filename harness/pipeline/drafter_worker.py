"""The drafter's side of the run: one training step for each item of its queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from harness.core.workload import Context
from harness.pipeline.anchors import block_windows, draw_anchors
from harness.pipeline.blocks import block_input_ids, block_positions
from harness.pipeline.drafter import Drafter, parameters_without_gradient
from harness.pipeline.graphed_step import GraphedStep
from harness.pipeline.items import Item, LostItem
from harness.pipeline.loss import LossGradient, dflash_loss
from harness.pipeline.mask import MaskBuilder, dflash_block_mask
from harness.pipeline.optimizer import DrafterOptimizer
from harness.pipeline.queues import QueueAborted
from harness.pipeline.replicas import GradientAverager
from harness.pipeline.target_worker import ItemQueue
from harness.pipeline.transfer import Arriving, Transfer


class Regions:
    """The named stretches of one worker's steps. `silent` while a warm-up runs, which is no step of anybody."""

    def __init__(self, ctx: Context, worker: str) -> None:
        self.silent = False
        self._ctx = ctx
        self._worker = worker

    def __call__(self, name: str, key: object = None) -> AbstractContextManager[None]:
        return nullcontext() if self.silent else self._ctx.region(name, self._worker, key)

    def attention(self) -> AbstractContextManager[None]:
        """For the drafter, which enters it at each attention call: in a recompute, on a thread of autograd's."""
        return self("attention")


@dataclass(frozen=True)
class Recipe:
    """What all drafters of a run do alike."""

    block_size: int
    anchors: int  # per sequence
    mask_token_id: int
    gamma: float | None  # None: the block size's own
    loss_chunk: int  # anchors a chunk; 0: unchunked
    loss_gradient: LossGradient
    capture_error_mode: str  # of steps captured as CUDA graphs; "": they are not
    skip_errors: bool  # after a step that raised: the next item, instead of ending


class DrafterWorker:
    """One drafter and its training loop. Its methods are for one thread at a time."""

    def __init__(
        self,
        name: str,
        device: torch.device,
        *,
        drafter: Drafter,
        embedding: nn.Embedding,
        lm_head: nn.Linear,
        build_mask: MaskBuilder,
        optimizer: DrafterOptimizer,
        recipe: Recipe,
        queue: ItemQueue,
        producers: Callable[[], Sequence[str]],
        drafters: int,
        averager: GradientAverager | None,
        seed: int,
        code: str,
        regions: Regions,
        ctx: Context,
    ) -> None:
        self.name = name
        self.device = device
        self.drafter = drafter
        self.queue = queue
        self.outcomes: Counter[str] = Counter()  # of the items taken: consumed, skipped, refused, lost, unused
        self._producers = producers  # the workers who still fill the queue
        self._embedding, self._lm_head = embedding, lm_head
        self._build_mask = build_mask
        self._optimizer = optimizer
        self._recipe = recipe
        self._drafters = drafters
        self._averager = averager
        self._anchor_generator = torch.Generator().manual_seed(seed)
        self._generator_states: dict[int, int] = {}  # hash of the state → the item that drew from it
        self._code = code
        self._regions = regions
        self._ctx = ctx
        self._transfer = Transfer(device)
        self._ahead: Item | LostItem | None = None  # taken from the queue early
        self._begun = False  # for the item that `compute` is given next, what comes before its step was done early:
        self._arriving: Arriving | Exception | None = None  # and this came of it
        self._graphed: GraphedStep | None = None
        if recipe.capture_error_mode:
            self._graphed = GraphedStep(self._gradients, list(drafter.parameters()), device, recipe.capture_error_mode)

    def run(self) -> None:
        """Train on the items of the queue until it ends, or a step fails (unless errors are to be skipped)."""
        try:
            if self.device.type == "cuda":
                torch.cuda.set_device(self.device)
            while (item := self._next()) is not None:
                if not self._train(item):
                    break
        except QueueAborted:
            return  # the run is being shut down
        finally:
            if self._ahead is not None:
                self._count("unused")
                if isinstance(self._arriving, Exception):  # no step of its own will tell of it
                    self._failed(self._arriving)
            self.leave()

    def _next(self) -> Item | LostItem | None:
        if self._ahead is not None:
            item, self._ahead = self._ahead, None
            return item
        with self._ctx.waiting(self.name, "queue.get", self._waits_for, any_of=True):
            return self.queue.get()

    def _look_ahead(self) -> None:
        """If the next item is there, its anchors are drawn and its copy runs while the device is busy with this one.

        What goes wrong there is kept for that item's own step to raise; the anchors are not drawn a second time.
        """
        if not self._transfer.ahead or self._ahead is not None:
            return
        try:
            self._ahead = self.queue.poll()
        except QueueAborted:
            return  # the run is being shut down; the next `get` says so, once the step that is done was counted
        if isinstance(self._ahead, Item):
            self._begun = True
            try:
                self._arriving = self._begin(self._ahead)
            except Exception as error:  # noqa: BLE001 - as in `compute`, which raises it
                self._arriving = error

    def _begin(self, item: Item) -> Arriving | None:
        """Draw the item's anchors and start its copy; None when it has no anchor."""
        self._note_generator(item.index)
        anchors, keep = draw_anchors(item.loss_mask, item.document_ids, self._recipe.anchors, self._anchor_generator)
        return self._transfer.start(item, anchors, keep) if keep.any() else None

    def _waits_for(self) -> Sequence[str]:
        producers = self._producers()  # asked first: who has ended since had put its items before
        return producers if self.queue.get_waits() else ()

    def _train(self, item: Item | LostItem) -> bool:
        """One step; False when this worker is to end.

        A replica that gets no mean ends, errors skipped or not: the others apply one that it does not, so it is their equal
        no longer. They go on without it.
        """
        skip = self._recipe.skip_errors
        loss, ok = self.compute(item)
        if not (ok or skip):
            return False
        mean = None
        if self._averager is not None:
            try:
                with self._ctx.waiting(self.name, "barrier.wait", self._averager.missing):
                    mean = self._averager.average(self.name, self.contribution(loss))
            except QueueAborted:
                raise
            except Exception as error:  # noqa: BLE001 - the device's, mostly: reported as a step's own are
                self._failed(error)
                return False
        return self.apply(item, loss, mean) or skip

    def leave(self) -> None:
        """Nobody waits for this drafter from now on."""
        self.queue.close()
        if self._averager is not None:
            self._averager.leave(self.name)

    def compute(self, item: Item | LostItem) -> tuple[Tensor | None, bool]:
        """Gradients of one item: its loss (None when there are no gradients), and whether nothing went wrong."""
        outcome = "lost"
        try:
            if isinstance(item, LostItem):
                return None, True
            outcome = "consumed"
            begun, self._begun, arriving, self._arriving = self._begun, False, self._arriving, None
            if not begun:
                arriving = self._begin(item)
            if isinstance(arriving, Exception):
                raise arriving
            if arriving is None:
                outcome = "skipped"
                return None, True
            if arriving.event is not None:
                with self._ctx.waiting(self.name, "transfer", tuple):  # for no other worker
                    arriving.wait()
            here = self._transfer.finish(arriving)
            if not here.finite:
                outcome = "refused"
                return None, True
            with self._regions("step", self._key(here.item)):
                step = self._graphed or self._gradients
                loss = step(here.item, here.anchors, here.keep)
            self._ctx.gradients(self.name, parameters_without_gradient(self.drafter))
            return loss.detach(), True
        except Exception as error:  # noqa: BLE001 - whatever a step raises is reported, and may end this worker
            self._failed(error)
            return None, False
        finally:
            self._count(outcome)

    def _count(self, outcome: str) -> None:
        self.outcomes[outcome] += 1
        self._ctx.count(self.name, outcome)

    def apply(self, item: Item | LostItem, loss: Tensor | None, mean: Sequence[Tensor | None] | None) -> bool:
        """The optimizer step after `compute`; False when it failed.

        `mean`: gradients to apply instead of this drafter's own (synchronised replicas); empty when no replica has
        any, None where replicas are independent.
        """
        try:
            if mean:
                for parameter, average in zip(self.drafter.parameters(), mean, strict=True):
                    parameter.grad = None if average is None else average.to(parameter.device, copy=True)
            if mean or loss is not None:
                self._optimizer.step(item.index // self._drafters)
            self._look_ahead()
            if isinstance(item, Item) and loss is not None:
                self._ctx.step(self.name, item.tokens, loss.item())
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(error)
            return False
        return True

    def contribution(self, loss: Tensor | None) -> list[Tensor | None] | None:
        """What this drafter brings to the mean of all replicas after a step with this loss."""
        return None if loss is None else [parameter.grad for parameter in self.drafter.parameters()]

    def nudge(self, change: Callable[[Iterable[Tensor]], None]) -> None:
        """Begin with weights that `change` has changed in place."""
        change(self.drafter.parameters())
        self._optimizer.restart()

    def warm_up(self, item: Item, *, grad: bool) -> None:
        """Run one item for what it compiles; weights, anchors and counts of the run stay as they are."""
        anchors, keep = draw_anchors(
            item.loss_mask, item.document_ids, self._recipe.anchors, torch.Generator().manual_seed(0)
        )
        self._regions.silent = True
        try:
            with torch.set_grad_enabled(grad):
                loss = self._loss(item.to(self.device), anchors.to(self.device), keep.to(self.device))
            if grad:
                loss.backward()  # type: ignore[no-untyped-call]
        finally:
            self._regions.silent = False
            self._optimizer.zero_grad()

    def _gradients(self, item: Item, anchors: Tensor, keep: Tensor) -> Tensor:
        """Loss and, in the parameters, gradients of an item on the device."""
        loss = self._loss(item, anchors, keep)
        with self._regions("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        return loss

    def _loss(self, item: Item, anchors: Tensor, keep: Tensor) -> Tensor:
        recipe, B = self._recipe, self._recipe.block_size
        with self._regions("mask"):
            block_mask = dflash_block_mask(
                anchors, keep, item.ids.shape[1], B, document_ids=item.document_ids, build=self._build_mask
            )
        with self._regions("forward"):
            noise = self._embedding(block_input_ids(item.ids, anchors, B, recipe.mask_token_id))
            positions = block_positions(item.positions, anchors, B)
            hidden = self.drafter(noise, item.features, positions, block_mask)
        with self._regions("loss"):
            ids, counts, begin = block_windows(item.ids, item.loss_mask, item.document_ids, anchors, B)
            numerator, denominator = dflash_loss(
                hidden,
                self._lm_head.weight,
                ids,
                begin,
                keep,
                counts,
                B,
                gamma=recipe.gamma,
                chunk=recipe.loss_chunk,
                gradient=recipe.loss_gradient,
                keep_rng_state=self._graphed is None,
            )
            return numerator / denominator

    def _note_generator(self, index: int) -> None:
        """The anchors' generator never returns to a state it was in: somebody would have put it back."""
        state = self._anchor_generator.get_state().numpy().tobytes()
        before = self._generator_states.setdefault(hash(state), index)
        if before != index:
            text = f"item {index} draws anchors from the generator state of item {before}: it was put back"
            self._ctx.finding(self.name, "state_leak", text)

    def _key(self, item: Item) -> Hashable:
        """What decides whether compiled code fits this step."""
        grad, autocast = torch.is_grad_enabled(), torch.is_autocast_enabled(self.device.type)
        shapes = (tuple(item.features.shape), self._recipe.anchors * self._recipe.block_size)
        return (self._code, str(self.device), str(item.features.dtype), shapes, grad, autocast)

    def _failed(self, error: Exception) -> None:
        self._ctx.step_failed(self.name, error)
        self._optimizer.zero_grad()
