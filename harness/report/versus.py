"""A comparison in a terminal of 80 columns."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.analysis.versus import RunComparison
from harness.report import comparison
from harness.report.rundata import RunData

STYLES = {"worse": "bold red", "better and worse": "bold red", "better": "green", "not compared": "dim"}
SHORT = {"no change that can be told": "not told", "better and worse": "mixed", "not compared": "-"}
MOST_ALONE = 5


def print_comparison(console: Console, found: RunComparison, before: RunData, after: RunData) -> None:
    """The answer, a row a scenario, what decided it, and where it is not fair."""
    console.print(Text(comparison.sentence(found), style="bold"))
    console.print(Text(f"before  {comparison.described(before)}"))
    console.print(Text(f"after   {comparison.described(after)}"))
    names = comparison.names_of(found)
    items = sorted(found.scenarios, key=lambda item: comparison.ORDER.index(item.word))
    if any(item.tests for item in items):
        console.print(_table(found, names))
        console.print(Text("not told: no change that can be told. x: ratio of medians, after to before.", style="dim"))
    decided = [(names[item.scenario_id], comparison.decided_by(item)) for item in items if item.deciding]
    _section(console, "Decided by", [f"{name}: {text}" for name, text in decided])
    whys = [f"{names[item.scenario_id]}: {item.why_not}" for item in items if item.why_not and found.comparable]
    # What forbids it all is in the answer already, but where there is nothing in common.
    _section(console, "Not comparable", [*(() if found.scenarios else found.fair.refused), *whys[:MOST_ALONE]])
    _section(console, "Not fair, so speed is shown and not counted", _unfair(found))
    _section(console, "What differs", list(found.fair.asked))
    for side, ones in (("before", found.only_before), ("after", found.only_after)):
        lines = [
            names[one.scenario_id] + (f" (the other run has it with {one.near}: never compared)" if one.near else "")
            for one in ones[:MOST_ALONE]
        ]
        more = [f"and {len(ones) - MOST_ALONE} more"] if len(ones) > MOST_ALONE else []
        _section(console, f"Only {side}", lines + more)
    _section(console, "To be read with it", comparison.notes(found))
    if found.comparable:
        console.print()
        console.print(Text(comparison.method(found), style="dim"))


def _table(found: RunComparison, names: dict[str, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("scenario", overflow="fold")
    table.add_column("change", overflow="fold")
    for name in ("failures", "tok/s", "start-up"):
        table.add_column(name, justify="right", no_wrap=True)
    for item in sorted(found.scenarios, key=lambda item: comparison.ORDER.index(item.word)):
        counts = [f"{side.counts.failures}/{side.counts.trials}" for side in (item.before, item.after)]
        ratios = {test.measure: _ratio(test.found.ratio) for test in item.tests}
        table.add_row(
            Text(names[item.scenario_id]),
            Text(SHORT.get(item.word, item.word), style=STYLES.get(item.word, "")),
            " > ".join(counts),
            ratios.get("throughput", "-"),
            ratios.get("start-up", "-"),
        )
    return table


def _ratio(ratio: object) -> str:
    value = getattr(ratio, "value", None)
    return "-" if value is None else f"x {value:.2f}"


def _unfair(found: RunComparison) -> list[str]:
    return [*found.fair.speed, *(f"{text} (scenarios on CUDA)" for text in found.fair.cuda)]


def _section(console: Console, title: str, lines: list[str]) -> None:
    if lines:
        console.print()
        console.print(Text(title, style="bold"))
        for line in lines:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
