"""Synchronised replicas: gradients averaged over all drafters at each optimizer step.

What an all-reduce does between processes, between threads: each drafter brings its gradients and waits for
the others; the mean is computed once, in one fixed order, so all replicas apply the same bits and stay equal.
A drafter that ends or fails leaves, and nobody waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from harness.pipeline.queues import QueueAborted

Gradients = Sequence[Tensor | None]


class GradientAverager:
    """The meeting point of the drafters named `members`."""

    def __init__(self, members: Iterable[str]) -> None:
        self._live = set(members)
        self._brought: dict[str, Gradients | None] = {}
        self._mean: list[Tensor | None] = []
        self._round = 0
        self._aborted = False
        self._changed = threading.Condition()

    def average(self, member: str, gradients: Gradients | None) -> list[Tensor | None]:
        """The mean of what all live members bring in this round, for each parameter.

        `None` for `gradients`: this member has none this time (its item was skipped or its step failed); it
        still gets the mean of the others, so that its weights stay equal to theirs. A parameter that nobody
        has a gradient for comes back as None; the list is empty when nobody brought any. The tensors are
        shared: copy from them, do not change them. Raises `QueueAborted` when the run is shut down.
        """
        _finish_device_work(gradients)
        with self._changed:
            if member not in self._live:
                raise ValueError(f"{member} is no member, or has left")
            this_round = self._round
            self._brought[member] = gradients
            self._changed.notify_all()
            while self._round == this_round:
                if self._aborted:
                    raise QueueAborted
                if self._brought.keys() >= self._live:
                    self._finish_round(member)
                else:
                    self._changed.wait()
            # Not overwritten before everybody has read it: the next round needs all live members.
            return self._mean

    def _finish_round(self, member: str) -> None:
        """Compute the mean; the mutex is held. `member` computes: if it cannot, it leaves, and another will try."""
        try:
            mean = mean_gradients(self._brought)
            _finish_device_work(mean)
        except BaseException:
            self._drop(member)
            raise
        self._mean = mean
        self._brought = {}
        self._round += 1
        self._changed.notify_all()

    def leave(self, member: str) -> None:
        """`member` takes part in no further round; what it brought to the present one no longer counts."""
        with self._changed:
            self._drop(member)

    def missing(self) -> list[str]:
        """Who has yet to come in this round. Never waits, so it may be outdated at once."""
        return [member for member in list(self._live) if member not in self._brought]

    def _drop(self, member: str) -> None:
        self._live.discard(member)
        self._brought.pop(member, None)
        self._changed.notify_all()

    def abort(self) -> None:
        """Everybody who waits, or comes later, raises `QueueAborted`."""
        with self._changed:
            self._aborted = True
            self._changed.notify_all()


def mean_gradients(brought: Mapping[str, Gradients | None]) -> list[Tensor | None]:
    """Mean over the members that brought gradients, added up in the order of their names, on the first one's
    device.

    A parameter for which one of them has no gradient counts as zero there; empty when nobody brought any.
    """
    given = [brought[name] for name in sorted(brought)]
    given = [gradients for gradients in given if gradients is not None]
    means: list[Tensor | None] = []
    for column in zip(*given, strict=True):
        tensors = [tensor for tensor in column if tensor is not None]
        if not tensors:
            means.append(None)
            continue
        total = tensors[0].clone()
        for tensor in tensors[1:]:
            total += tensor.to(total.device)
        means.append(total / len(given))
    return means


def _finish_device_work(gradients: Gradients | None) -> None:
    """Other threads read these tensors on streams of their own: let the work that writes them end first."""
    for device in {tensor.device for tensor in gradients or () if tensor is not None and tensor.is_cuda}:
        torch.cuda.current_stream(device).synchronize()
