"""What a person sees, as text."""

from __future__ import annotations

import io

import pytest
from fake_runs import FX_ERROR, fx_row, row
from rich.console import Console

from harness.analysis.summary import summarise
from harness.core.matrix import Judgement
from harness.core.scenario import Scenario
from harness.report import wording
from harness.report.progress import LiveProgress, PlainProgress, Progress, make_progress
from harness.report.terminal import print_run
from harness.report.view import RunView

NONE = Scenario()
FIRST = Scenario(lock="first_step", checkpoint="non_reentrant")
GATE = Scenario(lock="compile_gate")
SPAN = Scenario(lock="span:mask..backward", checkpoint="non_reentrant", shapes="per_drafter")
BROKEN = Scenario(lock="per_call")
CUDA = Scenario(devices="cuda:0")
VARYING = ("lock", "checkpoint", "shapes", "devices")


def view(**rest: object) -> RunView:
    rows = [fx_row(NONE, repeat) if repeat < 3 else row(NONE, repeat) for repeat in range(5)]
    rows += [row(FIRST, repeat, startup_s=12.34, tokens_per_s=12345.6) for repeat in range(5)]
    rows += [row(GATE, repeat, probes={"dense": "unavailable: no counter"}) for repeat in range(59)]
    rows += [row(SPAN, repeat, "dense", dense_calls=31, tokens_per_s=None) for repeat in range(5)]
    rows += [row(BROKEN, 0, "setup_error", reason="no libfoo", startup_s=None, tokens_per_s=None)]
    rows += [row(CUDA, 0, "skipped", reason="no CUDA here", startup_s=None, tokens_per_s=None)]
    judgements = {
        NONE.id: [Judgement("met", "must fx_error")],
        SPAN.id: [Judgement("unexpected", "dense in 5 of 5 trials: nothing permits it")],
    }
    fields = {"resume": "harness run --resume --out " + "x" * 90, **rest}
    return RunView("quick", "runs/a", summarise(rows), VARYING, judgements, "2.11.0+cpu", "2 CPU cores", **fields)  # type: ignore[arg-type]


def shown(what: RunView, width: int = 80, encoding: str = "utf-8", **console: object) -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    print_run(Console(file=stream, width=width, **console), what)  # type: ignore[arg-type]
    stream.seek(0)
    return "\n".join(line.rstrip() for line in stream.read().splitlines()) + "\n"


TABLE = """\
quick  75 trials on torch 2.11.0+cpu, 2 CPU cores
   scenario                      verdict                 FX  dense  start  tok/s
────────────────────────────────────────────────────────────────────────────────
✓  lock=none                     unsafe 3/5 (≥ 19 %)      3      0    1.5   1000
   lock=first_step               undecided 0/5 (≤ 45 %)   0      0   12.3  12346
   checkpoint=non_reentrant
   lock=compile_gate             safe 0/59 (≤ 5.0 %)      0    n/a    1.5   1000
✗  lock=span:mask..backward      unsafe 5/5 (≥ 55 %)      0    155    1.5      –
   checkpoint=non_reentrant
   shapes=per_drafter
   lock=per_call                 incomplete               –      –      –      –
   lock=none devices=cuda:0      skipped                  –      –      –      –
"""

BELOW = """\
Not as expected
  lock=span:mask..backward checkpoint=non_reentrant shapes=per_drafter:
  unexpected: dense in 5 of 5 trials: nothing permits it

Errors
  3 × fx_error in 3 trials: RuntimeError: Detected that you are using FX to
  symbolically trace a dynamo-optimized function.
    drafter-1 (thread Thread-2) in attention, while drafter-0 (thread Thread-1)
    was tracing in mask
    lock=none

Skipped
  lock=none devices=cuda:0: no CUDA here

Incomplete
  lock=per_call: 1 × setup_error: no libfoo

Probes that cannot work here
  dense: no counter (59 trials)

Next
"""


def test_the_table() -> None:
    assert shown(view()).startswith(TABLE)


def test_what_stands_below_the_table() -> None:
    assert BELOW in shown(view())


def test_it_fits_80_columns_but_for_what_is_to_be_copied() -> None:
    long = [line for line in shown(view()).splitlines() if len(line) > 80]
    assert [line.strip() for line in long] == ["harness run --resume --out " + "x" * 90 + " --repeats 59"]


