"""Directed plans on the planted programs: the order comes about every time, or the reason why it cannot is named."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from planted import programs
from planted.plans import ON_CORRECT, PLANS
from planted.rig import Run, StoppableLock, run

from harness.core.plan import Gate, Plan, PlanError, Step, bind
from harness.core.workload import Context, Worker

TIMES = 20
TWO = {"A": "worker", "B": "worker"}


class Program:
    """Workers whose bodies are given."""

    def __init__(self, *bodies: Callable[[Context, str], None], roles: tuple[str, ...] = ()) -> None:
        self._bodies, self._roles = bodies, roles

    def workers(self, ctx: Context) -> list[Worker]:
        roles = self._roles or ("worker",) * len(self._bodies)
        named = [(f"worker-{i}", role, body) for i, (role, body) in enumerate(zip(roles, self._bodies, strict=True))]
        return [Worker(name, role, "cpu", partial(body, ctx, name)) for name, role, body in named]

    def racy(self) -> bool:
        return False


def marks(*names: str) -> Callable[[Context, str], None]:
    def body(ctx: Context, worker: str) -> None:
        for name in names:
            ctx.mark(worker, name)

    return body


def directed(plan: Plan, *bodies: Callable[[Context, str], None], roles: tuple[str, ...] = (), **extra: Any) -> Run:
    return run(lambda: Program(*bodies, roles=roles), "directed", plan=plan, **extra)


@pytest.mark.parametrize("program", PLANS, ids=lambda program: program.__name__)
def test_a_plan_makes_the_race_happen_every_time_and_its_counterfactual_never(program: type[Any]) -> None:
    done = [run(program, "directed", plan=PLANS[program]) for _ in range(TIMES)]
    assert [each.failed for each in done] == [True] * TIMES
    assert {(each.told["order"], each.hopeless) for each in done} == {("completed", False)}
    against = [run(program, "directed", plan=PLANS[program].without_effect()) for _ in range(TIMES)]
    assert [each.failed for each in against] == [False] * TIMES
    assert {each.told["order"] for each in against} == {"completed"}


def test_on_the_correct_program_the_plan_is_excluded_and_the_lock_and_its_holder_are_named() -> None:
    for _ in range(TIMES):
        done = run(programs.Correct, "directed", plan=ON_CORRECT)
        assert not done.failed
        told = done.told
        assert (told["order"], done.hopeless) == ("excluded", True)
        assert told["lock"] == "the lock"
        assert told["holder"] == told["bindings"]["A"]
        assert "is held at mark.write" in told["reason"]


def test_blocked_is_transitive() -> None:
    """B waits for a worker that waits for a worker that waits for A's lock."""
    locks: list[StoppableLock] = []

    def holds(ctx: Context, name: str) -> None:
        locks.append(StoppableLock("lock a", ctx))
        locks[0].acquire(name)
        ctx.mark(name, "has")
        ctx.mark(name, "closing")
        locks[0].release()

    def between(ctx: Context, name: str) -> None:
        ctx.mark(name, "go")
        locks[0].acquire(name)
        locks[0].release()
        freed.set()

    def waits(ctx: Context, name: str) -> None:
        ctx.mark(name, "go")
        with ctx.waiting(name, "the other's answer", "worker-1"):
            assert freed.wait(10)
        ctx.mark(name, "there")

    freed = threading.Event()
    plan = Plan(
        {"A": "holder", "B": "waiter"},
        gates=[Gate("!A", "mark.go", until="A has it")],
        steps=[Step("A", "mark.has", name="A has it"), Step("B", "mark.there"), Step("A", "mark.closing")],
    )
    done = directed(plan, holds, between, waits, roles=("holder", "between", "waiter"))
    told = done.told
    assert told["order"] == "excluded", told
    assert told["holds"] == [
        "worker-2 waits for the other's answer, held by worker-1",
        "worker-1 waits for lock a, held by worker-0",
    ]


def test_a_wait_for_one_of_several_is_stuck_only_when_all_of_them_are() -> None:
    ready = threading.Event()

    def consumer(ctx: Context, name: str) -> None:
        with ctx.waiting(name, "queue.get", ("worker-0", "worker-1"), any_of=True):
            assert ready.wait(10)
        ctx.mark(name, "got")

    def slow(ctx: Context, name: str) -> None:
        ctx.mark(name, "produced")
        ready.set()

    plan = Plan(TWO | {"B": "consumer"}, steps=[Step("A", "mark.first"), Step("B", "mark.got"), Step("A", "mark.last")])
    done = directed(plan, marks("first", "last"), slow, consumer, roles=("worker", "other", "consumer"))
    assert done.told["order"] == "completed"


