"""Errors, dense calls, hangs and findings of a run, each kind with one example, as a report shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis.errors import ErrorGroup
from harness.report.gather import Occasion
from harness.report.text import clip, innermost, one_line, plain, stack, visible
from harness.report.wording import plural

LONGEST_STACK = 16_000
LONGEST_MESSAGE = 2_000
LONGEST_REASON = 1_000
LONGEST_DUMP = 20_000
LONGEST_OUTPUT = 3_000
MOST_ERRORS = 40
MOST_OCCASIONS = 20
MOST_NAMES = 8
BYTES = 1_500_000
"""Of all stacks and dumps together, as they stand in the file."""


@dataclass(frozen=True)
class Stack:
    """A stack to be shown: who, where innermost, and the text."""

    title: str
    innermost: str
    text: str


@dataclass(frozen=True)
class Example:
    """A kind of trouble: how often, in which scenarios (name, times), and the first trial that had it."""

    label: str
    head: str
    message: str
    scenarios: tuple[tuple[str, int], ...]
    more_scenarios: int
    who: str
    stacks: tuple[Stack, ...]
    stacks_title: str
    folder: str
    command: str
    events: tuple[tuple[str, ...], ...] = ()
    note: str = ""


class Budget:
    """Keeps the file small whatever the run holds: once it is spent, texts are replaced by where to find them."""

    def __init__(self, total: int = BYTES) -> None:
        self.left = total
        self.refused = 0

    def take(self, text: str) -> str:
        """The text, made visible, or why it is not here."""
        text = visible(text)
        cost = len(text.encode("utf-8", "backslashreplace")) + 5 * sum(text.count(sign) for sign in "<>&\"'")
        if cost > self.left:
            self.refused += 1
            return "[… left out to keep this file small; it is in the trial's folder …]" if text else ""
        self.left -= cost
        return text


@dataclass(frozen=True)
class Shower:
    """What turns kinds into examples.

    `names`: scenario id → short name. `command`: scenario id → what runs it again. `folder`: trial → where its files
    are. `files`: (trial, file, bytes, from the end) → text.
    """

    names: Mapping[str, str]
    command: Callable[[str], str]
    folder: Callable[[str], str]
    files: Callable[[str, str, int, bool], str]
    budget: Budget

    def errors(self, groups: Sequence[ErrorGroup]) -> list[Example]:
        """The kinds of error, the commonest first; those that only followed from another come last."""

        def rank(group: ErrorGroup) -> tuple[bool, int, int, bool]:
            return group.only_consequences, -group.trials, -group.count, not group.witness.get("traceback")

        return [self._error(group) for group in sorted(groups, key=rank)[:MOST_ERRORS]]

    def dense(self, groups: Sequence[Occasion]) -> list[Example]:
        """Where attention first ran dense, most workers first."""
        return [self._dense(group) for group in _most(groups)]

    def stuck(self, groups: Sequence[Occasion]) -> list[Example]:
        """Hangs, deadlocks and crashes, the commonest first."""
        return [self._stuck(group) for group in _most(groups)]

    def findings(self, groups: Sequence[Occasion]) -> list[Example]:
        """Findings that are no exceptions: missing gradients, leaked state, items that were lost."""
        return [
            self._example(
                group.label,
                plural(group.count, "trial"),
                group.scenarios,
                group.trial,
                group.scenario_id,
                message=clip(group.text, LONGEST_REASON),
            )
            for group in _most(groups)
        ]

    def _error(self, group: ErrorGroup) -> Example:
        witness = group.witness
        failing = who_of(witness)
        others = [f"{who_of(tracer)} was tracing{_in(tracer)}" for tracer in group.collision]
        who = f"{failing} failed{place_of(witness)}"
        stacks = [self._stack(f"{failing}: failed", witness.get("traceback"))]
        stacks += [self._stack(f"{who_of(tracer)}: was tracing", tracer.get("stack")) for tracer in group.collision]
        dropped = witness.get("tracers_dropped", 0)
        follows = ""
        if group.consequences:
            times = "all of them" if group.only_consequences else f"{group.consequences:,} of them"
            follows = f"; {times} followed from another error"
        return self._example(
            group.label,
            f"{plural(group.count, 'error')} in {plural(group.trials, 'trial')}{follows}",
            group.scenarios,
            group.witness_trial,
            str(witness.get("scenario_id", "")),
            message=f"{group.type}: {clip(group.message, LONGEST_MESSAGE)}",
            who=f"{who}, while {' and '.join(others)}." if others else f"{who}.",
            stacks=tuple(found for found in stacks if found.text),
            stacks_title="Stack" if len(stacks) == 1 else f"{len(stacks)} stacks, side by side",
            note=f"{plural(dropped, 'more thread')} traced at that moment." if dropped else "",
        )

    def _dense(self, group: Occasion) -> Example:
        at = f", step {group.step}" if group.step is not None else ""
        found = self._stack(f"{one_line(group.worker, 100)}: first dense call{at}", group.stack)
        return self._example(
            "dense",
            f"first dense call of {plural(group.count, 'worker')}",
            group.scenarios,
            group.trial,
            group.scenario_id,
            who=f"innermost: {found.innermost}" if found.innermost else "no stack was recorded",
            stacks=(Stack(found.title, "", found.text),) if found.text else (),
        )

    def _stuck(self, group: Occasion) -> Example:
        dump = self.files(group.trial, "stacks.txt", LONGEST_DUMP, False)
        output = self.files(group.trial, "stdout.txt", LONGEST_OUTPUT, True)
        texts = ((stack(dump, LONGEST_DUMP), "stacks.txt"), (output.strip(), "stdout.txt, its end"))
        return self._example(
            group.label,
            plural(group.count, "trial"),
            group.scenarios,
            group.trial,
            group.scenario_id,
            message=clip(group.text, LONGEST_REASON) or "no reason was recorded",
            who=exit_of(group.exit),
            stacks=tuple(Stack(title, "", self.budget.take(text)) for text, title in texts if text),
            stacks_title="Stacks of all threads, and the end of its output",
            events=tuple(event_of(event) for event in group.last_events),
        )

    def _example(
        self,
        label: str,
        head: str,
        scenarios: Mapping[str, int],
        trial: str,
        scenario_id: str,
        **rest: Any,
    ) -> Example:
        most = sorted(scenarios.items(), key=lambda pair: -pair[1])
        shown = tuple((self.names.get(name, name), times) for name, times in most[:MOST_NAMES])
        return Example(
            label=label,
            head=head,
            scenarios=shown,
            more_scenarios=len(most) - len(shown),
            folder=self.folder(trial),
            command=self.command(scenario_id),
            **{"message": "", "who": "", "stacks": (), "stacks_title": "Stack", **rest},
        )

    def _stack(self, title: str, text: object) -> Stack:
        shown = stack(text, LONGEST_STACK) if isinstance(text, str) else ""
        return Stack(title, one_line(innermost(shown), 300), self.budget.take(shown))


def _most(groups: Sequence[Occasion]) -> list[Occasion]:
    return sorted(groups, key=lambda group: -group.count)[:MOST_OCCASIONS]


def who_of(error: Mapping[str, Any]) -> str:
    """`drafter-1`, with its thread where that is called otherwise."""
    worker, thread = (one_line(str(error.get(key) or "?"), 100) for key in ("worker", "thread"))
    if worker == "?":
        return f"thread {thread}"
    return worker if worker == thread else f"{worker} (thread {thread})"


def exit_of(ended: Mapping[str, Any]) -> str:
    how = one_line(str(ended.get("how") or ""), 200)
    if ended.get("signal"):
        return f"The process ended by {one_line(str(ended['signal']), 50)} ({how})."
    if ended.get("status") is not None:
        return f"The process ended with status {one_line(str(ended['status']), 50)} ({how})."
    return f"The process: {how}." if how else ""


def event_of(event: Mapping[str, Any]) -> tuple[str, ...]:
    at = event.get("t")
    rest = {key: value for key, value in event.items() if key not in ("t", "th", "id", "w", "k")}
    return (
        f"{at / 1e9:.3f}" if isinstance(at, int) and 0 <= at < 2**63 else "",
        one_line(str(event.get("th") or ""), 60),
        one_line(str(event.get("w") or ""), 60),
        one_line(str(event.get("k") or ""), 60),
        one_line(" ".join(f"{key}={plain(value)}" for key, value in rest.items()), 200),
    )


def place_of(error: Mapping[str, Any]) -> str:
    """` in forward, step 3`; ` in the set-up`, which is of no step; "" for a program that names no regions and counts none."""
    if error.get("stage") and not error.get("region"):
        return f" in the {one_line(str(error['stage']), 100)}"
    step = error.get("step")
    return _in(error) + (f", step {step}" if isinstance(step, int) and step >= 0 else "")


def _in(error: Mapping[str, Any]) -> str:
    """` in forward`; "" for a program that names no regions."""
    return f" in {error['region']}" if error.get("region") else ""
