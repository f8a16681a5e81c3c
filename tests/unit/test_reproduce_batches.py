"""`reproduce` on an executor of several jobs: what runs at the same time, what no longer starts, what is told when."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from fake_runs import make_row
from rich.console import Console
from slots import Slots, first_ends, last_ends

from harness.control.batches import Batch, Work, together
from harness.control.reproduce import Reproduction, reproduce
from harness.control.request import Row, TrialRequest
from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Counterfactual, Plan, Step
from harness.core.scenario import Scenario
from harness.report.reproduction import print_reproduction

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
    """The second of four is harmless; what ran beside it counts, and what the second look came to stands apart."""
    slots = Slots(jobs, ends(lambda request: "harmless" if request.trial_id == "002-plan" else "reproduced"))
    found, notes = run(slots, tmp_path, times=4, what=case(plan=Plan(PLAN.roles, steps=STEPS)))
    said = {2: "harmless; at a second look reproduced"}
    assert notes == [f"{number}/4: {said.get(number, 'reproduced')}" for number in range(1, 5)]
    assert (found.reproduced, found.endings["harmless"], found.second_look, found.exit_code) == (3, 1, 1, 1)
    again = "003-plan" if jobs == 1 else "004-plan"
    assert [again] in slots.calls, "the free binding, by itself"
    assert len(slots.started) == 5
    assert found.trial.endswith("001-plan")


def test_one_that_was_reproduced_later_is_the_one_to_show(tmp_path: Path) -> None:
    slots = Slots(2, ends(lambda request: "reproduced" if request.trial_id == "009-plan" else "excluded"))
    found, notes = run(slots, tmp_path, times=3)
    assert notes[:3] == ["1/3: excluded", "2/3: excluded", "3/3: reproduced"]
    assert (found.ending.name, found.reproduced, found.second_look) == ("reproduced", 1, 0)
    assert found.trial == str(tmp_path / "trials" / "009-plan")


def test_one_that_only_a_second_look_reproduced_is_shown_and_is_no_time(tmp_path: Path) -> None:
    """The second of two is harmless, and the last of the bindings then does it."""
    kinds = {"008-plan": "harmless", "015-plan": "reproduced"}
    found, notes = run(Slots(1, ends(lambda request: kinds.get(request.trial_id, "excluded"))), tmp_path, times=2)
    assert notes[:2] == ["1/2: excluded", "2/2: harmless; at a second look reproduced"]
    assert (found.ending.name, found.trial) == ("reproduced", str(tmp_path / "trials" / "015-plan"))
    assert (found.reproduced, found.endings["excluded"], found.endings["harmless"], found.second_look) == (0, 1, 1, 1)
    assert (found.counterfactual_times, found.exit_code) == (2, 1)
    assert "h: reproduced 0/2, 1 more at a second look, harmless 1/2, excluded 1/2, " in printed(found)


def test_a_plan_that_is_reproduced_in_half_of_its_trials_is_told_so(tmp_path: Path) -> None:
    """Times 2 to 20 are one trial each, whatever the second looks come to: none is counted in another's place."""
    dice = random.Random(1)
    kinds: dict[str, str] = {}

    def half(request: TrialRequest) -> str:
        kinds[request.trial_id] = "harmless" if "counter" in request.trial_id else dice.choice(["reproduced", "excluded"])
        return kinds[request.trial_id]

    slots = Slots(1, ends(half))
    found, _ = run(slots, tmp_path, times=20)
    first = next(number for number, name in enumerate(slots.started) if kinds[name] == "reproduced")
    trials = iter(slots.started[first + 1 :])
    own, again = 1, 0
    for _ in range(19):
        if kinds[next(trials)] == "reproduced":
            own += 1
        else:  # seven at most, up to the first that does
            again += any(kinds[next(trials)] == "reproduced" for _ in range(7))
    assert next(trials) == f"{len(slots.started) - 19:03d}-counterfactual"
    assert (found.reproduced, found.endings["excluded"], found.second_look) == (own, 20 - own, again)
    assert (own < 16, found.exit_code, found.to_json()["second_look"]) == (True, 1, again)
    assert f"h: reproduced {own}/20, {again} more at a second look, excluded {20 - own}/20, " in printed(found)


@pytest.mark.parametrize("label", ["out_of_memory", "setup_error", "skipped", "interrupted"])
@pytest.mark.parametrize("plan", [PLAN, Plan(FREE, steps=STEPS, counterfactual=Counterfactual(axes={"checkpoint": "none"}))])
def test_a_counterfactual_that_says_nothing_is_not_tried(tmp_path: Path, label: str, plan: Plan) -> None:
    found, notes = run(Slots(2, silent(label, "counterfactual")), tmp_path, times=3, what=case(plan=plan))
    assert (found.reproduced, found.exit_code) == (3, 3)
    assert notes[-1] == f"counterfactual: could not be tried ({label}: no room)"
    other = {"times": 0, "reproduced": 0, "ordered": 0, "silent": 3, "reason": f"{label}: no room"}
    assert found.to_json()["counterfactual"] == other
    said = f"h: reproduced 3/3, counterfactual could not be tried: 3 trials said nothing ({label}: no room)"
    assert said in printed(found).splitlines()


def test_of_a_counterfactual_only_what_says_something_counts(tmp_path: Path) -> None:
    found, notes = run(Slots(2, silent("out_of_memory", "4-counterfactual", "harmless")), tmp_path, times=3)
    assert (found.exit_code, notes[-1]) == (0, "counterfactual: 0/2")
    other = {"times": 2, "reproduced": 0, "ordered": 2, "silent": 1, "reason": "out_of_memory: no room"}
    assert found.to_json()["counterfactual"] == other
    assert "counterfactual 0/2 (1 more said nothing: out_of_memory: no room)" in printed(found)


def silent(label: str, which: str, counterfactual: str = "reproduced") -> Callable[[TrialRequest], Row]:
    """Trials that reproduce it, but for those with such a name, which say nothing."""

    def outcome(request: TrialRequest) -> Row:
        if which in request.trial_id:
            return make_row(request, label, workers=WORKERS, reason="no room")
        return row(request, counterfactual if "counterfactual" in request.trial_id else "reproduced")

    return outcome


def test_a_first_time_that_says_nothing_is_not_what_is_told_of_the_others(tmp_path: Path) -> None:
    def outcome(request: TrialRequest) -> Row:
        early = request.trial_id < "008"
        return make_row(request, "out_of_memory", workers=WORKERS) if early else row(request, "harmless")

    found, _ = run(Slots(1, outcome), tmp_path, times=4)
    assert (found.exit_code, found.ending.name) == (1, "harmless")
    assert (found.endings["undecided"], found.endings["harmless"]) == (1, 3)
    found, _ = run(Slots(1, lambda request: make_row(request, "out_of_memory", workers=WORKERS)), tmp_path / "all", times=4)
    assert (found.exit_code, found.endings["undecided"]) == (3, 4)


def test_a_binding_that_said_something_is_something(tmp_path: Path) -> None:
    """One of seven is excluded, the others had no memory: undecided, but not that nothing was learnt."""
    kinds = ends(lambda request: "excluded")
    found, _ = run(
        Slots(1, lambda r: kinds(r) if r.trial_id == "003-plan" else make_row(r, "out_of_memory", workers=WORKERS)), tmp_path
    )
    assert (found.ending.name, found.exit_code) == ("undecided", 1)


def printed(found: Reproduction) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    print_reproduction(console, found)
    return console.export_text()


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