@pytest.mark.parametrize("width", [40, 60, 100, 200])
def test_other_widths_lose_no_verdict(width: int) -> None:
    text = shown(view(), width)
    for word in ("unsafe", "undecided", "safe", "incomplete", "skipped"):
        assert word in text


def test_what_more_trials_would_cost_is_said_with_how_to_ask_less() -> None:
    """54 of each that has 5 trials and 58 of the one that has 1, of 2 s each; what did not run is not counted."""
    text = " ".join(shown(view(jobs=2, bisect="harness bisect locks m.toml")).split("\nNext\n")[1].split())
    cost = "about 220 more trials, about 4 min with -j 2, those of 2 unsafe scenarios included"
    assert f"trials each without a failure: {cost} harness run --resume" in text
    assert "with --only lock=first_step added" in text
    assert "if the question is which lock is enough: harness bisect locks m.toml" in text


def test_one_scenario_has_nothing_to_choose_from() -> None:
    one = RunView("m", "r", summarise([row(NONE)]), (), {}, "2.13.0", "here", bisect="harness bisect locks m")
    text = " ".join(shown(one).split())
    assert "about 58 more trials" in text
    assert "--only" not in text
    assert "harness bisect" not in text


def test_a_row_that_fails_by_a_setting_is_not_held_against_its_lock() -> None:
    limit = Scenario(lock="compile_gate", dynamo="limit_in_main")
    rows = [row(NONE), row(limit, 0, "dense")]
    judged = {limit.id: [Judgement("met", "must dense: held in 1 trial (per thread (dense-by-thread-config))")]}
    names = ("lock", "dynamo")
    text = shown(RunView("m", "r", summarise(rows), names, judged, "2.14.1", "here", bisect="bisect m"), width=200)
    assert "bisect m --only dynamo=default\n" in text, "else no lock is safe in all of its scenarios"
    fails = "fails by dynamo=limit_in_main and not by its lock (dense-by-thread-config)."
    words = f"lock=compile_gate dynamo=limit_in_main: {fails}"
    assert words in text
    assert text.index(words) < text.index("\nNext\n")
    of_another = {limit.id: [Judgement("met", "must dense")]}
    assert "not by its lock" not in shown(RunView("m", "r", summarise(rows), names, of_another, "2.14.1", "here"))


def test_evidence_is_first_of_what_no_setting_brings_about_under_any_lock() -> None:
    limit = Scenario(lock="compile_gate", dynamo="limit_in_main")
    other = {**FX_ERROR, "label": "graph_corrupt", "fingerprint": "g", "type": "KeyError", "message": "'custom'"}
    rows = [fx_row(limit, repeat) for repeat in range(3)]
    rows += [row(NONE, 0, "graph_corrupt", errors=[other])]
    for one in rows[:3]:
        one.update(outcomes=["fx_error", "dense"])
    judged = {limit.id: [Judgement("met", "must dense: held in 1 trial (per thread (dense-by-thread-config))")]}
    text = shown(RunView("m", "runs/a", summarise(rows), ("lock", "dynamo"), judged, "2.13.0", "here"), width=200)
    evidence = [line.strip() for line in text.splitlines() if line.startswith("  evidence of ")]
    assert [line.split()[2] for line in evidence] == ["graph_corrupt,", "fx_error,"]
    assert text.index(f"harness explain runs/a/trials/{NONE.id}--r0/") < text.index(f"harness explain runs/a/trials/{limit.id}")
    judged = {limit.id: []}
    text = shown(RunView("m", "runs/a", summarise(rows), ("lock", "dynamo"), judged, "2.13.0", "here"), width=200)
    assert text.index("evidence of fx_error") < text.index("evidence of graph_corrupt"), "then the commoner one"


def test_a_trial_of_two_kinds_is_evidence_of_the_first() -> None:
    other = {**FX_ERROR, "label": "graph_corrupt", "fingerprint": "g", "type": "KeyError", "message": "'custom'"}
    one = row(NONE, 0, "fx_error", errors=[FX_ERROR, other])
    one["outcomes"] = ["fx_error", "graph_corrupt"]
    text = shown(RunView("m", "runs/a", summarise([one]), ("lock",), {}, "2.13.0", "here"), width=200)
    assert [line.split()[2] for line in text.splitlines() if line.startswith("  evidence of ")] == ["fx_error,"]


