"""How a run stands to what its matrix expects, as a report shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.matrix import Judgement, Matrix
from harness.report.scenarios import ScenarioView
from harness.report.text import one_line
from harness.report.wording import plural

MOST_JUDGEMENTS = 300
LONGEST_REASON = 500
_NOT_MET = ("broken", "unexpected")


@dataclass(frozen=True)
class Expectations:
    """How a run stands to the expectations of its matrix.

    `stated` is how many there are; `unjudged` says why nothing was held against them, or is empty.
    """

    stated: int
    unjudged: str
    not_met: tuple[tuple[ScenarioView, Judgement], ...]
    met: tuple[tuple[ScenarioView, Judgement], ...]
    more: int

    def scenarios(self, kind: str) -> int:
        """In how many scenarios an expectation is `broken`, or a failure `unexpected`."""
        return len({view.id for view, judgement in self.not_met if judgement.kind == kind})


def expectations_of(views: Sequence[ScenarioView], matrix: Matrix | None, unjudged: str) -> Expectations:
    """The judgements of these scenarios, broken expectations first."""
    pairs = [(view, judgement) for view in views for judgement in view.judged]
    not_met = [pair for kind in _NOT_MET for pair in pairs if pair[1].kind == kind]
    met = [pair for pair in pairs if pair[1].kind == "met"]
    return Expectations(
        len(matrix.expectations) if matrix else 0,
        one_line(unjudged, LONGEST_REASON),
        tuple(not_met[:MOST_JUDGEMENTS]),
        tuple(met[:MOST_JUDGEMENTS]),
        max(0, len(not_met) - MOST_JUDGEMENTS) + max(0, len(met) - MOST_JUDGEMENTS),
    )


def judgement(found: Expectations) -> str:
    """What stands beside the answer."""
    broken, unexpected = (found.scenarios(kind) for kind in _NOT_MET)
    parts = [f"{plural(broken, 'scenario')} {'breaks' if broken == 1 else 'break'} an expectation"] if broken else []
    parts += [f"{plural(unexpected, 'scenario')} failed in a way that nothing permits"] if unexpected else []
    if parts:
        return f"Not as expected: {'; '.join(parts)}."
    return f"All expectations that were tried hold ({len(found.met):,})." if found.met else ""
