"""Puts claims to the test: runs each one's trials here, and reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.control.reproduce import reproduce
from harness.control.request import Executor
from harness.control.skips import skip_reason, visible_gpus
from harness.core.case import Case
from harness.hazards.claim_readings import CANNOT_TELL, Answer, Evidence
from harness.hazards.claims import Claim

TRIAL_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Answered:
    """One claim, its answer here, and what it rests on: test → ending, reason and folder of the decisive trial."""

    claim: Claim
    answer: Answer
    expected: str
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    trials: Mapping[str, str] = field(default_factory=dict)

    @property
    def surprising(self) -> bool:
        """The answer is another than the one that was seen before. That it cannot be told is no answer."""
        return bool(self.expected) and self.answer.verdict not in (self.expected, CANNOT_TELL)

    def to_json(self) -> dict[str, Any]:
        """One entry of `claims --json`."""
        return {
            "id": self.claim.id,
            "belief": self.claim.belief,
            "verdict": self.answer.verdict,
            "why": self.answer.why,
            "expected": self.expected,
            "as_expected": not self.surprising,
            "known": self.claim.known,
            "tests": [
                {
                    "name": name,
                    "title": self.claim.tests[name].title,
                    "ending": evidence.ending,
                    "reason": evidence.reason,
                    "outcome": evidence.row.get("outcome"),
                    "facts": {key: value for key, value in evidence.row.get("facts", {}).items() if key != "torch"},
                    "witness": list((evidence.row.get("schedule") or {}).get("witness", ())),
                    "trial": self.trials[name],
                }
                for name, evidence in self.evidence.items()
            ],
        }


def put_to_the_test(
    claims: Sequence[Claim],
    executor: Executor,
    folder: Path,
    environment: Mapping[str, Any],
    note: Callable[[str], None],
) -> Iterator[Answered]:
    """Each claim in turn. A test that several claims share runs once. `environment`: of `describe_environment`."""
    done: dict[str, tuple[Evidence, str]] = {}
    torch = str(environment["torch"])
    devices = visible_gpus(environment) if environment["cuda"] else 0
    for claim in claims:
        expected = claim.expects(torch)
        reason = _impossible(claim, environment, devices)
        if reason:
            yield Answered(claim, Answer(CANNOT_TELL, reason), expected)
            continue
        note(claim.belief)
        found: dict[str, tuple[Evidence, str]] = {}
        for name, case in claim.tests.items():
            key = json.dumps(case.to_json(), sort_keys=True)
            if key not in done:
                note(f"  {case.title}")
                done[key] = _run(case, executor, folder / f"{len(done) + 1:02d}-{case.name}")
            found[name] = done[key]
        evidence = {name: one for name, (one, _) in found.items()}
        trials = {name: trial for name, (_, trial) in found.items()}
        yield Answered(claim, claim.read(evidence), expected, evidence, trials)


def _impossible(claim: Claim, environment: Mapping[str, Any], devices: int) -> str:
    if claim.devices > devices:
        return f"it takes {claim.devices} CUDA devices; {devices} here"
    reasons = (skip_reason(case.scenario, environment, case.settings) for case in claim.tests.values())
    return next((reason for reason in reasons if reason), "")


def _run(case: Case, executor: Executor, folder: Path) -> tuple[Evidence, str]:
    found = reproduce(case, executor, folder, times=1, note=_silent, timeout_s=TRIAL_TIMEOUT_S)
    return Evidence(found.ending.name, found.ending.reason, found.row), found.trial


def _silent(text: str) -> None:
    """The endings of single trials are for the report."""