def test_the_bisection_to_ask_is_of_what_was_run_of_the_matrix() -> None:
    rows = [row(NONE), row(GATE)]
    names = ("lock", "dynamo", "checkpoint")
    text = shown(RunView("m", "r", summarise(rows), names, {}, "2.13.0", "here", bisect="bisect m"), width=200)
    assert "bisect m --only 'dynamo=default and checkpoint=none'\n" in text
    both = [*rows, row(Scenario(lock="compile_gate", dynamo="limit_in_main"), 0), row(FIRST)]
    text = shown(RunView("m", "r", summarise(both), names, {}, "2.13.0", "here", bisect="bisect m"), width=200)
    assert "bisect m\n" in text


def worker(steps: int, tokens: int = 8, role: str = "drafter") -> dict[str, object]:
    return {"role": role, "steps_ok": steps, "tokens": tokens * steps}


@pytest.mark.parametrize(
    ("workers", "words"),
    [
        ({"a": worker(2), "b": worker(3)}, "no step ended while all 2 workers were warm and at work"),
        ({"a": worker(1, role="")}, "no step ended while the one worker was warm"),
        ({"a": worker(2, 0, "x"), "b": worker(2, 0, "x")}, "its steps count no tokens"),
        ({"a": worker(2), "b": worker(0)}, "1 of 2 workers had no good step"),
    ],
)
def test_why_there_is_no_throughput(workers: dict[str, object], words: str) -> None:
    rows = [row(NONE, 0, tokens_per_s=None, workers=workers), row(GATE, 0, workers=workers)]
    text = " ".join(shown(RunView("m", "r", summarise(rows), ("lock",), {}, "2.13.0", "here")).split())
    assert f"No tok/s lock=none: {words}" in text
    assert "lock=compile_gate: no" not in text
    one_has_a_rate = [rows[0], row(NONE, 1, workers=workers)]
    assert "No tok/s" not in shown(RunView("m", "r", summarise(one_has_a_rate), ("lock",), {}, "2.13.0", "here"))


def test_no_colour_where_there_is_no_terminal() -> None:
    assert "\x1b" not in shown(view())


