"""Run folders, dumps and matrices that an accident touched: one line that says so, or the trial runs again."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_runs import fx_row, matrix, row

import harness
from harness.analysis.dump_stacks import from_pyspy_json
from harness.analysis.dumps import parse
from harness.control import rundir
from harness.control.dump_source import read_source, signs_of
from harness.control.matrices import refuse_other_matrix
from harness.control.recovery import ASIDE, recover
from harness.control.request import Row, TrialRequest
from harness.control.results import read_environment, read_rows
from harness.control.resuming import RunOptions
from harness.control.session import _matrix as matrix_of
from harness.core.errors import MatrixError, RunFolderError, UserError
from harness.core.events import read_events
from harness.core.scenario import Scenario
from harness.frames import Run

DEEP = "[" * 100_000
LONG = "9" * 5000
WRONG: list[Any] = [None, True, -1, 1.0, 1e308, math.nan, 10**30, "\ud800", [], {}, [[]], [{}], ["x"], [None], [-1]]


@pytest.fixture
def ended(tmp_path: Path) -> TrialRequest:
    """Of a trial that ended, as a killed run leaves it."""
    scenario = Scenario()
    folder = tmp_path / "trial"
    folder.mkdir()
    request = TrialRequest(f"{scenario.id}--r0", scenario, 0, folder)
    request.write_spec()
    (folder / "result.json").write_text(json.dumps({"outcomes": ["ok"], "steps_ok": 3}))
    return request


def _put(file: Path, text: str | None) -> None:
    """The text into the file; None makes a folder of it."""
    file.unlink(missing_ok=True)
    if text is None:
        file.mkdir()
    else:
        file.write_text(text)


def test_an_ended_trial_is_recovered(ended: TrialRequest) -> None:
    found = recover(ended)
    assert found is not None
    assert found["steps_ok"] == 3


@pytest.mark.parametrize("name", ["result.json", "spec.json"])
@pytest.mark.parametrize("text", [DEEP, None, "", "[]", '"x"', "{}"])
def test_a_damaged_trial_runs_again(ended: TrialRequest, name: str, text: str | None) -> None:
    _put(ended.folder / name, text)
    assert recover(ended) is None


@pytest.mark.parametrize(
    "result",
    [
        {"outcomes": 5, "errors": {"a": 1}},
        {"outcomes": []},
        {"outcomes": ["odd"]},
        {"outcomes": ["ok"], "errors": {"a": 1}},
        {"outcomes": ["ok"], "locks": [1]},
        {"outcomes": ["ok"], "locks": {"a": 1}},
        {"outcomes": ["ok"], "locks": None},
        {"outcomes": ["ok"], "steps_ok": "3"},
        {"outcomes": ["ok"], "workers": {"a": []}},
    ],
)
def test_a_result_of_another_shape_counts_for_nothing(ended: TrialRequest, result: object) -> None:
    _put(ended.folder / "result.json", json.dumps(result))
    assert recover(ended) is None


@pytest.mark.parametrize("text", [DEEP, None, "of the trial and no more"])
def test_a_damaged_row_that_was_set_aside_is_made_again(ended: TrialRequest, text: str | None) -> None:
    known = {"trial": ended.trial_id, "scenario": ended.scenario.to_dict()}
    _put(ended.folder / ASIDE, json.dumps(known) if text and text is not DEEP else text)
    found = recover(ended)
    assert found is not None
    assert found["exit"]["how"].startswith("not seen")


def test_a_whole_row_that_was_set_aside_is_taken(ended: TrialRequest) -> None:
    aside = row(ended.scenario, 0, wall_s=7.25)
    _put(ended.folder / ASIDE, json.dumps(aside))
    assert recover(ended) == aside


@pytest.mark.parametrize("text", ["[axes", "\udcff", "", None])
@pytest.mark.parametrize("named", [True, False])
def test_a_damaged_matrix_of_a_run_is_told(tmp_path: Path, text: str | None, named: bool) -> None:
    run, asked = tmp_path / "run", tmp_path / "asked.toml"
    run.mkdir()
    asked.write_text(matrix().text)
    if text is None:
        (run / "matrix.toml").mkdir()
    else:
        (run / "matrix.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=r"run.matrix\.toml"):
        matrix_of(RunOptions(matrix=str(asked) if named else None), run)


def test_matrices_that_are_no_toml_are_not_compared(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match=r"matrix\.toml: line 1: not valid TOML"):
        refuse_other_matrix(tmp_path, "[axes", "", tmp_path / "m.toml")


@pytest.mark.parametrize("number", [LONG, "0x" + "f" * 5000, "9223372036854775808"])
def test_a_number_that_toml_does_not_have_is_told(number: str) -> None:
    with pytest.raises(MatrixError, match="an integer has more than 64 bits"):
        matrix(f"[axes]\ndrafters = [{{a = {number}}}]\n")


def test_json_that_is_nested_without_end_is_told(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text(DEEP + "\n")
    with pytest.raises(RunFolderError, match="line 1"):
        list(read_rows(tmp_path))
    with pytest.raises(RunFolderError, match="line 1"):
        list(read_events(tmp_path / "results.jsonl"))
    (tmp_path / "environment.json").write_text(DEEP)
    with pytest.raises(RunFolderError, match="nested too deep"):
        read_environment(tmp_path)


Load = Callable[[Row], Run]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """`harness.load` of a run with this row."""
    with rundir.open_run(tmp_path, resume=False) as folder:
        folder.open_results(lambda note: None)
        folder.write("environment.json", rundir.dump_environment({}))

    def of(document: Row) -> Run:
        (tmp_path / "results.jsonl").write_text(json.dumps(document) + "\n")
        return harness.load(tmp_path)

    return of


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in it; of lists the first item."""
    items = list(value.items()) if isinstance(value, dict) else list(enumerate(value[:1])) if isinstance(value, list) else []
    return [place for key, inner in items for place in ((value, key), *_places(inner))]


