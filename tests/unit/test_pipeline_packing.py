"""Packing documents into sequences, and dealing them out to drafters."""

from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.pipeline.data import Document
from harness.pipeline.packing import PADDING, Packed, PackedStream, pack


def document(first: int, length: int) -> Document:
    """Tokens first, first + 1, …: told apart by their ids."""
    return Document(tuple(range(first, first + length)), (1,) * length)


def numbered(lengths: list[int]) -> list[Document]:
    return [document(1000 * (i + 1), length) for i, length in enumerate(lengths)]


def stream(documents: list[Document], *, drafter: int = 0, drafters: int = 1, **other: object) -> PackedStream:
    settings = {"budget": 16, "batch": 1, "padded": True, "pad_id": 0, "seed": 0, **other}
    return PackedStream(documents, drafter=drafter, drafters=drafters, **settings)  # type: ignore[arg-type]


def test_the_layout_of_a_batch() -> None:
    packed = pack([[document(10, 3), document(20, 2)], [document(30, 4)]], length=6, pad_id=9)
    assert packed.ids.tolist() == [[10, 11, 12, 20, 21, 9], [30, 31, 32, 33, 9, 9]]
    assert packed.document_ids.tolist() == [[0, 0, 0, 1, 1, PADDING], [0, 0, 0, 0, PADDING, PADDING]]
    assert packed.positions.tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 0, 1]]
    assert packed.loss_mask.tolist() == [[True] * 5 + [False], [True] * 4 + [False] * 2]
    assert packed.lengths == ((3, 2), (4,))
    assert packed.tokens == 9


def test_unpadded_batches_are_as_long_as_their_longest_sequence() -> None:
    assert pack([[document(10, 3)], [document(20, 5)]], length=0, pad_id=0).ids.shape == (2, 5)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        pack([[document(10, 7)]], length=6, pad_id=0)


def test_fixed_sequences_have_one_length_and_variable_ones_have_not() -> None:
    documents = numbered([3, 5, 8, 11, 13, 16])
    fixed = {next(s).ids.shape for s in [stream(documents)] for _ in range(12)}
    assert fixed == {(1, 16)}
    variable = [batch.ids.shape[1] for batch in islice(stream(documents, padded=False), 12)]
    assert len(set(variable)) > 3
    assert max(variable) <= 16


def test_the_same_arguments_give_the_same_stream_and_another_seed_another() -> None:
    documents = numbered([3, 5, 8, 11, 13])

    def first(seed: int) -> list[list[list[int]]]:
        return [batch.ids.tolist() for batch in islice(stream(documents, seed=seed), 8)]

    assert first(1) == first(1)
    assert first(1) != first(2)


def test_restarting_leaves_the_stream_where_it_was() -> None:
    one, other = stream(numbered([3, 5, 8])), stream(numbered([3, 5, 8]))
    begun = [next(one).ids.tolist() for _ in range(3)]
    assert next(one.restarted()).ids.tolist() == begun[0]
    next(other), next(other), next(other)
    assert next(one).ids.tolist() == next(other).ids.tolist()


def test_drafters_share_an_epoch_and_each_epoch_is_shuffled_anew() -> None:
    """Documents that fill a sequence each: M drafters together see every document once an epoch."""
    documents = numbered([16] * 12)
    drawn = [
        [int(batch.ids[0, 0]) // 1000 for batch in islice(stream(documents, drafter=i, drafters=3), 8)]
        for i in range(3)
    ]
    epochs = [[d for row in drawn for d in row[4 * e : 4 * e + 4]] for e in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(1, 13))
    assert epochs[0] != epochs[1]


def test_more_drafters_than_documents() -> None:
    """The dealing goes on into the next epoch, so that nobody goes without."""
    batches = [next(stream(numbered([16]), drafter=i, drafters=5)) for i in range(5)]
    assert all(int(batch.ids[0, 0]) == 1000 for batch in batches)


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=8),
    st.integers(5, 32),
    st.integers(1, 3),
    st.booleans(),
)
def test_every_sequence_is_whole_pieces_within_the_budget(
    lengths: list[int], budget: int, batch: int, padded: bool
) -> None:
    made: list[Packed] = list(islice(stream(numbered(lengths), budget=budget, batch=batch, padded=padded), 5))
    for packed in made:
        for row, row_lengths in enumerate(packed.lengths):
            assert 0 < sum(row_lengths) <= budget
            assert int((packed.document_ids[row] != PADDING).sum()) == sum(row_lengths)
            start = 0
            for number, length in enumerate(row_lengths):
                part = slice(start, start + length)
                ids = packed.ids[row, part]
                assert packed.document_ids[row, part].eq(number).all()
                assert packed.positions[row, part].equal(torch.arange(length))
                assert ids.equal(ids[0] + torch.arange(length))  # consecutive tokens of one document
                start += length
    if padded:
        assert {packed.ids.shape for packed in made} == {(batch, budget)}
