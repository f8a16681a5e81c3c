"""What `harness claims` found, for a person."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from harness.control.claims import Answered
from harness.core.plan import REPRODUCED
from harness.hazards.claim_readings import CANNOT_TELL, DOES_NOT, HOLDS
from harness.report.witness import interleaving
from harness.report.wording import plural

STYLES = {HOLDS: "bold green", DOES_NOT: "bold red", CANNOT_TELL: "bold yellow"}


def print_claims(console: Console, tested: Sequence[Answered], torch: str, *, witness: bool = False) -> None:
    """A belief, its verdict, what was seen, and where; then how many hold. `witness`: also who was where, of each plan."""
    console.print(Text(f"torch {torch}", style="bold"))
    for each in tested:
        console.print()
        console.print(Text(f"“{each.claim.belief}”" if console.encoding.startswith("utf") else f'"{each.claim.belief}"'))
        verdict = Text(each.answer.verdict, style=STYLES[each.answer.verdict])
        verdict.append(f": {each.answer.why}", style="not bold default")
        console.print(Padding(verdict, (0, 0, 0, 2)))
        if each.surprising:
            warning = f"unexpected: with this version it {each.expected.replace(' here', '')} where it was seen before"
            console.print(Padding(Text(warning, style="bold magenta"), (0, 0, 0, 2)))
        console.print(Padding(Text(f"known: {each.claim.known}", style="dim"), (0, 0, 0, 2)))
        for name, trial in each.trials.items():
            ending = each.evidence[name].ending
            row = each.evidence[name].row
            how = "plan reproduced, 1 of 1" if ending == REPRODUCED else f"{row.get('outcome')}, 1 trial"
            console.print(Text(f"    {name} ({how}): {trial}", style="dim"), soft_wrap=True)
            steps = (row.get("schedule") or {}).get("witness", ()) if witness else ()
            for line in interleaving(steps, max(40, console.width - 6)):
                console.print(Text(f"      {line}", style="dim"), soft_wrap=True)
    counts = {verdict: sum(each.answer.verdict == verdict for each in tested) for verdict in (HOLDS, DOES_NOT, CANNOT_TELL)}
    said = ", ".join(f"{count} {_verb(verdict, count)}" for verdict, count in counts.items() if count)
    console.print()
    console.print(Text(f"{plural(len(tested), 'belief')}: {said}", style="bold"))


def _verb(verdict: str, count: int) -> str:
    if count == 1:
        return verdict
    return {HOLDS: "hold here", DOES_NOT: "do not hold here"}.get(verdict, verdict)
