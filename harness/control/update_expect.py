"""Expectations that hold what a run has shown: the text of a matrix in, its text with other `[[expect]]` tables out.

Only what is broken or missing is touched, and only for the torch that was seen:

* An expectation that a scenario breaks no longer speaks of that scenario under this torch. Under others it stays as it
  was.
* A label that nothing permits gets a table: `must` where so many trials had it that it can be relied on to come again,
  else `may`.

What is `may` and did not happen stays: that is what `may` means. All else in the text, comments included, stays as it
was typed.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis.intervals import CONFIDENCE, failure_rate_lower
from harness.analysis.selection import where_for
from harness.analysis.summary import ScenarioSummary
from harness.control.toml_layout import Block, blocks
from harness.core.axes import AXES
from harness.core.errors import MatrixError
from harness.core.expectations import Expectation, judge, read_expectation
from harness.core.matrix import Matrix
from harness.core.outcome import FAILURES, INCOMPLETE, OK
from harness.core.scenario import Scenario
from harness.core.versions import parse_version
from harness.core.where import parse_where

Table = dict[str, Any]
_ORDER = ("where", "torch", "must", "may", "only", "reason")


@dataclass
class _Edit:
    """What becomes of a table: other values, None removes it; `more` are tables that follow it."""

    values: Table | None = dataclasses.field(default_factory=dict)
    more: list[Table] = dataclasses.field(default_factory=list)


def update_expectations(matrix: Matrix, summaries: Sequence[ScenarioSummary], torch: str, repeats: int) -> str:
    """The new text of `matrix.text`; the same text when every expectation holds and nothing is unexpected.

    Scenarios of which trials are missing, of `repeats` each, or say nothing, are left alone. `torch` is the version
    that was run. Raises MatrixError when the tables are written in a form that cannot be edited.
    """
    known = {scenario.id: scenario for scenario in matrix.scenarios}
    seen = {known[item.id]: _telling(item) for item in summaries if item.id in known and item.conclusive >= repeats}
    tables: list[Table] = tomllib.loads(matrix.text).get("expect", [])
    edits = [
        _narrow(table, expectation, matrix.scenarios, seen, torch)
        for table, expectation in zip(tables, matrix.expectations, strict=True)
    ]
    kept = [table for old, edit in zip(tables, edits, strict=True) for table in _after(old, edit)]
    added = _missing(kept, matrix, seen, torch, repeats)
    if not added and not any(edit.values or edit.values is None or edit.more for edit in edits):
        return matrix.text
    text = _edited(matrix, edits, added)
    _check(matrix, text, [*kept, *added])
    return text


def check_editable(matrix: Matrix) -> None:
    """Try every kind of edit on every table, and keep none. Raises MatrixError when they are written in a form that cannot
    be edited.
    """
    tables: list[Table] = tomllib.loads(matrix.text).get("expect", [])
    added: Table = {"where": f"{AXES[0].name}=*", "torch": "==0.0.*", "may": [FAILURES[0]], "reason": "a trial edit"}
    for values in ({"where": added["where"]}, {"torch": added["torch"]}, None):
        edits = [_Edit(values, [table]) for table in tables]
        kept = [table for old, edit in zip(tables, edits, strict=True) for table in _after(old, edit)]
        _check(matrix, _edited(matrix, edits, [added]), [*kept, added])


def _telling(item: ScenarioSummary) -> list[list[str]]:
    """The labels of each trial that says something."""
    told = [[label for label in trial if label not in INCOMPLETE] for trial in item.labels]
    return [trial for trial in told if trial]


def _narrow(
    table: Table,
    expectation: Expectation,
    scenarios: Sequence[Scenario],
    seen: Mapping[Scenario, Sequence[Sequence[str]]],
    torch: str,
) -> _Edit:
    """Take the scenarios that break it out of an expectation, under this torch."""
    meant = [scenario for scenario in scenarios if expectation.applies(scenario, torch)]
    broken = [scenario for scenario in meant if scenario in seen and _breaks(expectation, scenario, seen, torch)]
    if not broken:
        return _Edit()
    held = [scenario for scenario in meant if scenario not in broken]
    here = _this(torch)
    only_here = any(
        clause.compare == "==" and clause.numbers[:2] == parse_version(torch)[:2]
        for clause in expectation.torch.clauses
    )
    narrowed = ""
    if held:
        out = " or ".join(where_for(broken, held))
        narrowed = str(parse_where(f"({table['where']}) and not ({out})"))
    if only_here:
        return _Edit({"where": narrowed} if held else None)
    others = ",".join(part for part in (table.get("torch", ""), f"!={here.removeprefix('==')}") if part)
    return _Edit({"torch": others}, [{**table, "where": narrowed, "torch": here}] if held else [])


def _breaks(
    expectation: Expectation, scenario: Scenario, seen: Mapping[Scenario, Sequence[Sequence[str]]], torch: str
) -> bool:
    return any(found.kind == "broken" for found in judge(scenario, seen[scenario], torch, [expectation]))


def _after(table: Table, edit: _Edit) -> list[Table]:
    return [*([] if edit.values is None else [{**table, **edit.values}]), *edit.more]


def _missing(
    tables: Sequence[Table],
    matrix: Matrix,
    seen: Mapping[Scenario, Sequence[Sequence[str]]],
    torch: str,
    repeats: int,
) -> list[Table]:
    """Tables for the labels that these tables do not permit."""
    expectations = [read_expectation(table, matrix.file) for table in tables]
    groups: dict[tuple[str, tuple[str, ...]], list[Scenario]] = {}
    for scenario, trials in seen.items():
        permitted = {OK, *(label for each in expectations if each.applies(scenario, torch) for label in each.permitted)}
        sorts: dict[str, list[str]] = {"must": [], "may": []}
        for label in FAILURES:
            count = sum(label in trial for trial in trials)
            if count and label not in permitted:
                sorts["must" if _sure(count, len(trials), repeats) else "may"].append(label)
        for verb, sort in sorts.items():
            if sort:
                groups.setdefault((verb, tuple(sort)), []).append(scenario)
    added: list[Table] = []
    for (verb, labels), found in groups.items():
        for where in where_for(found, [scenario for scenario in matrix.scenarios if scenario not in found]):
            meant = parse_where(where)
            trials = [trial for scenario in found if meant.matches(scenario) for trial in seen[scenario]]
            counts = ", ".join(f"{label} in {sum(label in trial for trial in trials)}" for label in labels)
            reason = f"seen: {counts} of {len(trials)} trials on torch {torch}"
            added.append({"where": where, "torch": _this(torch), verb: list(labels), "reason": reason})
    return added


def _sure(count: int, trials: int, repeats: int) -> bool:
    """Whether a label seen so often comes again in at least one of `repeats` trials, at the usual confidence."""
    return bool((1.0 - failure_rate_lower(count, trials)) ** repeats <= 1.0 - CONFIDENCE)


def _this(torch: str) -> str:
    return f"=={'.'.join(str(number) for number in parse_version(torch)[:2])}.*"


def _edited(matrix: Matrix, edits: Sequence[_Edit], added: Sequence[Table]) -> str:
    text = matrix.text
    found = blocks(text, "expect")
    if len(found) != len(edits):
        raise MatrixError(f"{matrix.file}: cannot edit its expectations; write each as a table of its own, [[expect]]")
    newline = "\r\n" if "\r\n" in text else "\n"
    end = found[-1].end if found else len(text)
    new = "".join(newline + _written(table, newline) for table in added)
    text = _joined(text[:end], new, newline) + text[end:] if new else text
    for block, edit in reversed(list(zip(found, edits, strict=True))):
        more = "".join(newline + _written(table, newline) for table in edit.more)
        text = _joined(text[: block.end], more, newline) + text[block.end :] if more else text
        text = _with_values(text, block, edit.values, newline)
    return text


def _with_values(text: str, block: Block, values: Table | None, newline: str) -> str:
    if values is None:
        end = block.end + len(newline) if text.startswith(newline, block.end) else block.end
        return text[: block.start] + text[end:]
    for key, value in values.items():
        if key in block.values:
            start, end = block.values[key]
            text = text[:start] + _toml(value) + text[end:]
        else:  # on a line after that of `where`, which every table has
            line = text.find("\n", block.values["where"][1])
            at = len(text) if line < 0 else line + 1
            text = _joined(text[:at], f"{key} = {_toml(value)}{newline}", newline) + text[at:]
    return text


def _joined(before: str, after: str, newline: str) -> str:
    return before + ("" if not before or before.endswith("\n") else newline) + after


def _written(table: Table, newline: str) -> str:
    lines = ["[[expect]]", *(f"{key} = {_toml(table[key])}" for key in _ORDER if key in table)]
    return "".join(line + newline for line in lines)


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _check(matrix: Matrix, text: str, tables: Sequence[Table]) -> None:
    """A form of writing that the layout does not know must not become a wrong file."""
    refused = MatrixError(f"{matrix.file}: cannot edit its expectations as they are written; write them one key a line")
    before = tomllib.loads(matrix.text)
    try:
        after = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refused from error
    before.pop("expect", None)
    meant, found = ([json.dumps(table, sort_keys=True) for table in each] for each in (tables, after.pop("expect", [])))
    if sorted(found) != sorted(meant) or before != after:
        raise refused
