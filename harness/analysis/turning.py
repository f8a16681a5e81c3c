"""Where along a list of versions a scenario turns from failing to safe or back: what to run next, or the answer.

A version is unsafe after one failure, be it a plan's, and safe after n = ⌈ln α / ln(1 − p_min)⌉ trials without. The ends
are looked at first. Where the two ends of a stretch differ, its middle is next, so that of many versions few are run;
where they agree a turn and a turn back may lie between, so the middle is looked at too, after all stretches that must
hold a turn.
Versions are never counted together, and no version is judged by its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from harness.analysis.intervals import P_MIN, failure_rate_upper
from harness.analysis.ladder import TRIES, PlanResult
from harness.analysis.sequential import SequentialTest
from harness.analysis.verdicts import Verdict


@dataclass(frozen=True)
class Version:
    """What was seen of one version. `reason`: why its trials say nothing, or "".

    `plan_trials`: those that the hazards' plans took; `plan_failures`: how many plans showed a failure. Not in `trials`.
    """

    version: str
    verdict: Verdict
    trials: int
    failures: int
    failure_rate_upper: float
    witness: Mapping[str, Any] | None
    reason: str
    plan_trials: int = 0
    plan_failures: int = 0


@dataclass(frozen=True)
class Turn:
    """Between two neighbours in the list the verdict changes; `between` are versions that were not settled."""

    older: str
    newer: str
    was: Verdict
    now: Verdict
    between: tuple[str, ...]


@dataclass
class _Seen:
    failures: int = 0
    quiet: int = 0
    silent: int = 0
    plan_trials: int = 0
    plan_failures: int = 0
    reason: str = ""
    witness: Mapping[str, Any] | None = None


class TurningPoints:
    """Give it results; it says which version to run next. `versions`: oldest first."""

    def __init__(self, versions: Sequence[str], *, p_min: float = P_MIN, alpha: float = 0.05) -> None:
        self.versions = tuple(versions)
        self._alpha = alpha
        self._test = SequentialTest(0.0, p_min, alpha=alpha, beta=alpha)
        self._seen = {version: _Seen() for version in versions}

    def record(
        self, version: str, failed: bool | None, *, reason: str = "", witness: Mapping[str, Any] | None = None
    ) -> None:
        """Take in a trial; `failed` None: it says nothing, for that reason."""
        seen = self._seen[version]
        if failed is None:
            seen.silent += 1
            seen.reason = reason
        elif failed:
            seen.failures += 1
            seen.witness = seen.witness or witness
        else:
            seen.quiet += 1

    def record_plan(self, version: str, result: PlanResult) -> None:
        """Take in what a hazard's plan said: a failure in one of its trials makes the version unsafe; else it says nothing."""
        seen = self._seen[version]
        seen.plan_trials += result.trials
        if result.failed:
            seen.plan_failures += 1
            seen.witness = seen.witness or result.witness or {"hazard": result.hazard}

    def next(self) -> str | None:
        """The version to run next; None when every one that has to be is settled."""
        live = [version for version in self.versions if self.verdict(version) != "incomplete"]
        ends = [live[0], live[-1]] if live else []
        waiting = next((version for version in ends if not self._settled(version)), None)
        if waiting is not None:
            return waiting
        stretches = self._stretches()
        turning = [stretch for stretch in stretches if self.verdict(stretch[0]) != self.verdict(stretch[-1])]
        for stretch in [*turning, *stretches]:
            inner = stretch[1:-1]
            if inner:
                return inner[len(inner) // 2]
        return None

    def left(self, version: str) -> int:
        """Trials until it is safe, if none of them fails."""
        return max(1, self._test.quiet_trials - self._seen[version].quiet)

    def verdict(self, version: str) -> Verdict:
        """As it stands."""
        seen = self._seen[version]
        if seen.plan_failures:
            return "unsafe"
        said = self._test.says(seen.failures, seen.failures + seen.quiet)
        if said is not None:
            return "unsafe" if said == "high" else "safe"
        return "incomplete" if self._dumb(seen) else "undecided"

    def report(self) -> tuple[Version, ...]:
        """Every version, oldest first."""
        found = []
        for version, seen in self._seen.items():
            trials = seen.failures + seen.quiet
            bound = failure_rate_upper(seen.failures, trials, 1 - self._alpha)
            verdict = self.verdict(version)
            plans = (seen.plan_trials, seen.plan_failures)
            found.append(Version(version, verdict, trials, seen.failures, bound, seen.witness, seen.reason, *plans))
        return tuple(found)

    def turns(self) -> tuple[Turn, ...]:
        """Where the verdict changes, as far as it is known."""
        settled = [version for version in self.versions if self.verdict(version) in ("safe", "unsafe")]
        found = []
        for older, newer in pairwise(settled):
            was, now = self.verdict(older), self.verdict(newer)
            if was != now:
                between = self.versions[self.versions.index(older) + 1 : self.versions.index(newer)]
                found.append(Turn(older, newer, was, now, between))
        return tuple(found)

    def _settled(self, version: str) -> bool:
        return self.verdict(version) != "undecided"

    def _dumb(self, seen: _Seen) -> bool:
        return seen.silent >= TRIES and seen.silent > seen.quiet

    def _stretches(self) -> list[tuple[str, ...]]:
        """From each settled version to the next, both included; versions that cannot run are left out."""
        live = [version for version in self.versions if self.verdict(version) != "incomplete"]
        marks = [index for index, version in enumerate(live) if self._settled(version)]
        return [tuple(live[a : b + 1]) for a, b in pairwise(marks)]
