"""`harness upstream`: a bug report that needs nothing but itself, and tells nothing that is nobody's business."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from fake_folder import ASSERTION, ENVIRONMENT, STACKS, TRACED, WAITS, wide_folder, write_folder
from fake_runs import FX_ERROR, row

from harness import cli
from harness.core.scenario import Scenario
from harness.core.versions import parse_specifier
from harness.hazards import HAZARDS
from harness.hazards.minimal import FOLDER, names, script_of, shows_on, versions_of
from harness.report.upstream import without_observers

COLLISION = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 3, in step
    part()
  File "/opt/venv/lib/python3.11/site-packages/torch/_dynamo/eval_frame.py", line 1120, in compile_wrapper
    raise RuntimeError(
RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function.
"""
MATRIX = 'schema = 1\n[axes]\nlock = ["none"]\n'
NONE = Scenario()
SECRETS = {"AWS_SECRET_KEY": "s3cr3t", "OMP_NUM_THREADS": "1", "TORCH_HUB_TOKEN": "t0k3n", "CUDA_X": "http://me:pw@x"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def upstream(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["upstream", *arguments])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def trial(rows: list[dict[str, Any]], number: int = 0, **environment: Any) -> Path:
    write_folder(Path("run"), rows, matrix=MATRIX, environment={**ENVIRONMENT, **environment})
    folder = Path("run/trials") / rows[number]["trial"]
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(
        json.dumps({"trial": rows[number]["trial"], "scenario": rows[number]["scenario"]})
    )
    return folder


def failing(**rest: Any) -> dict[str, Any]:
    return row(NONE, 0, "fx_error", errors=[{**TRACED, **rest}], fx_errors=1)


def test_a_collision(capsys: pytest.CaptureFixture[str]) -> None:
    folder = trial([failing(), row(NONE, 1), row(NONE, 2)])
    code, out, err = upstream(capsys, str(folder))
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith("note: run/trials/default--r0 has no events.jsonl")
    heads = [line for line in out.splitlines() if line.startswith(("# ", "## "))]
    assert heads[0].startswith(
        "# a compiled call while another thread runs flex_attention uncompiled: RuntimeError: Detected that you are using FX"
    )
    assert heads[1:] == [
        "## What happened",
        "## Stacks",
        "## Why",
        "## Expected behaviour",
        "## Minimal script",
        "## Environment",
    ]
    assert "thread Thread-2 (working for drafter-1) failed in `attention`" in out
    assert "At that moment thread Thread-1 (working for drafter-0) was inside an FX trace." in out
    assert "Of 3 runs of the same program, each in a process of its own, 1 failed (0.8 % to 91 %" in out
    assert 'File "torch/_dynamo/eval_frame.py", line 1120, in compile_wrapper' in out
    assert 'File "torch/fx/_symbolic_trace.py", line 890, in trace' in out, "both threads' stacks"
    assert "Releases it is known of: `<2.14`" in out
    assert script_of("fx-flag-collision-eager").rstrip() in out
    assert "| torch | 2.11.0+cpu |" in out
    assert "\n\n\n## " not in out


OTHER = {
    **FX_ERROR, "label": "error", "type": "ValueError", "message": "no shard 3", "at_s": 0.5, "thread": "Thread-9",
    "worker": "drafter-9",
    "traceback": 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nValueError: no shard 3\n',
}  # fmt: skip
PLAIN = {**FX_ERROR, "thread": "Thread-7", "worker": "drafter-7", "traceback": COLLISION, "tracers": []}
STUCK = {
    **ASSERTION, "thread": "Thread-8", "worker": "drafter-8",
    "traceback": ASSERTION["traceback"].replace(
        "AssertionError", '  File "torch/fx/_symbolic_trace.py", line 1, in _new_patcher\n    assert x\nAssertionError'
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("errors", "who", "title"),
    [
        ([{**TRACED, "at_s": 3.0}, {**PLAIN, "at_s": 2.0}], "Thread-7", "a compiled call while another thread traces:"),
        ([{**PLAIN, "at_s": 2.0}, {**TRACED, "at_s": 1.0}], "Thread-2", "another thread runs flex_attention uncompiled:"),
        ([OTHER, {**PLAIN, "at_s": 2.0}], "Thread-7", "a compiled call while another thread traces:"),
        ([{**PLAIN, "at_s": 1.0, "consequence": True}, {**TRACED, "at_s": 2.0}], "Thread-2", "flex_attention uncompiled:"),
        ([OTHER], "Thread-9", "Multi-threaded training: ValueError: no shard 3"),
    ],
)
def test_all_of_it_is_of_one_error(
    capsys: pytest.CaptureFixture[str], errors: list[dict[str, Any]], who: str, title: str
) -> None:
    folder = trial([row(NONE, 0, "fx_error", errors=errors)])
    code, out, _ = upstream(capsys, str(folder))
    assert code == 0
    assert title in out.splitlines()[0]
    assert f"thread {who} (working for" in out.split("## Stacks")[0]
    assert f"thread {who} (working for" in out.split("## Stacks")[1].split("## Why")[0]
    others = {"Thread-2", "Thread-7", "Thread-9"} - {who}
    assert not [other for other in others if f"thread {other} " in out]


def test_a_named_hazard_takes_the_error_that_it_fits(capsys: pytest.CaptureFixture[str]) -> None:
    folder = trial([row(NONE, 0, "fx_error", errors=[{**PLAIN, "at_s": 1.0}, {**STUCK, "at_s": 2.0}])])
    _, out, _ = upstream(capsys, str(folder), "--hazard", "fx-flag-stuck")
    assert "thread Thread-8 (working for drafter-8), which failed:" in out
    assert "Thread-7" not in out


def test_no_home_no_secret_and_nothing_that_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    folder = trial(
        [failing(message="no file /home/ann/secret-project/x.pt")],
        variables=SECRETS,
        command=["harness", "run", "/home/ann/m.toml"],
        hostname="box",
    )
    _, out, _ = upstream(capsys, str(folder))
    for word in ("s3cr3t", "t0k3n", "pw@x", "/home/", "ann", "m.toml", "box", "/opt/venv"):
        assert word not in out, word
    assert "no file ~/secret-project/x.pt" in out
    assert "OMP_NUM_THREADS 1" in out


def test_a_deadlock_shows_all_threads_and_the_last_events(capsys: pytest.CaptureFixture[str]) -> None:
    wide_folder(Path("run"))
    folder = next(path.parent for path in Path("run/trials").glob("*/stacks.txt"))
    (folder / "events.jsonl").write_text(
        "".join(
            json.dumps({"t": n * 1_000_000, "th": "drafter-0", "id": 1, "w": "drafter-0", "k": kind}) + "\n"
            for n, kind in enumerate(["compile_lock.wait", "deadlock"])
        )
    )
    code, out, _ = upstream(capsys, str(folder))
    assert code == 0
    assert WAITS in out
    assert STACKS.splitlines()[1] in out
    assert "## The last events before it" in out
    assert "Both threads go on" in out
    assert "1.000 ms  drafter-0" in out


def test_a_plan_has_its_witness_and_its_hazard(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path("reproduce/trials/001-plan")
    folder.mkdir(parents=True)
    one = failing()
    step = {"seat": "tracer", "role": "A", "point": "fx.window.open", "event": "step", "attempt": 1, "name": "A traces"}
    (folder / "spec.json").write_text(json.dumps({"trial": "001-plan", "scenario": one["scenario"]}))
    (folder / "result.json").write_text(
        json.dumps({**one, "schedule": {"witness": [step, {**step, "seat": "caller"}]}})
    )
    (folder.parent.parent / "reproduce.json").write_text(
        json.dumps({"hazard": "rng-rewind", "environment": ENVIRONMENT})
    )
    code, out, _ = upstream(capsys, str(folder))
    assert code == 0
    assert "## The order that makes it happen" in out
    assert 'fx.window.open  "A traces"' in out
    assert script_of("rng-rewind").rstrip() in out, "of the hazard whose plan it was"


def test_a_hazard_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    folder = trial([row(NONE, 0, "dense", dense_calls=4, torch="2.13.0+cpu")])
    _, out, _ = upstream(capsys, str(folder))
    assert "## Minimal script" not in out
    assert "4 attention calls ran uncompiled." in out
    code, _, _ = upstream(capsys, str(folder), "--hazard", "dense-by-thread-config", "--out", "issue.md")
    assert code == 0
    assert script_of("dense-by-thread-config").rstrip() in Path("issue.md").read_text("utf-8")


ANNOTATED = {
    **FX_ERROR, "label": "graph_corrupt", "type": "KeyError", "message": "'custom'", "thread": "masker", "tracers": [],
    "traceback": """Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/attention/flex_attention.py", line 1941, in create_block_mask
    block_mask = _create_sparse_block_from_block_mask(
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/attention/flex_attention.py", line 427, in _dense_to_ordered
    with torch.fx.traceback.annotate({"fallback_to_eager": True}):
  File "/opt/venv/lib/python3.11/site-packages/torch/fx/traceback.py", line 363, in annotate
    del current_meta["custom"]
KeyError: 'custom'
""",
}  # fmt: skip


@pytest.mark.parametrize(
    ("rest", "hazard", "told"),
    [
        ({"errors": [ANNOTATED]}, "fx-flag-collision", "annotate-collision"),
        ({"errors": [ANNOTATED]}, "annotate-collision", ""),
        ({"errors": [{**ANNOTATED, "consequence": True}]}, "fx-flag-collision", ""),
        ({"errors": [ANNOTATED], "torch": "2.11.0"}, "fx-flag-collision", ""),
        ({"errors": [TRACED], "torch": "2.11.0"}, "rng-rewind", "fx-flag-collision-eager"),
        ({"errors": [PLAIN], "torch": "2.11.0"}, "fx-flag-collision-backward", ""),
        ({"errors": [ANNOTATED], "dense_calls": 4}, "dense-by-recompile-limit", ""),
        ({"errors": [OTHER]}, "rng-rewind", ""),
    ],
    ids=["another", "itself", "a consequence", "not of this torch", "by the tracer", "a case of it", "by its row", "unknown"],
)
def test_a_named_hazard_that_the_stacks_contradict_is_told_in_a_note(
    capsys: pytest.CaptureFixture[str], rest: dict[str, Any], hazard: str, told: str
) -> None:
    folder = trial([row(NONE, 0, "error", "dense", **{"torch": "2.13.0", **rest})])
    code, out, err = upstream(capsys, str(folder), "--hazard", hazard)
    assert code == 0
    assert "## Why" in out, "it is written as it was asked for"
    notes = [line for line in err.splitlines() if "for certain" in line]
    assert len(notes) == bool(told)
    assert not told or f"tells of {told} for certain, and of {hazard} nowhere: its message is known: " in notes[0]


def test_the_hazard_whose_plan_a_trial_followed_is_not_doubted(capsys: pytest.CaptureFixture[str]) -> None:
    folder = trial([row(NONE, 0, "error", errors=[ANNOTATED], torch="2.13.0")])
    (folder.parent.parent / "reproduce.json").write_text(json.dumps({"hazard": "fx-flag-collision"}))
    _, _, err = upstream(capsys, str(folder), "--hazard", "fx-flag-collision")
    assert "for certain" not in err


def test_a_script_is_of_the_trial_s_torch_or_left_out_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row(NONE, n, "dense", dense_calls=4, torch=torch) for n, torch in enumerate(("2.11.0+cpu", "2.14.1+cpu"))]
    folder = trial(rows)
    _, out, _ = upstream(capsys, str(folder), "--hazard", "dense-by-thread-config")
    said = out.split("## Minimal script")[1].split("## ")[0].strip()
    assert said == (
        "None is attached: that of this problem needs torch &gt;=2.12, and this trial ran on torch 2.11.0+cpu."
    )
    assert "This trial ran on torch 2.11.0+cpu, which is none of them." in out
    (folder.parent / rows[1]["trial"]).mkdir()
    (folder.parent / rows[1]["trial"] / "spec.json").write_text("{}")
    _, out, _ = upstream(capsys, str(folder.parent / rows[1]["trial"]), "--hazard", "dense-by-thread-config")
    assert script_of("dense-by-thread-config").rstrip() in out


def test_a_script_says_itself_on_which_releases_it_shows_its_hazard() -> None:
    for hazard in HAZARDS:
        specifier = parse_specifier(versions_of(hazard.id))
        for release in ("2.9.1", "2.11.0", "2.13.0", "2.14.1") if script_of(hazard.id) else ():
            assert shows_on(hazard.id, release) is specifier.contains(release)
            # What its text promises is what the catalogue says; a hazard that a script shows on fewer releases would be named
            # here, and the bug report would leave the script out.
            assert specifier.contains(release) is hazard.applies(release, cuda=2), (hazard.id, release)
    assert versions_of("compile-lock-engine-deadlock") == ">=2.6"
    assert versions_of("no-such-hazard") == ""
    assert shows_on("first-step-hole", "")


def test_what_the_trial_tells_beside_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = NONE.replace(dynamo="limit_in_main")
    patched = {"label": "state_leak", "text": "nn.Module.__call__: another function than before: an FX trace patched it"}
    named = {"label": "hazard", "text": "this is fx-flag-stuck: two traces; remedy: Let one thread trace at a time."}
    rest = {"dense_calls": 70, "torch": "2.14.1", "problems": [patched, named]}
    one = row(scenario, 0, "dense", "graph_corrupt", errors=[STUCK], **rest)
    _, out, _ = upstream(capsys, str(trial([one])))
    assert out.startswith("# two traces interleave, and what they changed stays changed")
    assert "It also shows: a recompile limit that is raised on the main thread does not hold in workers: 70 calls" in out
    assert "remedy:" not in out, "the catalogue's words for a user are no report"
    assert "* state_leak: `nn.Module.__call__`: another function" in out
    assert script_of("fx-flag-stuck").rstrip() in out, "of the error, not of what the trial shows beside it"


def test_dense_calls_alone_name_their_hazard_or_those_that_may_be(capsys: pytest.CaptureFixture[str]) -> None:
    scenario = NONE.replace(dynamo="limit_in_main")
    rows = [row(one, 0, "dense", dense_calls=4, torch="2.13.0") for one in (scenario, NONE)]
    folder = trial(rows)
    _, out, _ = upstream(capsys, str(folder))
    assert out.startswith("# a recompile limit that is raised on the main thread does not hold in workers: ")
    assert script_of("dense-by-thread-config").rstrip() in out
    other = folder.parent / rows[1]["trial"]
    other.mkdir()
    (other / "spec.json").write_text("{}")
    _, out, _ = upstream(capsys, str(other))
    assert out.startswith("# Multi-threaded training: ")
    assert "4 calls of attention ran uncompiled. It could be: drafters share one code object" in out


def test_what_only_watched_is_not_in_the_stack() -> None:
    torch = '  File "torch/fx/_symbolic_trace.py", line 890, in trace\n    with _new_patcher() as patcher:\n'
    watching = '  File "harness/subject/probes/fx.py", line 5, in window_open\n    reach()\n'
    watching += '  File "python3.11/threading.py", line 1, in wait'
    assert without_observers(torch + watching) == torch.rstrip()
    user = '  File "harness/pipeline/drafter.py", line 5, in forward\n    x'
    assert without_observers(torch + user) == torch + user


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "is a run folder; give the folder of one of its trials"),
        (["nowhere"], "no such trial folder"),
        (["run/trials/default--r0"], "there is nothing to report: it ended well"),
        (["run/trials/default--r1"], "it says nothing of torch (setup_error)"),
        (["run/trials/lost"], "how it ended is not known"),
        (["run/trials/default--r2", "--hazard", "rng-rewnd"], 'did you mean "rng-rewind"'),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    rows = [row(NONE, 0), row(NONE, 1, "setup_error"), {**failing(), "trial": "default--r2", "repeat": 2}]
    write_folder(Path("run"), rows, matrix=MATRIX)
    for name in ("default--r0", "default--r1", "default--r2", "lost"):
        folder = Path("run/trials") / name
        folder.mkdir(parents=True)
        (folder / "spec.json").write_text("{}")
    code, out, err = upstream(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert words in err


WITH_A_DEVICE = ("compile-lock-engine-deadlock",)
"""Scripts that bring a device of their own along, so that they need no GPU."""


@pytest.mark.parametrize("name", names())
def test_a_minimal_script_is_short_and_stands_alone(name: str) -> None:
    text = script_of(name)
    assert len(text.splitlines()) <= (140 if name in WITH_A_DEVICE else 60)
    modules = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(str(node.module).split(".")[0])
    assert "torch" in modules
    assert "harness" not in modules
    assert text.startswith('"""')
    assert "Exit code 1" in str(ast.get_docstring(ast.parse(text)))


def test_every_script_is_of_a_hazard_and_no_name_leads_elsewhere() -> None:
    known = {hazard.id for hazard in HAZARDS}
    assert set(names()) <= known, set(names()) - known
    assert script_of("../base") == ""
    assert script_of("no-such-hazard") == ""
    assert FOLDER.is_dir()
