"""How the rows of a claim's trials are read: each answer can come out, and another than the expected one is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.control import claims as control
from harness.control.claims import Answered, put_to_the_test
from harness.control.reproduce import Reproduction
from harness.core.endings import Ending
from harness.core.errors import UserError
from harness.core.plan import EXCLUDED, HARMLESS, REPRODUCED, UNREACHABLE
from harness.core.scenario import Scenario
from harness.hazards.claim_readings import CANNOT_TELL, DOES_NOT, HOLDS, VERDICTS, Answer, Evidence
from harness.hazards.claims import claims, find_claims
from harness.report.claims import print_claims
from harness.subject.workloads import load

ALL = {claim.id: claim for claim in claims()}


def seen(ending: str = HARMLESS, outcome: str = "ok", torch: str = "2.13.0", reason: str = "", **facts: Any) -> Evidence:
    return Evidence(ending, reason, {"outcome": outcome, "torch": torch, "facts": facts, "errors": []})


def graphs(**phases: int) -> Evidence:
    return seen(graphs={phase.replace("_", " "): count for phase, count in phases.items()})


GOT, NOT, HELD = seen(REPRODUCED, "fx_error"), seen(HARMLESS), seen(EXCLUDED, reason="B waits for the step lock")

CASES: list[tuple[str, Mapping[str, Evidence], str]] = [
    ("cache-per-thread", {"shared": graphs(first=1), "other lengths": graphs(first=1, others=8)}, DOES_NOT),
    ("cache-per-thread", {"shared": graphs(first=1, others=8), "other lengths": graphs(first=1, others=8)}, HOLDS),
    ("cache-per-thread", {"shared": graphs(first=1), "other lengths": graphs(first=1)}, CANNOT_TELL),
    ("main-warm-up-useless", {"cold": graphs(workers=2), "warmed": graphs(main=1)}, DOES_NOT),
    ("main-warm-up-useless", {"cold": graphs(workers=2), "warmed": graphs(main=1, workers=2)}, HOLDS),
    ("main-warm-up-useless", {"cold": graphs(), "warmed": graphs()}, CANNOT_TELL),
    ("no-grad-warm-up-enough", {"warmed without gradient": graphs(main=1, workers=2)}, DOES_NOT),
    ("no-grad-warm-up-enough", {"warmed without gradient": graphs(main=1)}, HOLDS),
    ("attention-lock-enough", {"unlocked": GOT, "per_call": GOT}, DOES_NOT),
    ("attention-lock-enough", {"unlocked": GOT, "per_call": HELD}, HOLDS),
    ("attention-lock-enough", {"unlocked": NOT, "per_call": NOT}, CANNOT_TELL),
    ("attention-lock-enough", {"unlocked": GOT, "per_call": seen("undecided")}, CANNOT_TELL),
    ("first-step-lock-enough", {"unlocked": GOT, "first_step": seen(UNREACHABLE)}, HOLDS),
    ("first-step-lock-enough", {"unlocked": GOT, "first_step": GOT}, DOES_NOT),
    ("non-reentrant-safe", {"non_reentrant": GOT, "reentrant": GOT}, DOES_NOT),
    ("non-reentrant-safe", {"non_reentrant": NOT, "reentrant": GOT}, HOLDS),
    ("non-reentrant-safe", {"non_reentrant": NOT, "reentrant": NOT}, CANNOT_TELL),
    ("safe-after-first", {"one length": graphs(first_step=2), "new lengths": graphs(first_step=2, later_steps=4)}, DOES_NOT),
    ("safe-after-first", {"one length": graphs(first_step=2), "new lengths": graphs(first_step=2)}, HOLDS),
    ("safe-after-first", {"one length": seen(), "new lengths": graphs(first_step=2)}, CANNOT_TELL),
    ("dense-is-loud", {"past the limit": seen(dense=6, raised=0, warned=1)}, DOES_NOT),
    ("dense-is-loud", {"past the limit": seen(dense=6, raised=2, warned=4)}, HOLDS),
    ("dense-is-loud", {"past the limit": seen(dense=0, raised=0, warned=0)}, CANNOT_TELL),
    ("newer-fixes-it", {"the error": NOT, "rng-rewind": GOT, "stance-leak": NOT}, DOES_NOT),
    ("newer-fixes-it", {"the error": NOT, "rng-rewind": NOT, "stance-leak": NOT}, HOLDS),
    ("newer-fixes-it", {"the error": GOT, "rng-rewind": NOT, "stance-leak": NOT}, DOES_NOT),
    ("newer-fixes-it", {"the error": seen(REPRODUCED, torch="2.11.0+cpu"), "rng-rewind": GOT}, CANNOT_TELL),
    ("one-lock-for-cuda-graphs", {"every step locked": seen(outcome="cudagraph_tls")}, DOES_NOT),
    ("one-lock-for-cuda-graphs", {"every step locked": seen(outcome="ok")}, HOLDS),
    ("one-lock-for-cuda-graphs", {"every step locked": seen(outcome="out_of_memory")}, CANNOT_TELL),
]


@pytest.mark.parametrize(("name", "tests", "verdict"), CASES, ids=[f"{name}: {verdict}" for name, _, verdict in CASES])
def test_the_answer_follows_the_evidence(name: str, tests: Mapping[str, Evidence], verdict: str) -> None:
    answer = ALL[name].read(tests)
    assert answer.verdict == verdict
    assert answer.why


@pytest.mark.parametrize("name", ALL)
def test_a_trial_that_says_nothing_gives_no_answer(name: str) -> None:
    tests = dict.fromkeys(ALL[name].tests, seen(outcome="setup_error", reason="no such thing"))
    assert ALL[name].read(tests).verdict == CANNOT_TELL


def test_every_claim_has_cases_of_both_answers() -> None:
    for name in ALL:
        assert {HOLDS, DOES_NOT} <= {verdict for case, _, verdict in CASES if case == name}


@pytest.mark.parametrize("claim", ALL.values(), ids=lambda claim: claim.id)
def test_its_programs_are_there_and_its_expectations_are_verdicts(claim: Any) -> None:
    for case in claim.tests.values():
        if case.scenario.workload != "dflash":
            assert load(case.scenario.workload)
    assert set(claim.expected.values()) <= set(VERDICTS)


class Readings:
    """Stands in for `reproduce`: every plan ends as told."""

    def __init__(self, ending: str) -> None:
        self.ending = ending
        self.runs: list[str] = []

    def __call__(self, case: Any, *_: Any, **__: Any) -> Reproduction:
        self.runs.append(case.name)
        row = {"outcome": "ok", "torch": "2.13.0", "facts": {}, "errors": []}
        return Reproduction(case, 1, Counter({self.ending: 1}), Ending(self.ending), "/trial", 1, row)


ENVIRONMENT = {"torch": "2.13.0+cpu", "cuda": None, "gpus": [], "variables": {}, "executable": "py"}


def answered(monkeypatch: pytest.MonkeyPatch, ending: str, *names: str) -> tuple[list[Answered], Readings]:
    stand_in = Readings(ending)
    monkeypatch.setattr(control, "reproduce", stand_in)
    run: Iterator[Answered] = put_to_the_test(find_claims(list(names)), None, Path(), ENVIRONMENT, lambda text: None)  # type: ignore[arg-type]
    return list(run), stand_in


def test_another_answer_than_expected_is_told_and_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    (usual,), _ = answered(monkeypatch, REPRODUCED, "attention-lock-enough")
    assert (usual.answer.verdict, usual.surprising) == (DOES_NOT, False)
    (odd,) = (Answered(usual.claim, Answer(HOLDS, "why"), usual.expected),)
    assert odd.surprising
    assert odd.to_json()["as_expected"] is False
    console = Console(width=80)
    with console.capture() as shown:
        print_claims(console, [odd, usual], "2.13.0")
    assert "unexpected: with this version it does not hold where it was seen before" in shown.get()
    assert shown.get().count("unexpected") == 1


def test_the_witness_of_a_plan_is_shown_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,), _ = answered(monkeypatch, REPRODUCED, "attention-lock-enough")
    step = {"n": 1, "seat": "drafter-0", "thread": "drafter-0", "worker": "drafter-0", "region": "step", "info": ""}
    step |= {"point": "fx.window.open", "torch": "torch/fx/x.py:1 trace", "source": "", "event": "step", "attempt": 1}
    step |= {"step": 1, "role": "A", "name": "", "held_since": 0, "t": 1}
    for evidence in found.evidence.values():
        evidence.row["schedule"] = {"witness": [step]}  # type: ignore[index]
    for asked in (False, True):
        console = Console(width=80)
        with console.capture() as shown:
            print_claims(console, [found], "2.13.0", witness=asked)
        assert ("fx.window.open" in shown.get()) is asked
        assert "plan reproduced, 1 of 1" in shown.get()


def test_a_test_that_two_claims_share_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found, stand_in = answered(monkeypatch, REPRODUCED, "attention-lock-enough", "first-step-lock-enough")
    assert len(found) == 2
    assert stand_in.runs == ["unlocked", "per-call", "first-step"]


def test_what_cannot_run_here_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,), stand_in = answered(monkeypatch, REPRODUCED, "one-lock-for-cuda-graphs")
    assert (found.answer.verdict, found.answer.why) == (CANNOT_TELL, "it takes 2 CUDA devices; 0 here")
    assert not stand_in.runs
    assert not found.surprising


def test_names() -> None:
    assert [claim.id for claim in find_claims([])] == list(ALL)
    assert [claim.id for claim in find_claims(["dense-is-loud"])] == ["dense-is-loud"]
    with pytest.raises(UserError, match='did you mean "dense-is-loud"'):
        find_claims(["dense-is-lout"])
    assert Scenario().workload == "dflash"
