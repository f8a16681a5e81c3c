"""The plan language: what it accepts, what it refuses and in which words, and how a trial's ending is judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.case import Case, read_case
from harness.core.endings import Effect, Ending, combine, judge
from harness.core.errors import MatrixError, UserError
from harness.core.plan import Counterfactual, Gate, Plan, PlanError, Step, bind, parse_plan
from harness.core.points import DOCS, POINTS, check_point
from harness.core.scenario import Scenario

ROLES = {"A": "drafter", "B": "drafter"}
STEPS = [Step("A", "fx.window.open", name="A traces"), Step("B", "compiled_call.checked"), Step("A", "fx.window.closing")]
PLAN = Plan(
    ROLES,
    gates=[Gate("!A", "compiled_call.enter", until="A traces")],
    steps=STEPS,
    counterfactual=Counterfactual(
        gates=[Gate("!A", "compiled_call.enter", until="A is through")],
        steps=[Step("A", "region.step.exit", name="A is through")],
        axes={"steps": 2},
        settings={"tokens": 64},
    ),
)


def test_a_plan_survives_json() -> None:
    assert Plan.from_json(json.loads(json.dumps(PLAN.to_json()))) == PLAN


def test_its_source_is_the_plan() -> None:
    simple = Plan(ROLES, PLAN.gates, PLAN.steps)
    names = {"Plan": Plan, "Gate": Gate, "Step": Step}
    assert eval(simple.source(), names) == simple


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Plan(ROLES, steps=[Step("A", "fx.windw.open"), Step("B", "engine.exit")]), 'did you mean "fx.window.open"'),
        (lambda: Plan(ROLES, steps=[Step("C", "engine.exit")]), 'no role is called "C"'),
        (lambda: Plan({"A": "x"}, steps=[Step("A", "engine.exit", nth=0)]), "the first occurrence is 1"),
        (lambda: Plan({"A": "x"}, steps=[Step("A", "engine.exit", where="backwards")]), 'did you mean "backward"'),
        (lambda: Plan({"A": "x"}, steps=[Step("A", "engine.exit", before="nowhere")]), 'no sync point is called "nowhere"'),
        (lambda: Plan({"A": "x"}, steps=[Step("A", "engine.exit", name="n")] * 2), 'two steps are called "n"'),
        (
            lambda: Plan(ROLES, gates=[Gate("!A", "engine.enter", until="A trace")], steps=STEPS),
            'did you mean "A traces"',
        ),
        (lambda: Plan(ROLES, gates=[Gate("!X", "engine.enter", until="A traces")], steps=STEPS), 'no role is called "X"'),
        (lambda: Plan({**ROLES, "C": "target"}, steps=STEPS), 'role "C" has no step'),
        (lambda: Plan({"not a name": "x"}, steps=[]), "is no name"),
        (lambda: Plan({"A": ""}, steps=[Step("A", "engine.exit")]), "binds to nothing"),
        (lambda: Plan(counterfactual=Counterfactual()), "changes nothing"),
        (lambda: bind(PLAN, {"C": "drafter-0"}), 'no role is called "C"'),
        (lambda: bind(PLAN, {"A": "drafter-0", "B": "drafter-0"}), "bound to two roles"),
        (lambda: Plan().without_effect(), "no counterfactual"),
        (lambda: parse_plan('{"roles": {"A": "x", "A": "y"}}'), '"A" is bound twice'),
        (lambda: parse_plan("{"), "no JSON"),
        (lambda: parse_plan('{"role": {}}'), 'did you mean "roles"'),
        (lambda: parse_plan('{"steps": [{"role": "A"}]}'), 'has no "point"'),
        (lambda: parse_plan('{"steps": [{"role": "A", "point": "engine.exit", "nht": 2}]}'), 'did you mean "nth"'),
        (lambda: parse_plan('{"steps": [7]}'), "no table"),
        (lambda: parse_plan('{"roles": ["A"]}'), "no table of names"),
        (lambda: parse_plan('{"steps": [{"role": "A", "point": 3}]}'), "is no text"),
    ],
)
def test_what_is_refused_and_how(make: Any, message: str) -> None:
    with pytest.raises(PlanError) as error:
        make()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_axis_of_the_remedy_is_checked() -> None:
    with pytest.raises(MatrixError, match="lock"):
        Plan(counterfactual=Counterfactual(axes={"lock": "evry_step"}))


def test_the_counterfactual_is_a_plan_with_the_roles_that_it_uses() -> None:
    other = PLAN.without_effect()
    assert other.roles == {"A": "drafter"}
    assert [step.point for step in other.steps] == ["region.step.exit"]


def test_every_point_is_described_and_a_workload_may_have_its_own() -> None:
    assert set(POINTS) == set(DOCS)
    assert all(DOCS.values())
    assert check_point("mark.my-own.point") == "mark.my-own.point"
    for bad in ("mark.", "mark. a", "mark", "region.steps.enter"):
        with pytest.raises(UserError):
            check_point(bad)


def row(outcomes: tuple[str, ...] = ("ok",), order: str = "", **more: Any) -> dict[str, Any]:
    told = {"order": order, "reason": "because"} if order else {}
    return {"outcomes": list(outcomes), "outcome": outcomes[0], "schedule": told, "reason": "", **more}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (row(("fx_error",), "completed"), "reproduced"),
        (row(("ok",), "completed"), "harmless"),
        (row(("error",), "completed"), "harmless"),
        (row(("error", "crash"), "completed"), "undecided"),  # the process died first
        (row(("cuda_fault",), "completed"), "undecided"),
        (row(("hang",), "completed"), "undecided"),
        (row(("fx_error", "crash"), "completed"), "reproduced"),
        (row(("ok",), "excluded"), "excluded"),
        (row(("ok",), "unreachable"), "unreachable"),
        (row(("ok",), "undecided"), "undecided"),
        (row(("fx_error",), "excluded"), "undecided"),  # it came all the same: nothing was excluded
        (row(("setup_error",), ""), "undecided"),
        (row(("out_of_memory",), "completed"), "undecided"),
        (row(("crash",), ""), "undecided"),
    ],
)
def test_order_and_effect_give_the_ending(given: dict[str, Any], name: str) -> None:
    assert judge(PLAN, Effect(labels=("fx_error",)), given).name == name


def test_a_plan_without_steps_has_only_an_effect() -> None:
    effect = Effect(fact="effect")
    assert judge(Plan(), effect, row(facts={"effect": True})).name == "reproduced"
    assert judge(Plan(), effect, row(facts={"effect": False})).name == "harmless"
    assert judge(Plan(), effect, row()).name == "harmless"


def test_an_effect_by_its_text() -> None:
    effect = Effect(labels=("error",), text="metadata")
    error = {"label": "error", "message": "different metadata"}
    assert effect.seen(row(("error",), errors=[error]))
    assert not effect.seen(row(("error",), errors=[{**error, "message": "other"}]))
    assert Effect.from_json(effect.to_json()) == effect


@pytest.mark.parametrize("bad", [{}, {"labels": ("fx_eror",)}])
def test_an_effect_that_nothing_could_show_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="effect"):
        Effect(**bad)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["excluded", "unreachable"], "excluded"),
        (["unreachable", "unreachable"], "unreachable"),
        (["excluded", "harmless"], "harmless"),
        (["excluded", "undecided"], "undecided"),
        (["undecided", "reproduced"], "reproduced"),
        ([], "undecided"),
    ],
)
def test_several_attempts_together(names: list[str], expected: str) -> None:
    assert combine([Ending(name) for name in names]).name == expected


@pytest.mark.parametrize(
    ("excluded", "unreachable", "expected"), [(0, 2, "unreachable"), (2, 2, "excluded"), (2, 0, "excluded")]
)
def test_the_attempt_that_came_furthest_says_why_a_plan_cannot_be(excluded: int, unreachable: int, expected: str) -> None:
    steps = {"excluded": excluded, "unreachable": unreachable}
    endings = [Ending(name, "", {"attempts": [{"ending": name, "steps": steps[name]}]}) for name in steps]
    assert combine(endings).name == combine(endings[::-1]).name == expected


def test_a_case_survives_its_file(tmp_path: Path) -> None:
    case = Case("mine", "what", Scenario().replace(steps=2), PLAN, Effect(labels=("fx_error",)), {"tokens": 64})
    (tmp_path / "case.json").write_text(json.dumps(case.to_json()))
    assert read_case(tmp_path / "case.json") == case


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "schema"),
        ({"plans": {}}, 'no key "plans"'),
        ({"scenario": {"lok": "none"}}, 'did you mean "lock"'),
        ({"effect": {}}, "effect"),
        ({"plan": {"roles": {"A": "x"}, "steps": [{"role": "A", "point": "fx.windoww.open"}]}}, "fx.window.open"),
    ],
)
def test_a_bad_case_file_names_itself_and_what_is_wrong(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    case = Case("mine", "what", Scenario(), PLAN, Effect(labels=("fx_error",)))
    (tmp_path / "case.json").write_text(json.dumps({**case.to_json(), **change}))
    with pytest.raises(UserError) as error:
        read_case(tmp_path / "case.json")
    assert message in str(error.value)
    assert "case.json" in str(error.value)


def test_a_case_file_that_binds_a_role_twice_is_refused(tmp_path: Path) -> None:
    case = Case("mine", "what", Scenario(), PLAN, Effect(labels=("fx_error",)))
    text = json.dumps(case.to_json()).replace('"A": "drafter"', '"A": "drafter", "A": "target"')
    (tmp_path / "case.json").write_text(text)
    with pytest.raises(PlanError, match="bound twice"):
        read_case(tmp_path / "case.json")


def test_a_case_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_case(tmp_path / "none.json")
