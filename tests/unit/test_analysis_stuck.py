"""Deadlocks, hangs and crashes of many trials, by what was waited for."""

from __future__ import annotations

import pytest
from fake_runs import row

from harness.analysis.stuck import MOST_KINDS, kinds_of_wait
from harness.analysis.summary import summarise
from harness.core.scenario import Scenario

ONE = "a waits for the strategy lock, held by b; b waits for autograd's thread of cuda:0, held by autograd-12 (a)"
ROUND = "autograd-9 (c) waits for autograd's thread of cuda:1, held by d; d waits for the strategy lock, held by c"
OTHER = "a waits for torch's compile lock, held by b; b waits for autograd's thread of cuda:0, held by a"


def test_a_cycle_is_known_by_its_kinds_of_wait_wherever_it_begins() -> None:
    assert kinds_of_wait(ONE) == kinds_of_wait(ROUND)
    assert kinds_of_wait(ONE) != kinds_of_wait(OTHER)


@pytest.mark.parametrize("more", ["", "no event for 30 s; ", "something else; "])
def test_what_is_no_cycle_alone_is_known_by_its_words_but_for_numbers(more: str) -> None:
    assert kinds_of_wait(more + "t-1 sleeps") == kinds_of_wait(more.replace("30", "45.5") + "t-2 sleeps")
    assert kinds_of_wait(f"x; {ONE}") != kinds_of_wait(ONE)


def test_crashes_are_of_one_kind_whoevers_threads_had_ended() -> None:
    by = "the process ended by SIGSEGV"
    one, other, two = (f"{by}, after {who} had ended" for who in ("drafter-0", "drafter-1", "drafter-0 and drafter-1"))
    assert kinds_of_wait(one) == kinds_of_wait(other) == kinds_of_wait(two)
    assert kinds_of_wait(one) != kinds_of_wait(by)


def test_trials_are_counted_by_kind_and_scenario_with_the_first_as_the_example() -> None:
    two = Scenario(lock="per_call")
    rows = [row(None, 0, "deadlock", reason=OTHER), row(None, 1, "deadlock", reason=ONE), row(None, 2)]
    rows += [row(two, 0, "deadlock", reason=ROUND), row(two, 1, "crash", "fx_error"), row(two, 2, "hang", reason=ONE)]
    found = summarise(rows).stuck
    assert [(group.label, group.trials, group.reason) for group in found] == [
        ("deadlock", 2, ONE),
        ("deadlock", 1, OTHER),
        ("crash", 1, ""),
        ("hang", 1, ONE),
    ]
    assert found[0].scenarios == {Scenario().id: 1, two.id: 1}
    assert found[0].trial == rows[1]["trial"]


def test_reasons_without_end_are_counted_together() -> None:
    rows = [row(None, n, "hang", reason="x" * n) for n in range(MOST_KINDS + 7)]
    found = summarise(rows).stuck
    assert len(found) == MOST_KINDS + 1
    assert (found[0].trials, found[0].reason) == (7, "other reasons, see the report")
