"""How the rows of a claim's trials are read: what was counted → holds, does not hold, or cannot be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.core.plan import EXCLUDED, REPRODUCED, UNREACHABLE
from harness.core.versions import parse_specifier

HOLDS, DOES_NOT, CANNOT_TELL = "holds here", "does not hold here", "cannot be told here"
VERDICTS = (HOLDS, DOES_NOT, CANNOT_TELL)


@dataclass(frozen=True)
class Evidence:
    """What came of one test: the ending of its plan (`harness.core.plan.ENDINGS`), why, and the row of the trial."""

    ending: str
    reason: str
    row: Mapping[str, Any]

    @property
    def reproduced(self) -> bool:
        """The plan's effect was seen, in the plan's order."""
        return self.ending == REPRODUCED

    @property
    def infeasible(self) -> bool:
        """The plan's order cannot come about here."""
        return self.ending in (EXCLUDED, UNREACHABLE)

    def fact(self, name: str) -> Any:
        """A fact that the program told; None when it did not come to it."""
        return self.row.get("facts", {}).get(name)


@dataclass(frozen=True)
class Answer:
    """One of `VERDICTS`, and the evidence in words."""

    verdict: str
    why: str


Tests = Mapping[str, Evidence]
"""Evidence by name of the test."""

MASKED = ">=2.13"
"""Releases that are said to have cured the FX error."""


def _graphs(evidence: Evidence, phase: str) -> int | None:
    graphs = evidence.fact("graphs")
    return None if graphs is None else int(graphs.get(phase, 0))


def _broken(tests: Tests) -> Answer | None:
    """A test whose trial did not come to its end says nothing."""
    for name, evidence in tests.items():
        outcome = evidence.row.get("outcome")
        if outcome in ("setup_error", "out_of_memory", "interrupted", "crash", "skipped"):
            return Answer(CANNOT_TELL, f'the trial "{name}" ended as {outcome}: {evidence.row.get("reason") or "no reason"}')
    return None


def cache(tests: Tests) -> Answer:
    """Did threads that came later compile anew?"""
    first, others = _graphs(tests["shared"], "first"), _graphs(tests["shared"], "others")
    if not first or others is None or not _graphs(tests["other lengths"], "others"):
        return Answer(CANNOT_TELL, "nothing was compiled where something must be, so the count says nothing")
    why = f"the first thread compiled {first}, eight others that then called the same function {others}"
    return Answer(HOLDS if others else DOES_NOT, why)


def main_warm_up(tests: Tests) -> Answer:
    """Did a warm-up save the workers nothing?"""
    cold, warm = _graphs(tests["cold"], "workers"), _graphs(tests["warmed"], "workers")
    if not cold or warm is None:
        return Answer(CANNOT_TELL, "without a warm-up the workers compiled nothing either")
    why = f"workers compiled {cold} graphs without a warm-up, {warm} after one with gradient on the main thread"
    return Answer(HOLDS if warm >= cold else DOES_NOT, why)


def no_grad(tests: Tests) -> Answer:
    """Did training after it compile nothing more?"""
    main, workers = _graphs(tests["warmed without gradient"], "main"), _graphs(tests["warmed without gradient"], "workers")
    if not main or workers is None:
        return Answer(CANNOT_TELL, "the warm-up compiled nothing")
    why = f"the warm-up without gradient compiled {main}, and workers that train compiled {workers} after it"
    return Answer(DOES_NOT if workers else HOLDS, why)


def later(tests: Tests) -> Answer:
    """Does nothing compile after the first step?"""
    fixed, variable = (_graphs(tests[name], "later steps") for name in ("one length", "new lengths"))
    if fixed is None or variable is None:
        return Answer(CANNOT_TELL, "a drafter did not come to its later steps")
    why = f"after the first step {fixed} graphs were compiled with one length, {variable} with a new length each step"
    return Answer(DOES_NOT if variable else HOLDS, why)


def lock(locked: str, words: str) -> Callable[[Tests], Answer]:
    """Of a lock that is said to be enough: does the error come in spite of it, where it comes without one?"""

    def read(tests: Tests) -> Answer:
        if tests[locked].reproduced:
            return Answer(DOES_NOT, f"the FX error came by plan {words}")
        if not tests["unlocked"].reproduced:
            return Answer(CANNOT_TELL, f"the error does not come without a lock either ({_said(tests['unlocked'])})")
        if tests[locked].infeasible:
            return Answer(HOLDS, f"without a lock the error came by plan; with it: {_said(tests[locked])}")
        return Answer(CANNOT_TELL, f"with the lock the plan came to no end: {_said(tests[locked])}")

    return read


def _said(evidence: Evidence) -> str:
    return f"{evidence.ending}: {evidence.reason}" if evidence.reason else evidence.ending


def reentrant(tests: Tests) -> Answer:
    """Does the error stay away with the non-reentrant kind?"""
    new, old = tests["non_reentrant"], tests["reentrant"]
    if new.reproduced:
        both = "and with use_reentrant=True too" if old.reproduced else f"with use_reentrant=True: {_said(old)}"
        return Answer(DOES_NOT, f"the FX error came by plan in a recompute with use_reentrant=False, {both}")
    if old.reproduced:
        return Answer(HOLDS, f"it came with use_reentrant=True only; with False: {_said(new)}")
    return Answer(CANNOT_TELL, f"the error comes with neither ({_said(new)})")


def dense(tests: Tests) -> Answer:
    """Did each dense call raise or warn?"""
    evidence = tests["past the limit"]
    dense, raised, warned = (evidence.fact(name) for name in ("dense", "raised", "warned"))
    if not dense:
        return Answer(CANNOT_TELL, "no attention call ran uncompiled")
    why = f"of {dense} attention calls that ran uncompiled {raised} raised and {warned} came with a warning"
    return Answer(HOLDS if raised + warned >= dense else DOES_NOT, why)


def newer(tests: Tests) -> Answer:
    """Is the error gone, and with it what is no error?"""
    error = tests["the error"]
    left = [name for name, evidence in tests.items() if name != "the error" and evidence.reproduced]
    if error.reproduced:
        if parse_specifier(MASKED).contains(str(error.row["torch"])):
            also = f", and so did {', '.join(left)}" if left else ""
            return Answer(DOES_NOT, f"the FX error itself still came by plan, in a first backward{also}")
        return Answer(CANNOT_TELL, "this is no newer torch: the FX error came by plan; name one with --python")
    why = f"the FX error does not come by plan ({tests['the error'].ending})"
    if left:
        return Answer(DOES_NOT, f"{why}, but these do: {', '.join(left)}")
    return Answer(HOLDS, f"{why}, and neither do the others that were tried")


def big_lock(tests: Tests) -> Answer:
    """Did every drafter train?"""
    evidence = tests["every step locked"]
    if evidence.row.get("outcome") in ("ok", "dense"):
        return Answer(HOLDS, "all drafters trained under one lock around every step")
    error = next(iter(evidence.row.get("errors", ())), None)
    said = f"{error['type']}: {error['message'][:120]}" if error else evidence.row.get("reason", "")
    why = f"with one lock around every step the trial ended as {evidence.row.get('outcome')}"
    return Answer(DOES_NOT, f"{why}: {said}" if said else why)


def checked(read: Callable[[Tests], Answer]) -> Callable[[Tests], Answer]:
    """`read`, unless a trial came to no end that says anything."""
    return lambda tests: _broken(tests) or read(tests)
