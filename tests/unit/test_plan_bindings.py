"""Which bindings of a plan are tried: all, but for those that only exchange workers which nothing tells apart."""

from __future__ import annotations

from typing import Any

import pytest

from harness.control.bindings import MOST_BINDINGS, Ways, alike, bindings
from harness.core.case import Case
from harness.core.endings import Effect, Ending
from harness.core.plan import Plan, Step
from harness.core.scenario import Scenario

WORKERS = {**{f"drafter-{n}": "drafter" for n in range(4)}, "target-0": "target"}
TWO = Plan({"A": "drafter", "B": "drafter"}, steps=[Step("A", "fx.window.open"), Step("B", "compiled_call.checked")])

EFFECT = Effect(labels=("fx_error",))


def case(plan: Plan = TWO, effect: Effect = EFFECT, **axes: Any) -> Case:
    return Case("h", "", Scenario(drafters=4, **axes), plan, effect)


def tried(ways: Ways) -> list[str]:
    """Those that are needed as things stand, A and B by number."""
    return [
        "".join(worker[-1] for worker in binding.values()) for n, binding in enumerate(ways.all) if ways.needed(n)
    ]


def harmless(a: str, b: str) -> Ending:
    return Ending("harmless", "", {"bindings": {"A": f"drafter-{a}", "B": f"drafter-{b}"}})


OK = {"outcomes": ["ok"]}


def test_every_way_and_no_worker_twice() -> None:
    ways = Ways(case(), WORKERS)
    assert len(tried(ways)) == 12
    assert ways.merged == 0
    many = {f"drafter-{n}": "drafter" for n in range(20)}
    assert len(list(bindings(TWO, many))) == MOST_BINDINGS


def test_a_harmless_order_speaks_for_all_that_exchange_like_workers() -> None:
    ways = Ways(case(), WORKERS)
    ways.ended(harmless("0", "1"), OK)
    assert tried(ways) == []
    assert ways.merged == 12


def test_of_each_kind_one_is_tried() -> None:
    """A may be anybody: with a target as A it is another order than with a drafter."""
    plan = Plan({"A": "any", "B": "drafter"}, steps=TWO.steps)
    ways = Ways(case(plan), WORKERS)
    ways.ended(harmless("0", "1"), OK)
    assert [ways.all[n]["A"] for n in range(len(ways.all)) if ways.needed(n)] == ["target-0"] * 4
    assert ways.merged == 12


@pytest.mark.parametrize("ending", ["excluded", "unreachable", "undecided"])
def test_an_order_that_did_not_come_about_speaks_for_itself_alone(ending: str) -> None:
    """Drafters are served in turn, so who is first at a lock differs by binding."""
    ways = Ways(case(), WORKERS)
    ways.ended(Ending(ending, "", {"bindings": {"A": "drafter-0", "B": "drafter-1"}}), OK)
    assert len(tried(ways)) == 12


def test_nor_does_one_that_ended_by_another_failure_or_bound_nobody() -> None:
    ways = Ways(case(), WORKERS)
    ways.ended(harmless("0", "1"), {"outcomes": ["error"]})
    ways.ended(Ending("harmless", "", {"bindings": {"A": "drafter-0"}}), OK)
    ways.ended(Ending("harmless", "", {"bindings": {"A": "drafter-0", "B": "MainThread"}}), OK)
    assert len(tried(ways)) == 12


def test_when_one_reproduced_it_none_is_needed() -> None:
    ways = Ways(case(lock="first_step"), WORKERS)
    ways.ended(Ending("reproduced", "", {}), {"outcomes": ["fx_error"]})
    assert tried(ways) == []
    assert ways.merged == 0


def test_the_first_of_those_that_are_alike_stands_for_them() -> None:
    assert alike(case(), WORKERS) == {**{f"drafter-{n}": "drafter-0" for n in range(4)}, "target-0": "target-0"}
    apart = case(lock="thread_local_fx", devices="cuda:0/cuda:1")
    assert set(alike(apart, WORKERS).values()) == {"drafter-0", "target-0"}


@pytest.mark.parametrize(
    "axes",
    [
        {"shapes": "per_drafter"},
        {"shapes": "variable"},
        {"devices": "cuda:0+cuda:1"},
        {"devices": "cuda:0/cuda:0+cuda:1"},
        {"code": "each"},
        {"cudagraphs": "trees"},
        {"replicas": "synchronised"},
        {"workload": "my_training:Run"},
        *({"lock": lock} for lock in ("per_call", "first_step", "compile_gate", "warm_gate", "every_step", "process")),
    ],
    ids=str,
)
def test_where_it_is_not_certain_nobody_stands_for_another(axes: dict[str, Any]) -> None:
    ways = Ways(case(**axes), WORKERS)
    ways.ended(harmless("0", "1"), OK)
    assert len(tried(ways)) == 12


def test_workers_that_the_plan_or_its_effect_names_are_not_alike() -> None:
    named = Plan({"A": "drafter-1", "B": "drafter"}, steps=TWO.steps)
    assert alike(case(named), WORKERS) == {}
    said = Effect(labels=("fx_error",), text="drafter-2 failed")
    assert alike(case(effect=said), WORKERS) == {}