def test_a_row_with_a_value_of_another_kind_is_refused_or_read(load: Load) -> None:
    whole = {**fx_row(Scenario()), "workers": {"a": {"steps_ok": 1}}, "probes": {"fx": "ok"}}
    read = 0
    for container, key in _places(whole):
        before = container[key]
        for wrong in WRONG:
            container[key] = wrong
            try:
                load(whole)
                read += 1
            except RunFolderError:
                pass
        container[key] = before
    assert read, "what no column shows is free"


@pytest.mark.parametrize(
    ("key", "value"),
    [("errors", [[]]), ("errors", 1.0), ("outcomes", 1.0), ("outcomes", [["x"]]), ("scenario", math.nan), ("exit", []),
     ("probes", -1), ("steps_ok", 1e308), ("tokens_per_s", [None]), ("errors", [{"tracers": [-1]}]), ("outcomes", None)],
)  # fmt: skip
def test_a_damaged_row_is_told_with_its_trial_and_key(load: Load, key: str, value: object) -> None:
    with pytest.raises(RunFolderError, match=f'trial .*--r0: .*"{key}"'):
        load({**row(), key: value})


def test_an_error_without_a_fingerprint_and_half_a_character_are_read(load: Load) -> None:
    found = load({**row(), "reason": "\udcff", "errors": [{"type": "E"}]})
    assert found.trials.reason[0] == "\\udcff"
    assert found.trials.fingerprint[0] == found.errors.fingerprint[0] == ""


