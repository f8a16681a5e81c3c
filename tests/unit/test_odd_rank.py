"""The rank that does something else than the others."""

from __future__ import annotations

import pytest

from harness.analysis.odd_rank import odd_ranks
from harness.core.stuck.views import Frame, ThreadView


def rank(*stack: tuple[str, int], still: bool = True, worker: str = "") -> list[ThreadView]:
    main = ThreadView("MainThread", 1, [Frame(function, "/app/a.py", line) for function, line in stack], still=still)
    return [main, ThreadView("w", 2, [Frame(worker, "/app/a.py", 1)], still=True)] if worker else [main]


REDUCE = rank(("all_reduce", 9), ("train", 5))


def test_the_rank_in_another_function_is_odd() -> None:
    found = odd_ranks({"0": REDUCE, "1": REDUCE, "2": rank(("read", 3), ("train", 4)), "3": REDUCE})
    assert found.odd == ("2",)
    assert found.groups == (("0", "1", "3"), ("2",))
    assert "functions" in found.by


def test_the_rank_on_another_line_is_odd_where_all_are_in_one_function() -> None:
    found = odd_ranks({"0": REDUCE, "1": REDUCE, "2": rank(("all_reduce", 9), ("train", 7))})
    assert found.odd == ("2",)
    assert "lines" in found.by


def test_the_line_of_a_thread_that_runs_says_nothing() -> None:
    ranks = {str(i): rank(("step", i), still=False) for i in range(3)}
    assert odd_ranks(ranks).odd == ()
    assert odd_ranks(ranks).by == ""


def test_other_threads_count_when_the_main_threads_agree() -> None:
    ranks = {str(i): rank(("train", 1), worker="load" if i == 1 else "idle") for i in range(3)}
    assert odd_ranks(ranks).odd == ("1",)


@pytest.mark.parametrize("count", [2, 4])
def test_without_a_majority_nobody_is_odd(count: int) -> None:
    ranks = {str(i): rank(("read" if i % 2 else "all_reduce", 1)) for i in range(count)}
    found = odd_ranks(ranks)
    assert found.odd == ()
    assert len(found.groups) == 2


def test_all_alike_and_none() -> None:
    assert odd_ranks({"0": REDUCE, "1": REDUCE}).odd == ()
    assert odd_ranks({}).groups == ()
