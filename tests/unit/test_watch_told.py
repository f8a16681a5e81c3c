"""What a watch says: the paragraph, the live display."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.control.watch_live import LiveDisplay, render
from harness.control.watch_rows import Process, process_row
from harness.hazards import find
from harness.report.html import write_report
from harness.report.watched import summary, told


def process(folder: Path, pid: int = 1, rank: str = "") -> Process:
    return Process(folder, pid, 0, "train.py", rank, "python", "3.11.7", 0.0)


def row(tmp_path: Path, status: int | None = 0, killed: bool = False, outside: str = "", **result: Any) -> dict[str, Any]:
    folder = tmp_path / "process-1"
    folder.mkdir(exist_ok=True)
    document = {
        "schema": 1, "how": "exited", "final": True, "outcomes": ["ok"], "outcome": "ok", "reason": "", "fx_errors": 0,
        "dense_calls": 0, "compiles": 0, "errors": [], "errors_dropped": 0, "problems": [], "workers": {},
        "probes": {"flag_check": "ok"},
        "torch": "2.13.0", "python": "3.11.7", "facts": {"torch_imported": True, "lived_s": 3.0}, **result,
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps(document))
    return process_row(process(folder), program="train.py", status=status, killed=killed, outside=outside)


def test_nothing_wrong_is_said_in_one_line_or_not_at_all(tmp_path: Path) -> None:
    rows = [row(tmp_path)]
    text = summary(rows, [], "r.html", quiet=False)
    assert text == (
        "harness watch: train.py ended after 3.0 s, 1 process, torch 2.13.0.\n"
        "  Nothing wrong was seen.\n"
        "  Report: r.html"
    )
    assert summary(rows, [], "r.html", quiet=True) == ""
    assert "Note: n." in summary(rows, ["n"], "r.html", quiet=True)


def test_of_what_was_not_watched_nothing_is_said_to_be_well() -> None:
    text = summary([], ["no Python process took the watch"], "r.html", quiet=False)
    assert text == (
        "harness watch: nothing was watched.\n  Note: no Python process took the watch.\n  Report: r.html"
    )


def test_a_finding_has_lines_of_its_own_and_a_path_is_never_folded(tmp_path: Path) -> None:
    problems = [{"label": "state_leak", "text": "words " * 30}, {"label": "state_leak", "text": "short"}]
    path = "/a/folder with spaces/" + "long-" * 20 + "/report.html"
    lines = summary([row(tmp_path, problems=problems)], [], path, quiet=False).splitlines()
    assert lines[-1] == f"  Report: {path}"
    assert "  short." in lines
    assert all(len(line) <= 80 for line in lines[:-1])
    assert [line.startswith("    ") for line in lines[2:4]] == [True, True]  # the rest of the long one


def test_a_collision_names_both_threads(tmp_path: Path) -> None:
    error = {
        "label": "fx_error", "type": "RuntimeError", "message": "Detected", "fingerprint": "f", "worker": "trainer",
        "thread": "t", "region": "forward", "step": 3, "traceback": "", "consequence": False,
        "tracers": [{"thread": "x", "worker": "loader", "region": "", "stack": ""}],
    }  # fmt: skip
    found = told(row(tmp_path, fx_errors=12, errors=[error], outcomes=["fx_error"], outcome="fx_error"))
    (wrong,) = [one.text for one in found if one.wrong]
    assert wrong == (
        "12 compiled calls refused with the FX-tracing error: first trainer in forward, step 3, while loader was tracing"
    )


def test_facts_of_threads_are_told(tmp_path: Path) -> None:
    sums = {
        "engine_runs": 5, "engine_s": 1.5, "engine_longest_s": 0.5, "lock_waits": 2, "lock_wait_s": 0.25,
        "lock_longest_s": 0.2, "steps": 5, "regions": {"forward": [5, 2_000_000_000, 500_000_000]},
    }  # fmt: skip
    worker = {"compiles": 2, "dense_calls": 3, "counts": {"is_compiling_leaks": 4}, "facts": {"sums": sums}}
    facts = {
        "torch_imported": True,
        "recompiles": [{"worker": "a", "function": "f (x.py:1)", "reason": "size mismatch", "count": 2}],
        "settings": {"a": {"recompile_limit": {"here": 64, "there": 8}}},
        "stuck": [{"label": "hang", "reason": "slow", "at_s": 1.0, "ended_s": 3.5}],
        "events": {"written_over": 9, "one_in": 4, "limit_bytes": 1 << 24, "windows_lost": 0, "dropped": {}},
        "children_unseen": 1,
    }
    found = told(
        row(tmp_path, workers={"a": worker}, facts=facts, compiles=3, dense_calls=3, outcomes=["dense"], outcome="dense")
    )
    assert [one.wrong for one in found] == sorted((one.wrong for one in found), reverse=True)
    text = "\n".join(f"{one.wrong} {one.topic}: {one.text}" for one in found)
    for part in (
        "True hang: hang at 1.0 s: slow (it went on after 2.5 s)",
        "True dense: 3 calls of flex_attention ran dense, outside compiled code: a 3",
        "True settings: a compiled under other Dynamo settings than the main thread: recompile_limit 8 (main thread: 64)",
        "True state_leak: torch.compiler.is_compiling() was True in threads that compiled nothing: a 4 times",
        "False compiles: 3 graphs compiled: a 2, other threads 1",
        "False recompile: a compiled f (x.py:1) again (2 times): size mismatch",
        "False compile lock: a waited 0.25 s for torch's compile lock, 2 times, the longest 0.20 s",
        "False engine: a was 1.50 s in the autograd engine, 5 runs, the longest 0.500 s",
        "False region: a: region forward 5 times, 2.00 s, the longest 0.500 s",
        "one in 4 was kept, 9 events of warm steps were not; counts are complete",
        "it forked 1 child",
    ):
        assert part in text, part


def test_a_torch_that_went_past_the_watch_is_no_clean_bill(tmp_path: Path) -> None:
    (one,) = told(row(tmp_path, probes={}))
    assert one.wrong
    assert one.text == "torch was not watched: it was imported in a way that the watch did not see"


@pytest.mark.parametrize(
    ("status", "killed", "outside", "result", "outcomes", "reason"),
    [
        (0, False, "", {}, ["ok"], ""),
        (256, False, "", {}, ["ok"], ""),  # exit code 1: the program's own affair
        (11, False, "", {"final": False, "how": "running"}, ["crash"], "the process ended by SIGSEGV"),
        (15, False, "", {"final": False, "how": "running"}, ["interrupted"], "the process ended by SIGTERM"),
        (11, False, "", {"outcomes": ["fx_error"], "final": False}, ["fx_error", "crash"], "the process ended by SIGSEGV"),
        (9, True, "C has it", {"final": False, "how": "running"}, ["hang"], "C has it"),
        (9, True, "", {"outcomes": ["deadlock"], "reason": "a cycle", "final": False}, ["deadlock"], "a cycle"),
    ],
)
def test_labels_of_an_ending(
    tmp_path: Path, status: int, killed: bool, outside: str, result: dict[str, Any], outcomes: list[str], reason: str
) -> None:
    found = row(tmp_path, status, killed, outside, **result)
    assert found["outcomes"] == outcomes
    assert found["reason"].startswith(reason)
    assert bool(found["reason"]) == bool(reason)


def state(**more: Any) -> dict[str, Any]:
    thread = {"name": "t", "region": "", "doing": "", "waits": "", "steps": 0, "compiles": 0, "dense": 0}
    return {"at_s": 5.2, "fx_errors": 1, "stuck": [], "threads": [thread, {**thread, "name": "w", "waits": "a lock"}], **more}


def test_the_display_shows_who_waits_first(tmp_path: Path) -> None:
    lines = render([(process(tmp_path), state())], 120, 9)
    assert lines[0] == "harness watch 5 s, FX errors 1"
    assert lines[2].startswith("w ")
    assert lines[2].endswith(" a lock")
    assert len(render([(process(tmp_path), state())], 20, 3)) == 3
    assert max(map(len, render([(process(tmp_path), state(stuck=["x" * 500]))], 40, 9))) <= 40
    assert render([(process(tmp_path), state(threads=[]))], 40, 9)[0].startswith("harness watch")
    assert render([], 80, 9) == []
    several = render([(process(tmp_path, 7), state()), (process(tmp_path, 8, rank="1"), state())], 120, 9)
    assert any(line.startswith("7: w") for line in several)
    assert any(line.startswith("1: w") for line in several)


def test_the_display_writes_below_the_scrolling_region_and_gives_it_back(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps(state()))
    stream = io.StringIO()
    display = LiveDisplay(stream, lambda: (100, 30))
    display.show([process(tmp_path)])
    assert "\x1b[1;26r" in stream.getvalue()  # four of thirty lines are taken out of it
    assert "\x1b[27;1H" in stream.getvalue()
    drawn = stream.getvalue()
    display.close()
    assert stream.getvalue().removeprefix(drawn).startswith("\x1b7\x1b[r")
    display.close()
    assert stream.getvalue().count("\x1b[r") == 1


def test_no_display_where_there_is_no_room_or_nothing_to_show(tmp_path: Path) -> None:
    stream = io.StringIO()
    LiveDisplay(stream, lambda: (100, 30)).show([process(tmp_path)])
    (tmp_path / "state.json").write_text(json.dumps(state()))
    LiveDisplay(stream, lambda: (0, 0)).show([process(tmp_path)])
    assert stream.getvalue() == ""


def test_the_page_of_a_watch_says_what_was_seen_and_escapes_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "trials").mkdir(parents=True)
    problem = {"label": "state_leak", "text": "<script>alert(1)</script> changed"}
    found = row(run / "trials", problems=[problem], outcomes=["state_leak"], outcome="state_leak")
    (run / "results.jsonl").write_text(json.dumps(found) + "\n")
    options = {"matrix": "watch of train.py"}
    (run / "environment.json").write_text(json.dumps({"schema": 1, "kind": "watch", "options": options}))
    page = write_report(run).read_text("utf-8")
    assert "<title>watch of train.py: &lt;script&gt;alert(1)&lt;/script&gt; changed.</title>" in page
    assert "<script>alert" not in page
    assert "matrix.toml" not in page
    assert "process-1" in page


def test_the_page_of_a_watch_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text("")
    (tmp_path / "environment.json").write_text(json.dumps({"schema": 1, "kind": "watch"}))
    assert "Nothing was watched." in write_report(tmp_path).read_text("utf-8")


MASK_TRACEBACK = """Traceback (most recent call last):
  File "/site-packages/torch/nn/attention/flex_attention.py", line 1100, in create_block_mask
    with annotate({}):
  File "/site-packages/torch/fx/traceback.py", line 200, in annotate
    del current_meta["custom"]
