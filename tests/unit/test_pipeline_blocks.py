"""Input ids, positions and labels of the blocks."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.pipeline.blocks import block_input_ids, block_labels, block_positions

IDS = torch.tensor([[10, 11, 12, 13, 14], [20, 21, 22, 23, 24]])
ANCHORS = torch.tensor([[0, 2], [3, 4]])


def test_a_block_is_its_anchor_token_and_masks() -> None:
    assert block_input_ids(IDS, ANCHORS, 3, 99).tolist() == [
        [10, 99, 99, 12, 99, 99],
        [23, 99, 99, 24, 99, 99],
    ]


def test_positions_go_on_from_the_anchor_and_past_the_end() -> None:
    context = torch.arange(5).expand(2, -1)
    assert block_positions(context, ANCHORS, 3).tolist() == [
        [0, 1, 2, 3, 4, 0, 1, 2, 2, 3, 4],
        [0, 1, 2, 3, 4, 3, 4, 5, 4, 5, 6],
    ]


def test_positions_of_packed_documents_go_on_from_their_own_document() -> None:
    context = torch.tensor([[0, 1, 2, 0, 1]])
    assert block_positions(context, torch.tensor([[1, 4]]), 2)[0, 5:].tolist() == [1, 2, 1, 2]


@given(st.data())
def test_labels_against_a_loop(data: st.DataObject) -> None:
    length = data.draw(st.integers(1, 7))
    blocks = data.draw(st.integers(1, 4))
    size = data.draw(st.integers(2, 5))
    anchors = data.draw(st.lists(st.integers(0, length - 1), min_size=blocks, max_size=blocks))
    keep = data.draw(st.lists(st.booleans(), min_size=blocks, max_size=blocks))
    mask = data.draw(st.lists(st.integers(0, 1), min_size=length, max_size=length))
    ids = list(range(100, 100 + length))
    labels, valid = block_labels(
        torch.tensor([ids]), torch.tensor([anchors]), torch.tensor([keep]), torch.tensor([mask]), size
    )
    assert labels.shape == valid.shape == (1, blocks, size - 1)
    for n in range(blocks):
        for k in range(1, size):
            position = anchors[n] + k
            counts = keep[n] and position < length and mask[position] == 1
            assert valid[0, n, k - 1] == counts
            if position < length:
                assert labels[0, n, k - 1] == ids[position]
