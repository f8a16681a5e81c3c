"""The catalogue of hazards for a person and as JSON: a list, or one of them whole."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.core.case import Case
from harness.hazards.base import Hazard
from harness.report.plan_words import counterfactual_lines, effect_words, plan_lines, scenario_words
from harness.report.wording import ASCII, UNICODE, plural


@dataclass(frozen=True)
class At:
    """The torch at hand: its version or None, CUDA devices it can use, and the interpreter that was asked.

    `option` is what was given to `--python`, so that the commands shown are for the same torch. Not `counted`: `cuda` is as
    many as there may be.
    """

    torch: str | None
    cuda: int
    python: str
    option: str = ""
    counted: bool = True

    def why_not(self, hazard: Hazard) -> str:
        """Why the hazard cannot happen here; "" when it can."""
        return "no torch here" if self.torch is None else hazard.why_not(self.torch, self.cuda)

    def __str__(self) -> str:
        if self.torch is None:
            return f"{self.python} has no torch, so what applies cannot be told; install it there, or use --python"
        return f"torch {self.torch}, {plural(self.cuda, 'CUDA device') if self.counted else 'CUDA devices not counted'}"


def hazard_json(hazard: Hazard, at: At) -> dict[str, Any]:
    """One entry of `hazards --json`. `applies` is null without a torch."""
    why_not = at.why_not(hazard)
    return {
        "id": hazard.id,
        "title": hazard.title,
        "applies": None if at.torch is None else not why_not,
        "why_not": why_not,
        "versions": hazard.versions,
        "needs": hazard.needs,
        "reference": list(hazard.reference),
        "window": hazard.window,
        "access": hazard.access,
        "effect": hazard.effect,
        "remedy": hazard.remedy,
        "found": dict(hazard.found),
    }


def hazard_whole_json(hazard: Hazard, at: At) -> dict[str, Any]:
    """`hazards ID --json`: the entry, its plans, and how it shows in a dump."""
    signature = hazard.signature
    return {
        **hazard_json(hazard, at),
        "program": hazard.program.to_json(),
        "pipeline": hazard.pipeline.to_json() if hazard.pipeline else None,
        "elsewhere": hazard.elsewhere,
        "signature": {
            "errors": list(signature.errors),
            "frames": list(signature.frames),
            "threads": [
                {"role": pattern.role, "doing": pattern.doing, "frames": list(pattern.frames)}
                for pattern in signature.threads
            ],
        },
        "commands": [command for command, _ in _commands(hazard, at)],
    }


def print_hazards(console: Console, hazards: Sequence[Hazard], at: At, *, show_all: bool) -> None:
    """A table of 80 columns: those that can happen here, or all with a mark."""
    here = [hazard for hazard in hazards if not at.why_not(hazard)]
    shown = list(hazards) if show_all or at.torch is None else here
    signs = UNICODE if console.encoding.lower().startswith("utf") else ASCII
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    marked = show_all and at.torch is not None
    if marked:
        table.add_column("", width=1)
    table.add_column("hazard", no_wrap=True)
    table.add_column("torch", no_wrap=True)
    table.add_column("needs", no_wrap=True)
    table.add_column("what happens", overflow="fold")
    for hazard in shown:
        applies = hazard in here
        mark = [Text(signs.met, style="green") if applies else Text(signs.none, style="dim")] if marked else []
        style = "" if applies or at.torch is None else "dim"
        table.add_row(*mark, *(Text(text, style) for text in _cells(hazard)))
    console.print(Text(str(at), style="bold" if at.torch else "bold yellow"))
    if shown:
        console.print(table)
    rest = len(hazards) - len(shown)
    if at.torch is not None:
        said = f"{len(here)} of {plural(len(hazards), 'hazard')} can happen here"
        console.print(Text(said + (f"; --all lists the other {rest} too" if rest else ""), style="dim"))
    console.print(Text("one of them whole: harness hazards HAZARD", style="dim"))


def _cells(hazard: Hazard) -> tuple[str, str, str, str]:
    return hazard.id, hazard.versions or "all", hazard.needs, hazard.title


def print_hazard(console: Console, hazard: Hazard, at: At) -> None:
    """One hazard: facts, remedy, plans, what was found, commands."""
    console.print(Text.assemble((hazard.id, "bold red"), f"  {hazard.title}"))
    why_not = at.why_not(hazard)
    applies = f"{at}: it can happen here" if not why_not else f"it cannot happen here: {why_not}"
    if at.torch is None:
        applies = str(at)
    _facts(
        console,
        [
            ("torch", hazard.versions or "all versions"),
            ("needs", hazard.needs),
            ("here", applies),
            ("window", hazard.window),
            ("access", hazard.access or "none: no second thread is needed"),
            ("effect", hazard.effect),
            ("remedy", hazard.remedy),
            ("see", ", ".join(hazard.reference)),
        ],
    )
    _case(console, "Its small program", hazard.program)
    if hazard.pipeline is not None:
        _case(console, "The DFlash pipeline", hazard.pipeline, same=hazard.pipeline.plan == hazard.program.plan)
    else:
        _title(console, "The DFlash pipeline")
        _paragraph(console, f"not there: {hazard.elsewhere}")
    if hazard.found:
        _title(console, "What was found")
        _facts(console, [(f"torch {version}", text) for version, text in hazard.found.items()])
    _title(console, "Commands")
    if why_not and at.torch is not None:
        _paragraph(console, f"none: it cannot happen here ({why_not})")
        return
    for command, why in _commands(hazard, at):
        console.print(Text(f"  {command}"), soft_wrap=True)
        console.print(Padding(Text(why, style="dim"), (0, 0, 0, 6)))


def _case(console: Console, title: str, case: Case, *, same: bool = False) -> None:
    """`same`: its plan was shown already."""
    _title(console, f"{title}: {case.title}")
    _paragraph(console, scenario_words(case))
    if same:
        _paragraph(console, "the same plan")
        return
    for line in plan_lines(case.plan):
        _paragraph(console, line)
    _paragraph(console, f"it happened when {effect_words(case.effect)}")
    other = list(counterfactual_lines(case.plan))
    if other:
        _paragraph(console, "and it must not happen with:")
        for line in other:
            _paragraph(console, line, 4)


def _commands(hazard: Hazard, at: At) -> Iterator[tuple[str, str]]:
    """(the command, what it does); nothing where the hazard is known not to happen."""
    if at.torch is not None and at.why_not(hazard):
        return
    python = f" --python {shlex.quote(at.option)}" if at.option else ""
    yield f"harness reproduce {hazard.id}{python}", "makes it happen, and prints who was where"
    if hazard.pipeline is not None:
        yield f"harness reproduce {hazard.id} --in pipeline{python}", "the same in the training pipeline"
        lock = f"harness reproduce {hazard.id} --lock compile_gate{python}"
        yield lock, "can it still happen under a lock strategy?"


def _title(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _paragraph(console: Console, text: str, indent: int = 2) -> None:
    """Lines after the first of a numbered text stand below its words."""
    hang = 3 if text[:1].isdigit() else 0
    for number, line in enumerate(Text(text).wrap(console, max(20, console.width - indent - hang))):
        console.print(Padding(line, (0, 0, 0, indent + (hang if number else 0))))


def _facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    grid = Table.grid(padding=(0, 2))
    for name, value in facts:
        if value:
            grid.add_row(Text(f"  {name}", style="dim"), Text(value))
    console.print(grid)
