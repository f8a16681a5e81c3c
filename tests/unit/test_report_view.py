"""What the page of a run says, before any markup."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_folder import ENVIRONMENT, MATRIX, TRACED, wide_folder, write_folder
from fake_runs import FX_ERROR, row

from harness.core.matrix import parse_matrix
from harness.core.outcome import OK
from harness.core.scenario import Scenario
from harness.core.where import parse_where
from harness.report.evidence import BYTES, Budget
from harness.report.page import MOST_SCENARIOS, Page, build_page
from harness.report.rundata import RunData, read_run

NONE = Scenario()
LOCK = 'schema = 1\n[axes]\nlock = ["none", "per_call", "first_step"]\n'


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunData, Page]:
    data = read_run(wide_folder(tmp_path_factory.mktemp("wide") / "run"))
    return data, build_page(data)


@pytest.fixture
def page(tmp_path: Path) -> Callable[..., Page]:
    """The page of a folder with these rows."""

    def build(rows: list[dict[str, Any]], **rest: Any) -> Page:
        rest.setdefault("matrix", None)
        folder = tmp_path / f"run-{len(list(tmp_path.iterdir()))}"
        return build_page(read_run(write_folder(folder, rows, **rest)))

    return build


def test_the_answer_of_a_wide_run(wide: tuple[RunData, Page]) -> None:
    answer = wide[1].answer
    assert answer.tone == "unsafe"
    assert answer.sentence == (
        "6 of 20 scenarios are unsafe: FX-tracing errors in 16 of 139 trials, dense attention in 1, wrong numbers in 1, "
        "missing gradients in 1, and 2 more kinds of failure."
    )
    assert answer.rest == (
        "The others: 1 safe, 9 undecided (no failure, too few trials), 1 incomplete (no trial tells anything), "
        "2 skipped, 1 not run."
    )
    assert wide[1].judgement == (
        "Not as expected: 1 scenario breaks an expectation; 2 scenarios failed in a way that nothing permits. "
        "Improved: in 3 scenarios an expected failure was not seen."
    )


@pytest.mark.parametrize(
    ("rows", "tone", "sentence"),
    [
        ([], "incomplete", "No trial has ended yet, so nothing can be said."),
        ([row(NONE, 0, "fx_error")], "unsafe", "1 of 1 scenario is unsafe: FX-tracing errors in 1 of 1 trial."),
        (
            [row(NONE, repeat) for repeat in range(59)],
            "safe",
            "The one scenario is safe: no failure in 59 trials.",
        ),
        (
            [row(Scenario(lock=lock), repeat) for lock in ("none", "per_call") for repeat in range(59)],
            "safe",
            "All 2 scenarios are safe: no failure in 118 trials.",
        ),
        (
            [row(NONE, repeat) for repeat in range(59)] + [row(Scenario(lock="per_call"))],
            "undecided",
            "No failure in 60 trials: 1 of 2 scenarios is safe.",
        ),
        ([row(NONE, 0)], "undecided", "No failure in 1 trial, but too few trials to call anything safe."),
        (
            [row(NONE, 0, "setup_error"), row(Scenario(lock="per_call"), 0, "skipped")],
            "incomplete",
            "Nothing can be said: no trial came to an end that tells anything.",
        ),
    ],
)
def test_answers(page: Callable[..., Page], rows: list[dict[str, Any]], tone: str, sentence: str) -> None:
    answer = page(rows).answer
    assert (answer.tone, answer.sentence) == (tone, sentence)


def test_every_state_has_its_mark_and_is_explained(wide: tuple[RunData, Page]) -> None:
    marks = {view.state: view.mark for view in wide[1].scenarios}
    assert marks == {"unsafe": "✗", "safe": "✓", "undecided": "?", "incomplete": "…", "skipped": "–", "notrun": "·"}
    assert {(state, mark) for state, mark, _, _ in wide[1].legend} == set(marks.items())


def test_cells_carry_counts_and_bounds(wide: tuple[RunData, Page]) -> None:
    found = {view.id: (view.count, view.labels) for view in wide[1].scenarios}
    assert found["steps=12"] == ("3/5 (15–95 %)", (("fx_error", 3),))
    assert found["checkpoint=non_reentrant,steps=12"] == ("5/5 (≥ 55 %)", (("fx_error", 5),))
    assert found["lock=compile_gate,steps=12"] == ("0/59 (≤ 5.0 %)", ())
    assert found["lock=every_step,checkpoint=reentrant,steps=12"] == ("", (("setup_error", 5),))
    assert found["devices=cuda-0+cuda-1,steps=12"] == ("", ())


def test_what_no_probe_could_see_is_no_zero(wide: tuple[RunData, Page]) -> None:
    dense = {view.name: view.dense for view in wide[1].scenarios}
    assert dense["lock=per_call"] == "n/a"
    assert dense["lock=none"] == "0"
    assert dense["lock=every_step checkpoint=reentrant"] == "–"
    assert dense["lock=first_step checkpoint=non_reentrant"] == "9"
    assert wide[1].probes == (("dense", "torch 2.11 has no counter of dense calls (15 trials)"),)


def test_expectations_are_judged_broken_ones_first(wide: tuple[RunData, Page]) -> None:
    found = wide[1].expectations
    assert found.stated == 3
    assert [item.kind for item in found.not_met] == ["broken"] + ["unexpected"] * 4
    assert found.not_met[0].name == "lock=every_step"
    assert found.not_met[0].text == (
        "only ok where lock=compile_gate or lock=every_step: deadlock in 1 of 5 trials (compiles happen one at a time)"
    )
    assert any(item.name == "lock=none" for item in found.of("flaky")), "three of its five trials failed"
    assert {item.name for item in found.of("improved")} == {
        "lock=per_call",
        "lock=per_call checkpoint=reentrant",
        "lock=per_call checkpoint=non_reentrant",
    }


def test_judgements_are_those_of_the_run(wide: tuple[RunData, Page], tmp_path: Path) -> None:
    from harness.control.conclusion import conclude

    run = wide_folder(tmp_path / "run")
    result = conclude(parse_matrix(MATRIX, file="m"), run, dict(ENVIRONMENT), None, interrupted=False)
    assert dict(wide[0].judgements) == result.judgements
    assert wide[0].summary.scenarios == result.summary.scenarios


def test_every_rerun_command_means_its_scenario_alone(wide: tuple[RunData, Page]) -> None:
    scenarios = parse_matrix(MATRIX, file="m").scenarios
    for view in wide[1].scenarios:
        words = shlex.split(view.command)
        assert words[:2] == ["harness", "run"]
        where = parse_where(words[words.index("--only") + 1])
        assert [scenario.id for scenario in scenarios if where.matches(scenario)] == [view.id]


def test_a_value_that_looks_like_a_glob_is_taken_as_it_is(page: Callable[..., Page]) -> None:
    text = 'schema = 1\n[axes]\nworkload = ["a", "a*", "a[b]", "a ) b", "a?"]\n'
    found = page([row(scenario) for scenario in parse_matrix(text, file="m").scenarios], matrix=text)
    for view in found.scenarios:
        where = parse_where(shlex.split(view.command)[4])
        assert [s.id for s in parse_matrix(text, file="m").scenarios if where.matches(s)] == [view.id]


def test_the_interpreter_is_named_where_the_run_named_one(page: Callable[..., Page]) -> None:
    named = {**ENVIRONMENT, "command": ["harness", "run", "m", "--python", "py"], "executable": "/opt/my py/bin/python"}
    found = page([row(NONE)], matrix=LOCK, environment=named)
    assert found.scenarios[0].command.endswith("--repeats 1 --python '/opt/my py/bin/python'")
    assert "--python" not in page([row(NONE)], matrix=LOCK).scenarios[0].command


def test_speed_has_median_spread_and_count(wide: tuple[RunData, Page]) -> None:
    group = wide[1].speed[0]
    assert group.title == "checkpoint=none, shapes=fixed, devices=cpu"
    by_lock = {found.strategy: found for found in group.rows}
    assert list(by_lock) == ["none", "per_call", "first_step", "compile_gate", "every_step"]
    gate = by_lock["compile_gate"].startup
    values = [14 + repeat / 3 for repeat in range(59)]
    assert gate is not None
    assert (gate.n, gate.median, gate.bar) == (59, f"{statistics.median(values):.1f}", f"{2366.667 / 33.3333:.1f}")
    none = by_lock["none"]
    assert none.rate is not None
    assert none.rate.n == 2, "only trials that ended ok"
    assert none.rate.spread == "", "one number is no spread"


def test_medians_are_those_of_the_table(wide: tuple[RunData, Page]) -> None:
    table = {view.anchor: (view.startup, view.rate) for view in wide[1].scenarios}
    for group in wide[1].speed:
        for found in group.rows:
            bars = [measure.median if measure else "–" for measure in (found.startup, found.rate)]
            assert table[found.anchor] == tuple(bars)


def test_a_scenario_under_several_torch_has_no_common_speed(page: Callable[..., Page]) -> None:
    rows = [row(NONE, n, torch="2.11.0" if n < 3 else "2.13.0", tokens_per_s=1000.0 + n) for n in range(6)]
    shown = page([*rows, *(row(NONE.replace(lock="per_call"), n, torch="2.13.0") for n in range(3))])
    views = {view.name: view for view in shown.scenarios}
    assert (views["lock=none"].startup, views["lock=none"].rate) == ("–", "–")
    assert views["lock=none"].count == (
        "0/3 (≤ 63 %), start 1.5 s, 1001 tok/s under torch 2.11.0; 0/3 (≤ 63 %), start 1.5 s, 1004 tok/s under torch 2.13.0"
    )
    assert [found.strategy for group in shown.speed for found in group.rows] == ["per_call"]


def test_an_error_shows_both_threads(wide: tuple[RunData, Page]) -> None:
    found = wide[1].errors.examples[0]
    assert (found.label, found.head) == ("fx_error", "22 errors in 16 trials")
    assert found.who == (
        "drafter-1 (thread Thread-2) failed in attention, step 0, "
        "while drafter-0 (thread Thread-1) was tracing in mask."
    )
    failed, traced = found.stacks
    assert failed.innermost == "torch/_dynamo/eval_frame.py:1120 in compile_wrapper"
    assert traced.innermost == "torch/fx/_symbolic_trace.py:890 in trace"
    assert '  File "torch/_tensor.py", line 623, in backward' in failed.text
    assert "^^^" not in failed.text
    assert found.scenarios[0] == ("lock=none checkpoint=non_reentrant", 5)
    assert found.folder.endswith("/trials/steps=12--r0/")


def test_an_error_outside_of_the_workers_names_the_stage_and_no_step(page: Callable[..., Page]) -> None:
    error = {**FX_ERROR, "worker": "", "thread": "MainThread", "region": "", "stage": "warm-up", "step": -1, "tracers": []}
    assert page([row(NONE, 0, "fx_error", errors=[error])]).errors.examples[0].who == (
        "thread MainThread failed in the warm-up."
    )


def test_an_error_that_only_followed_comes_last_and_says_so(page: Callable[..., Page]) -> None:
    follows = {**FX_ERROR, "fingerprint": "b", "label": "error", "message": "queue closed", "consequence": True}
    rows = [row(NONE, repeat, "fx_error", errors=[follows, follows, FX_ERROR][: 3 - repeat]) for repeat in range(2)]
    first, last = page(rows).errors.examples
    assert first.message.startswith("RuntimeError: Detected")
    assert last.head == "4 errors in 2 trials; all of them followed from another error"


def test_the_witness_is_one_that_names_a_tracer(page: Callable[..., Page]) -> None:
    alone = {**TRACED, "tracers": [], "traceback": "alone"}
    rows = [row(NONE, 0, "fx_error", errors=[alone]), row(NONE, 1, "fx_error", errors=[TRACED])]
    rows += [row(NONE, 2, "fx_error", errors=[{**TRACED, "traceback": "later"}])]
    found = page(rows).errors.examples[0]
    assert len(found.stacks) == 2
    assert "torch/_dynamo" in found.stacks[0].text
    assert found.folder.endswith("default--r1/")


def test_dense_calls_show_where_they_began(wide: tuple[RunData, Page]) -> None:
    assert wide[1].dense.note == "9 calls in 1 trial, 5 of them by threads of no worker."
    found = wide[1].dense.examples[0]
    assert found.who == "innermost: torch/nn/attention/flex_attention.py:2508 in flex_attention"
    assert found.stacks[0].title == "drafter-0: first dense call, step 6"


def test_a_deadlock_shows_reason_events_and_stacks(wide: tuple[RunData, Page]) -> None:
    found = wide[1].stuck.examples[0]
    assert found.label == "deadlock"
    assert found.message.startswith("drafter-0 waits for compile_lock")
    assert found.who == "The process ended by SIGKILL (hang)."
    assert [stack.title for stack in found.stacks] == ["stacks.txt", "stdout.txt, its end"]
    assert 'File "torch/_dynamo/convert_frame.py", line 1402 in __call__' in found.stacks[0].text
    assert found.events[1] == ("26.520", "drafter-1", "drafter-1", "region.enter", "r=backward")


def test_hangs_with_one_reason_are_one_kind(page: Callable[..., Page]) -> None:
    rows = [row(NONE, n, "hang", reason=f"no event for {30 + n} s; thread 0x{n:x}1") for n in range(5)]
    rows += [row(NONE, 9, "crash", reason="the process ended by SIGSEGV")]
    after = ("the process ended by SIGSEGV, after drafter-0 had ended", "the process ended by SIGSEGV, after a and b had ended")
    rows += [row(NONE, n, "crash", reason=reason) for n, reason in enumerate(after, 10)]
    assert [(found.label, found.head) for found in page(rows).stuck.examples] == [
        ("hang", "5 trials"),
        ("crash", "2 trials"),
        ("crash", "1 trial"),
    ]


def test_findings_skips_and_oracles(wide: tuple[RunData, Page]) -> None:
    found = wide[1]
    assert [example.message for example in found.findings.examples] == [
        "drafter-1, step 2: 3 parameters without a gradient"
    ]
    assert [(reason.text, reason.names) for reason in found.skipped] == [
        (
            "devices=cuda:0+cuda:1 needs a CUDA build of torch; this is 2.11.0+cpu",
            ("lock=none devices=cuda:0+cuda:1", "lock=first_step devices=cuda:0+cuda:1"),
        )
    ]
    assert [reason.text for reason in found.incomplete] == ["5 × setup_error: no module named transformers"]
    [(name, sentence, oracle)] = found.oracles
    assert (name, sentence) == ("numerics", "118 trials agreed with the reference, 1 did not.")
    assert oracle.unavailable == {"no reference was run": 15}


def test_trials_that_agree_only_as_two_references_do_are_counted_and_said(page: Callable[..., Page]) -> None:
    within = "ok (drafter-0 off by up to 0.031 at step 13, tolerance 0.03; the reference from itself by 0.028)"
    said = [OK, within, within, "unavailable: no loss to compare", "drafter-0, step 1: loss 4.1, reference 4 (off by 0.02)"]
    found = page([row(NONE, repeat, oracles={"numerics": text}) for repeat, text in enumerate(said)])
    [(_, sentence, oracle)] = found.oracles
    assert sentence == "3 trials agreed with the reference (2 only as runs of it differ), 1 did not."
    assert [text for _, text in oracle.examples] == said[4:]


def test_commands_say_how_to_go_on(wide: tuple[RunData, Page]) -> None:
    commands = dict(wide[1].commands)
    assert commands["This run was made by"] == ("harness run scenarios/wide.toml --only 'not devices=cuda:1' --jobs 2")
    folder = wide[0].run_dir
    assert commands["Go on with it"] == f"harness run --resume --out {folder}"
    assert f"harness run --resume --out {folder} --repeats 59" in commands.values()


def test_a_bisection_goes_on_as_one(tmp_path: Path) -> None:
    write_folder(tmp_path, [], matrix=LOCK)
    (tmp_path / "bisect.json").write_text('{"what": "regions"}')
    data = read_run(tmp_path)
    assert dict(build_page(data).commands)["Go on with it"] == f"harness bisect regions --resume --out {data.run_dir}"


def test_only_what_was_to_run_is_missed(page: Callable[..., Page]) -> None:
    only = {**ENVIRONMENT, "options": {"only": "lock=none or lock=per_call"}}
    found = page([row(NONE)], matrix=LOCK, environment=only)
    assert [(view.name, view.state) for view in found.scenarios] == [
        ("lock=none", "undecided"),
        ("lock=per_call", "notrun"),
    ]


def test_rows_beside_the_matrix_are_shown_but_not_judged(page: Callable[..., Page]) -> None:
    found = page([row(NONE), row(Scenario(lock="every_step"), 0, "fx_error")], matrix=LOCK)
    assert [(view.state, view.judged, view.command) for view in found.scenarios if "every_step" in view.id] == [
        ("unsafe", (), "")
    ]
    assert found.left_out == ("Not named by matrix.toml, so shown but not judged: 1 scenario.",)


def test_two_versions_of_torch_are_not_quietly_pooled(page: Callable[..., Page]) -> None:
    found = page([row(NONE, 0), row(NONE, 1, torch="2.14.1")])
    assert any("torch 2.11.0+cpu" in note and "torch 2.14.1" in note for note in found.left_out)


def test_a_trial_that_died_is_of_no_other_software(page: Callable[..., Page]) -> None:
    """Its row has torch's version, which came with its errors, and not Python's."""
    found = page([row(NONE, 0, python="3.12.3"), row(NONE, 1, "crash", python="")])
    assert not any("different software" in note for note in found.left_out)
    found = page([row(NONE, 0, python="3.12.3"), row(NONE, 1, "crash", python="", torch="2.14.1")])
    assert any("torch 2.14.1" in note for note in found.left_out)


def test_where_nothing_can_be_judged_it_is_said(page: Callable[..., Page]) -> None:
    found = page([row(NONE, 0, "fx_error", torch="unknown")], matrix=MATRIX.replace("steps = 12\n", ""))
    assert found.answer.tone == "unsafe"
    assert found.expectations.unjudged == '"unknown" is not a version; write one like 2.11 or 2.11.0+cu130'
    assert (found.expectations.not_met, found.judgement) == ((), "")
    assert page([row()], matrix=None).expectations.unjudged == "the matrix of this run cannot be read"


def test_too_many_scenarios_leave_out_those_that_tell_least(page: Callable[..., Page]) -> None:
    rows = [
        row(Scenario(seed=seed), 0, *(["fx_error"] if seed % 100 == 99 else [])) for seed in range(MOST_SCENARIOS + 100)
    ]
    found = page(rows)
    assert len(found.scenarios) == MOST_SCENARIOS
    assert sum(view.state == "unsafe" for view in found.scenarios) == 21
    assert found.left_out[-1] == "Counted but not shown: 100 scenarios; those that failed were kept."


def test_the_budget_counts_what_escaping_adds() -> None:
    budget = Budget(100)
    assert budget.take("x" * 40) == "x" * 40
    assert "left out" in budget.take('"' * 20)
    assert budget.take("y" * 60) == "y" * 60
    assert budget.refused == 1
    assert budget.take("") == ""


def test_stacks_are_kept_within_the_budget(page: Callable[..., Page]) -> None:
    quotes = ('<"' * 100 + "\n") * 80
    tracer = {**TRACED["tracers"][0], "stack": quotes}
    rows = [
        row(
            NONE,
            n,
            "fx_error",
            errors=[{**TRACED, "fingerprint": str(n), "traceback": quotes, "tracers": [tracer] * 8}],
        )
        for n in range(60)
    ]
    found = page(rows)
    assert found.errors.more == 20
    assert sum(len(stack.text) for example in found.errors.examples for stack in example.stacks) < BYTES
    assert any("small" in note for note in found.left_out)