KeyError: 'custom'
"""


def mask_error(worker: str, **more: Any) -> dict[str, Any]:
    return {
        "label": "graph_corrupt", "type": "KeyError", "message": "'custom'", "fingerprint": "f", "worker": worker,
        "thread": worker, "region": "", "step": None, "traceback": MASK_TRACEBACK, "consequence": False, **more,
    }  # fmt: skip


def test_an_error_names_its_hazard_with_the_remedy_after_it(tmp_path: Path) -> None:
    errors = [mask_error("trainer-0"), mask_error("trainer-1")]
    found = row(tmp_path, errors=errors, outcomes=["graph_corrupt"], outcome="graph_corrupt")
    wrong = [one for one in told(found) if one.wrong]
    assert [one.topic for one in wrong] == ["graph_corrupt", "hazard"]
    assert wrong[0].text == "graph_corrupt in trainer-0 1, trainer-1 1: KeyError: 'custom'"
    remedy = find("annotate-collision").remedy
    title = find("annotate-collision").title
    assert wrong[1].text == f"this is annotate-collision: {title}; remedy: {remedy}"
    text = summary([found], [], "r.html", quiet=False)
    assert " ".join(remedy.rstrip(".").split()) in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_an_error_without_a_hazard_points_to_explain(tmp_path: Path) -> None:
    error = mask_error("trainer-0", label="error", type="ValueError", message="of its own", traceback="")
    found = row(tmp_path, errors=[error], outcomes=["error"], outcome="error")
    assert [one.topic for one in told(found)] == ["error"]
    text = summary([found], [], "r.html", quiet=False, run="runs/a b")
    assert text.endswith("\n  Report: r.html\n  Next: harness explain 'runs/a b/trials/process-1'")


def test_an_fx_error_names_its_hazard_and_no_unknown_region(tmp_path: Path) -> None:
    error = mask_error(
        "trainer-0", label="fx_error", type="RuntimeError", region="?", traceback="",
        message="Detected that you are using FX to symbolically trace a dynamo-optimized function.",
        tracers=[{"thread": "trainer-1", "worker": "trainer-1", "region": "?", "stack": ""}],
    )  # fmt: skip
    found = row(tmp_path, fx_errors=1, errors=[error], outcomes=["fx_error"], outcome="fx_error", torch="2.11.0")
    collision, hazard = [one for one in told(found) if one.wrong]
    assert "in ?" not in collision.text
    assert hazard.text.startswith(("this is ", "this may be "))
    assert "; remedy: " in hazard.text


@pytest.mark.parametrize(
    ("hazard", "means", "result"),
    [
        (
            "rng-rewind",
            "another thread draws the same numbers again",
            {
                "problems": [
                    {
                        "label": "state_leak",
                        "text": "the state of torch's random generator changed while trainer-1 compiled; "
                        "the compile put the old state back (3 times)",
                    }
                ]
            },
        ),
        (
            "compiling-leak",
            "another thread takes the branch that is meant for traced code",
            {"workers": {"a": {"counts": {"is_compiling_leaks": 4}}}},
        ),
    ],
)
def test_leaked_state_says_what_it_means(tmp_path: Path, hazard: str, means: str, result: dict[str, Any]) -> None:
    found = row(tmp_path, outcomes=["state_leak"], outcome="state_leak", **result)
    leak, named = [one for one in told(found) if one.wrong]
    assert leak.topic == "state_leak"
    entry = find(hazard)
    assert named.text.startswith(f"this is {hazard}: {entry.title} ({means}")
    assert named.text.endswith(f"; remedy: {entry.remedy}")


def test_hazards_do_not_push_findings_out_and_stay_beside_theirs(tmp_path: Path) -> None:
    leaks = [{"label": "state_leak", "text": f"finding {number}"} for number in range(7)]
    errors = [mask_error("trainer-0")]
    found = row(tmp_path, problems=leaks, errors=errors, outcomes=["graph_corrupt"], outcome="graph_corrupt")
    assert [one.topic for one in told(found)][:3] == ["graph_corrupt", "hazard", "state_leak"]
    text = summary([found], [], "r.html", quiet=False)
    assert "finding 4." in text
    assert "finding 5." not in text
    assert "and 2 more." in text


def test_a_hazard_that_a_hang_has_is_not_named_again(tmp_path: Path) -> None:
    base = row(tmp_path, errors=[mask_error("a")], outcomes=["hang"], outcome="hang")
    text = base["problems"][0]["text"]
    found = process_row(
        process(tmp_path / "process-1"), program="train.py", status=0, killed=False, hazards=[text]
    )
    assert [problem["text"] for problem in found["problems"]] == [text]


def test_a_reason_that_dynamo_did_not_find_is_not_passed_on(tmp_path: Path) -> None:
    reason = (
        "0/0: Unexpected recompilation: runtime guards failed even though they passed during recompilation-reason "
        "analysis. Please open an issue with a minimal repro: https://github.com/pytorch/pytorch"
    )
    reasons = [
        {"worker": name, "function": "f (x.py:1)", "reason": said, "count": 1}
        for name, said in (("a", reason), ("b", "size mismatch"))
    ]
    facts = {"torch_imported": True, "recompiles": reasons}
    text = "\n".join(one.text for one in told(row(tmp_path, facts=facts, compiles=2)))
    assert "open an issue" not in text
    assert "a compiled f (x.py:1) again: a guard had failed, and all held when torch asked which" in text
    assert "; b compiled it again, too" in text
    assert "b compiled f (x.py:1) again: size mismatch" in text


def test_the_page_has_the_hazard_in_its_answer(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "trials").mkdir(parents=True)
    errors = [mask_error("trainer-0"), mask_error("trainer-0", label="error", fingerprint="g", traceback="", type="ValueError")]
    found = row(run / "trials", errors=errors, outcomes=["graph_corrupt"], outcome="graph_corrupt")
    (run / "results.jsonl").write_text(json.dumps(found) + "\n")
    (run / "environment.json").write_text(json.dumps({"schema": 1, "kind": "watch"}))
    page = write_report(run).read_text("utf-8")
    assert "<p>This is annotate-collision: a block mask is built while another thread compiles; remedy: " in page
    assert "1 further finding below.</p>" in page
    assert " in ?" not in page
    assert f"harness explain {run}/trials/process-1" in re.sub(r"</?span>", "", page)


@pytest.mark.parametrize(("dense", "named"), [("a", True), ("MainThread", False)])
def test_settings_of_a_thread_explain_only_its_own_dense_calls(tmp_path: Path, dense: str, named: bool) -> None:
    facts = {"torch_imported": True, "settings": {"a": {"recompile_limit": {"here": 64, "there": 8}}}}
    workers = {name: {"dense_calls": int(name == dense)} for name in ("a", "MainThread")}
    found = row(tmp_path, workers=workers, facts=facts, dense_calls=1, outcomes=["dense"], outcome="dense")
    text = " ".join(one.text for one in told(found))
    assert ("this is dense-by-thread-config" in text) == named
