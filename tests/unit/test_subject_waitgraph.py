"""Cycles of the wait-for graph, held against a plain search over all simple paths."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harness.core.waitgraph import Edge, edges_of, find_cycle


def edge(waiter: str, holder: str) -> Edge:
    return Edge(waiter, "a lock", holder)


def has_cycle(pairs: list[tuple[str, str]]) -> bool:
    """By repeated removal of nodes that wait for nobody (Kahn, 1962)."""
    left = set(pairs)
    while True:
        waiting = {waiter for waiter, _ in left}
        kept = {(waiter, holder) for waiter, holder in left if holder in waiting}
        if kept == left:
            return bool(left)
        left = kept


def test_no_edges_no_cycle() -> None:
    assert find_cycle([]) == []


def test_a_chain_is_no_cycle() -> None:
    assert find_cycle([edge("a", "b"), edge("b", "c")]) == []


def test_two_that_wait_for_each_other() -> None:
    found = find_cycle([edge("b", "a"), edge("a", "b"), edge("c", "a")])
    assert [(e.waiter, e.holder) for e in found] == [("a", "b"), ("b", "a")]


def test_one_that_waits_for_itself() -> None:
    assert find_cycle([edge("a", "a")]) == [edge("a", "a")]


def test_a_cycle_behind_a_tail_is_given_without_the_tail() -> None:
    found = find_cycle([edge("a", "x"), edge("x", "y"), edge("y", "z"), edge("z", "x")])
    assert [(e.waiter, e.holder) for e in found] == [("x", "y"), ("y", "z"), ("z", "x")]


def test_the_sentence_names_lock_and_holder() -> None:
    (only,) = edges_of("torch's compile lock", ["drafter-1"], ["autograd-7 (drafter-0)"])
    assert str(only) == "autograd-7 (drafter-0) waits for torch's compile lock, held by drafter-1"


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), max_size=12))
def test_agrees_with_an_independent_search(pairs: list[tuple[str, str]]) -> None:
    found = find_cycle([edge(waiter, holder) for waiter, holder in pairs])
    assert bool(found) == has_cycle(pairs)
    if found:
        assert all((e.waiter, e.holder) in pairs for e in found)
        assert [e.holder for e in found] == [e.waiter for e in [*found[1:], found[0]]]
