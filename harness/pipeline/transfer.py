"""Items on their way to a drafter's device."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.pipeline.items import Item


@dataclass(frozen=True)
class Arriving:
    """An item whose copy to the device may still run. `event`: when it has ended; None: it has."""

    item: Item
    event: torch.cuda.Event | None = None


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

    def start(self, item: Item) -> Arriving:
        """Begin to copy; returns at once if the item is in pinned memory."""
        if self._stream is None:
            return Arriving(item.to(self._device))
        with torch.cuda.stream(self._stream):
            on_device = item.to(self._device)
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._stream)
        return Arriving(on_device, event)

    def finish(self, arriving: Arriving) -> Item:
        """The item, for use on this thread's current stream; the thread itself does not wait."""
        if arriving.event is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(arriving.event)
            for field in dataclasses.fields(arriving.item):
                value = getattr(arriving.item, field.name)
                if isinstance(value, Tensor):
                    value.record_stream(stream)
        return arriving.item
