"""What a target hands to a drafter."""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from safetensors.torch import save
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

    def pinned(self) -> Item:
        """The same item, copied to pinned memory: of the current CUDA device's thread."""
        return self.mapped(_pinned)

    def to_bytes(self) -> bytes:
        """For another process: a line of JSON, then the tensors in the safetensors format, which begin at a multiple of 8."""
        tensors = {f.name: getattr(self, f.name).contiguous() for f in fields(self) if f.name in TENSORS}
        head = json.dumps({"index": self.index, "lengths": self.lengths, "tokens": self.tokens})
        body: bytes = save(tensors)
        line = head.encode()
        return b"".join((line, b" " * (-(len(line) + 1) % 8), b"\n", body))

    @staticmethod
    def from_buffer(data: bytearray | mmap.mmap) -> Item:
        """What `to_bytes` wrote. Not copied, since an item may be large: its tensors lie in `data`."""
        end = data.find(b"\n") + 1
        values = json.loads(data[:end])
        begin = end + 8 + int.from_bytes(data[end : end + 8], "little")
        tensors = {
            name: _view(data, begin, entry)
            for name, entry in json.loads(data[end + 8 : begin]).items()
            if name in TENSORS
        }
        lengths = tuple(tuple(row) for row in values["lengths"])
        return Item(index=values["index"], tokens=values["tokens"], lengths=lengths, **tensors)

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


_TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
          "BOOL": torch.bool}  # fmt: skip  # of the safetensors format


def _view(data: bytearray | mmap.mmap, begin: int, entry: dict[str, Any]) -> Tensor:
    """A tensor of the safetensors format; `begin`: where tensors do."""
    first, last = entry["data_offsets"]
    dtype = _TYPES[entry["dtype"]]
    if first == last:
        return torch.empty(entry["shape"], dtype=dtype)
    count = (last - first) // dtype.itemsize
    return torch.frombuffer(data, dtype=dtype, count=count, offset=begin + first).reshape(entry["shape"])
