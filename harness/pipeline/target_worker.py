"""The target's side of the run: packed batches in, items for the drafters out."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from harness.core.workload import Context
from harness.pipeline.items import Item, LostItem
from harness.pipeline.packing import Packed, PackedStream
from harness.pipeline.queues import OrderedQueue, QueueAborted
from harness.pipeline.target import Target

ItemQueue = OrderedQueue[Item | LostItem]


class Batches:
    """The batches of the run by index, for any number of target threads; batch i is drafter i % M's."""

    def __init__(self, streams: Sequence[PackedStream], total: int) -> None:
        self._iterator = self._make(streams, total)
        self._mutex = threading.Lock()

    def next(self) -> tuple[int, Packed] | None:
        """Index and batch; None when all were given out."""
        with self._mutex:
            return next(self._iterator, None)

    @staticmethod
    def _make(streams: Sequence[PackedStream], total: int) -> Iterator[tuple[int, Packed]]:
        for index in range(total):
            yield index, next(streams[index % len(streams)])


class OpenTargets:
    """Which targets still produce: the last one to end closes the queues."""

    def __init__(self, names: Iterable[str], queues: Sequence[ItemQueue]) -> None:
        self._names = tuple(names)
        self._queues = queues
        self._mutex = threading.Lock()

    @property
    def names(self) -> Sequence[str]:
        """As of now. Takes no lock. Who is not there any more has put all its items."""
        return self._names

    def ended(self, name: str) -> None:
        with self._mutex:
            self._names = tuple(other for other in self._names if other != name)
            last = not self._names
        if last:
            for queue in self._queues:
                queue.close()


@dataclass(frozen=True)
class _Room:
    """Who can make room for an item: the queue's drafter (`whom`), while there is none."""

    queue: ItemQueue
    turn: int
    whom: str

    def __call__(self) -> Sequence[str]:
        return (self.whom,) if self.queue.put_waits(self.turn) else ()


class TargetWorker:
    """One target thread. `make` may be called from any thread; `run` is the thread's body."""

    def __init__(
        self,
        name: str,
        device: torch.device,
        *,
        target: Target,
        batches: Batches,
        queues: Sequence[ItemQueue],
        open_targets: OpenTargets,
        ctx: Context,
        skip_errors: bool,
    ) -> None:
        self.name = name
        self.device = device
        self._target = target
        self._batches = batches
        self._queues = queues
        self._open = open_targets
        self._ctx = ctx
        self._skip_errors = skip_errors

    def run(self) -> None:
        """Make items until there are no more batches. An error ends this worker, or loses one item (`skip_errors`)."""
        try:
            if self.device.type == "cuda":
                torch.cuda.set_device(self.device)
            while (numbered := self._batches.next()) is not None:
                if not self.serve(*numbered):
                    break
        except QueueAborted:
            return  # the run is being shut down
        finally:
            self._open.ended(self.name)

    def serve(self, index: int, packed: Packed) -> bool:
        """Make one item and queue it; False when this worker is to end."""
        turn, drafter = divmod(index, len(self._queues))
        queue = self._queues[drafter]
        if queue.closed:  # its drafter has ended: the item counts as left, and is not worth a forward
            queue.put(turn, LostItem(index))
            return True
        try:
            item = self.make(index, packed)
        except Exception as error:  # noqa: BLE001 - whatever a step raises is reported, and may end this worker
            self._ctx.step_failed(self.name, error)
            queue.put(turn, LostItem(index))
            return self._skip_errors
        with self._ctx.waiting(self.name, "queue.put", _Room(queue, turn, f"drafter-{drafter}")):
            taken = queue.put(turn, item)
        if taken:
            self._ctx.step(self.name, packed.tokens, None)
        return True

    def make(self, index: int, packed: Packed) -> Item:
        """Run the target on a batch. The item is in host memory, whole, when this returns."""
        on_device = [t.to(self.device) for t in (packed.ids, packed.positions, packed.document_ids)]
        features, last_hidden = self._target(*on_device)
        return Item(
            index=index,
            features=features,
            last_hidden=last_hidden,
            ids=packed.ids,
            loss_mask=packed.loss_mask,
            document_ids=packed.document_ids,
            positions=packed.positions,
            lengths=packed.lengths,
            tokens=packed.tokens,
        ).to_host()
