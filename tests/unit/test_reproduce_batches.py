"""`reproduce` on an executor of several jobs: what runs at the same time, what no longer starts, what is told when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from fake_runs import make_row
from slots import Slots, first_ends, last_ends

from harness.control.batches import Batch, Work, together
from harness.control.reproduce import Reproduction, reproduce
from harness.control.request import Row, TrialRequest
from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Counterfactual, Plan, Step
from harness.core.scenario import Scenario

STEPS = (Step("A", "fx.window.open"), Step("B", "compiled_call.checked"))
PLAN = Plan({"A": "drafter", "B": "drafter"}, steps=STEPS, counterfactual=Counterfactual(steps=STEPS[:1]))
LOCKED = Scenario(lock="first_step", drafters=3)
FREE = {"A": "drafter", "B": "drafter"}
WORKERS = {f"drafter-{n}": {"role": "drafter"} for n in range(3)}
EFFECT = Effect(labels=("fx_error",))
Endings = Callable[[TrialRequest], str]


def case(scenario: Scenario = LOCKED, plan: Plan = PLAN) -> Case:
    return Case("h", "", scenario, plan, EFFECT)


def roles(request: TrialRequest) -> Mapping[str, str]:
    found: Mapping[str, str] = request.extra["plan"]["roles"]
    return found


def row(request: TrialRequest, ending: str) -> Row:
    """Of a trial of a plan that ended so. The free binding binds the first two drafters."""
    bound = dict(zip("AB", WORKERS, strict=False)) if roles(request) == FREE else dict(roles(request))
    order = "completed" if ending in ("reproduced", "harmless") else ending
    label = "fx_error" if ending == "reproduced" else "ok"
    told = {"order": order, "reason": "", "bindings": bound, "attempts": []}
    return make_row(request, label, workers=WORKERS, schedule=told)


def ends(endings: Endings) -> Callable[[TrialRequest], Row]:
    return lambda request: row(request, endings(request))


def run(slots: Slots, folder: Path, times: int = 1, what: Case | None = None) -> tuple[Reproduction, list[str]]:
    notes: list[str] = []
    return reproduce(what or case(), slots, folder, times=times, note=notes.append), notes


def test_after_the_free_binding_the_others_run_at_the_same_time(tmp_path: Path) -> None:
    slots = Slots(4, ends(lambda request: "excluded"))
    found, notes = run(slots, tmp_path)
    plans = [f"{number:03d}-plan" for number in range(1, 8)]
    assert slots.calls == [plans[:1], plans[1:]]
    assert slots.beside[:2] == [("001-plan",), tuple(plans[1:5])]
    assert (found.tried, found.merged, found.to_json()["excluded"]) == (7, 0, 1)
    assert notes == ["1/1: excluded"]


@pytest.mark.parametrize(("jobs", "started"), [(1, 3), (2, 4), (3, 4)])
def test_once_a_binding_reproduced_it_no_other_starts(tmp_path: Path, jobs: int, started: int) -> None:
    """The second of six does; with three jobs the other two that run beside it come to their end."""
    wanted = {"A": "drafter-0", "B": "drafter-2"}
    slots = Slots(
        jobs,
        ends(lambda request: "reproduced" if roles(request) == wanted else "excluded"),
        first_ends if jobs < 3 else lambda running: min(1, len(running) - 1),
    )
    found, _ = run(slots, tmp_path)
    plans = [name for name in slots.started if name.endswith("plan")]
    assert plans == [f"{number:03d}-plan" for number in range(1, started + 1)]
    assert found.tried == started
    assert found.trial == str(tmp_path / "trials" / "003-plan")
    assert slots.started[started:] == [f"{started + 1:03d}-counterfactual"]
    assert sorted(path.name for path in (tmp_path / "trials").iterdir()) == slots.started, "no folder without a trial"


def test_times_and_counterfactuals_run_at_the_same_time_and_are_told_in_order(tmp_path: Path) -> None:
    slots = Slots(3, ends(lambda request: "reproduced"), last_ends)
    found, notes = run(slots, tmp_path, times=5)
    assert ("002-plan", "003-plan", "004-plan") in slots.beside
    assert ("006-counterfactual", "007-counterfactual", "008-counterfactual") in slots.beside
    assert notes == [f"{number}/5: reproduced" for number in range(1, 6)] + ["counterfactual: 5/5"]
    assert (found.reproduced, found.counterfactual_reproduced, found.counterfactual_ordered) == (5, 5, 5)
    assert len(found.seconds) == 5


def test_a_time_is_told_as_soon_as_those_before_it_are(tmp_path: Path) -> None:
    notes: list[str] = []
    told_at: dict[str, int] = {}

    def outcome(request: TrialRequest) -> Row:
        told_at[request.trial_id] = len(notes)
        return row(request, "reproduced")

    reproduce(case(), Slots(1, outcome), tmp_path, times=3, note=notes.append)
    assert [told_at[f"{number:03d}-plan"] for number in (1, 2, 3)] == [0, 1, 2]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_time_that_ends_otherwise_is_looked_at_once_more_before_others_start(tmp_path: Path, jobs: int) -> None:
    """The second of four is harmless at first; what ran beside it counts."""
    slots = Slots(jobs, ends(lambda request: "harmless" if request.trial_id == "002-plan" else "reproduced"))
    found, notes = run(slots, tmp_path, times=4, what=case(plan=Plan(PLAN.roles, steps=STEPS)))
    assert notes == [f"{number}/4: reproduced" for number in range(1, 5)]
    again = "003-plan" if jobs == 1 else "004-plan"
    assert [again] in slots.calls, "the free binding, by itself"
    assert len(slots.started) == 5
    assert found.trial.endswith("001-plan")


def test_one_that_was_reproduced_later_is_the_one_to_show(tmp_path: Path) -> None:
    slots = Slots(2, ends(lambda request: "reproduced" if request.trial_id == "009-plan" else "excluded"))
    found, notes = run(slots, tmp_path, times=3)
    assert notes[:3] == ["1/3: excluded", "2/3: excluded", "3/3: reproduced"]
    assert (found.ending.name, found.reproduced, found.trial) == (
        "reproduced",
        1,
        str(tmp_path / "trials" / "009-plan"),
    )


def test_an_interrupt_is_passed_on_and_says_nothing(tmp_path: Path) -> None:
    def outcome(request: TrialRequest) -> Row:
        if request.trial_id == "003-plan":
            raise KeyboardInterrupt
        return row(request, "reproduced")

    notes: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        reproduce(case(), Slots(2, outcome), tmp_path, times=5, note=notes.append)
    assert notes == ["1/5: reproduced", "2/5: reproduced"]


def test_a_trial_that_was_interrupted_from_elsewhere_is_a_time_like_others(tmp_path: Path) -> None:
    def outcome(request: TrialRequest) -> Row:
        return make_row(request, "interrupted", reason="killed") if request.extra else row(request, "reproduced")

    found, notes = run(Slots(2, outcome), tmp_path, times=3)
    assert found.endings["undecided"] == 3
    assert notes[2] == "3/3: undecided (interrupted: killed)"


def test_a_harmless_order_of_like_workers_is_not_tried_again(tmp_path: Path) -> None:
    slots = Slots(2, ends(lambda request: "harmless"))
    found, _ = run(slots, tmp_path, what=case(Scenario(drafters=3)))
    document = found.to_json()
    assert (document["harmless"], document["bindings_tried"], document["bindings_merged"]) == (1, 1, 6)
    assert slots.started == ["001-plan"]
    found, _ = run(Slots(2, ends(lambda request: "harmless")), tmp_path / "locked")
    assert (found.tried, found.merged) == (7, 0)


def test_one_that_comes_about_late_saves_those_that_have_not_started(tmp_path: Path) -> None:
    slots = Slots(1, ends(lambda request: "harmless" if request.trial_id == "003-plan" else "excluded"))
    found, _ = run(slots, tmp_path, what=case(Scenario(drafters=3)))
    assert (found.ending.name, found.tried, found.merged) == ("harmless", 3, 4)


def two_rounds(folder: Path, said: list[str]) -> Work[str]:
    for number in (1, 2):
        request = TrialRequest(f"{number}", Scenario(), 0, folder / f"{number}")
        yield Batch([request], lambda request, row: said.append(f"{request.folder.parent.name} {row['trial']}"))
    return folder.name


def no_round() -> Work[str]:
    yield from ()
    return "none"


def test_several_works_share_an_executor_and_the_names_of_their_trials(tmp_path: Path) -> None:
    said: list[str] = []
    slots = Slots(2)
    works = {"a": two_rounds(tmp_path / "a", said), "none": no_round(), "b": two_rounds(tmp_path / "b", said)}
    results = together(slots, works)
    assert next(results) == ("none", "none")
    assert slots.started == [], "what is there is told before anything runs"
    assert list(results) == [("a", "a"), ("b", "b")]
    assert slots.beside == [("a/1", "b/1"), ("b/1",), ("a/2", "b/2"), ("b/2",)]
    assert said == ["a 1", "b 1", "a 2", "b 2"]
