"""Who sees whom: the mask against a loop over its elements, as booleans and as a block mask."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from harness.pipeline.mask import dflash_block_mask, dflash_dense_mask, dflash_predicate, make_mask_builder

TILE = 128


@dataclass
class Case:
    anchors: list[list[int]]
    keep: list[list[bool]]
    documents: list[list[int]] | None
    length: int
    size: int

    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None]:
        documents = None if self.documents is None else torch.tensor(self.documents)
        return torch.tensor(self.anchors), torch.tensor(self.keep), documents

    def reference(self) -> Tensor:
        """The formula, an element at a time."""
        queries = len(self.anchors[0]) * self.size
        mask = torch.zeros(len(self.anchors), queries, self.length + queries, dtype=torch.bool)
        for b in range(mask.shape[0]):
            for q in range(mask.shape[1]):
                n = q // self.size
                anchor = self.anchors[b][n]
                for kv in range(mask.shape[2]):
                    if kv < self.length:
                        seen = kv < anchor
                        if self.documents is not None:
                            row = self.documents[b]
                            seen = seen and row[kv] == row[min(anchor, self.length - 1)]
                    else:
                        seen = (kv - self.length) // self.size == n
                    mask[b, q, kv] = seen and self.keep[b][n]
        return mask


@st.composite
def cases(draw: st.DrawFn, *, packed: bool) -> Case:
    length = draw(st.integers(1, 9))
    size = draw(st.integers(1, 5))
    blocks = draw(st.integers(1, 4))
    rows = draw(st.integers(1, 2))

    def row(values: st.SearchStrategy[int], count: int) -> list[int]:
        return draw(st.lists(values, min_size=count, max_size=count))

    return Case(
        anchors=[row(st.integers(0, length + 1), blocks) for _ in range(rows)],  # past the end, too
        keep=[[bool(k) for k in row(st.integers(0, 1), blocks)] for _ in range(rows)],
        documents=[sorted(row(st.integers(0, 2), length)) for _ in range(rows)] if packed else None,
        length=length,
        size=size,
    )


def test_the_worked_example() -> None:
    mask = dflash_dense_mask(torch.tensor([[0, 2]]), torch.tensor([[1, 1]]), 5, 4)
    assert mask.shape == (1, 8, 13)
    assert mask.sum() == 40


@given(cases(packed=False))
def test_against_the_loop(case: Case) -> None:
    anchors, keep, _ = case.tensors()
    assert torch.equal(dflash_dense_mask(anchors, keep, case.length, case.size), case.reference())


@given(cases(packed=True))
def test_against_the_loop_with_packed_documents(case: Case) -> None:
    anchors, keep, documents = case.tensors()
    mask = dflash_dense_mask(anchors, keep, case.length, case.size, document_ids=documents)
    assert torch.equal(mask, case.reference())


@given(cases(packed=False))
def test_the_count_of_true_entries(case: Case) -> None:
    anchors, keep, _ = case.tensors()
    expected = (keep * case.size * (anchors.clamp(max=case.length) + case.size)).sum()
    assert dflash_dense_mask(anchors, keep, case.length, case.size).sum() == expected


def test_an_anchor_does_not_see_itself_in_the_context() -> None:
    mask = dflash_dense_mask(torch.tensor([[3]]), torch.tensor([[1]]), 5, 2)[0]
    assert mask[0, :5].tolist() == [True, True, True, False, False]


def test_a_block_that_is_not_kept_sees_nothing_and_is_not_seen() -> None:
    mask = dflash_dense_mask(torch.tensor([[2, 4]]), torch.tensor([[1, 0]]), 5, 2)[0]
    assert not mask[2:].any()
    assert not mask[:2, 7:].any()


def test_documents_do_not_see_each_other() -> None:
    documents = torch.tensor([[0, 0, 0, 1, 1, 1]])
    mask = dflash_dense_mask(torch.tensor([[2, 5]]), torch.tensor([[1, 1]]), 6, 2, document_ids=documents)[0]
    assert mask[0, :6].tolist() == [True, True, False, False, False, False]
    assert mask[2, :6].tolist() == [False, False, False, True, True, False]


def tiles(mask: Tensor) -> tuple[Tensor, Tensor]:
    """Which tiles of 128 × 128 hold something true, and how many per row of tiles are all true."""
    pad = [-size % TILE for size in mask.shape[-2:]]
    padded = torch.nn.functional.pad(mask, (0, pad[1], 0, pad[0]))
    grid = padded.unflatten(-1, (-1, TILE)).unflatten(-3, (-1, TILE)).transpose(-2, -3)
    return grid.flatten(-2).any(-1), grid.flatten(-2).all(-1).sum(-1)


@pytest.mark.parametrize(
    ("length", "blocks", "size"),
    [(5, 2, 4), (128, 32, 4), (130, 33, 4), (300, 9, 16), (256, 8, 16), (127, 1, 2)],
)
@pytest.mark.parametrize("packed", [False, True])
def test_the_block_mask_has_the_tiles_of_the_dense_one(length: int, blocks: int, size: int, packed: bool) -> None:
    g = torch.Generator().manual_seed(length)
    anchors = torch.stack([torch.randint(0, length, (blocks,), generator=g).sort().values for _ in range(2)])
    keep = torch.ones(2, blocks)
    keep[1, -1] = 0
    documents = (torch.arange(length) // 50).expand(2, -1) if packed else None
    block_mask = dflash_block_mask(anchors, keep, length, size, document_ids=documents)
    dense = dflash_dense_mask(anchors, keep, length, size, document_ids=documents)
    assert block_mask.shape == (2, 1, blocks * size, length + blocks * size)
    some, whole = tiles(dense)
    assert torch.equal(block_mask.to_dense()[:, 0].bool(), some)
    assert block_mask.full_kv_num_blocks is not None
    assert torch.equal(block_mask.full_kv_num_blocks[:, 0], whole)


@pytest.mark.parametrize("packed", [False, True])
def test_the_predicate_can_be_asked_past_both_ends(packed: bool) -> None:
    anchors, keep = torch.tensor([[0, 2]]), torch.tensor([[1, 1]])
    documents = torch.zeros(1, 5, dtype=torch.int64) if packed else None
    predicate = dflash_predicate(anchors, keep, 5, 4, documents)
    index = torch.arange(TILE)
    zero = torch.zeros(1, dtype=torch.int64)
    whole = predicate(zero, zero, index[:, None], index[None, :])
    assert whole.shape == (TILE, TILE)
    assert torch.equal(whole[:8, :13], dflash_dense_mask(anchors, keep, 5, 4, document_ids=documents)[0])


def test_an_item_without_context_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one context token"):
        dflash_dense_mask(torch.tensor([[0]]), torch.tensor([[1]]), 0, 4)


@pytest.mark.parametrize("own_code", [False, True])
def test_the_compiled_builder_builds_the_same(own_code: bool) -> None:
    torch.compiler.reset()
    build = make_mask_builder(compile=True, backend="aot_eager", dynamic=False, own_code=own_code)
    anchors, keep = torch.tensor([[0, 60, 150], [3, 4, 5]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    documents = (torch.arange(200) // 70).expand(2, -1)
    compiled = dflash_block_mask(anchors, keep, 200, 4, document_ids=documents, build=build)
    eager = dflash_block_mask(anchors, keep, 200, 4, document_ids=documents)
    assert compiled.shape == eager.shape
    assert torch.equal(compiled.to_dense(), eager.to_dense())
    assert torch.equal(compiled.kv_num_blocks, eager.kv_num_blocks)
