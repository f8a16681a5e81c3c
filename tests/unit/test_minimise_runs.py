"""`harness minimise` with trials that are made up: what is run again, which plan is taken, and what is said of none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_runs import FakeExecutor, make_row

from harness import cli
from harness.control.minimise import TRIES, Minimised, minimise
from harness.control.replay import OldTrial
from harness.control.request import OnStart, Row, TrialRequest
from harness.core.errors import UserError
from harness.core.plan import ORDER_DONE
from harness.core.recording import Passed, Recording
from harness.core.scenario import Scenario

OPEN, CHECKED = "fx.window.open", "compiled_call.checked"
A_OPEN, A_CHECKED = Passed("drafter-0", OPEN), Passed("drafter-0", CHECKED)
B_OPEN, B_CHECKED = Passed("drafter-1", OPEN), Passed("drafter-1", CHECKED)
FAILING, PASSING = (A_OPEN, B_OPEN, B_CHECKED, A_CHECKED), (A_OPEN, A_CHECKED, B_OPEN, B_CHECKED)
WORKERS = {"drafter-0": "drafter", "drafter-1": "drafter"}
SILENT = ("out_of_memory", "setup_error", "skipped", "interrupted")


def old(folder: Path, events: Sequence[Passed], label: str) -> OldTrial:
    recording = Recording(tuple(events), {"workers": WORKERS})
    return OldTrial(folder, Scenario(schedule="delays:0"), {}, {}, (label,), {}, recording)


class Machine:
    """Its trials fail when drafter-1 has checked before drafter-0 did, plans always.

    `silent`: number of a run → its label, which says nothing. `other`: what plans come to the other way round.
    """

    def __init__(self, silent: dict[int, str] | None = None, other: str = "ok") -> None:
        self.silent, self.other = silent or {}, other
        self.orders: list[str] = []

    def run(self, trials: Sequence[TrialRequest], on_start: OnStart, on_row: Any) -> None:
        for request in trials:
            if on_start(request) is not False:
                on_row(self.row(request))

    def row(self, request: TrialRequest) -> Row:
        if request.scenario.schedule == "directed":
            label = "fx_error" if request.extra["plan_of"] else self.other
            workers = {name: {"role": role} for name, role in WORKERS.items()}
            told = {"order": ORDER_DONE, "bindings": {}, "attempts": []}
            return make_row(request, label, workers=workers, schedule=told, reason="no room" if label in SILENT else "")
        self.orders.append(request.folder.name)
        if len(self.orders) in self.silent:
            return make_row(request, self.silent[len(self.orders)], reason="no room")
        events = [tuple(event) for event in request.extra.get("recording", {"events": FAILING})["events"]]
        return make_row(request, "fx_error" if events.index(B_CHECKED) < events.index(A_CHECKED) else "ok")

    def close(self) -> None:
        """Nothing is left."""


def search(machine: Machine, folder: Path, passing: bool = True) -> tuple[Minimised, list[str]]:
    notes: list[str] = []
    other = old(folder / "passing", PASSING, "ok") if passing else None
    found = minimise(old(folder / "t", FAILING, "fx_error"), other, machine, folder / "out", times=5, note=notes.append)
    return found, notes


def test_a_plan_is_taken_that_fails_each_time_and_never_the_other_way_round(tmp_path: Path) -> None:
    found, _ = search(Machine(), tmp_path)
    assert str(found.pair) == f"{B_CHECKED} before {A_CHECKED}"
    assert found.case is not None
    assert found.confirmed is not None
    assert (found.confirmed.reproduced, found.confirmed.counterfactual_reproduced, found.reason) == (5, 0, "")


def test_a_plan_that_fails_the_other_way_round_too_is_not_the_cause(tmp_path: Path) -> None:
    found, notes = search(Machine(other="fx_error"), tmp_path)
    said = "its plan fails 5/5 times, and 5/5 the other way round: the order is not the cause by itself"
    assert (found.case, found.reason, found.to_json()["reason"]) == (None, said, said)
    assert f"plan 1 is not it: {said}" in notes


@pytest.mark.parametrize("label", SILENT)
def test_a_plan_that_could_not_be_tried_the_other_way_round_is_not_taken(tmp_path: Path, label: str) -> None:
    found, _ = search(Machine(other=label), tmp_path)
    assert found.case is None
    assert found.reason.endswith(f"5/5 times, and the other way round could not be tried: {label}: no room")


@pytest.mark.parametrize("label", SILENT)
@pytest.mark.parametrize("run", [1, 2, 3])
def test_a_run_that_says_nothing_is_run_again(tmp_path: Path, run: int, label: str) -> None:
    """Taken for one that passes, or fails, it would change the pair, or end the search."""
    machine = Machine({run: label})
    found, notes = search(machine, tmp_path)
    assert str(found.pair) == f"{B_CHECKED} before {A_CHECKED}"
    assert notes[:3] == ["order 1: fails", "order 2: passes", "order 3: passes"]
    assert machine.orders[run - 1 : run + 1] == [f"order-00{run}", f"order-00{run}-again-2"]


@pytest.mark.parametrize("passing", [True, False])
def test_runs_that_say_nothing_time_and_again_end_the_search_with_their_reason(tmp_path: Path, passing: bool) -> None:
    machine = Machine(dict.fromkeys(range(1, 100), "out_of_memory"))
    with pytest.raises(UserError, match=r"3 runs of it say nothing.*\(out_of_memory: no room\)"):
        search(machine, tmp_path, passing)
    assert len(machine.orders) == TRIES == 3


@pytest.mark.parametrize(("other", "code"), [("ok", 0), ("fx_error", 1)])
def test_the_command_says_which_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], other: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    trials = (old(Path("t"), FAILING, "fx_error"), old(Path("p"), PASSING, "ok"))
    monkeypatch.setattr("harness.control.minimise.read_pair", lambda failing, passing: trials)
    monkeypatch.setattr("harness.control.interpreter.find_python", lambda python: "python3")
    fake = FakeExecutor()
    monkeypatch.setattr(fake, "run", Machine(other=other).run)
    monkeypatch.setattr("harness.control.executors.make_executor", lambda name, *, python, jobs=1: fake)
    Path("t").mkdir()
    with pytest.raises(SystemExit) as ended:
        cli.main(["minimise", "t", "-q", "-n", "2", "--out", "one"])
    out = capsys.readouterr().out
    assert ended.value.code == code
    said = ["reproduced 2/2, the other way round 0/2; again with:", "the order is not the cause by itself\n"]
    assert [each in out for each in said] == [code == 0, code == 1]
