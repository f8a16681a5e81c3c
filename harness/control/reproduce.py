"""Runs a case's plan so many times, one trial a process, and says how it ended: with a witness, or with what stood against it.

The first time looks everywhere before it says that a plan is infeasible: every way to bind the roles to workers, and in
each trial the first K occurrences (the schedule sees to those). Later times run the binding that gave the first time's
ending. The counterfactual runs as often, once the plan was reproduced.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.control.request import Executor, Row, TrialRequest
from harness.core.case import Case
from harness.core.endings import Ending, combine, judge
from harness.core.outcome import INCOMPLETE, SKIPPED
from harness.core.plan import (
    ENDINGS,
    EXCLUDED,
    OCCURRENCES,
    ORDER_DONE,
    REPRODUCED,
    UNREACHABLE,
    Plan,
    bind,
)

MOST_BINDINGS = 60
DEADLOCK_S = 1.0
"""How long a wait-for cycle must stand to be called a deadlock. Shorter than in a run: the plan has brought it about, so it
is no chance meeting of waits that will resolve itself."""

Note = Callable[[str], None]


@dataclass(frozen=True)
class Reproduction:
    """What came of all times. `tried`: how many bindings; `trial`: the folder of the trial that `ending` is about."""

    case: Case
    times: int
    endings: Counter[str]
    ending: Ending
    trial: str
    tried: int
    row: Row
    counterfactual_times: int = 0
    counterfactual_reproduced: int = 0
    counterfactual_ordered: int = 0  # of which the harmless order did come about
    seconds: list[float] = field(default_factory=list)  # wall time of each time's decisive trial

    @property
    def reproduced(self) -> int:
        """Of the times."""
        return self.endings[REPRODUCED]

    @property
    def exit_code(self) -> int:
        """0: every time, and never in the counterfactual; 3: no trial said anything; else 1."""
        if self.row.get("outcome") in (*INCOMPLETE, SKIPPED):
            return 3
        return 0 if self.reproduced == self.times and not self.counterfactual_reproduced else 1

    def to_json(self) -> dict[str, Any]:
        """The document of `reproduce --json`."""
        told = self.ending.schedule
        keys = ("lock", "waiter", "holder", "holds", "bindings", "attempts")
        return {
            "hazard": self.case.name,
            "scenario": self.case.scenario.to_dict(),
            "torch": self.row.get("torch", ""),
            "times": self.times,
            **{name: self.endings[name] for name in ENDINGS},
            "infeasible": self.endings[EXCLUDED] + self.endings[UNREACHABLE],
            "ending": self.ending.name,
            "reason": self.ending.reason,
            "bindings_tried": self.tried,
            "occurrences": OCCURRENCES,
            "counterfactual": {
                "times": self.counterfactual_times,
                "reproduced": self.counterfactual_reproduced,
                "ordered": self.counterfactual_ordered,
            },
            **{key: told[key] for key in keys if key in told},
            "witness": list(told.get("witness", ())),
            "outcomes": list(self.row.get("outcomes", ())),
            "trial": self.trial,
            "seconds": [round(value, 3) for value in self.seconds],
        }


def reproduce(
    case: Case, executor: Executor, folder: Path, *, times: int, note: Note, timeout_s: float = 300.0
) -> Reproduction:
    """Run the case so many times. `timeout_s`: of one trial. `note` is told of each ending."""
    return _Reproducer(case, executor, folder, note, timeout_s).run(times)


def not_run(case: Case, reason: str, torch: str) -> Reproduction:
    """Of a case that cannot run here: no times, no ending, exit code 3."""
    row = {"outcome": SKIPPED, "outcomes": [SKIPPED], "torch": torch}
    return Reproduction(case, 0, Counter(), Ending("", reason), "", 0, row)


class _Reproducer:
    def __init__(self, case: Case, executor: Executor, folder: Path, note: Note, timeout_s: float) -> None:
        self._case = case
        self._executor = executor
        self._folder = folder
        self._note = note
        self._timeout_s = timeout_s
        self._count = 0

    def run(self, times: int) -> Reproduction:
        plan = self._case.plan
        endings: Counter[str] = Counter()
        seconds: list[float] = []
        best, chosen, tried = self._look_everywhere(plan)
        endings[best.ending.name] += 1
        seconds.append(best.row["wall_s"])
        self._note(f"1/{times}: {_said(best)}")
        for time in range(2, times + 1):
            one = self._trial(chosen)
            if one.ending.name != best.ending.name and one.ending.name != REPRODUCED:
                one, chosen, _ = self._look_everywhere(plan)
            if one.ending.name == REPRODUCED and best.ending.name != REPRODUCED:
                best = one
            endings[one.ending.name] += 1
            seconds.append(one.row["wall_s"])
            self._note(f"{time}/{times}: {_said(one)}")
        found = Reproduction(self._case, times, endings, best.ending, best.trial, tried, best.row, seconds=seconds)
        if not found.reproduced or plan.counterfactual is None:
            return found
        return self._with_counterfactual(found, plan, times)

    def _look_everywhere(self, plan: Plan) -> tuple[_One, Plan, int]:
        """The free binding; unless that reproduced it, all others. The decisive trial, its plan, and how many were run."""
        first = self._trial(plan)
        if first.ending.name == REPRODUCED or not plan.steps:
            return first, plan, 1
        done = [(first, plan)]
        for binding in bindings(plan, _workers(first.row)):
            bound = bind(plan, binding)
            done.append((self._trial(bound), bound))
            if done[-1][0].ending.name == REPRODUCED:
                break
        decisive = combine([one.ending for one, _ in done])
        one, chosen = next((one, bound) for one, bound in done if one.ending is decisive)
        return one, chosen, len(done)

    def _with_counterfactual(self, found: Reproduction, plan: Plan, times: int) -> Reproduction:
        assert plan.counterfactual is not None
        other = plan.without_effect()
        scenario = self._case.scenario.replace(**plan.counterfactual.axes)
        settings = {**self._case.settings, **plan.counterfactual.settings}
        shown = ordered = 0
        for _ in range(times):
            row, _ = self._run(other, scenario, settings, "counterfactual")
            shown += self._case.effect.seen(row)
            ordered += not other.steps or (row.get("schedule") or {}).get("order") == ORDER_DONE
        self._note(f"counterfactual: {shown}/{times}")
        values = {**vars(found), "counterfactual_times": times, "counterfactual_reproduced": shown}
        return Reproduction(**{**values, "counterfactual_ordered": ordered})

    def _trial(self, plan: Plan) -> _One:
        row, trial = self._run(plan, self._case.scenario, self._case.settings, "plan")
        return _One(judge(plan, self._case.effect, row), row, trial)

    def _run(self, plan: Plan, scenario: Any, settings: Mapping[str, Any], what: str) -> tuple[Row, str]:
        self._count += 1
        name = f"{self._count:03d}-{what}"
        folder = self._folder / "trials" / name
        folder.mkdir(parents=True)
        rows: list[Row] = []
        request = TrialRequest(
            name,
            scenario.replace(schedule="directed"),
            0,
            folder,
            pipeline=dict(settings),
            timeout_s=self._timeout_s,
            extra={"plan": plan.to_json(), "occurrences": OCCURRENCES, **QUICK},
        )
        self._executor.run([request], lambda _: None, rows.append)
        return rows[0], str(folder)


QUICK: Mapping[str, Any] = {"deadlock_s": DEADLOCK_S, "native_stacks": False}
"""For trials whose hang is wanted: no waiting for certainty, and no dump of native stacks."""


@dataclass(frozen=True)
class _One:
    ending: Ending
    row: Row
    trial: str


def bindings(plan: Plan, workers: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Every way to give each role a worker of its kind, no worker two roles; the first `MOST_BINDINGS` of them."""
    candidates: list[list[tuple[str, str]]] = []
    for role, kind in plan.roles.items():
        fitting = [name for name, of in sorted(workers.items()) if kind in ("any", name, of)]
        candidates.append([(role, name) for name in fitting] or [(role, kind)])
    found = (dict(pairs) for pairs in itertools.product(*candidates) if len({name for _, name in pairs}) == len(pairs))
    return itertools.islice(found, MOST_BINDINGS)


def _workers(row: Row) -> dict[str, str]:
    return {name: str(worker["role"]) for name, worker in row.get("workers", {}).items()}


def _said(one: _One) -> str:
    reason = f" ({one.ending.reason})" if one.ending.reason else ""
    return f"{one.ending.name}{reason}"