def test_colour_on_a_terminal_unless_the_user_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    red = "\x1b[31m"
    assert red in shown(view(), force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    assert red not in shown(view(), force_terminal=True, color_system="standard")


def test_a_terminal_without_unicode_gets_ascii() -> None:
    table = shown(view(), encoding="ascii").split("verdict: failures")[0]
    assert table.isascii()
    assert "undecided 0/5 (<= 45 %)" in table


def test_square_brackets_of_a_message_are_no_markup() -> None:
    error = {**FX_ERROR, "message": "shape [red]1[/red] [/] and [link=x]", "tracers": []}
    summary = summarise([row(NONE, 0, "error", errors=[error], reason="[/]")])
    text = shown(RunView("m", "r", summary, ("lock",), {}, "2.13.0", "here"))
    assert "shape [red]1[/red] [/] and [link=x]" in text


def test_verbose_shows_both_stacks() -> None:
    text = shown(view(verbose=True))
    assert "the traceback" in text
    assert "the stack" in text
    assert "the traceback" not in shown(view())


def test_an_interrupted_run_says_how_to_go_on() -> None:
    text = shown(view(interrupted=True, resume="harness run --resume --out runs/a"))
    assert "interrupted; continue with\n    harness run --resume --out runs/a\n" in text


def test_the_report_is_named_and_the_signs_are_explained() -> None:
    assert "Next\n" in shown(view())
    assert "for a browser" not in shown(view())
    text = shown(view(report="runs/a/report.html"))
    assert "  the report, for a browser:\n    runs/a/report.html\n" in text
    legend = " ".join(text.split("verdict: failures")[1].split("\n\n")[0].split())
    assert "–: not measured. ✓ ✗: as expected or not; no mark: nothing expected" in legend
    assert "-: not measured. + x: as expected" in " ".join(shown(view(), encoding="ascii").split())


WAITS = (
    "drafter-0 waits for torch's compile lock, held by drafter-1; "
    "drafter-1 waits for autograd's thread of hosted:0, held by drafter-0"
)
OTHERS = (
    "drafter-1 waits for autograd's thread of hosted:0, held by drafter-2; "
    "drafter-2 waits for torch's compile lock, held by drafter-1"
)


def test_each_torch_of_a_scenario_has_its_own_count_and_more_trials_are_not_advised() -> None:
    versions = [("2.11.0", 1000.0), ("2.13.0", 1500.0)]
    rows = [row(NONE, n, torch=versions[n >= 30][0], tokens_per_s=versions[n >= 30][1]) for n in range(60)]
    text = shown(RunView("m", "r", summarise(rows), ("lock",), {}, "2.13.0", "here", resume="harness run --resume --out r"))
    assert "undecided 0/30 + 0/30 (≤ 9.5 %)" in text
    each = (
        "0/30 (≤ 9.5 %), start 1.5 s, 1000 tok/s under torch 2.11.0; "
        "0/30 (≤ 9.5 %), start 1.5 s, 1500 tok/s under torch 2.13.0"
    )
    assert f"Several torch, each judged by itself lock=none: {each}" in " ".join(text.split())
    assert "--repeats" not in text
    for one in rows[:30]:
        one.update(outcome="fx_error", outcomes=["fx_error"])
    failed = summarise(rows)
    assert "unsafe 30/30 + 0/30 (≥ 90 %)" in shown(RunView("m", "r", failed, ("lock",), {}, "2.13.0", "here"))


def stuck(**rest: object) -> RunView:
    rows = [row(NONE, 0, "deadlock", reason=WAITS, startup_s=None, tokens_per_s=None)]
    rows += [row(NONE, 1, "deadlock", reason=OTHERS, startup_s=None, tokens_per_s=None)]
    rows += [row(FIRST, 0, "deadlock", reason=WAITS, startup_s=None, tokens_per_s=None), row(FIRST, 1)]
    rows += [row(GATE, 0, "hang", reason="no event for 30 s; no known lock is waited for")]
    return RunView("m", "runs/a b", summarise(rows), VARYING, {}, "2.13.0", "here", **rest)  # type: ignore[arg-type]


def test_a_deadlock_is_told_whole_and_once_for_the_same_kinds_of_wait() -> None:
    text = shown(stuck())
    block = text.split("\nDeadlocks, hangs and crashes\n")[1].split("\n\n")[0]
    said = " ".join(block.split())
    assert said.startswith(f"3 × deadlock in 4 trials: {WAITS} lock=none; lock=first_step checkpoint=non_reentrant ")
    assert said.endswith("1 × hang in 1 trial: no event for 30 s; no known lock is waited for lock=compile_gate")
    assert "drafter-2" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_what_never_came_to_its_end_has_seen_no_zero() -> None:
    line = next(line for line in shown(stuck()).splitlines() if line.startswith("lock=none"))
    assert line.split()[-4:] == ["–", "–", "–", "–"]
    line = next(line for line in shown(stuck()).splitlines() if line.startswith("lock=first_step"))
    assert line.split()[-4:-2] == ["0", "0"]


def test_a_deadlock_is_evidence_that_explain_reads() -> None:
    following = shown(stuck()).split("\nNext\n")[1]
    folder = f"runs/a b/trials/{NONE.id}--r0/"
    why = "evidence of a deadlock, and its hazard and remedy where these are known:"
    assert f"  {why}\n    {folder}\n    harness explain '{folder}'\n" in following
    assert "evidence of a hang, and" in following


def test_an_error_that_only_followed_is_not_listed() -> None:
    error = {**FX_ERROR, "consequence": True, "message": "queue closed"}
    summary = summarise([row(NONE, 0, "hang", errors=[error])])
    assert "queue closed" not in shown(RunView("m", "r", summary, ("lock",), {}, "2.13.0", "here"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0.0"),
        (1.25, "1.2"),
        (99.97, "100"),
        (1234.0, "1234"),
        (99999.0, "99999"),
        (123456.0, "123k"),
    ],
)
def test_numbers_stay_short(value: float | None, text: str) -> None:
    assert wording.number(value) == text
    assert len(text) <= 5


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "1 s"), (89, "89 s"), (91, "2 min"), (7500, "2 h 05 min")])
def test_durations(seconds: float, text: str) -> None:
    assert wording.duration(seconds) == text


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Trial:
    def __init__(self, trial_id: str) -> None:
        self.trial_id = trial_id


def go_on(progress: Progress, clock: Clock) -> None:
    progress.clock = clock
    progress.begin(4, 2)
    clock.now += 500  # until torch is imported: no measure of a trial
    for repeat, outcome in enumerate(["ok", "fx_error"]):
        progress.started(Trial(f"default--r{repeat}"))
        clock.now += 30
        progress.ended(row(None, repeat, outcome))
    progress.started(Trial("default--r2"))
    clock.now += 5


