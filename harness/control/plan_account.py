"""How far one plan under one strategy is: what it said of each scenario, and the trials of those that it has no answer in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

from harness.analysis.ladder import PlanResult
from harness.analysis.plan_questions import Ask
from harness.control.request import Row
from harness.control.results import is_finished


@dataclass
class PlanAccount:
    """`said`: number of a scenario → what the plan said of it; `lost`: trials of earlier searches that were cut short.

    `under_way`: trials of the scenario that is searched, `context`, as far as they have ended.
    """

    said: dict[int, PlanResult] = field(default_factory=dict)
    lost: int = 0
    context: int = 0
    under_way: int = 0

    @property
    def trials(self) -> int:
        """All that have ended."""
        return sum(one.trials for one in self.said.values()) + self.lost + self.under_way

    def begin(self, context: int) -> None:
        """The search in a scenario begins."""
        self.context, self.under_way = context, 0

    def ended(self, row: Row) -> None:
        """A trial of it has ended."""
        self.under_way += is_finished(row)

    def add(self, told: PlanResult) -> None:
        """What it came to, or what earlier runs have kept of it."""
        assert told.context is not None
        self.under_way = 0
        if told.ending:
            self.said[told.context] = told
        else:
            self.lost += told.trials

    def cut_short(self, ask: Ask) -> PlanResult | None:
        """What to keep of a search that does not go on; None where no trial of it has ended."""
        if not self.under_way:
            return None
        return PlanResult(ask.hazard, ask.strategy, "", trials=self.under_way, context=self.context)


def accounts_of(kept: Iterable[PlanResult]) -> dict[Ask, PlanAccount]:
    """Of the plans that have no answer, from the lines of a folder."""
    found: dict[Ask, PlanAccount] = {}
    for told in kept:
        ask = Ask(told.hazard, told.strategy)
        if told.context is None:
            found.pop(ask, None)
        else:
            found.setdefault(ask, PlanAccount()).add(told)
    return found


def of_all(told: PlanResult, account: PlanAccount) -> PlanResult:
    """A plan's answer: what was told of one scenario, with the trials of all."""
    return dataclasses.replace(told, context=None, trials=account.trials)