def test_being_starved_by_the_plans_own_hold_is_no_exclusion() -> None:
    """Only a queue stands between: nothing holds anything against the plan."""
    ready = threading.Event()

    def consumer(ctx: Context, name: str) -> None:
        with ctx.waiting(name, "queue.get", "worker-0"):
            assert ready.wait(10)
        ctx.mark(name, "got")

    def producer(ctx: Context, name: str) -> None:
        ctx.mark(name, "first")
        ctx.mark(name, "put")
        ready.set()

    plan = Plan({"A": "worker", "B": "other"}, steps=[Step("A", "mark.first"), Step("B", "mark.got"), Step("A", "mark.put")])
    done = directed(plan, producer, consumer, roles=("worker", "other"))
    assert done.told["order"] == "unreachable"
    assert "queue.get" in done.told["reason"]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (Plan({"A": "pilot"}, steps=[Step("A", "mark.a")]), 'nobody here is "pilot"'),
        (Plan({"A": "worker"}, steps=[Step("A", "mark.never")]), "has ended"),
        (Plan({"A": "worker"}, steps=[Step("A", "mark.a"), Step("A", "mark.a", nth=2)]), "ended without coming to"),
        (Plan({"A": "worker-9"}, steps=[Step("A", "mark.a")]), 'nobody here is "worker-9"'),
    ],
)
def test_a_role_that_can_no_longer_arrive_makes_the_plan_unreachable_at_once(plan: Plan, reason: str) -> None:
    done = directed(plan, marks("a", "b"), marks("a", "b"))
    assert done.told["order"] == "unreachable"
    assert reason in done.told["reason"]
    assert done.seconds < 5


def test_a_step_with_before_is_given_up_when_the_role_passes_by() -> None:
    plan = Plan({"A": "worker-0"}, steps=[Step("A", "mark.a"), Step("A", "mark.z", before="mark.b")])
    done = directed(plan, marks("a", "b", "z"), occurrences=1)
    assert done.told["order"] == "unreachable"
    assert "came to mark.b without" in done.told["reason"]


def test_an_attempt_that_missed_is_tried_again_at_the_next_occurrence() -> None:
    plan = Plan({"A": "worker"}, steps=[Step("A", "mark.a"), Step("A", "mark.z", before="mark.b")])
    done = directed(plan, marks("a", "b", "a", "b", "a", "z"))
    assert done.told["order"] == "completed"
    assert [attempt["ending"] for attempt in done.told["attempts"]] == ["unreachable"] * 2


def test_no_more_attempts_than_asked_for() -> None:
    plan = Plan({"A": "worker"}, steps=[Step("A", "mark.a"), Step("A", "mark.z", before="mark.b")])
    done = directed(plan, marks("a", "b", "a", "b", "a", "z"), occurrences=2)
    assert done.told["order"] == "unreachable"
    assert len(done.told["attempts"]) == 2


def test_a_wait_that_nobody_reports_ends_as_undecided_and_lets_everybody_go() -> None:
    release = threading.Event()

    def silent(ctx: Context, name: str) -> None:
        assert release.wait(20)  # no `waiting` around it
        ctx.mark(name, "b")

    def other(ctx: Context, name: str) -> None:
        ctx.mark(name, "a")
        ctx.mark(name, "c")
        release.set()

    plan = Plan({"A": "one", "B": "two"}, steps=[Step("A", "mark.a"), Step("B", "mark.b"), Step("A", "mark.c")])
    done = directed(plan, other, silent, roles=("one", "two"), silent_s=0.3)
    assert (done.told["order"], done.hopeless) == ("undecided", False)  # silence is no proof
    assert "worker-1 runs" in done.told["reason"]
    assert "worker-0 held at mark.c" in done.told["reason"]


def test_a_step_whose_thread_comes_to_no_further_point_is_named_where_the_plan_waits() -> None:
    """It has not happened yet, for all that anybody knows, so the next one is held."""
    release = threading.Event()

    def runs_on(ctx: Context, name: str) -> None:
        ctx.mark(name, "a")
        assert release.wait(20)

    def next_one(ctx: Context, name: str) -> None:
        ctx.mark(name, "b")
        release.set()

    plan = Plan({"A": "one", "B": "two"}, steps=[Step("A", "mark.a"), Step("B", "mark.b")])
    done = directed(plan, runs_on, next_one, roles=("one", "two"), silent_s=0.3)
    assert done.told["order"] == "undecided"
    assert "worker-1 held at mark.b. worker-0 made the step before and came to no point since" in done.told["reason"]


def test_nth_counts_since_the_roles_previous_step() -> None:
    plan = Plan(
        {"A": "one", "B": "two"},
        steps=[Step("A", "mark.a", nth=2), Step("A", "mark.a", nth=2), Step("B", "mark.b")],
    )
    done = directed(plan, marks("a", "a", "a", "a"), marks("b"), roles=("one", "two"))
    assert done.told["order"] == "completed"
    assert [(e["role"], e["event"]) for e in done.told["witness"]] == [("A", "step")] * 2 + [("B", "step")]


