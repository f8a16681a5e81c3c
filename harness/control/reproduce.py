"""Runs a case's plan so many times, one trial a process, and says how it ended: with a witness, or with what stood against it.

The first time looks everywhere before it says that a plan is infeasible: every way to bind the roles to workers, and in
each trial the first K occurrences (the schedule sees to those). Later times run the binding that gave the first time's
ending, and each of them ends as its one trial does. One that ends otherwise than those before is looked at once more,
everywhere: that may show that the plan can be carried out after all, and is told apart, but makes no time of one that was
not. The counterfactual runs as often, once the plan was reproduced. What does not wait for another's ending goes to the
executor in one batch; of that, what is no longer needed does not start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from harness.control.batches import Batch, Work, alone
from harness.control.bindings import Ways
from harness.control.repeats import Note, One, Times, tells, why_silent
from harness.control.request import Executor, Row, TrialRequest
from harness.core.case import Case
from harness.core.endings import Ending, combine, judge
from harness.core.outcome import SKIPPED
from harness.core.plan import (
    ENDINGS,
    EXCLUDED,
    OCCURRENCES,
    ORDER_DONE,
    REPRODUCED,
    STOP_DECIDED,
    UNREACHABLE,
    Plan,
    bind,
)
from harness.core.scenario import Scenario


class Watcher(Protocol):
    """Is told of each trial that has ended, and may have had enough of them."""

    def tell(self, row: Row, folder: Path) -> None:
        """Of a trial, and its folder."""
        ...

    @property
    def enough(self) -> bool:
        """Whether what is still to be tried can be left out."""
        ...


DEADLOCK_S = 1.0
"""How long a wait-for cycle must stand to be called a deadlock. Shorter than in a run: the plan has brought it about, so it
is no chance meeting of waits that will resolve itself."""


@dataclass(frozen=True)
class Reproduction:
    """What came of all times. `trial`: the folder of the trial that `ending` is about.

    `endings`: of the times, each by its own trial (the first by its decisive one). `second_look`: how many of those that did
    not reproduce it did when they were looked at once more. `told`: whether any of all these trials said anything.
    `tried`: how many bindings; `merged`: how many more were not, as they differ from one of these in nothing.

    Counterfactual: `times` and what is of them are of trials that said something; `silent` did not, the first of them for
    `reason`.
    """

    case: Case
    times: int
    endings: Counter[str]
    ending: Ending
    trial: str
    tried: int
    row: Row
    merged: int = 0
    counterfactual_times: int = 0
    counterfactual_reproduced: int = 0
    counterfactual_ordered: int = 0  # of which the harmless order did come about
    seconds: list[float] = field(default_factory=list)  # wall time of each time's trial
    second_look: int = 0
    told: bool = True
    counterfactual_silent: int = 0
    counterfactual_reason: str = ""

    @property
    def reproduced(self) -> int:
        """Of the times."""
        return self.endings[REPRODUCED]

    @property
    def exit_code(self) -> int:
        """0: every time, and never in the counterfactual; 3: no trial, or none of the counterfactual, said anything; else 1."""
        if not self.told:
            return 3
        if self.reproduced < self.times or self.counterfactual_reproduced:
            return 1
        return 3 if self.counterfactual_untried else 0

    @property
    def counterfactual_untried(self) -> bool:
        """It was run, and none of its trials said anything."""
        return bool(self.counterfactual_silent) and not self.counterfactual_times

    def to_json(self) -> dict[str, Any]:
        """The document of `reproduce --json`."""
        told = self.ending.schedule
        silent = {"silent": self.counterfactual_silent, "reason": self.counterfactual_reason}
        keys = ("lock", "waiter", "holder", "holds", "bindings", "attempts")
        return {
            "hazard": self.case.name,
            "scenario": self.case.scenario.to_dict(),
            "torch": self.row.get("torch", ""),
            "times": self.times,
            "second_look": self.second_look,
            **{name: self.endings[name] for name in ENDINGS},
            "infeasible": self.endings[EXCLUDED] + self.endings[UNREACHABLE],
            "ending": self.ending.name,
            "reason": self.ending.reason,
            "bindings_tried": self.tried,
            "bindings_merged": self.merged,
            "occurrences": OCCURRENCES,
            "counterfactual": {
                "times": self.counterfactual_times,
                "reproduced": self.counterfactual_reproduced,
                "ordered": self.counterfactual_ordered,
                **(silent if self.counterfactual_silent else {}),
            },
            **{key: told[key] for key in keys if key in told},
            "witness": list(told.get("witness", ())),
            "outcomes": list(self.row.get("outcomes", ())),
            "trial": self.trial,
            "seconds": [round(value, 3) for value in self.seconds],
        }


class Stopped(KeyboardInterrupt):
    """Ctrl-C has ended the trials. `done`: so many of the times had been told of."""

    def __init__(self, done: int) -> None:
        super().__init__()
        self.done = done


def reproduce(
    case: Case, executor: Executor, folder: Path, *, times: int, note: Note, timeout_s: float = 300.0
) -> Reproduction:
    """Run the case so many times, as many at once as the executor has jobs.

    `timeout_s`: of one trial. `note` is told of each ending, in the order of times. Raises Stopped on Ctrl-C.
    """
    reproducer = _Reproducer(case, folder, note, timeout_s, None)
    try:
        return alone(executor, reproducer.work(times, counterfactual=True))
    except KeyboardInterrupt:
        raise Stopped(reproducer.done) from None


def reproducing(
    case: Case,
    folder: Path,
    *,
    times: int,
    note: Note,
    timeout_s: float = 300.0,
    counterfactual: bool = True,
    watcher: Watcher | None = None,
) -> Work[Reproduction]:
    """As `reproduce`, for whoever has more to run on the same executor; on request without the counterfactual.

    Once `watcher` has had enough, nobody looks for another way to carry the plan out: the ending is that of what was tried.
    """
    return _Reproducer(case, folder, note, timeout_s, watcher).work(times, counterfactual)


def not_run(case: Case, reason: str, torch: str) -> Reproduction:
    """Of a case that cannot run here: no times, no ending, exit code 3."""
    row = {"outcome": SKIPPED, "outcomes": [SKIPPED], "torch": torch}
    return Reproduction(case, 0, Counter(), Ending("", reason), "", 0, row, told=False)


class _Reproducer:
    def __init__(self, case: Case, folder: Path, note: Note, timeout_s: float, watcher: Watcher | None) -> None:
        self._case = case
        self._watcher = watcher
        self._folder = folder
        self._note = note
        self._timeout_s = timeout_s
        self._count = 0  # of trials that were started
        self._told = False  # whether any of the plan's said anything
        self._times: Times | None = None  # once the first has an ending

    @property
    def done(self) -> int:
        """How many of the times have been told of."""
        return 0 if self._times is None else len(self._times.done)

    @property
    def _enough(self) -> bool:
        return self._watcher is not None and self._watcher.enough

    def work(self, times: int, counterfactual: bool) -> Work[Reproduction]:
        first = yield from self._look_everywhere()
        told = self._times = Times(times, first.one, self._note)
        chosen = first.plan
        while told.left:
            begun = len(told.done)

            def ended(number: int, one: One, begun: int = begun) -> None:
                told.ended(begun + number, one)

            yield from self._trials([chosen] * told.left, ended, lambda _: not told.enough)
            while told.strange:
                again = yield from self._look_everywhere()
                if told.best.ending.name != REPRODUCED and again.one.ending.name == REPRODUCED:
                    chosen = again.plan  # none of the times could have; the later ones may
                told.looked_again(again.one)
        found = Reproduction(
            self._case,
            times,
            Counter(one.ending.name for one in told.done),
            told.best.ending,
            told.best.trial,
            first.tried,
            told.best.row,
            merged=first.merged,
            seconds=[one.row["wall_s"] for one in told.done],
            second_look=told.second_look,
            told=self._told,
        )
        if not (counterfactual and found.ending.name == REPRODUCED) or self._case.plan.counterfactual is None:
            return found
        return (yield from self._with_counterfactual(found, times))

    def _look_everywhere(self) -> Work[_Look]:
        """The free binding; unless that reproduced it, all others, up to the first that does."""
        plan = self._case.plan
        done = [((yield from self._trials([plan]))[0], plan)]
        first = done[0][0]
        if first.ending.name == REPRODUCED or not plan.steps or self._enough:
            return _Look(first, plan, 1, 0)
        ways = Ways(self._case, _workers(first.row))
        ways.ended(first.ending, first.row)
        bound = [bind(plan, binding) for binding in ways.all]
        others = yield from self._trials(
            bound, lambda _, one: ways.ended(one.ending, one.row), lambda n: not self._enough and ways.needed(n)
        )
        done += [(others[number], bound[number]) for number in sorted(others)]
        decisive = combine([one.ending for one, _ in done])
        one, chosen = next((one, bound) for one, bound in done if one.ending is decisive)
        return _Look(one, chosen, len(done), ways.merged)

    def _with_counterfactual(self, found: Reproduction, times: int) -> Work[Reproduction]:
        counterfactual = self._case.plan.counterfactual
        assert counterfactual is not None
        other = self._case.plan.without_effect()
        scenario = self._case.scenario.replace(**counterfactual.axes)
        settings = {**self._case.settings, **counterfactual.settings}
        requests = [self._request(other, scenario, settings, number, "counterfactual") for number in range(times)]
        rows: list[Row] = []
        yield Batch(requests, lambda _, row: rows.append(row))
        self._count += times
        effect = self._case.effect
        said = [row for row in rows if tells(effect, row)]
        silent = [row for row in rows if not tells(effect, row)]
        done = replace(
            found,
            counterfactual_times=len(said),
            counterfactual_reproduced=sum(effect.seen(row) for row in said),
            counterfactual_ordered=sum(not other.steps or _order(row) == ORDER_DONE for row in said),
            counterfactual_silent=len(silent),
            counterfactual_reason=why_silent(silent[0]) if silent else "",
        )
        count = f"{done.counterfactual_reproduced}/{len(said)}"
        self._note(f"counterfactual: {f'could not be tried ({done.counterfactual_reason})' if not said else count}")
        return done

    def _trials(
        self,
        plans: Sequence[Plan],
        ended: Callable[[int, One], None] = lambda number, one: None,
        needed: Callable[[int], bool] = lambda number: True,
    ) -> Work[dict[int, One]]:
        """A trial of each plan, by its number here; of those that were not needed when their turn came there is none."""
        requests = [self._request(plan, self._case.scenario, self._case.settings, n) for n, plan in enumerate(plans)]
        number = {request.trial_id: n for n, request in enumerate(requests)}
        done: dict[int, One] = {}
        late: list[int] = []

        def on_end(request: TrialRequest, row: Row) -> None:
            n = number[request.trial_id]
            told = tells(self._case.effect, row)
            done[n] = One(judge(plans[n], self._case.effect, row), row, str(request.folder), told)
            self._told = self._told or told
            if self._watcher is not None:
                self._watcher.tell(row, request.folder)
            if row["outcome"] == "interrupted":  # if by Ctrl-C, then nothing of it is told
                late.append(n)
            else:
                ended(n, done[n])

        yield Batch(requests, on_end, lambda request: needed(number[request.trial_id]))
        for n in late:
            ended(n, done[n])
        self._count += max(done, default=-1) + 1
        return done

    def _request(
        self, plan: Plan, scenario: Scenario, settings: Mapping[str, Any], number: int, what: str = "plan"
    ) -> TrialRequest:
        """The `number`-th of the next batch."""
        name = f"{self._count + number + 1:03d}-{what}"
        return TrialRequest(
            name,
            scenario.replace(schedule="directed"),
            0,
            self._folder / "trials" / name,
            pipeline=dict(settings),
            timeout_s=self._timeout_s,
            extra={
                "plan": plan.to_json(),
                "plan_of": self._case.name if what == "plan" else "",
                "occurrences": OCCURRENCES,
                **(QUICK if self._watcher is None else WATCHED),
            },
        )


QUICK: Mapping[str, Any] = {"deadlock_s": DEADLOCK_S, "native_stacks": False}
"""For trials whose hang is wanted: no waiting for certainty, and no dump of native stacks."""


WATCHED: Mapping[str, Any] = {"native_stacks": False, STOP_DECIDED: True}
"""For trials of which any failure counts: a deadlock that the plan has not brought about must stand as long as in a run. What
comes after the plan's order is known not to come about takes most of a trial's time and is no part of the question."""


@dataclass(frozen=True)
class _Look:
    """The decisive trial, its plan, and how many bindings were run, and how many not for being like another."""

    one: One
    plan: Plan
    tried: int
    merged: int


def _order(row: Row) -> str:
    return str((row.get("schedule") or {}).get("order", ""))


def _workers(row: Row) -> dict[str, str]:
    return {name: str(worker["role"]) for name, worker in row.get("workers", {}).items()}
