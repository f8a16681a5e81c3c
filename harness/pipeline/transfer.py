"""Items on their way to a drafter's device."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.pipeline.items import Item


@dataclass(frozen=True)
class Arriving:
    """An item and its anchors, whose copies to the device may still run.

    anchors, keep  [Bt, N]
    finite         whether all features are, in the host's memory; not to be read before `wait`
    event          when all of it is there; None: it is
    """

    item: Item
    anchors: Tensor
    keep: Tensor
    finite: Tensor
    event: torch.cuda.Event | None = None

    def wait(self) -> None:
        """Block this thread until all of it is there, whatever else the device has to do."""
        if self.event is not None:
            self.event.synchronize()


class Transfer:
    """Copies to one device. On CUDA they run on a stream of this drafter's own, beside whatever it computes.

    A copied tensor belongs to the transfer stream: the stream that uses it waits for the copy's event first, and the
    allocator is told of the use, so that the memory is not handed out again while it lasts.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    @property
    def ahead(self) -> bool:
        """Whether a copy that is started early is of any use."""
        return self._stream is not None

    def start(self, item: Item, anchors: Tensor, keep: Tensor) -> Arriving:
        """Begin to copy; returns at once if the item is in pinned memory."""
        if self._stream is None:
            return self._copied(item, anchors, keep)
        with torch.cuda.stream(self._stream):
            copied = self._copied(item, anchors.pin_memory(), keep.pin_memory())
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._stream)
        return dataclasses.replace(copied, event=event)

    def finish(self, arriving: Arriving) -> Arriving:
        """The same, for use on this thread's current stream; the thread itself does not wait."""
        if arriving.event is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(arriving.event)
            parts = [getattr(arriving.item, field.name) for field in dataclasses.fields(arriving.item)]
            for value in (*parts, arriving.anchors, arriving.keep):
                if isinstance(value, Tensor):
                    value.record_stream(stream)
        return arriving

    def _copied(self, item: Item, anchors: Tensor, keep: Tensor) -> Arriving:
        on_device = item.to(self._device)
        finite = torch.isfinite(on_device.features).all()
        return Arriving(
            on_device,
            anchors.to(self._device, non_blocking=True),
            keep.to(self._device, non_blocking=True),
            finite.to("cpu", non_blocking=self.ahead),  # into pinned memory, which only CUDA's tensors can be copied to here
        )
