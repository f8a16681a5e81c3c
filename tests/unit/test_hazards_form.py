"""The catalogue's form: every entry of every family can be read, listed, run and explained."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from harness.core.case import Case, read_case
from harness.core.errors import UserError
from harness.core.points import DOCS
from harness.core.versions import parse_specifier
from harness.hazards import FAMILIES, HAZARDS, find
from harness.hazards.base import NEEDS, Hazard, Signature, ThreadPattern

ROOT = Path(__file__).resolve().parents[2]
RELEASES = ("2.9.1", "2.11.0", "2.12.1", "2.13.0", "2.14.1")

each = pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.id)


def cases(hazard: Hazard) -> list[Case]:
    return [hazard.program, *([hazard.pipeline] if hazard.pipeline is not None else [])]


def source_of(case: Case) -> str:
    """The text of its program's module."""
    module, _, _ = case.scenario.workload.partition(":")
    assert module.startswith("harness.subject.programs."), module
    return (ROOT / (module.replace(".", "/") + ".py")).read_text("utf-8")


def words_of(case: Case) -> set[str]:
    """What stands in quotes in that module, and in its neighbours that it imports."""
    text = source_of(case)
    for neighbour in re.findall(r"^from \.(\w+) import", text, re.MULTILINE):
        text += (ROOT / "harness/subject/programs" / f"{neighbour}.py").read_text("utf-8")
    return set(re.findall(r'"([a-z0-9_.-]+)"', text))


def test_ids_are_unique_slugs_and_found() -> None:
    ids = [hazard.id for hazard in HAZARDS]
    assert len(ids) == len(set(ids)) == sum(map(len, FAMILIES))
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in ids)
    assert [find(name).id for name in ids] == ids


def test_an_unknown_hazard_is_one_line_with_the_nearest() -> None:
    with pytest.raises(UserError, match='did you mean "first-step-hole"'):
        find("first-step-whole")


@each
def test_what_a_person_reads_is_there(hazard: Hazard) -> None:
    for text in (hazard.title, hazard.window, hazard.effect, hazard.remedy):
        assert text.strip() == text
        assert text
        assert "  " not in text
    assert len(hazard.title) <= 100
    assert not hazard.title.endswith(".")
    assert hazard.remedy.endswith(".")
    for reference in hazard.reference:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", reference), reference


@each
def test_where_it_can_occur_is_said(hazard: Hazard) -> None:
    assert hazard.needs in NEEDS
    parse_specifier(hazard.versions)
    assert any(hazard.applies(release, cuda=2) for release in RELEASES)
    for release in hazard.found:
        parse_specifier(f"=={release}.*")
    cuda = max(case.scenario.devices.count("cuda") for case in [hazard.program])
    assert cuda == NEEDS[hazard.needs], "the program's devices are not what the hazard needs"


@each
def test_what_was_found_fits_the_versions(hazard: Hazard) -> None:
    for release, text in hazard.found.items():
        if re.search(r"\b(\d+)/\1\b", text):
            assert hazard.applies(f"{release}.0", cuda=2), f"reproduced on {release}, which is not {hazard.versions}"


@each
def test_its_programs_are_classes_in_files(hazard: Hazard) -> None:
    assert hazard.program.scenario.workload != "dflash"
    for case in cases(hazard):
        if case.scenario.workload != "dflash":
            _, _, name = case.scenario.workload.partition(":")
            classes = [node.name for node in ast.parse(source_of(case)).body if isinstance(node, ast.ClassDef)]
            assert name in classes


@each
def test_its_plans_can_be_carried_out_and_refuted(hazard: Hazard) -> None:
    for case in cases(hazard):
        assert case.name == hazard.id
        assert case.title
        assert case.scenario.schedule == "none"
        assert case.plan.counterfactual is not None
        case.plan.without_effect()
        if not case.plan.steps:
            assert not hazard.access or case.plan.counterfactual.axes or case.plan.counterfactual.settings


@each
def test_its_plans_name_marks_that_are_passed(hazard: Hazard) -> None:
    """A mark that is misspelt would leave the plan unreachable."""
    for case in cases(hazard):
        orders = (case.plan, case.plan.without_effect())
        points = [step.point for plan in orders for step in plan.steps]
        points += [gate.point for plan in orders for gate in plan.gates]
        marks = {point.removeprefix("mark.") for point in points if point not in DOCS}
        if marks:
            assert case.scenario.workload != "dflash", "the pipeline passes no marks"
            assert marks <= words_of(case)


@each
def test_its_roles_are_workers_of_its_program(hazard: Hazard) -> None:
    for kind in hazard.program.plan.roles.values():
        assert kind in ("any", "main") or f'"{kind}' in source_of(hazard.program), kind
    if hazard.pipeline is not None:
        kinds = {kind.split("-")[0] for kind in hazard.pipeline.plan.roles.values()}
        assert kinds <= {"drafter", "target", "main", "any"}


@each
def test_its_cases_survive_a_file(hazard: Hazard, tmp_path: Path) -> None:
    for number, case in enumerate(cases(hazard)):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(case.to_json()), encoding="utf-8")
        assert read_case(path) == case


@each
def test_its_signature_can_be_looked_for(hazard: Hazard) -> None:
    signature = hazard.signature
    for text in signature.errors:
        re.compile(text)
    assert not signature.frames or signature.errors, "frames are those of a traceback: it needs an error"
    for pattern in signature.threads:
        assert pattern.role in hazard.program.plan.roles or pattern.role in ("A", "B")
        assert pattern.doing
        assert pattern.frames
    assert len({pattern.role for pattern in signature.threads}) == len(signature.threads)
    stacks = [signature.frames, *(pattern.frames for pattern in signature.threads)]
    for stack in stacks:
        for number, frame in enumerate(stack, 1):
            innermost = number == len(stack) and frame.endswith("$")
            for one in frame.removesuffix("$" if innermost else "").split("|"):
                assert re.fullmatch(r"([\w/.-]+\.py:)?[\w<>.]+", one), frame


def test_a_hazard_says_why_it_cannot_come_about_here() -> None:
    hole, lock = find("first-step-hole"), find("capture-invalidated")
    assert hole.why_not("2.11.0+cu130") == ""
    assert hole.why_not("2.13.0+cpu") == "torch 2.13.0+cpu is not <2.13"
    assert lock.why_not("2.11.0+cu130", cuda=0) == "needs cuda"
    assert lock.applies("2.11.0+cu130", cuda=1)


def test_an_entry_without_a_pipeline_case_must_say_why() -> None:
    hole = find("first-step-hole")
    with pytest.raises(ValueError, match="does not say why"):
        Hazard("x", "x", "", "cpu", "", "", "", "x.", Signature(), hole.program)
    with pytest.raises(ValueError, match="needs = 'gpu'"):
        Hazard("x", "x", "", "gpu", "", "", "", "x.", Signature(), hole.program, elsewhere="x")
    assert Signature().silent
    assert not Signature(threads=(ThreadPattern("A", "waits", ("wait",)),)).silent
