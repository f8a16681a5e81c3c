"""What a run says, in one sentence with its counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.analysis.intervals import trials_for_safe
from harness.analysis.summary import ScenarioSummary
from harness.core.outcome import FAILURES
from harness.report.wording import plural

FAILURE_WORDS = {
    "fx_error": "FX-tracing errors",
    "graph_corrupt": "corrupt graphs",
    "dense": "dense attention",
    "numerics": "wrong numbers",
    "no_grad": "missing gradients",
    "state_leak": "leaked compiler state",
    "deadlock": "deadlocks",
    "hang": "hangs",
    "cudagraph_tls": "CUDA-graph state of another thread",
    "cudagraph_pool": "CUDA-graph pool errors",
    "cudagraph_overwritten": "overwritten CUDA-graph outputs",
    "capture_invalidated": "invalidated CUDA captures",
    "cuda_fault": "CUDA faults",
    "crash": "crashes",
    "error": "other errors",
}
"""Failure label → what people call it."""

MOST_LABELS = 4


@dataclass(frozen=True)
class Answer:
    """`tone` is the worst verdict, `sentence` the answer, `rest` what else there is to know at once."""

    tone: str
    sentence: str
    rest: str


def answer(summaries: Sequence[ScenarioSummary], not_run: int) -> Answer:
    """The answer to "is it safe?". `not_run` scenarios have no trial yet."""
    total = len(summaries) + not_run
    states = [state(item) for item in summaries] + ["notrun"] * not_run
    count = {name: states.count(name) for name in dict.fromkeys(states)}
    trials = sum(item.trials for item in summaries)
    unsafe, safe, undecided = (count.get(name, 0) for name in ("unsafe", "safe", "undecided"))
    others = _others(count, unsafe=unsafe)
    if unsafe:
        who = _of(unsafe, total, "scenario")
        return Answer("unsafe", f"{who} {_is(unsafe)} unsafe: {_failures(summaries, trials)}.", others)
    if safe and safe == total:
        who = "The one scenario is" if total == 1 else f"All {total:,} scenarios are"
        return Answer("safe", f"{who} safe: no failure in {plural(trials, 'trial')}.", "")
    if safe:
        sentence = f"No failure in {plural(trials, 'trial')}: {_of(safe, total, 'scenario')} {_is(safe)} safe."
        return Answer("undecided" if undecided else "safe", sentence, others)
    if undecided:
        sentence = f"No failure in {plural(trials, 'trial')}, but too few trials to call anything safe."
        under = ", under each torch" if any(item.by_torch for item in summaries) else ""
        need = f"Safe takes {trials_for_safe()} trials of a scenario without a failure{under}."
        return Answer("undecided", sentence, f"{others} {need}")
    if not summaries:
        return Answer("incomplete", "No trial has ended yet, so nothing can be said.", others)
    return Answer("incomplete", "Nothing can be said: no trial came to an end that tells anything.", others)


def state(item: ScenarioSummary) -> str:
    """The verdict, or `skipped`."""
    return "skipped" if item.skipped else item.verdict


def _failures(summaries: Sequence[ScenarioSummary], trials: int) -> str:
    counts = {label: sum(item.outcomes.get(label, 0) for item in summaries) for label in FAILURES}
    seen = sorted((label for label in FAILURES if counts[label]), key=lambda label: -counts[label])
    first, *others = seen
    parts = [f"{FAILURE_WORDS[first]} in {counts[first]:,} of {plural(trials, 'trial')}"]
    parts += [f"{FAILURE_WORDS[label]} in {counts[label]:,}" for label in others[: MOST_LABELS - 1]]
    more = len(seen) - MOST_LABELS
    return ", ".join(parts) + (f", and {plural(more, 'more kind')} of failure" if more > 0 else "")


def _others(count: dict[str, int], *, unsafe: int) -> str:
    words = {
        "safe": "safe",
        "undecided": "undecided (no failure, too few trials)",
        "incomplete": "incomplete (no trial tells anything)",
        "skipped": "skipped",
        "notrun": "not run",
    }
    parts = [f"{count[name]:,} {text}" for name, text in words.items() if count.get(name)]
    if not parts:
        return ""
    lead = "The others: " if unsafe else "Scenarios: "
    return f"{lead}{', '.join(parts)}."


def _of(count: int, total: int, noun: str) -> str:
    return f"{count:,} of {plural(total, noun)}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"