def test_info_and_region_narrow_a_step() -> None:
    def body(ctx: Context, name: str) -> None:
        with ctx.region("step", name):
            ctx.mark(name, "a")
            with ctx.region("backward", name):
                ctx.mark(name, "a")

    plan = Plan({"A": "worker"}, steps=[Step("A", "mark.a", where="backward")])
    done = directed(plan, body)
    assert done.told["witness"][0]["region"] == "step/backward"


def test_a_gate_binds_the_first_that_comes_and_holds_the_others_until_its_step() -> None:
    plan = Plan(
        TWO,
        gates=[Gate("!A", "mark.enter", until="A is in")],
        steps=[Step("A", "mark.in", name="A is in"), Step("B", "mark.enter")],
    )
    done = directed(plan, marks("enter", "in"), marks("enter", "in"))
    told = done.told
    assert told["order"] == "completed"
    assert told["bindings"]["A"] != told["bindings"]["B"]
    assert [e["point"] for e in told["witness"] if e["event"] == "step"] == ["mark.in", "mark.enter"]


def test_roles_bind_in_the_order_of_their_first_steps() -> None:
    """The first thread passes A's point while B is unbound, so it can still become B."""
    plan = Plan({"B": "worker", "A": "worker"}, steps=[Step("B", "mark.end"), Step("A", "mark.begin")])
    turn = threading.Event()

    def first(ctx: Context, name: str) -> None:
        ctx.mark(name, "begin")
        ctx.mark(name, "end")
        turn.set()

    def second(ctx: Context, name: str) -> None:
        with ctx.waiting(name, "its turn", "worker-0"):
            assert turn.wait(10)
        ctx.mark(name, "begin")

    done = directed(plan, first, second)
    assert done.told["order"] == "completed"
    assert done.told["bindings"] == {"B": "worker-0", "A": "worker-1"}


def test_a_bound_role_is_played_by_that_worker_alone() -> None:
    plan = bind(Plan(TWO, steps=[Step("A", "mark.a"), Step("B", "mark.a")]), {"A": "worker-1", "B": "worker-0"})
    for _ in range(5):
        done = directed(plan, marks("a"), marks("a"))
        assert done.told["order"] == "completed"
        assert [event["seat"] for event in done.told["witness"] if event["event"] == "step"] == ["worker-1", "worker-0"]


def test_what_follows_a_step_has_happened_when_the_next_is_made() -> None:
    """A gives B every chance to be early: it does not act before B has looked, or 0.2 s are over. B must not look."""
    looked = threading.Event()
    early: list[bool] = []

    def acts(ctx: Context, name: str) -> None:
        ctx.mark(name, "act")
        early.append(looked.wait(0.2))
        ctx.mark(name, "after")

    def looks(ctx: Context, name: str) -> None:
        ctx.mark(name, "look")
        looked.set()

    plan = Plan({"A": "one", "B": "two"}, steps=[Step("A", "mark.act"), Step("B", "mark.look")])
    directed(plan, acts, looks, roles=("one", "two"))
    assert early == [False]


def test_a_gate_opens_when_what_follows_its_step_has_happened() -> None:
    """As above, for a gate."""
    looked = threading.Event()
    early: list[bool] = []

    def acts(ctx: Context, name: str) -> None:
        ctx.mark(name, "act")
        early.append(looked.wait(0.2))
        ctx.mark(name, "after")

    def looks(ctx: Context, name: str) -> None:
        ctx.mark(name, "look")
        looked.set()

    plan = Plan(
        {"A": "one"},
        gates=[Gate("!A", "mark.look", until="A acts")],
        steps=[Step("A", "mark.act", name="A acts"), Step("A", "mark.after")],
    )
    directed(plan, acts, looks, roles=("one", "two"))
    assert early == [False]


def test_the_plan_must_be_given() -> None:
    with pytest.raises(PlanError, match="needs a plan"):
        run(programs.LostUpdate, "directed")


def test_the_witness_names_point_role_and_source() -> None:
    done = run(programs.LostUpdate, "directed", plan=PLANS[programs.LostUpdate])
    lines = [line for line in done.told["witness"] if line["event"] == "step"]
    assert [(line["role"], line["point"]) for line in lines] == [
        ("A", "mark.read"),
        ("B", "mark.read"),
        ("A", "mark.write"),
    ]
    assert all("programs.py" in line["source"] for line in lines)
    assert [event.point for event in done.recording.events] == ["mark.read", "mark.read", "mark.write"]  # type: ignore[union-attr]
