"""`harness bisect` where losses leave their reference: no strategy is unsafe by what two honest runs differ by."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_runs import make_row
from places import Places, is_reference, loses, oldest

from harness import cli
from harness.analysis.numerics import NOT_TOLD
from harness.control import executors, plan_oracle
from harness.control.bisect_evidence import from_locks_only, kind_of
from harness.control.references import AGAIN
from harness.control.request import Row, TrialRequest

Bisect = Callable[..., tuple[dict[str, Any], list[Row], Places]]


@pytest.fixture
def bisect(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bisect:
    """Trials of the lock `none` are off by 0.1; the references by what is given, or the second ends as it says."""

    def run(again: float | str) -> tuple[dict[str, Any], list[Row], Places]:
        def outcome(request: TrialRequest) -> Row:
            if request.trial_id.endswith(AGAIN) or (again == "nan" and AGAIN in request.trial_id):
                if again == "nan":
                    return make_row(request, workers=loses("nan"))  # type: ignore[arg-type]
                fails = isinstance(again, str)
                return make_row(request, again) if fails else make_row(request, workers=loses(4.0 * (1 + again)))  # type: ignore
            off = not is_reference(request) and request.scenario.lock == "none"
            return make_row(request, workers=loses(4.4 if off else 4.0))

        executor = Places(1, oldest, outcome)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(executors, "make_executor", lambda name, *, python, jobs: executor)
        monkeypatch.setattr(plan_oracle, "oracle_for", lambda *_: plan_oracle.NoPlans())
        with pytest.raises(SystemExit):
            cli.main(["bisect", "locks", "checkpoint=none", "--locks", "none,compile_gate", "--out", "run", "--json"])
        rows = [json.loads(line) for line in Path("run", "results.jsonl").read_text().splitlines()]
        return json.loads(capsys.readouterr().out), rows, executor

    return run


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    return {entry["lock"]: entry["verdict"] for entry in document["ladder"]}


def test_a_strategy_that_is_off_as_its_reference_is_from_itself_is_safe(bisect: Bisect) -> None:
    document, rows, executor = bisect(0.05)
    assert (document["answer"], verdicts(document)["none"]) == ("none", "safe")
    assert sum(request.startswith("reference-") for request in executor.began) == 2
    assert {label for row in rows for label in row["outcomes"]} == {"ok"}


def test_a_strategy_that_is_further_off_is_unsafe_at_the_first_trial(bisect: Bisect) -> None:
    document, _, _ = bisect(0.0)
    none = next(entry for entry in document["ladder"] if entry["lock"] == "none")
    assert (none["verdict"], none["trials"], none["witness"]["label"]) == ("unsafe", 1, "numerics")
    assert document["answer"] == "compile_gate"


def test_a_doubt_that_cannot_be_settled_calls_no_strategy_unsafe_nor_safe(bisect: Bisect) -> None:
    document, rows, _ = bisect("hang")
    assert (document["answer"], document["verdict"]) == (None, "incomplete")
    assert verdicts(document) == {"none": "incomplete", "compile_gate": "undecided"}
    assert document["conclusion"].endswith("the reference could not be run again: it ended as hang")
    assert {label for row in rows for label in row["outcomes"]} == {"numerics"}


def test_references_that_do_not_tell_where_losses_are_finite_are_no_evidence(bisect: Bisect) -> None:
    document, _, executor = bisect("nan")
    assert verdicts(document) == {"none": "incomplete", "compile_gate": "undecided"}
    assert document["conclusion"].endswith(NOT_TOLD)
    assert sum(request.startswith("reference-") for request in executor.began) == 2


UNSETTLED = "a, step 0: loss 4.4, …; the reference could not be run again: it ended as hang: "
OF_OLD = "a, step 0: loss 4.4, reference 4 (off by 0.1, tolerance 0.03)"


@pytest.mark.parametrize(
    ("labels", "more", "kind", "by_lock"),
    [
        (["numerics"], {}, "incomplete", False),
        (["fx_error", "numerics"], {}, "failed", False),
        (["deadlock", "numerics"], {}, "failed", True),
        (["numerics"], {"oracles": {"numerics": f"a, step 0: loss 4.4, …; {NOT_TOLD}"}}, "incomplete", False),
        (["numerics"], {"problems": [{"label": "numerics", "text": "an answer is off"}]}, "failed", False),
        (["numerics"], {"oracles": {"numerics": OF_OLD}}, "failed", False),
    ],
)
def test_what_is_not_settled_is_no_evidence(labels: list[str], more: Row, kind: str, by_lock: bool) -> None:
    """What the workload found by itself is, and so are rows of an older release."""
    row = {"outcome": labels[0], "outcomes": labels, "oracles": {"numerics": UNSETTLED}, **more}
    assert kind_of(row) == kind
    assert from_locks_only(row) is by_lock