def test_progress_guesses_the_time_that_is_left() -> None:
    progress = Progress()
    go_on(progress, Clock())
    assert progress.counts() == "2/4 trials, 1 failed, 2 from before, about 55 s left"


def test_skipped_and_interrupted_trials_are_not_progress() -> None:
    progress = Progress()
    progress.begin(4, 0)
    progress.ended(row(None, 0, "skipped"))
    progress.ended(row(None, 1, "interrupted"))
    assert (progress.done, progress.failed) == (0, 0)


def test_a_log_gets_failures_and_standings() -> None:
    stream = io.StringIO()
    go_on(PlainProgress(stream), Clock())
    assert "4 trials to run, 2 from before\n" in stream.getvalue()
    assert "fx_error default--r1 2.0 s\n" in stream.getvalue()
    assert "start default--r0" not in stream.getvalue()


def test_a_log_gets_every_trial_when_asked() -> None:
    stream = io.StringIO()
    go_on(PlainProgress(stream, every=True), Clock())
    assert "start default--r0\nok default--r0 2.0 s\n" in stream.getvalue()


def test_a_line_of_a_log_has_80_columns_and_both_ends_of_a_name() -> None:
    stream = io.StringIO()
    scenario = Scenario(lock="compile_gate", checkpoint="non_reentrant", shapes="per_drafter", warmup="per_device", drafters=3)
    log = PlainProgress(stream, every=True)
    log.begin(1, 0)
    failed = row(scenario, 12, "setup_error", reason="no libfoo " * 30)
    log.started(Trial(failed["trial"]))
    log.ended(failed)
    _, start, end, reason = stream.getvalue().splitlines()
    assert (len(start), len(end)) == (80, 80)
    assert start.startswith("start lock=compile_gate,")
    assert end.startswith("setup_error lock=compile_gate,")
    assert end.endswith("--r12 2.0 s")
    assert reason.startswith("  no libfoo no")
    assert reason.endswith(" …")
    assert len(reason) <= 80


def test_a_reader_that_has_gone_does_not_end_the_run() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    go_on(PlainProgress(Gone()), Clock())


def test_a_terminal_gets_a_live_display() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None, height=20)
    with LiveProgress(console, "quick") as progress:
        go_on(progress, Clock())
        progress.interrupting()
    with console.capture() as captured:
        console.print(progress.render())
    text = captured.get()
    assert "2/4 trials, 1 failed, 2 from before, about 55 s left" in text
    assert "5 s default--r2" in text
    assert "Ctrl-C again stops at once" in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80


def test_the_live_table_has_the_names_of_the_table_at_the_end() -> None:
    scenarios = [Scenario(steps=12), Scenario(steps=12, checkpoint="reentrant"), Scenario(steps=12, lock="first_step")]
    for varying in (("lock", "checkpoint"), ()):
        console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None, height=30)
        with LiveProgress(console, "quick") as progress:
            progress.varying = varying
            for scenario in scenarios[: None if varying else 1]:
                progress.ended(row(scenario))
        with console.capture() as captured:
            console.print(progress.render())
        named = {line.split("  ")[0] for line in captured.get().splitlines() if line.startswith("lock=")}
        assert named == ({"lock=none", "lock=none checkpoint=reentrant", "lock=first_step"} if varying else {"lock=none"})


def test_the_display_suits_the_stream() -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True)
    log = Console(file=io.StringIO(), force_terminal=False)
    assert type(make_progress(terminal, "t", quiet=False, verbose=False)) is LiveProgress
    assert type(make_progress(log, "t", quiet=False, verbose=False)) is PlainProgress
    assert type(make_progress(terminal, "t", quiet=True, verbose=False)) is Progress


@pytest.mark.parametrize(
    ("torch", "workload", "said"),
    [
        ("2.14.1+cu130", "dflash", True),
        ("2.13.0+cpu", "dflash", False),  # a backward still traces
        ("2.15.0a0+git1", "dflash", True),
        ("odd", "dflash", False),
        ("2.14.1", "mine:work", False),
    ],
)
def test_where_no_call_can_be_refused_it_says_so(torch: str, workload: str, said: bool) -> None:
    """Most come for that error, and see nothing fail."""
    rows = [row(Scenario(workload=workload))]
    what = RunView("quick", "runs/a", summarise(rows), (), {}, torch, "2 CPU cores")
    text = " ".join(shown(what).split())
    assert (f'"Detected that you are using FX …" cannot happen on torch {torch}' in text) is said
    assert ("--python PY" in text) is said
