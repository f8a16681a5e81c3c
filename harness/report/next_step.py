"""What to ask next of a trial that a replay or a search came to nothing with: its hazard, and that hazard's own plan."""

from __future__ import annotations

import shlex
from pathlib import Path

from harness.analysis.explain import match
from harness.analysis.row_signs import joined
from harness.control.dump_source import read_source
from harness.core.errors import UserError
from harness.report.facts import shown_path


def next_commands(trial: Path) -> list[str]:
    """`harness explain` of the trial, and where a hazard is known for it, `harness reproduce` of the likeliest."""
    explain = f"harness explain {shlex.quote(shown_path(trial))}"
    try:
        source = read_source(str(trial))
    except UserError:  # explain itself will say what of the folder cannot be read
        return [explain]
    found = joined(match(source.dump, torch=source.torch), source.signs, source.torch)
    return [explain, *(f"harness reproduce {one.hazard.id}" for one in found[:1])]


def next_lines(trial: Path) -> str:
    """The commands for a person, a line each."""
    explain, *rest = next_commands(trial)
    lines = [f"the hazard behind it, where one is known: {explain}"]
    lines += [f"to make that hazard happen by its own plan: {command}" for command in rest]
    return "".join(f"{line}\n" for line in lines)
