"""`harness hazards`: the list, one whole, JSON, and an interpreter without torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from harness import cli
from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Counterfactual, Gate, Plan, Step
from harness.core.scenario import Scenario
from harness.hazards import HAZARDS
from harness.hazards.base import Hazard, Signature
from harness.report.catalogue import At, hazard_json, hazard_whole_json, print_hazard, print_hazards
from harness.report.plan_words import counterfactual_lines, plan_lines

PLAN = Plan(
    {"A": "drafter", "B": "any"},
    gates=[Gate("!A", "compiled_call.enter", until="A traces")],
    steps=[
        Step("A", "fx.window.open", name="A traces", where="backward"),
        Step("B", "compiled_call.checked", nth=2, info="true"),
    ],
    counterfactual=Counterfactual(axes={"lock_owner": "worker"}, settings={"limit": 64}),
)


def hazard(name: str, versions: str = "", needs: str = "cpu", **more: Any) -> Hazard:
    scenario = Scenario(workload="harness.subject.programs.x:Y", drafters=2)
    case = Case(name, "a small program", scenario, PLAN, Effect(fact="effect"))
    return Hazard(
        name, f"the title of {name}", versions, needs, "the window", "the access", "the effect", "the remedy",
        Signature(), case, elsewhere="it has none", reference=("pytorch/pytorch#1",), found={"2.11": "20/20"}, **more,
    )  # fmt: skip


OLD, CUDA, ANY = hazard("old-one", "<2.12"), hazard("cuda-one", needs="cuda x2"), hazard("any-one")
HERE = At("2.13.0+cpu", 0, "/usr/bin/python3")


def shown(show: Callable[[Console], None]) -> str:
    console = Console(width=80, no_color=True)
    with console.capture() as captured:
        show(console)
    text = captured.get()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    return text


def test_those_that_can_happen_here_and_with_all_the_others() -> None:
    text = shown(lambda console: print_hazards(console, [OLD, CUDA, ANY], HERE, show_all=False))
    assert "any-one" in text
    assert "old-one" not in text
    assert "cuda-one" not in text
    assert "1 of 3 hazards can happen here; --all lists the other 2 too" in text
    text = shown(lambda console: print_hazards(console, [OLD, CUDA, ANY], HERE, show_all=True))
    assert [line.split()[0] for line in text.splitlines() if "-one " in line] == ["–", "–", "✓"]


def test_cuda_devices_count() -> None:
    assert At("2.13.0", 2, "py").why_not(CUDA) == ""
    assert At("2.13.0", 1, "py").why_not(CUDA) == "needs cuda x2"
    assert hazard_json(OLD, HERE)["why_not"] == "torch 2.13.0+cpu is not <2.12"


def test_without_torch_all_are_listed_and_nothing_is_claimed() -> None:
    bare = At(None, 0, "/opt/python")
    text = shown(lambda console: print_hazards(console, [OLD, CUDA, ANY], bare, show_all=False))
    assert "/opt/python has no torch" in text
    assert all(name in text for name in ("old-one", "cuda-one", "any-one"))
    assert "can happen here" not in text
    assert hazard_json(ANY, bare)["applies"] is None
    assert "has no torch" in shown(lambda console: print_hazard(console, ANY, bare))


def test_one_whole() -> None:
    text = shown(lambda console: print_hazard(console, OLD, HERE))
    for words in (
        "the title of old-one", "it cannot happen here", "the window", "the access", "the effect", "the remedy",
        "pytorch/pytorch#1", "x:Y with drafters=2", "not there: it has none", "torch 2.11", "20/20",
    ):  # fmt: skip
        assert words in text
    text = shown(lambda console: print_hazard(console, ANY, HERE))
    assert "harness reproduce any-one\n" in text
    assert "--in pipeline" not in text
    both = replace(ANY, pipeline=ANY.program, elsewhere="")
    text = shown(lambda console: print_hazard(console, both, HERE))
    assert "harness reproduce any-one --in pipeline" in text
    assert "the same plan" in text


def test_what_cannot_happen_has_no_commands_but_says_why() -> None:
    text = shown(lambda console: print_hazard(console, OLD, HERE))
    assert "none: it cannot happen here (torch 2.13.0+cpu is not <2.12)" in text
    assert "harness reproduce" not in text
    assert hazard_whole_json(OLD, HERE)["commands"] == []
    assert hazard_whole_json(OLD, At(None, 0, "py"))["commands"] == ["harness reproduce old-one"]


def test_commands_are_for_the_interpreter_that_was_named() -> None:
    other = replace(HERE, option="/opt/my python")
    both = replace(ANY, pipeline=ANY.program, elsewhere="")
    assert hazard_whole_json(both, other)["commands"] == [
        "harness reproduce any-one --python '/opt/my python'",
        "harness reproduce any-one --in pipeline --python '/opt/my python'",
        "harness reproduce any-one --lock compile_gate --python '/opt/my python'",
    ]


def test_a_plan_in_words() -> None:
    assert list(plan_lines(PLAN)) == [
        'A is a worker "drafter"',
        "B is any worker",
        "until step 1 is made, everyone but A is held at [compiled_call.enter]",
        "1. A passes [fx.window.open] inside the region backward: inside fx.Tracer.trace, its flag set and nn.Module patched",
        "2. B passes [compiled_call.checked] (true), the second time: it has read the flag",
    ]
    assert list(counterfactual_lines(PLAN)) == ["lock_owner = worker", "setting limit = 64"]
    assert list(plan_lines(Plan())) == ["nothing to order: it happens whatever the threads do"]


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(["hazards", *arguments])
        return (int(str(ended.value.code)), *capsys.readouterr())

    return run


def test_json_of_all(ran: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = ran("--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert [entry["id"] for entry in document] == [hazard.id for hazard in HAZARDS]
    for entry in document:
        assert {"id", "title", "applies", "versions", "needs", "reference", "window", "effect", "remedy", "found"} <= set(entry)
        assert isinstance(entry["applies"], bool)


def test_every_entry_of_the_catalogue_can_be_shown(ran: Callable[..., tuple[int, str, str]]) -> None:
    assert HAZARDS
    for each in HAZARDS:
        assert each.id in shown(lambda console, each=each: print_hazard(console, each, HERE))  # type: ignore[misc]
        json.dumps(hazard_whole_json(each, HERE))
    code, out, _ = ran(HAZARDS[0].id, "--json")
    assert (code, json.loads(out)["id"]) == (0, HAZARDS[0].id)
    assert ran("--all")[0] == 0


def test_no_colour_off_a_terminal(ran: Callable[..., tuple[int, str, str]]) -> None:
    assert "\x1b" not in ran()[1] + ran(HAZARDS[0].id)[1]


def test_bad_input(ran: Callable[..., tuple[int, str, str]]) -> None:
    for arguments, words in (
        (("fx-flag-colision",), 'did you mean "fx-flag-collision"?'),
        (("--python", "/nowhere/python"), "no such program"),
        (("a", "b"), "harness hazards --help"),
    ):
        code, out, err = ran(*arguments)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert words in err
