"""Who plays which role of a plan: all the ways, and which of them are still worth a trial.

Ways that differ only by exchanging workers that nothing in the scenario tells apart bring about one and the same order, so
once one of them did, and to no effect, the others of its kind are not tried. Only then: drafters are served in turn, so
who comes first to a lock or a compile does differ by way, and one that is excluded says nothing of another. In the
pipeline on torch 2.11 the plan of `first-step-hole` is reproduced under `first_step` with drafter-0 as B, who comes to the
lock first, and excluded with drafter-1 as B.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from harness.core.case import Case
from harness.core.endings import Ending
from harness.core.outcome import OK
from harness.core.plan import HARMLESS, REPRODUCED, Plan

MOST_BINDINGS = 60

_NO_LINE = ("none", "thread_local_fx")
"""Strategies in which nobody stands in line, so none is the first of it."""

_ALIKE = {"workload": "dflash", "shapes": "fixed", "code": "shared", "cudagraphs": "off", "replicas": "independent"}
"""What a scenario must have for its drafters to differ in nothing but their data. Other workloads are not known here."""

Binding = dict[str, str]


def bindings(plan: Plan, workers: Mapping[str, str]) -> Iterator[Binding]:
    """Every way to give each role a worker of its kind, no worker two roles; the first `MOST_BINDINGS` of them.

    `workers`: name → role, as in `alike` and `Ways`.
    """
    candidates: list[list[tuple[str, str]]] = []
    for role, kind in plan.roles.items():
        fitting = [name for name, of in sorted(workers.items()) if kind in ("any", name, of)]
        candidates.append([(role, name) for name in fitting] or [(role, kind)])
    found = (dict(pairs) for pairs in itertools.product(*candidates) if len({name for _, name in pairs}) == len(pairs))
    return itertools.islice(found, MOST_BINDINGS)


def alike(case: Case, workers: Mapping[str, str]) -> dict[str, str]:
    """Worker → the first of those that can take its place; empty where that is not certain.

    Certain it is in the pipeline where all workers of a role have one device, shape and code object, depend on nobody of
    their kind, stand in no line, and are nowhere called by name.
    """
    scenario = case.scenario
    one_device = "+" not in scenario.devices
    unnamed = not any(name in json.dumps(case.to_json()) for name in workers)
    same = all(scenario.value(axis) == value for axis, value in _ALIKE.items())
    if not (same and one_device and unnamed and scenario.lock in _NO_LINE):
        return {}
    first: dict[str, str] = {}
    for name, role in sorted(workers.items()):
        first.setdefault(role, name)
    return {name: first[role] for name, role in workers.items()}


class Ways:
    """The bindings of a case's plan after its free one; give it each ending, and it says which are still needed.

    `all`: in the order in which they are to be tried. `merged`: of how many `needed` said no for the sake of another way.
    """

    def __init__(self, case: Case, workers: Mapping[str, str]) -> None:
        self.all = tuple(bindings(case.plan, workers))
        self.merged = 0
        self._first = alike(case, workers)
        self._roles = set(case.plan.roles)
        self._had: set[tuple[tuple[str, str], ...]] = set()
        self._reproduced = False

    def needed(self, number: int) -> bool:
        """Whether way `number` is to be tried, when its turn comes; to be asked once."""
        if self._reproduced:
            return False
        if self._kind(self.all[number]) in self._had:
            self.merged += 1
            return False
        return True

    def ended(self, ending: Ending, row: Mapping[str, Any]) -> None:
        """How a way, or the free binding, ended."""
        self._reproduced = self._reproduced or ending.name == REPRODUCED
        bound = ending.schedule.get("bindings", {})
        clean = ending.name == HARMLESS and row["outcomes"] == [OK]  # another failure than the hazard's is no proof
        # Where nobody is alike, `_first` is empty, and no way speaks for another.
        if clean and set(bound) == self._roles and set(bound.values()) <= set(self._first):
            self._had.add(self._kind(bound))

    def _kind(self, binding: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Equal for two ways just when exchanging like workers makes one of the other."""
        return tuple(sorted((role, self._first.get(worker, worker)) for role, worker in binding.items()))
