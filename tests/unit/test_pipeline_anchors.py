"""Where blocks begin, and which of their tokens count."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.pipeline.anchors import block_windows, draw_anchors


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_anchors_are_sorted_distinct_and_supervised() -> None:
    mask = torch.tensor([[0, 1, 1, 1, 0, 1, 0, 1, 1, 1]], dtype=torch.bool)
    document = torch.tensor([[0] * 8 + [1] * 2])
    anchors, keep = draw_anchors(mask, document, 8, generator())
    # 3 and 5 are followed by an unsupervised token, 7 by another document, 9 by nothing.
    assert anchors[keep].tolist() == [1, 2, 8]
    assert keep.tolist() == [[True] * 3 + [False] * 5]
    assert anchors[~keep].eq(0).all()


def test_fewer_slots_than_places_draws_without_replacement() -> None:
    mask = torch.ones((2, 40), dtype=torch.bool)
    anchors, keep = draw_anchors(mask, torch.zeros((2, 40), dtype=torch.int64), 16, generator())
    assert keep.all()
    for row in anchors.tolist():
        assert row == sorted(set(row))
        assert max(row) < 39
    assert anchors[0].tolist() != anchors[1].tolist()


def test_every_place_can_be_drawn() -> None:
    """39 places, 8 slots, 60 draws: a given place is missed by all with odds of (31/39)^60 ≈ 1e-6."""
    mask, document, own = torch.ones((1, 40), dtype=torch.bool), torch.zeros((1, 40), dtype=torch.int64), generator()
    seen = {int(a) for _ in range(60) for a in draw_anchors(mask, document, 8, own)[0][0]}
    assert seen == set(range(39))


def test_the_draw_depends_on_its_generator_only() -> None:
    mask, document = torch.ones((1, 40), dtype=torch.bool), torch.zeros((1, 40), dtype=torch.int64)
    before = torch.get_rng_state()
    first = draw_anchors(mask, document, 8, generator(1))[0]
    assert torch.get_rng_state().equal(before)
    torch.manual_seed(99)
    assert draw_anchors(mask, document, 8, generator(1))[0].equal(first)
    assert not draw_anchors(mask, document, 8, generator(2))[0].equal(first)


def test_a_sequence_without_a_place_keeps_nothing() -> None:
    mask = torch.tensor([[0, 1, 0, 1], [1, 1, 0, 0]], dtype=torch.bool)
    anchors, keep = draw_anchors(mask, torch.zeros((2, 4), dtype=torch.int64), 3, generator())
    assert keep.tolist() == [[False] * 3, [True, False, False]]
    assert anchors.shape == (2, 3)


def test_windows_stop_at_the_end_of_the_document_and_of_the_sequence() -> None:
    ids = torch.tensor([[10, 11, 12, 20, 21, 22]])
    document = torch.tensor([[0, 0, 0, 1, 1, 1]])
    mask = torch.tensor([[1, 1, 1, 1, 0, 1]], dtype=torch.bool)
    anchors = torch.tensor([[1, 3, 5]])
    tokens, counts, begin = block_windows(ids, mask, document, anchors, 4)
    assert begin.tolist() == [[0, 4, 8]]
    assert tokens[0, :4].tolist() == [11, 12, 20, 21]
    assert counts.view(3, 4).tolist() == [
        [True, True, False, False],  # 12 is the last of its document
        [True, False, True, False],  # 21 is not supervised; then the sequence ends
        [True, False, False, False],
    ]


@given(st.integers(0, 2**32), st.integers(2, 24), st.integers(2, 6), st.integers(1, 6))
def test_windows_agree_with_the_rule_written_out(seed: int, length: int, block: int, slots: int) -> None:
    random = generator(seed)
    ids = torch.randint(0, 99, (2, length), generator=random)
    mask = torch.rand((2, length), generator=random) < 0.7
    document = torch.randint(0, 2, (2, length), generator=random).cumsum(1)
    anchors = torch.randint(0, length, (2, slots), generator=random)
    tokens, counts, begin = block_windows(ids, mask, document, anchors, block)
    for b in range(2):
        for n, a in enumerate(anchors[b].tolist()):
            for k in range(block):
                at = int(begin[b, n]) + k
                inside = a + k < length
                expected = inside and bool(mask[b, a + k]) and document[b, a + k] == document[b, a]
                assert bool(counts[b, at]) == expected
                if inside:
                    assert tokens[b, at] == ids[b, a + k]


@given(st.integers(0, 2**32), st.integers(2, 30), st.integers(2, 6))
def test_an_anchor_that_was_drawn_always_has_something_to_predict(seed: int, length: int, block: int) -> None:
    random = generator(seed)
    mask = torch.rand((1, length), generator=random) < 0.6
    document = torch.randint(0, 2, (1, length), generator=random).cumsum(1)
    anchors, keep = draw_anchors(mask, document, 5, random)
    counts = block_windows(torch.zeros((1, length), dtype=torch.int64), mask, document, anchors, block)[1]
    assert counts.view(5, block)[keep[0], 1].all()
