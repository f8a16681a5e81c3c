"""`harness explain FILE`: what it takes, what it prints, and its exit codes."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dump_texts import FOLDER, HEALTHY, read

from harness import cli
from harness.analysis.dumps import parse
from harness.control.dump import ProcessDump
from harness.control.processes import Process
from harness.core.stuck.views import Frame as Held
from harness.core.stuck.views import ThreadView
from harness.report.process_dump import process_json, process_text

COLLISION = FOLDER / "fx-flag-collision.txt"
MESSAGE = b"RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function."
Ran = tuple[int, str, str]


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """(exit code, standard output, standard error)."""
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            cli.main(["explain", *arguments])
        out, err = capsys.readouterr()
        return int(str(ended.value.code)), out, err

    return run


def test_a_hazard_with_its_thread_versions_remedy_and_command(explain: Callable[..., Ran]) -> None:
    code, out, err = explain(str(COLLISION))
    assert (code, err) == (0, "")
    assert out.startswith("fx-flag-collision  ")
    assert 'Thread "caller" raised the exception' in out
    assert "at torch/_dynamo/eval_frame.py:" in out
    for words in ("<2.14; needs cpu", "remedy ", "harness reproduce fx-flag-collision", "pytorch/pytorch#126024"):
        assert words in out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "\x1b" not in out


def test_standard_input_gives_the_same(explain: Callable[..., Ran]) -> None:
    assert explain("-", stdin=COLLISION.read_bytes())[:2] == explain(str(COLLISION))[:2]


def test_json(explain: Callable[..., Ran]) -> None:
    code, out, _ = explain(str(COLLISION), "--json")
    document = json.loads(out)
    first = document["matches"][0]
    assert (code, first["id"], first["certain"]) == (0, "fx-flag-collision", True)
    assert first["roles"][0]["thread"] == 'Thread "caller"'
    assert first["reproduce"] == "harness reproduce fx-flag-collision"
    assert {"versions", "needs", "remedy", "window", "access", "effect", "why", "reference"} <= set(first)
    assert document["exceptions"][0]["type"] == "RuntimeError"


def test_none_that_is_known(explain: Callable[..., Ran]) -> None:
    code, out, _ = explain(str(HEALTHY[0]))
    assert (code, out.splitlines()[0]) == (1, "none that is known")
    assert "3 stacks, 0 exceptions" in out
    code, out, _ = explain(str(HEALTHY[0]), "--json")
    assert (code, json.loads(out)["matches"]) == (1, [])
    code, out, _ = explain("-", stdin=b"the training is slow today\n")
    assert (code, out.splitlines()[0]) == (1, "none that is known")


def test_a_message_in_a_sentence(explain: Callable[..., Ran]) -> None:
    said = b"we get: Detected that you are using FX to symbolically trace a dynamo-optimized function - why?\n"
    code, out, _ = explain("-", stdin=said)
    assert code == 0
    assert out.startswith("fx-flag-collision")


def test_of_one_message_the_first_hazard_is_whole_and_others_are_a_line_the_likely_ones_first(
    explain: Callable[..., Ran],
) -> None:
    code, out, _ = explain("-", stdin=MESSAGE)
    assert code == 0
    assert out.count("remedy ") == 1
    block = out.split("\nthe same message is also that of\n")[1].split("\n\n")[0].splitlines()
    listed = [line.split() for line in block if "harness hazards " in line]
    assert [words[0] for words in listed] == sorted(words[0] for words in listed)  # likely, possible
    assert {words[0] for words in listed} == {"likely", "possible"}
    matches = json.loads(explain("-", "--json", stdin=MESSAGE)[1])["matches"]
    assert sorted(words[-1] for words in listed) == sorted(one["id"] for one in matches[1:])
    assert block[-2].split()[0] == "but"
    assert max(len(line) for line in out.splitlines()) <= 80


def test_stacks_that_no_hazard_fits_are_sent_to_dump(explain: Callable[..., Ran]) -> None:
    out = " ".join(explain(str(HEALTHY[0]))[1].split())
    assert "a text of stacks does not say who holds a lock: while it hangs, harness dump PID does" in out
    assert "harness dump" not in explain("-", stdin=b"the training is slow today\n")[1]


def _stacks(path: Path) -> list[dict[str, Any]]:
    """A stored text of py-spy as its JSON has it: innermost first."""
    return [
        {
            "pid": 7,
            "thread_id": thread.ident,
            "thread_name": thread.name or None,
            "os_thread_id": thread.native_id,
            "active": "active" in thread.state,
            "owns_gil": "gil" in thread.state,
            "frames": [
                {"name": frame.function, "filename": frame.file, "line": frame.line or 0} for frame in reversed(thread.frames)
            ],
        }
        for thread in parse(read(path)).threads
    ]


DEADLOCK = FOLDER / "compile-lock-engine-deadlock.2.13.native.txt"


def _dumped(path: Path, torch: str) -> dict[str, Any]:
    """What `harness dump --json` has of it."""
    process = Process(7, 1, "python train.py", "S", True, torch=torch)
    return process_json(ProcessDump(process, raw=tuple(_stacks(path))))


def test_the_json_of_a_dump_says_what_its_text_does(explain: Callable[..., Ran]) -> None:
    document = json.dumps(_dumped(DEADLOCK, "2.13.0")).encode()
    code, out, _ = explain("-", stdin=document)
    assert code == 0
    assert out == explain(str(DEADLOCK))[1]


def test_who_waits_for_a_lock_is_known_without_native_frames(explain: Callable[..., Ran]) -> None:
    document = _dumped(FOLDER / "user-lock-inversion.native.txt", "2.13.0")
    for thread in document["stacks"]:
        thread["frames"] = [frame for frame in thread["frames"] if frame["filename"].endswith(".py")]
    idents = {thread["thread_name"]: thread["thread_id"] for thread in document["stacks"]}
    assert "user-lock-inversion" not in explain("-", stdin=json.dumps(document).encode())[1]
    document["waits"] = [{"kind": "lock", "ident": ident} for ident in idents.values()]
    code, out, _ = explain("-", stdin=json.dumps(document).encode())
    assert code == 0
    assert out.startswith("user-lock-inversion  ")


def test_what_a_dump_has_found_is_told_though_no_hazard_fits(explain: Callable[..., Ran]) -> None:
    finding = {"kind": "deadlock", "text": "a waits for lock `x` (t.py:3), which b took at t.py:9", "threads": ["a", "b"]}
    document = {**_dumped(HEALTHY[0], ""), "findings": [finding]}
    code, out, _ = explain("-", stdin=json.dumps(document).encode())
    assert code == 1
    assert out.startswith("  told     deadlock: a waits for lock `x` (t.py:3), which b took at t.py:9\n")
    assert "harness dump PID does" not in out, "it has"
    told = json.loads(explain("-", "--json", stdin=json.dumps(document).encode())[1])["told"]
    assert told == ["deadlock: a waits for lock `x` (t.py:3), which b took at t.py:9"]


def test_a_trial_s_reason_comes_before_what_else_it_shows(explain: Callable[..., Ran], tmp_path: Path) -> None:
    row = {"torch": "2.11.0", "outcome": "deadlock", "outcomes": ["deadlock"], "reason": "a waits for b", "errors": []}
    (tmp_path / "result.json").write_text(json.dumps(row), encoding="utf-8")
    assert explain(str(tmp_path))[1].startswith("  told     deadlock: a waits for b\n")
    (tmp_path / "result.json").write_text(json.dumps({**row, "outcome": "ok", "outcomes": ["ok"]}), encoding="utf-8")
    assert "  told  " not in explain(str(tmp_path))[1]


LEAKS = {
    "torch": "2.13.0", "outcome": "ok", "outcomes": ["ok"], "errors": [],
    "workers": {"drafter-0": {"counts": {"is_compiling_leaks": 3}}},
}  # fmt: skip
WELL = "this trial ended well (outcome ok)"


def test_of_a_trial_that_ended_well_that_comes_first(explain: Callable[..., Ran], tmp_path: Path) -> None:
    trial = tmp_path / "trials" / "t"
    trial.mkdir(parents=True)

    def explained(**row: object) -> tuple[int, str]:
        """What is said before the hazard, if any."""
        (trial / "result.json").write_text(json.dumps({**LEAKS, **row}), encoding="utf-8")
        code, out, _ = explain(str(trial))
        assert json.loads(explain(str(trial), "--json")[1])["ended_well"] is out.startswith(WELL)
        return code, out.split("compiling-leak  ")[0]

    assert explained() == (0, f"{WELL}; what follows was seen, and did not fail it\n\n")
    code, out = explained(workers={})
    assert (code, out.startswith(f"{WELL}\n\nnone that is known\n")) == (1, True)
    assert explained(outcome="dense", outcomes=["dense"]) == (0, "")
    assert explained(final=False) == (0, ""), "a watched process that has not ended"
    rows = tmp_path / "results.jsonl"
    rows.write_text("".join(json.dumps({**LEAKS, "trial": name}) + "\n" for name in ("t", "u")), encoding="utf-8")
    assert explained()[1].startswith(WELL)
    rows.write_text(json.dumps({**LEAKS, "trial": "t", "outcome": "numerics"}) + "\n", encoding="utf-8")
    assert explained() == (0, ""), "its run has found it wrong"
    rows.write_text("no row\n", encoding="utf-8")
    assert explained() == (0, "")


@pytest.mark.parametrize(
    ("order", "outcome", "first"),
    [
        ("completed", "fx_error", "first-step-hole"),
        ("excluded", "fx_error", "fx-flag-collision"),
        ("completed", "ok", "fx-flag-collision"),
    ],
)
def test_a_trial_that_carried_out_its_plan_shows_the_plan_s_hazard(
    explain: Callable[..., Ran], tmp_path: Path, order: str, outcome: str, first: str
) -> None:
    """The message alone is that of several hazards, with other remedies."""
    message = "Detected that you are using FX to symbolically trace a dynamo-optimized function."
    error = {"label": "fx_error", "thread": "a", "type": "RuntimeError", "message": message, "traceback": "", "tracers": []}
    row = {"torch": "2.11.0", "outcome": outcome, "outcomes": [outcome], "errors": [error], "schedule": {"order": order}}
    (tmp_path / "result.json").write_text(json.dumps(row), encoding="utf-8")
    (tmp_path / "spec.json").write_text(json.dumps({"extra": {"plan_of": "first-step-hole"}}), encoding="utf-8")
    out = explain(str(tmp_path))[1]
    assert out.split(f"{WELL}; what follows was seen, and did not fail it\n\n")[-1].startswith(f"{first}  ")
    assert ("carried out its plan" in out) is (first == "first-step-hole")


def test_the_json_of_a_tree_names_the_hazard_of_one_rank(explain: Callable[..., Ran]) -> None:
    ranks = [_dumped(HEALTHY[0], ""), {**_dumped(DEADLOCK, "2.13.0"), "pid": 8}, {"pid": 9, "failed": True, "stacks": []}]
    document = json.dumps({"pid": 1, "odd": None, "processes": ranks}).encode()
    code, out, _ = explain("-", "--json", stdin=document)
    assert [each["id"] for each in json.loads(out)["matches"]] == ["compile-lock-engine-deadlock"]
    assert code == 0


def test_the_text_of_a_dump_is_refused_with_what_to_give(explain: Callable[..., Ran]) -> None:
    threads = (ThreadView("trainer", 1, (Held("wait", "/usr/lib/python3.11/threading.py", 327),), still=True),)
    text = process_text(ProcessDump(Process(7, 1, "python train.py", "S", True, torch="2.13.0"), threads))
    code, out, err = explain("-", stdin=text.encode())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "harness dump PID --json" in err
    code, out, _ = explain("-", stdin=text.encode() + b"\n" + COLLISION.read_bytes())
    assert (code, out.splitlines()[0].split()[0]) == (0, "fx-flag-collision"), "a log that has a traceback as well"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b" \n\t\n", "empty"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0\0", "no text"),
        (bytes(range(128, 256)) * 20, "no text"),
    ],
)
def test_input_that_is_none(explain: Callable[..., Ran], tmp_path: Path, data: bytes, words: str) -> None:
    file = tmp_path / "dump.txt"
    file.write_bytes(data)
    for arguments, stdin in (((str(file),), b""), (("-",), data)):
        code, out, err = explain(*arguments, stdin=stdin)
        assert (code, out) == (2, "")
        assert err.startswith("error: ")
        assert words in err
        assert err.count("\n") == 1


def test_no_such_file_and_no_trial(explain: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.jsonl").write_text("", encoding="utf-8")
    for name, words in (("nowhere.txt", "No such file"), (".", "no trial's folder"), ("run", "name one of its trials/")):
        code, _, err = explain(str(tmp_path / name))
        assert (code, err.count("\n")) == (2, 1)
        assert words in err


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_what_windows_writes(explain: Callable[..., Ran], tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "dump.txt"
    file.write_bytes(read(COLLISION).replace("\n", "\r\n").encode(encoding))
    assert explain(str(file))[0] == 0


ROW: dict[str, Any] = {
    "schema": 1,
    "trial": "001",
    "torch": "2.11.0+cu130",
    "outcome": "fx_error",
    "errors": [
        {
            "label": "fx_error", "type": "RuntimeError", "message": "…", "thread": "drafter-1", "worker": "drafter-1",
            "traceback": read(COLLISION).split("\n", 1)[1],
            "tracers": [
                {
                    "thread": "drafter-0", "worker": "drafter-0", "region": "forward",
                    "stack": '  File "/opt/venv/torch/fx/_symbolic_trace.py", line 890, in trace\n    self.graph = Graph()\n',
                }
            ],
        }
    ],
}  # fmt: skip


def test_a_row_a_file_of_rows_and_a_trials_folder(explain: Callable[..., Ran], tmp_path: Path) -> None:
    trial = tmp_path / "trials" / "001"
    trial.mkdir(parents=True)
    (trial / "result.json").write_text(json.dumps(ROW, indent=1), encoding="utf-8")
    (trial / "stacks.txt").write_text("", encoding="utf-8")
    (tmp_path / "results.jsonl").write_text(f"{json.dumps(ROW)}\n{json.dumps({**ROW, 'trial': '002'})}\n", encoding="utf-8")
    for name in (trial, trial / "result.json", tmp_path / "results.jsonl"):
        code, out, _ = explain(str(name))
        assert code == 0
        assert out.startswith("fx-flag-collision")
        assert 'A        Thread "drafter-0" was inside an FX trace' in out
        assert 'B        Thread "drafter-1" raised the exception' in out


def test_a_trial_of_a_torch_that_cannot_have_the_hazard(explain: Callable[..., Ran], tmp_path: Path) -> None:
    for torch, known in (("2.11.0", True), ("2.13.0+cpu", False)):
        (tmp_path / "result.json").write_text(json.dumps({**ROW, "torch": torch}), encoding="utf-8")
        matches = json.loads(explain(str(tmp_path), "--json")[1])["matches"]
        assert ("first-step-hole" in [found["id"] for found in matches]) is known


PATCHER = '''\
Traceback (most recent call last):
  File "/home/me/train.py", line 3, in <module>
    part()
  File "/opt/torch/nn/attention/flex_attention.py", line 2623, in flex_attention
    out()
  File "/opt/torch/_higher_order_ops/flex_attention.py", line 759, in create_fw_bw_graph
    make_fx()
  File "/opt/torch/fx/_symbolic_trace.py", line 908, in trace
    with _new_patcher() as patcher:
  File "/opt/torch/fx/_symbolic_trace.py", line 1249, in _new_patcher
    raise AssertionError("CURRENT_PATCHER is None in finally block")
AssertionError: CURRENT_PATCHER is None in finally block
'''


def test_uncompiled_attention_comes_before_the_trace_that_it_is(explain: Callable[..., Ran]) -> None:
    def ids(text: str) -> list[str]:
        return [one["id"] for one in json.loads(explain("-", "--json", stdin=text.encode())[1])["matches"]]

    assert ids(PATCHER) == ["eager-flex-unsafe", "fx-flag-stuck"]
    function = PATCHER.replace("nn/attention/flex_attention.py", "fx/interpreter.py").replace("in flex_attention", "in run")
    assert ids(function) == ["fx-flag-stuck"], "compiled, or no attention"


def test_a_row_s_dense_calls_are_named_before_what_came_of_them(explain: Callable[..., Ran], tmp_path: Path) -> None:
    row = {
        "torch": "2.14.1", "outcomes": ["dense", "graph_corrupt"], "dense_calls": 70,
        "errors": [{"label": "graph_corrupt", "thread": "drafter-0", "traceback": PATCHER, "tracers": []}],
    }  # fmt: skip
    (tmp_path / "result.json").write_text(json.dumps(row), encoding="utf-8")
    (tmp_path / "spec.json").write_text(json.dumps({"scenario": {"dynamo": "limit_in_main"}}), encoding="utf-8")
    code, out, _ = explain(str(tmp_path))
    assert code == 0
    assert out.startswith("dense-by-thread-config  ")
    assert "why      70 calls of attention ran uncompiled" in out
    assert "also fits eager-flex-unsafe" in out
    assert "what the row of the trial tells" in out
    (tmp_path / "spec.json").unlink()
    out = explain(str(tmp_path))[1]
    assert out.startswith("eager-flex-unsafe  ")
    block = out.split("\n70 calls of attention ran uncompiled\n")[1]
    assert "  possible harness hazards dense-by-recompile-limit\n" in block
    (tmp_path / "stdout.txt").write_text("[0/8] torch._dynamo hit config.recompile_limit (8)", encoding="utf-8")
    (tmp_path / "spec.json").write_text(json.dumps({"scenario": {"dynamo": "default"}}), encoding="utf-8")
    assert explain(str(tmp_path))[1].startswith("dense-by-recompile-limit  ")


LEAKED = "the state of torch's random generator changed while comp compiled; the compile put the old state back"


def test_a_run_of_one_trial_is_that_trial_and_a_leak_has_its_hazard(explain: Callable[..., Ran], tmp_path: Path) -> None:
    trial = tmp_path / "trials" / "process-7"
    trial.mkdir(parents=True)
    problems = [{"label": "state_leak", "text": LEAKED}]
    row = {"torch": "2.13.0", "outcomes": ["state_leak"], "errors": [], "problems": problems}
    (trial / "result.json").write_text(json.dumps(row), encoding="utf-8")
    (tmp_path / "results.jsonl").write_text(json.dumps(row), encoding="utf-8")
    code, out, err = explain(str(tmp_path))
    assert (code, err) == (0, "")
    assert out.startswith("rng-rewind  ")
    assert out.splitlines()[-1] == "read: what the row of the trial tells"
    assert (code, out) == explain(str(trial))[:2]
    (tmp_path / "trials" / "process-8").mkdir()
    code, _, err = explain(str(tmp_path))
    assert (code, "name one of its trials/" in err) == (2, True)


def test_what_ended_a_process_before_its_account_is_read_from_its_output(
    explain: Callable[..., Ran], tmp_path: Path
) -> None:
    (tmp_path / "stacks.txt").touch()
    (tmp_path / "stdout.txt").write_bytes(b"loading\n" + COLLISION.read_bytes())
    code, out, _ = explain(str(tmp_path))
    assert (code, out.split()[0]) == (0, "fx-flag-collision")
    (tmp_path / "result.json").write_text('{"outcome": "ok", "outcomes": ["ok"], "errors": []}', encoding="utf-8")
    assert explain(str(tmp_path))[0] == 1, "what a trial printed that gave its account is not what ended it"


def test_a_damaged_result(explain: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"errors": [', encoding="utf-8")
    code, _, err = explain(str(tmp_path))
    assert (code, err.count("\n")) == (2, 1)
    assert "no JSON" in err


def test_control_characters_of_a_dump_do_not_reach_the_terminal(explain: Callable[..., Ran]) -> None:
    text = read(COLLISION).replace("in thread caller", "in thread \x07\x9b31mcaller\u202e")
    _, out, _ = explain("-", stdin=text.encode())
    assert not set(out) & {"\x07", "\x9b", "\u202e", "\x1b"}
