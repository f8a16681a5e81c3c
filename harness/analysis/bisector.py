"""The cheapest safe lock strategy: what to run next, or the answer. Pure: it runs nothing and reads no clock.

Order of work: the hazards' plans (a witness settles a strategy in one trial); one trial of the weakest strategy under
each schedule of the portfolio; trials where they tell most, by a Bayesian belief; then a *fresh* certification of the
candidate, n = ⌈ln α / ln(1 − p_min)⌉ trials of which not one was looked at before it was chosen; then a refutation of
what is cheaper and still open. Nothing but the weakest strategy is an answer before a failure was seen somewhere. The
certification is held under the schedule that unsafe strategies failed most under, because a strategy that passes where
nothing would fail has shown nothing; then the other schedules get two trials each. A strategy that is still open and turns
out to be measurably cheaper than the answer is measured in turn with it, and if it is cheaper then too, it is certified.

A failure makes its strategy unsafe, and all below it, for good. Safe is said of a strategy that passed its certification
only. The belief decides what is run next, and never a verdict.

How thorough: at a failure rate of 5 % a trial tells at most 0.027 bits, so no method names the cheapest of seven safe
ones (2.8 bits) in fewer than 104 trials on average. Where failures are that rare the search therefore ends early: it
certifies what is safe by then, and says which cheaper ones are still open. With `thorough` it goes on until each of
those has failed or was certified too.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from harness.analysis.belief import Belief, Opinion
from harness.analysis.intervals import P_MIN, trials_for_safe
from harness.analysis.ladder import MEASURING, TRIES, Ladder, PlanResult, Purpose, Result, Run
from harness.analysis.order import Order
from harness.analysis.plan_questions import Ask, PlanQuestions
from harness.analysis.verdicts import Answer, answer_of

FIRST = 6
"""Trials of the weakest strategy under its own schedule before anything else is tried: does it fail at all, and how often?"""

RIVAL = 0.6
"""A strategy that is likelier than this to be unsafe is not measured for its cost."""

PROVOKED = 2
"""Trials of a certified strategy under each schedule of the portfolio: a race that the others lose may need another one."""

WORTHWHILE = 0.5
"""Of what the best trial tells, what another has to tell to run beside it."""

WITNESS_TRIALS = 3
"""Trials given to an own witness of a strategy whose failure is known from one above it,"""

OFTEN = 0.3
"""if that one failed in this part of its trials or more."""


@dataclass(frozen=True)
class Settings:
    """`p_min`: the failure rate that safe excludes; `alpha`: how often at most that is said wrongly of a strategy.

    The others say how long it looks around; docs/bisect.md has what they lead to. `unsure`: the chance of being unsafe
    at which a strategy may be certified; `sure`: the chance of being the answer at which looking around ends; it also
    ends after `patience` trials without a failure, and once failures are known to come at a rate below `rare`; `worth`:
    the least chance of a failure for which a refutation is tried.
    """

    p_min: float = P_MIN
    alpha: float = 0.05
    thorough: bool = False
    unsure: float = 0.2
    sure: float = 0.75
    patience: int = 40
    rare: float = 0.12
    worth: float = 0.06

    @property
    def trials(self) -> int:
        """Of a certification, in each scenario."""
        return trials_for_safe(self.p_min, 1 - self.alpha)


class Bisector:
    """Give it results; it says what is next.

    `contexts`: number of scenarios an answer must be safe in. `portfolio`: schedules besides the scenario's own.
    `hazards`: whose plans are asked first; those in `by_locks` are of failures that a lock can bring about by itself.
    `prior`: answer → weight ("" for none safe). `belief`: one to share between
    bisections of the same order, which saves working out the same chances.
    """

    def __init__(
        self,
        order: Order,
        settings: Settings = Settings(),  # frozen
        *,
        contexts: int = 1,
        portfolio: Sequence[str] = (),
        hazards: Sequence[str] = (),
        by_locks: Collection[str] = (),
        prior: Mapping[str, float] | None = None,
        belief: Belief | None = None,
    ) -> None:
        self.settings = settings
        self.order = order
        self.ladder = Ladder(order, contexts)
        self.certifying = ""
        self.certified: list[str] = []
        self._questions = PlanQuestions(self.ladder, hazards, by_locks)
        self._arms = [(context, schedule) for schedule in ("", *portfolio) for context in range(contexts)]
        self._belief = belief or Belief(order, p_min=settings.p_min, arms=len(self._arms), prior=prior)

    def record(self, result: Result | PlanResult) -> None:
        """Take in what came of a run or a plan, in the order in which they ended."""
        if isinstance(result, PlanResult):
            self.ladder.add_plan(result)
            if result.failed and result.context is None:
                self._has_failed()
            return
        name = result.run.strategy
        if result.run.purpose == "certify" and not self.certified_by(name):
            self.certifying = name
        self.ladder.add(result)
        if result.kind == "failed":
            self._has_failed()
        # Of trials that ran beside each other the good ones may be told of after the one that failed.
        if self.certifying in self.ladder.unsafe() or (name == self.certifying and self.ladder.cannot_run(name)):
            self.certifying = ""
        elif name == self.certifying and self.certified_by(name):
            self.certified.append(name)
            self.certifying = ""

    def _has_failed(self) -> None:
        if self.certifying in self.ladder.unsafe():
            self.certifying = ""
        self.certified = [other for other in self.certified if other not in self.ladder.unsafe()]

    def certified_by(self, name: str) -> bool:
        """Whether its certification is complete."""
        return not any(self._left(name, context) for context in range(self.ladder.contexts))

    def next(self) -> Ask | Run | Answer:
        """What to run or to ask, or the answer."""
        if self.ladder.broken_context() is not None:
            return self.conclude()
        return self._questions.first() or self._first_look() or self._certification() or self._settle()

    def batch(self, size: int) -> Ask | Answer | list[Run]:
        """As `next`, for several trials at once."""
        first = self.next()
        if not isinstance(first, Run):
            return first
        return self._beside(first, size)[:size]

    def _beside(self, first: Run, size: int) -> list[Run]:
        """`first` and what is to be run beside it: of each purpose no more than is wanted, and nothing beside what measures."""
        if first.purpose == "portfolio":
            return self._first_looks()
        if first.purpose == "explore":
            return self._spread(size)
        if first.purpose in MEASURING:
            return [first]
        if first.purpose == "certify":
            return self._certifications(first.strategy)
        if first.purpose == "provoke":
            return self._provocations(first.strategy)
        if first.purpose == "witness":
            return [first] * (WITNESS_TRIALS - self.ladder.standings[first.strategy].witness_trials)
        return self._in_turn_of(self._refutations(), size)

    def asks(self, size: int) -> list[Ask]:
        """While `next` is a plan: that, and others to run beside it, at most `size` together."""
        return self._questions.beside_each_other(size)

    def conclude(self, stopped: str = "") -> Answer:
        """The answer as things stand. `stopped`: what ended the search early, if anything did."""
        opinion = self._opinion() if self._candidates() else None
        best = self._best_certified()
        return answer_of(
            self.ladder,
            self.settings.p_min,
            self.settings.alpha,
            best,
            self._still_open(),
            opinion,
            stopped,
            certified=self.certified,
        )

    # the phases, in order; each gives a step, or None when it is over

    def _first_look(self) -> Run | None:
        return next(iter(self._first_looks()), None)

    def _first_looks(self) -> list[Run]:
        """Does it fail at all, and under which schedule?"""
        if self.certifying or self.ladder.since_failure > FIRST + len(self._arms) + self.ladder.contexts:
            return []  # it is over: as many trials were quiet as it has at most, or it led to a candidate
        weakest = next((name for name in self.order.names if not self.ladder.cannot_run(name)), None)
        if weakest is None or weakest in self.ladder.unsafe():
            return []
        looks: list[Run] = []
        for context, schedule in self._arms:
            failures, quiet, silent = self.ladder.tried(context, schedule, [weakest])
            enough, tries = (1, 1) if schedule else (-(-FIRST // self.ladder.contexts), TRIES)
            if not failures and silent < tries:
                looks += [Run(weakest, context, schedule, "portfolio")] * (enough - quiet)
        return looks

    def _certification(self) -> Run | None:
        if not self.certifying:
            return None
        name = self.certifying
        context = max(range(self.ladder.contexts), key=lambda context: self._left(name, context))
        return Run(name, context, self._certified_under(name, context), "certify")

    def _certifications(self, name: str) -> list[Run]:
        """All that its certification lacks."""
        return [
            Run(name, context, self._certified_under(name, context), "certify")
            for context in range(self.ladder.contexts)
            for _ in range(self._left(name, context))
        ]

    def _provocations(self, name: str) -> list[Run]:
        """What a certified strategy has not stood yet of each schedule of the portfolio, one of each in turn."""
        lacks = {at: PROVOKED - self.ladder.tried(*at, [name])[1] for at in self._arms if at[1] and self._takes(name, at)}
        return [Run(name, *at, "provoke") for turn in range(PROVOKED, 0, -1) for at, left in lacks.items() if left >= turn]

    def _settle(self) -> Run | Answer:
        best = self._best_certified()
        if best is not None:
            return self._after_certification(best)
        candidates = self._candidates()
        if not candidates:
            return self._own_witness() or self.conclude()
        opinion = self._opinion()
        candidate = self._candidate(candidates, opinion)
        rare = bool(self.ladder.unsafe()) and opinion.rate < self.settings.rare and not self.settings.thorough
        looked = rare or self.ladder.since_failure >= self._patience
        settled = candidate == candidates[0] and opinion.answer.get(candidate, 0.0) >= self.settings.sure
        if not (looked or settled):
            name, arm = max(self._possible(candidates), key=lambda pair: opinion.tells[pair])
            return Run(name, *self._arms[arm], "explore")
        if not self.ladder.unsafe():
            candidate = self._weakest(candidates)
        price = self._price_of_rivals(candidate, opinion)
        if price:
            return price
        self.certifying = candidate
        return self._certification() or self.conclude()

    def _after_certification(self, best: str) -> Run | Answer:
        """What does it cost when nothing provokes it? Does it stand every schedule? Is anything cheaper safe, too?"""
        price = self._measured("price", {best: self.ladder.unpriced(best)})
        if price and not self.ladder.cannot_run(best):  # else its trials have begun to say nothing
            return price
        provocations = self._provocations(best)
        if provocations:
            return provocations[0]
        weakest = self._weakest([best, *self._candidates()])
        if not self.ladder.unsafe() and weakest not in self.certified:
            # Nothing failed yet: perhaps there is nothing to fix.
            self.certifying = weakest
            return self._certification() or self.conclude()
        rival = self._cheaper_rival(best)
        if rival:
            measured = self._measured("compare", self.ladder.compared(rival, best))
            if measured:
                return measured
        still_open = self._still_open()
        if still_open:
            opinion = self._opinion()
            target, arm = max(self._possible(still_open), key=lambda pair: opinion.fails[pair])
            if self.settings.thorough and opinion.unsafe[target] <= self.settings.unsure:
                self.certifying = target
                return self._certification() or self.conclude()
            if self.settings.thorough or opinion.fails[target, arm] >= self.settings.worth:
                return Run(target, *self._arms[arm], "refute")
        if rival:
            self.certifying = rival
            return self._certification() or self.conclude()
        return self._own_witness() or self.conclude()

    # choices

    def _measured(self, purpose: Purpose, left: Mapping[str, int]) -> Run | None:
        """The next trial for the cost of these, `left` of each: of the one that lacks most, so that they take turns, because
        the load of a machine changes.
        """
        name = max(left, key=lambda one: left[one])  # of equals the first
        return Run(name, 0, "", purpose) if left[name] else None

    def _cheaper_rival(self, best: str) -> str | None:
        """A strategy that may be safe and is measurably cheaper than the answer; than nothing to fix none is."""
        if not self.ladder.unsafe():
            return None
        rivals = (name for name in self._candidates() if name not in self.certified)
        return next((name for name in rivals if self.ladder.cheaper(name, best)), None)

    @property
    def _patience(self) -> int:
        return (
            self.settings.patience if not self.settings.thorough else max(self.settings.patience, self.settings.trials)
        )

    def _opinion(self) -> Opinion:
        return self._belief.opinion(self.ladder.counts(self._arms), self._candidates_by_cost())

    def _spread(self, size: int) -> list[Run]:
        """Trials that run beside each other: of each strategy that has much to tell, the one that tells most, in turn.

        So many of one strategy would tell little more than the first few, and their cost would be measured apart from the
        others', under a load of their own.
        """
        tells = self._opinion().tells
        best = self._best_arms(self._candidates(), tells)
        most = max(tells[pair] for pair in best)
        worth = [pair for pair in best if tells[pair] >= WORTHWHILE * most]
        return self._in_turn_of([Run(name, *self._arms[arm], "explore") for name, arm in worth], size)

    def _refutations(self) -> list[Run]:
        """Of what is cheaper and open, each under the schedule that it would fail under most; the likeliest first."""
        opinion = self._opinion()
        least = 0.0 if self.settings.thorough else self.settings.worth
        best = self._best_arms(self._still_open(), opinion.fails)
        return [Run(name, *self._arms[arm], "refute") for name, arm in best if opinion.fails[name, arm] >= least]

    def _best_arms(self, names: Sequence[str], values: Mapping[tuple[str, int], float]) -> list[tuple[str, int]]:
        """Each strategy with the arm of the highest value; the highest first, of equals the first."""
        best: dict[str, int] = {}
        for name, arm in sorted(self._possible(names), key=lambda pair: -values[pair]):
            best.setdefault(name, arm)
        return list(best.items())

    def _in_turn_of(self, runs: Sequence[Run], size: int) -> list[Run]:
        return list(itertools.islice(itertools.cycle(runs), size))

    def _candidates_by_cost(self) -> tuple[str, ...]:
        """Those that can be an answer: they can run here, and no failure of their own keeps them out."""
        return tuple(
            name
            for name in self.ladder.cheapest_first()
            if not self.ladder.standings[name].failed and not self.ladder.cannot_run(name)
        )

    def _candidates(self) -> list[str]:
        unsafe = self.ladder.unsafe()
        return [name for name in self._candidates_by_cost() if name not in unsafe]

    def _candidate(self, candidates: list[str], opinion: Opinion) -> str:
        good = (name for name in candidates if opinion.unsafe[name] <= self.settings.unsure)
        return next(good, min(candidates, key=lambda name: opinion.unsafe[name]))

    def _weakest(self, names: Sequence[str]) -> str:
        return min(names, key=self.order.names.index)

    def _possible(self, names: Sequence[str]) -> list[tuple[str, int]]:
        """(strategy, number of the arm) for each that can be run."""
        return [(name, arm) for name in names for arm, at in enumerate(self._arms) if self._takes(name, at)]

    def _takes(self, name: str, arm: tuple[int, str]) -> bool:
        """Whether trials of this strategy say anything under this schedule; under the scenario's own they always may."""
        if not arm[1]:
            return True
        failures, quiet, silent = self.ladder.tried(*arm, self.order.names)
        here = self.ladder.tried(*arm, [name])
        dead = silent >= TRIES and not failures + quiet
        return self.ladder.standings[name].takes_schedules and here[2] <= here[0] + here[1] and not dead

    def _certified_under(self, name: str, context: int) -> str:
        """The schedule of its certification: the one under which unsafe strategies failed most, "" for the scenario's own.

        Once begun it stays.
        """
        begun = [schedule for at, schedule in self.ladder.standings[name].fresh if at == context]
        if begun:
            return begun[0]
        unsafe = self.ladder.unsafe()

        def harshness(schedule: str) -> float:
            failures, quiet, _ = self.ladder.tried(context, schedule, unsafe)
            return failures / (failures + quiet) if failures else 0.0

        takes = [schedule for at, schedule in self._arms if at == context and self._takes(name, (at, schedule))]
        return max(takes, key=harshness)  # of equals the first, which is the scenario's own

    def _price_of_rivals(self, candidate: str, opinion: Opinion) -> Run | None:
        """A trial for the cost of strategies that could be safe and cheaper, and cannot be compared with the candidate."""
        related = self.order.below[candidate] | self.order.above[candidate] | {candidate}
        rivals = [name for name in self._candidates() if name not in related and opinion.unsafe[name] <= RIVAL]
        if not rivals:
            return None
        return self._measured("price", {name: self.ladder.unpriced(name) for name in [*rivals, candidate]})

    def _own_witness(self) -> Run | None:
        for name, source in self.ladder.unsafe().items():
            if name == source or self.ladder.cannot_run(name):
                continue
            standing, known = self.ladder.standings[name], self.ladder.standings[source]
            failures, quiet = sum(known.failures.values()), sum(known.quiet.values())
            often = failures >= OFTEN * (failures + quiet)
            if often and standing.witness_trials < WITNESS_TRIALS:
                opinion = self._opinion()
                _, arm = max(self._possible([name]), key=lambda pair: opinion.fails[pair])
                return Run(name, *self._arms[arm], "witness")
        return None

    def _best_certified(self) -> str | None:
        found = None
        for name in self.ladder.cheapest_first():
            if name in self.certified and (found is None or self.ladder.cheaper(name, found)):
                found = name
        return found

    def _still_open(self) -> list[str]:
        """Cheaper than the answer, and neither shown unsafe nor certified; without an answer, all such."""
        best = self._best_certified()
        candidates = [name for name in self._candidates() if name not in self.certified]
        order = self.ladder.cheapest_first()
        if best is None:
            return candidates
        return [name for name in candidates if order.index(name) < order.index(best) or self.ladder.cheaper(name, best)]

    def _left(self, name: str, context: int) -> int:
        fresh = self.ladder.standings[name].fresh
        return max(0, self.settings.trials - max((n for (at, _), n in fresh.items() if at == context), default=0))
