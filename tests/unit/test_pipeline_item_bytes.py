"""An item survives the way to another process."""

from __future__ import annotations

import torch

from harness.pipeline.items import TENSORS, Item, LostItem
from harness.subject.socket_queue import frame, unframe


def test_every_tensor_and_number_arrives() -> None:
    item = Item(
        index=7,
        features=torch.randn(2, 5, 6, dtype=torch.bfloat16),
        last_hidden=torch.randn(2, 5, 3),
        ids=torch.arange(10).reshape(2, 5),
        loss_mask=torch.tensor([[True, False, True, True, False]] * 2),
        document_ids=torch.full((2, 5), -1),
        positions=torch.arange(5).repeat(2, 1),
        lengths=((3, 2), (5,)),
        tokens=10,
    )
    found = unframe(bytearray(frame(item)))
    assert isinstance(found, Item)
    assert (found.index, found.lengths, found.tokens) == (7, ((3, 2), (5,)), 10)
    for name in TENSORS:
        assert torch.equal(getattr(found, name), getattr(item, name)), name
        assert getattr(found, name).dtype == getattr(item, name).dtype


def test_a_lost_item_is_its_index() -> None:
    assert unframe(bytearray(frame(LostItem(12)))) == LostItem(12)
