"""Files that were edited or damaged: each is refused in one line, whatever stands in it."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.analysis.dump_tracebacks import traceback_at
from harness.control.bisect_question import Asked, make_question
from harness.control.dump_source import read_source
from harness.control.minimise import read_pair
from harness.control.replay import read_trial
from harness.core.case import read_case
from harness.core.endings import Effect
from harness.core.errors import UserError
from harness.core.plan import Gate, Plan, PlanError, Step, bind, parse_plan
from harness.core.recording import Recording, read_recording
from harness.core.scenario import Scenario
from harness.report.trial_events import read_trial_events

DEEP = "[" * 100_000
WRONG: list[Any] = [None, 5, True, [], [[]], "text", {"odd": 1}]
CASE: dict[str, Any] = {
    "schema": 1,
    "scenario": {},
    "settings": {},
    "effect": {"labels": ["crash"], "fact": "", "text": ""},
    "plan": {
        "roles": {"A": "any"},
        "gates": [{"who": "!A", "point": "engine.enter", "until": "n"}],
        "steps": [{"role": "A", "point": "engine.exit", "nth": 1, "name": "n"}],
        "counterfactual": {"gates": [], "steps": [{"role": "A", "point": "engine.exit"}], "axes": {}, "settings": {}},
    },
}


def _paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, inner in items for path in _paths(inner, (*at, key)))]


@pytest.mark.parametrize("path", _paths(CASE), ids=lambda path: ".".join(map(str, path)) or "all")
def test_a_case_with_a_value_of_another_kind_is_refused_or_read(tmp_path: Path, path: tuple[Any, ...]) -> None:
    file = tmp_path / "case.json"
    for wrong in WRONG:
        document = json.loads(json.dumps({"": CASE}))
        place = document
        keys = ["", *path]
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = wrong
        file.write_text(json.dumps(document[""]))
        with contextlib.suppress(UserError):  # whose text is one line by itself
            read_case(file)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [(("plan", "steps"), None), (("plan", "gates"), 5), (("scenario",), []), (("effect",), None), (("settings",), []),
     (("plan", "steps", 0, "role"), None), (("plan", "steps", 0, "point"), None), (("plan", "gates", 0, "until"), None),
     (("plan", "counterfactual", "axes"), None), (("plan", "counterfactual", "steps"), True),
     (("effect", "labels"), "crash"), (("effect", "labels", 0), []), (("effect", "fact"), None)],
)  # fmt: skip
def test_what_a_case_needs_is_named(tmp_path: Path, field: tuple[Any, ...], wrong: Any) -> None:
    document = place = json.loads(json.dumps(CASE))
    for key in field[:-1]:
        place = place[key]
    place[field[-1]] = wrong
    (tmp_path / "case.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match=str([key for key in field if isinstance(key, str)][-1])):
        read_case(tmp_path / "case.json")


def test_what_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    file.write_text(DEEP)
    for read in (read_case, read_recording):
        with pytest.raises(UserError):
            read(file)
    with pytest.raises(PlanError):
        parse_plan(DEEP)


def _trial(folder: Path, **given: Any) -> Path:
    folder.mkdir(parents=True)
    spec = {"scenario": {"schedule": "delays:1"}, "pipeline": {}, "extra": {}}
    result = {"outcomes": ["crash"]}
    Recording((), {"workers": {}}).write(folder)
    for name, document in {"spec": spec, "result": result, **given}.items():
        (folder / f"{name}.json").write_text(document if document == DEEP else json.dumps(document))
    return folder


@pytest.mark.parametrize("document", [{}, [], 5, None, "text", DEEP, {"scenario": None}, {"outcomes": [[]]}])
@pytest.mark.parametrize("name", ["spec", "result"])
def test_a_trial_that_is_damaged_is_refused(tmp_path: Path, name: str, document: Any) -> None:
    folder = _trial(tmp_path / "t", **{name: document})
    for read in (read_trial, lambda path: read_pair(path, None)):
        with pytest.raises(UserError, match=r"spec\.json|result"):
            read(folder)


def test_a_damaged_neighbour_is_no_passing_trial(tmp_path: Path) -> None:
    failing = _trial(tmp_path / "t")
    Recording(((("A", "engine.exit", "")),), {"workers": {}}).write(failing)  # type: ignore[arg-type]
    documents: list[Any] = [{}, [], 5, None, DEEP]
    for number, document in enumerate(documents):
        _trial(tmp_path / f"spec-{number}", spec=document)
        _trial(tmp_path / f"result-{number}", result=document)
    assert read_pair(failing, None)[1] is None


@pytest.mark.parametrize("key", ["workers", "bindings"])
@pytest.mark.parametrize("wrong", [None, 5, [], {"A": None}])
def test_a_recording_whose_head_names_no_workers_is_refused(tmp_path: Path, key: str, wrong: Any) -> None:
    Recording((), {key: wrong}).write(tmp_path)
    with pytest.raises(UserError, match=key):
        read_recording(tmp_path)


def test_values_of_another_kind_are_refused_by_each_reader() -> None:
    wrongs: list[Any] = [None, 5, [], "text"]
    for wrong in wrongs:
        for read in (Plan.from_json, Effect.from_json, Scenario.from_dict, lambda value: bind(Plan(), value)):
            with pytest.raises(UserError):
                read(wrong)


def test_numbers_that_json_has_no_word_for_are_left_out_of_a_trace(tmp_path: Path) -> None:
    events = ['{"t": 1, "k": "memory", "a": NaN, "r": 1e999, "b": 5}', '{"t": 2, "k": "x", "in": [1, {"y": -Infinity}]}']
    (tmp_path / "events.jsonl").write_text("\n".join([*events, '{"t": NaN, "k": "x"}', ""]))
    found, notes = read_trial_events(tmp_path)
    assert found == [{"t": 1, "k": "memory", "b": 5}, {"t": 2, "k": "x"}]
    assert notes[0].startswith("1 line of the event log")
    assert notes[1] == "3 values of events that are no finite number; left out"


@pytest.mark.parametrize("who", ["A", "!B"])
def test_a_gate_that_keeps_a_role_from_a_step_before_it_opens_is_refused(who: str) -> None:
    roles = {"A": "x", "B": "x"}
    first, last = Step("A", "engine.enter"), Step("B", "fx.window.open", name="last")
    second = Step("A", "engine.exit", nth=2)
    with pytest.raises(PlanError, match="neither could ever happen"):
        Plan(roles, [Gate(who, "engine.exit", until="last")], [first, second, last])
    Plan(roles, [Gate(who, "engine.exit", until="last")], [first, Step("A", "engine.exit"), last])  # the step is let by
    Plan(roles, [Gate(who, "engine.exit", until="last")], [first, last, second])


@pytest.mark.parametrize("torch", ["damage", 5.5, [], None, "2.13.0+cpu"])
def test_a_damaged_version_is_as_good_as_none(tmp_path: Path, torch: Any) -> None:
    errors = [{"type": "RuntimeError", "message": "x", "traceback": ""}]
    (tmp_path / "result.json").write_text(json.dumps({"torch": torch, "errors": errors}))
    assert re.fullmatch(r"(\d.*)?", read_source(str(tmp_path)).torch)


@pytest.mark.parametrize("option", ["p_min", "alpha"])
def test_a_share_that_no_trials_could_tell_from_none_is_refused(option: str) -> None:
    with pytest.raises(UserError, match="1e-300"):
        make_question(Asked("locks", **{option: 1e-300}))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="take 1e-06 or more"):
        make_question(Asked("locks", **{option: 1e-300}))  # type: ignore[arg-type]


class _Counted(list[str]):
    looked = 0

    def __getitem__(self, at: Any) -> Any:
        self.looked += len(range(*at.indices(len(self)))) if isinstance(at, slice) else 1
        return super().__getitem__(at)


@pytest.mark.parametrize("indent", ["", "    "])
def test_a_traceback_is_read_no_further_than_it_goes(indent: str) -> None:
    """Else a log of many short ones takes hours."""
    one = ["Traceback (most recent call last):", '  File "a.py", line 1, in f', "    g()", "ValueError: no", ""]
    lines = _Counted(indent + line for line in one * 1_000)
    found = traceback_at(lines, 0)
    assert found is not None
    assert (found[0], [raised.message for raised in found[1]]) == (4, ["no"])
    assert lines.looked < 100
