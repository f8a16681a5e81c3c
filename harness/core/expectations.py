"""What a matrix file expects of its scenarios, and whether the trials of one kept to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.core.errors import MatrixError, UserError, nearest
from harness.core.outcome import FAILURES, INCOMPLETE, LABELS, OK, SKIPPED
from harness.core.scenario import Scenario
from harness.core.tables import Table, check_keys, string_at, strings_at
from harness.core.versions import Specifier, parse_specifier
from harness.core.where import Where, parse_where

_KEYS = ("where", "torch", "must", "may", "only", "reason")
_VERBS = ("must", "may", "only")
_JUDGED = (*FAILURES, OK)
_SAYS_NOTHING = (*INCOMPLETE, SKIPPED)


@dataclass(frozen=True)
class Expectation:
    """One ``[[expect]]`` table. Exactly one of ``must``, ``may`` and ``only`` is not empty.

    ``must``: each label in one trial at least. ``may``: these labels are permitted. ``only``: no trial has
    another label.
    """

    where: Where
    torch: Specifier
    must: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    reason: str = ""

    def applies(self, scenario: Scenario, torch_version: str) -> bool:
        """Whether it speaks of this scenario under this torch (``torch.__version__``)."""
        return self.where.matches(scenario) and self.torch.contains(torch_version)

    @property
    def permitted(self) -> tuple[str, ...]:
        """The labels that are no surprise where it applies."""
        return self.must or self.may or self.only

    def __str__(self) -> str:
        verb = "must" if self.must else "may" if self.may else "only"
        torch = f", torch {self.torch.text}" if self.torch.text else ""
        return f"{verb} {', '.join(self.permitted)} where {self.where}{torch}"


def read_expectation(table: Table, at: str) -> Expectation:
    """Read one ``[[expect]]`` table; ``at`` says where it stands.

    Raises:
        MatrixError: an unknown key or label, a condition that cannot be read, or not exactly one of ``must``,
            ``may`` and ``only``.
    """
    check_keys(table, _KEYS, at)
    condition, versions = string_at(table, "where", at), string_at(table, "torch", at, "")
    try:
        where = parse_where(condition)
    except UserError as error:
        raise MatrixError(f'{at} key "where": {error}') from None
    try:
        torch = parse_specifier(versions)
    except UserError as error:
        raise MatrixError(f'{at} key "torch": {error}') from None
    lists = {verb: _labels(table, verb, at) for verb in _VERBS}
    if sum(verb in table for verb in _VERBS) != 1:
        raise MatrixError(f"{at}: exactly one of the keys must, may and only is needed; write a table for each")
    return Expectation(where, torch, **lists, reason=string_at(table, "reason", at, ""))


def _labels(table: Table, key: str, at: str) -> tuple[str, ...]:
    labels = strings_at(table, key, at)
    for label in labels:
        if label in _SAYS_NOTHING:
            raise MatrixError(f'{at} key "{key}": "{label}" says nothing of the subject, so it is never judged')
        if label not in _JUDGED:
            hint = nearest(label, _JUDGED) or "; labels are " + ", ".join(_JUDGED)
            raise MatrixError(f'{at} key "{key}": no outcome is called "{label}"{hint}')
    return labels


@dataclass(frozen=True)
class Judgement:
    """What the trials of a scenario say of one expectation, or of a label that nothing expects."""

    kind: Literal["met", "broken", "unexpected"]
    text: str


def judge(
    scenario: Scenario,
    labels: Sequence[Sequence[str]],
    torch_version: str,
    expectations: Iterable[Expectation],
) -> list[Judgement]:
    """Judge a scenario; ``labels`` are those of each trial.

    Labels that say nothing of the subject (out of memory, setup error, interrupted, skipped) are left out. A
    scenario with no trial that says anything is not judged: the list is empty, and its verdict incomplete.
    A label that breaks an ``only`` is not listed as unexpected as well.

    Raises:
        ValueError: a label that is not in the closed list.
    """
    for label in (label for trial in labels for label in trial):
        if label not in LABELS:
            raise ValueError(f"not an outcome label: {label!r}")
    telling = [[label for label in trial if label not in _SAYS_NOTHING] for trial in labels]
    trials = [said for said in telling if said]
    if not trials:
        return []
    matching = [expectation for expectation in expectations if expectation.applies(scenario, torch_version)]
    judgements = [_judge_one(expectation, trials) for expectation in matching]
    covered = {OK, *(label for expectation in matching for label in expectation.permitted)}
    if any(expectation.only for expectation in matching):
        covered.update(LABELS)
    for label in LABELS:
        count = sum(label in trial for trial in trials)
        if count and label not in covered:
            judgements.append(Judgement("unexpected", f"{label} in {_of(count, trials)}: nothing permits it"))
    return judgements


def _judge_one(expectation: Expectation, trials: Sequence[Sequence[str]]) -> Judgement:
    why = f" ({expectation.reason})" if expectation.reason else ""
    if expectation.must:
        absent = [label for label in expectation.must if not any(label in trial for trial in trials)]
        if absent:
            return Judgement("broken", f"{expectation}: no {', no '.join(absent)} in {_trials(trials)}{why}")
    if expectation.only:
        others = [
            f"{label} in {_of(count, trials)}"
            for label in LABELS
            if label not in expectation.only and (count := sum(label in trial for trial in trials))
        ]
        if others:
            return Judgement("broken", f"{expectation}: {', '.join(others)}{why}")
    return Judgement("met", f"{expectation}: held in {_trials(trials)}{why}")


def _trials(trials: Sequence[Sequence[str]]) -> str:
    return f"{len(trials)} trial{'' if len(trials) == 1 else 's'}"


def _of(count: int, trials: Sequence[Sequence[str]]) -> str:
    return f"{count} of {_trials(trials)}"
