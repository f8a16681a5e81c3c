"""What a target hands to a drafter."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor


@dataclass(frozen=True)
class Item:
    """One training item: a packed batch and what the target made of it. In host memory, pinned if made on a GPU."""

    index: int  # in the whole run; item i goes to drafter i % M
    features: Tensor  # [Bt, S, K·d]: the tapped layers' outputs, concatenated
    last_hidden: Tensor  # [Bt, S, d]: the target's final hidden states (after its last norm)
    ids: Tensor  # [Bt, S] int64
    loss_mask: Tensor  # [Bt, S] bool
    document_ids: Tensor  # [Bt, S] int64, packing.PADDING where there is no document
    positions: Tensor  # [Bt, S] int64, restart with each document
    lengths: tuple[tuple[int, ...], ...]  # of the documents of each sequence
    tokens: int  # real tokens

    def to(self, device: torch.device) -> Item:
        """The same item with its tensors on `device`; the copy may still run when this returns."""
        return self.mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def to_host(self) -> Item:
        """The same item in host memory, pinned if it comes from a GPU; the copy has ended when this returns."""
        return self.mapped(_pinned if self.features.is_cuda else Tensor.cpu)

    def to_bytes(self) -> bytes:
        """For another process: a line of JSON, then the tensors in the safetensors format."""
        tensors = {f.name: getattr(self, f.name).contiguous() for f in fields(self) if f.name in TENSORS}
        head = json.dumps({"index": self.index, "lengths": self.lengths, "tokens": self.tokens})
        body: bytes = save(tensors)
        return head.encode() + b"\n" + body

    @staticmethod
    def from_bytes(data: bytes) -> Item:
        """What `to_bytes` wrote, in ordinary host memory."""
        head, _, body = data.partition(b"\n")
        values = json.loads(head)
        lengths = tuple(tuple(row) for row in values["lengths"])
        return Item(index=values["index"], tokens=values["tokens"], lengths=lengths, **load(body))

    def mapped(self, function: Callable[[Tensor], Tensor]) -> Item:
        """The same item with `function` of each of its tensors."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        changed: dict[str, Any] = {k: function(v) for k, v in values.items() if isinstance(v, Tensor)}
        return replace(self, **changed)


TENSORS = ("features", "last_hidden", "ids", "loss_mask", "document_ids", "positions")


@dataclass(frozen=True)
class LostItem:
    """Stands for an item whose target failed: the drafter passes over it instead of waiting for ever."""

    index: int


def _pinned(tensor: Tensor) -> Tensor:
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return host.copy_(tensor)
