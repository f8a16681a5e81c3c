"""`harness trace`: what a trial's events become, held against the rules of the Trace Event Format."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from fake_folder import write_folder
from fake_runs import row
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import cli
from harness.core.eventfile import CHUNK_BYTES
from harness.report.trace import trace_document

MS = 1_000_000


def event(ms: float, kind: str, thread: str = "drafter-0", **more: Any) -> dict[str, Any]:
    return {"t": int(ms * MS), "th": thread, "id": hash(thread) % 1000, "w": thread, "k": kind, **more}


COLLISION = [
    event(0, "subject.start", "MainThread"),
    event(1, "region.enter", r="step"),
    event(2, "region.enter", r="attention"),
    event(3, "compile_lock.wait"),
    event(4, "compile_lock.acquired"),
    event(5, "compile.start", what="frame"),
    event(6, "fx.trace.enter"),
    event(6, "region.enter", "drafter-1", r="step"),
    event(7, "region.enter", "drafter-1", r="attention"),
    event(8, "flag.checked", "drafter-1", answer=True, tracers="drafter-0"),
    event(9, "region.exit", "drafter-1", r="attention", error=1),
    event(10, "region.exit", "drafter-1", r="step", error=1),
    event(11, "step.failed", "drafter-1", step=0, label="fx_error", error="RuntimeError"),
    event(12, "fx.trace.exit"),
    event(13, "compile.end", what="frame", ok=True),
    event(14, "compile_lock.released"),
    event(15, "dense.call"),
    event(16, "dense.call"),
    event(17, "region.exit", r="attention"),
    event(18, "strategy_lock.wait", lock="first_step"),
    event(19, "strategy_lock.acquired", lock="first_step"),
    event(20, "region.exit", r="step"),
    event(21, "strategy_lock.released", lock="first_step"),
]


def of(document: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    return [one for one in document["traceEvents"] if all(one.get(key) == value for key, value in wanted.items())]


def check(document: dict[str, Any]) -> None:
    """The rules of the format, written from its text: none of the converter's own functions are used here.

    Slices of a track nest; async spans begin and end once, in that order; a flow begins before it ends, and each of its
    ends lies in a slice of its track; every track that is used has a name; times are numbers from zero on.
    """
    slices: dict[int, list[tuple[int, int]]] = {}
    begun: dict[tuple[str, str], int] = {}
    flows: dict[int, list[dict[str, Any]]] = {}
    named = {one["tid"] for one in of(document, ph="M", name="thread_name")}
    assert len(of(document, ph="M", name="process_name")) == 1
    for one in document["traceEvents"]:
        assert one["ph"] in "MXbeiCstf"
        assert isinstance(one["pid"], int)
        assert isinstance(one["tid"], int)
        assert isinstance(one["name"], str)
        if one["ph"] == "M":
            continue
        assert one["ts"] >= 0
        assert one["ph"] == "C" or one["tid"] in named
        if one["ph"] == "X":
            assert one["dur"] >= 0
            start = round(one["ts"] * 1000)
            slices.setdefault(one["tid"], []).append((start, start + round(one["dur"] * 1000)))
        elif one["ph"] == "b":
            assert (one["cat"], one["id"]) not in begun
            begun[one["cat"], one["id"]] = round(one["ts"] * 1000)
        elif one["ph"] == "e":
            assert begun.pop((one["cat"], one["id"])) <= round(one["ts"] * 1000)
        elif one["ph"] == "i":
            assert one["s"] in "gpt"
        elif one["ph"] == "C":
            assert all(isinstance(value, int | float) for value in one["args"].values())
        elif one["ph"] in "stf":
            flows.setdefault(one["id"], []).append(one)
    assert not begun, "every async span ends"
    for spans in slices.values():
        for number, (start, end) in enumerate(spans):
            for other_start, other_end in spans[number + 1 :]:
                apart = end <= other_start or other_end <= start
                inside = (start <= other_start and other_end <= end) or (other_start <= start and end <= other_end)
                assert apart or inside, f"{start}-{end} crosses {other_start}-{other_end}"
    for steps in flows.values():
        assert [one["ph"] for one in steps] in (["s", "f"], ["s", "t", "f"])
        assert [one["ts"] for one in steps] == sorted(one["ts"] for one in steps)
        for one in steps:
            at = round(one["ts"] * 1000)
            assert any(start <= at <= end for start, end in slices[one["tid"]]), "a flow hangs on a slice"


def test_a_collision() -> None:
    document = trace_document(COLLISION, "a trial", {"torch": "2.11.0"})
    check(document)
    names = [one["name"] for one in of(document, ph="X", tid=1)]
    assert names[:6] == [
        "step",
        "attention",
        "waits for compile lock",
        "holds compile lock",
        "compile frame",
        "FX trace",
    ]
    assert [one["args"]["name"] for one in of(document, name="thread_name")] == ["drafter-0", "drafter-1"]
    flow = [(one["ph"], one["tid"], one["ts"]) for one in document["traceEvents"] if one["ph"] in "stf"]
    assert flow == [("s", 1, 8000.0), ("t", 2, 8000.0), ("f", 2, 11000.0)]
    assert [one["args"]["calls"] for one in of(document, ph="C", name="dense calls")] == [0, 1, 2]
    assert [one["name"] for one in of(document, ph="i")] == ["flag.checked", "step.failed"]
    assert all(one["args"]["failed"] for one in of(document, ph="X", tid=2, cat="region"))


def test_a_hold_that_outlives_its_region_leaves_the_track() -> None:
    document = trace_document(COLLISION, "a trial", {})
    begin, end = (of(document, ph=ph, cat="hold")[0] for ph in "be")
    assert (begin["name"], begin["ts"], end["ts"]) == ("holds lock first_step", 19000.0, 21000.0)
    assert not of(document, ph="X", name="holds lock first_step")


def test_a_region_stays_in_the_track_when_a_lock_was_taken_before_it() -> None:
    document = trace_document(
        [
            event(1, "strategy_lock.acquired", lock="x"),
            event(2, "region.enter", r="step"),
            event(3, "strategy_lock.released", lock="x"),
            event(4, "region.exit", r="step"),
        ],
        "t",
        {},
    )
    check(document)
    assert [one["name"] for one in of(document, ph="X")] == ["step"]
    assert [one["name"] for one in of(document, ph="b")] == ["holds lock x"]


def test_the_tracer_may_have_left_when_the_event_was_written() -> None:
    late = [one for one in COLLISION if one["k"] != "fx.trace.exit"] + [event(7.5, "fx.trace.exit")]
    document = trace_document(sorted(late, key=lambda one: one["t"]), "t", {})
    check(document)
    assert of(document, ph="s")[0]["ts"] == 7500.0


def test_what_is_open_at_the_end_says_so() -> None:
    document = trace_document(COLLISION[:9], "t", {})
    check(document)
    assert of(document, name="step", tid=1)[0]["args"]["still open at the end of the log"] is True


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 120))
def test_any_order_of_events_makes_a_sound_trace(seed: int, count: int) -> None:
    dice = random.Random(seed)
    kinds: list[tuple[str, dict[str, Any]]] = [
        *((f"region.{end}", {"r": region}) for end in ("enter", "exit") for region in ("step", "mask")),
        *(
            (f"{lock}.{end}", {"lock": "x"})
            for lock in ("compile_lock", "strategy_lock")
            for end in ("wait", "acquired")
        ),
        *((f"{lock}.released", {"lock": "x"}) for lock in ("compile_lock", "strategy_lock")),
        ("fx.trace.enter", {}),
        ("fx.trace.exit", {}),
        ("flag.checked", {"answer": True, "tracers": "a,b"}),
        ("step.failed", {"step": 1}),
        ("step.done", {"step": 1}),
        ("dense.call", {}),
        ("engine.enter", {}),
        ("engine.exit", {}),
    ]
    at, events = 0, []
    for _ in range(count):
        at += dice.choice([0, 1, 7, 1001])
        kind, more = dice.choice(kinds)
        name = dice.choice("abc")
        events.append({"t": at, "th": name, "id": ord(name), "w": name, "k": kind, **more})
    check(trace_document(events, "t", {}))


def trace(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["trace", *arguments])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def trial(path: Path, lines: list[str]) -> Path:
    folder = path / "trials" / "t--r0"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text("{}")
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def test_the_file_of_a_trial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = json.dumps(event(30, "region.enter", "</script>\u202e\ud800", r="x" * 5000))
    folder = trial(tmp_path, [*(json.dumps(one) for one in COLLISION), "damage", hostile, '{"t": "no"}'])
    code, out, err = trace(capsys, str(folder))
    assert (code, out.strip()) == (0, str(folder / "trace.json"))
    assert err == "note: 2 lines of the event log could not be read; left out\n"
    document = json.loads((folder / "trace.json").read_text("utf-8"))
    check(document)
    assert of(document, ph="s")


def test_a_dead_subject_has_only_the_raw_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trial(tmp_path, [])
    (folder / "events.jsonl").unlink()
    lines = "".join(json.dumps(one) + "\n" for one in COLLISION).encode()
    (folder / "events.bin").write_bytes(lines.ljust(CHUNK_BYTES, b"\0") + b'{"t":99,"cut')
    out = tmp_path / "x.json"
    code, _, err = trace(capsys, str(folder), "--out", str(out))
    assert (code, err) == (0, "note: 1 line of the event log could not be read; left out\n")
    check(json.loads(out.read_text("utf-8")))


@pytest.mark.parametrize("command", ["trace", "upstream", "explain", "minimise"])
def test_an_id_alone_is_a_trial_of_the_newest_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """What each says of the id is what it says of the folder."""
    monkeypatch.chdir(tmp_path)
    trial(Path("reports/quick-1"), [json.dumps(one) for one in COLLISION])
    Path("reports/latest").symlink_to("quick-1")
    said = []
    for name in ("reports/latest/trials/t--r0", "t--r0"):
        with pytest.raises(SystemExit) as ended:
            cli.main([command, name])
        said.append((ended.value.code, *capsys.readouterr()))
    assert said[0] == said[1]
    assert said[0][0] == (0 if command == "trace" else 2), "this trial has only its events"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "no such trial folder; give reports/RUN/trials/ID"),
        (["t--r1"], 'no such trial folder (did you mean "t--r0"?)'),
        (["run"], "is a run folder; give the folder of one of its trials, for example"),
        (["run/results.jsonl"], "is a file; give the trial's folder"),
        (["."], "is not a trial folder"),
        (["run/trials/t--r0", "--out", "run"], "is a folder; name a file"),
        (["run/trials/empty"], "has no events.jsonl"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_folder(Path("run"), [row()])
    trial(Path("run"), [json.dumps(one) for one in COLLISION])
    trial(Path("reports/latest"), [])
    Path("run/trials/empty").mkdir()
    Path("run/trials/empty/spec.json").write_text("{}")
    code, out, err = trace(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert words in err