@pytest.mark.parametrize("key", ["t", "th", "id", "k", "step", "tokens", "loss", "more"])
def test_an_event_with_a_value_of_another_kind_is_refused_or_read(load: Load, tmp_path: Path, key: str) -> None:
    found = load(row())
    (trial,) = found.events
    log = tmp_path / "trials" / trial / "events.jsonl"
    log.parent.mkdir(parents=True)
    for wrong in WRONG:
        log.write_text(json.dumps({"t": 1, "k": "step.done", key: wrong}) + "\n")
        with contextlib.suppress(RunFolderError):
            assert len(found.events[trial]) == 1
    log.write_text('{"k":"step.done"}\n')
    with pytest.raises(RunFolderError, match='event 1: "t" is not a number'):
        found.events[trial]


@pytest.mark.parametrize("text", ['{"a":' * 200_000, "[" * 200_000 + '"frames"', '{"errors": [{"tracers": 5}]}'])
def test_a_text_without_sense_is_explained_as_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "text.txt"
    file.write_text(text)
    source = read_source(str(file))
    assert not source.dump.threads
    assert all(not raised.type for raised in source.dump.exceptions)


@pytest.mark.parametrize(
    ("name", "text"),
    [("result.json", DEEP), ("spec.json", DEEP), *((name, None) for name in ("spec.json", "stacks.txt", "stdout.txt"))],
)
def test_a_trials_folder_with_a_damaged_file_is_told(ended: TrialRequest, name: str, text: str | None) -> None:
    folder = ended.folder
    (folder / "result.json").write_text('{"errors": []}')
    _put(folder / name, text)
    with pytest.raises(UserError, match=name):
        read_source(str(folder))
    if name in ("result.json", "stdout.txt"):
        with pytest.raises(UserError, match=name):
            signs_of(folder, {})


@pytest.mark.parametrize("wrong", [None, 5, [], {}, "text", [[]], [5]])
def test_stacks_of_json_with_a_value_of_another_kind_are_read(wrong: object) -> None:
    thread = {"pid": 1, "thread_name": "a", "thread_id": 2, "os_thread_id": 3, "frames": []}
    for key in thread:
        (found,) = from_pyspy_json([{**thread, key: wrong}])
        assert str(found)
    frame = {"name": "f", "filename": "a.py", "line": 3}
    for key in frame:
        (found,) = from_pyspy_json([{**thread, "frames": [{**frame, key: wrong}]}])
        assert str(found.frames[0])


@pytest.mark.parametrize("number", [LONG, "007", "12"])
@pytest.mark.parametrize(
    "text",
    [
        'Traceback (most recent call last):\n  File "a.py", line {n}, in f\nRuntimeError: x',
        'Thread 0x{n} (most recent call first):\n  File "a.py", line {n} in f',
        'Thread {n}/{n} (idle): "x"\n    f (a.py:{n})\n    g (a.py:²)',
        'Thread 1 (LWP {n}):\n#0 0x1 in f () from lib\n  File "a.py", line {n}, in f',
        "~~~ Stack of MainThread ({n}) ~~~\n  File \"a.py\", line {n}, in f",
        "a.py:{n}: in f\nE   RuntimeError: x",
        "a.py:{n}: RuntimeError\nE   RuntimeError: x",
    ],
)  # fmt: skip
def test_a_number_of_a_dump_may_be_of_any_length(text: str, number: str) -> None:
    found = parse(text.replace("{n}", number))
    stacks = [*(thread.frames for thread in found.threads), *(raised.frames for raised in found.exceptions)]
    frames = [frame for stack in stacks for frame in stack]
    assert [frame.line for frame in frames if frame.file == "a.py" and frame.function != "g"] == [
        None if number is LONG else int(number)
    ]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ('"$0" -m harness list m.toml >&-', "standard output is closed"),
        ('"$0" -m harness hazards >&-', "standard output is closed"),
        ('"$0" -m harness explain - <&-', "standard input is closed"),
    ],
)
def test_a_stream_that_was_closed_is_told(tmp_path: Path, command: str, said: str) -> None:
    (tmp_path / "m.toml").write_text(matrix().text)
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {said}")
    assert done.stderr.count("\n") == 1
