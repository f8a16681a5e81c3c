"""`harness reproduce` and `replay` as commands. Real trials: tests/integration/test_schedules.py."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_runs import FakeExecutor, make_row

from harness import cli
from harness.analysis.minimise import NothingToMinimise
from harness.control.replay import OldTrial
from harness.control.request import Row, TrialRequest
from harness.core.plan import ENDINGS, ORDER_DONE
from harness.core.recording import Recording
from harness.core.scenario import Scenario
from harness.hazards import HAZARDS, find

Ran = Callable[..., tuple[int, str, str]]


@pytest.fixture
def executor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeExecutor:
    """In an empty folder, on a machine without CUDA devices."""
    monkeypatch.chdir(tmp_path)
    environment = {"torch": "2.13.0+cpu", "gpus": [], "variables": {}, "executable": "python3"}
    fake = FakeExecutor()
    monkeypatch.setattr("harness.control.environment.describe_environment", lambda python: environment)
    monkeypatch.setattr("harness.control.executors.make_executor", lambda name, *, python, jobs=1: fake)
    return fake


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str], executor: FakeExecutor) -> Ran:
    """Exit code, standard output and error of a command."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments))
        return (int(str(ended.value.code)), *capsys.readouterr())

    return run


def test_what_cannot_run_here_has_the_whole_document_with_zeros(ran: Ran, executor: FakeExecutor) -> None:
    hazard = next(each for each in HAZARDS if "cuda:0" in each.program.scenario.devices)
    code, out, _ = ran("reproduce", hazard.id, "--json")
    document = json.loads(out)
    assert (code, executor.ran) == (3, [])
    assert "needs a CUDA build" in document["skipped"]
    assert (document["hazard"], document["torch"], document["times"]) == (hazard.id, "2.13.0+cpu", 0)
    assert [document[ending] for ending in (*ENDINGS, "infeasible")] == [0] * (len(ENDINGS) + 1)
    assert document["counterfactual"] == {"times": 0, "reproduced": 0, "ordered": 0}
    assert (document["witness"], document["seconds"], document["outcomes"]) == ([], [], ["skipped"])
    assert document["scenario"]["devices"] == hazard.program.scenario.devices
    assert (document["environment"]["executable"], document["run_dir"]) == ("python3", None)
    code, out, _ = ran("reproduce", hazard.id)
    assert code == 3
    assert out.startswith(f"{hazard.id}: cannot run here: ")


@pytest.mark.parametrize("where", ["program", "pipeline"])
def test_a_case_runs_on_the_device_that_is_asked_for(ran: Ran, executor: FakeExecutor, where: str) -> None:
    code, out, _ = ran("reproduce", "compile-lock-engine-deadlock", "--in", where, "--device", "cuda:0", "--json")
    document = json.loads(out)
    assert (code, executor.ran) == (3, [])
    assert document["scenario"]["devices"] == "cuda:0"
    assert "needs a CUDA build" in document["skipped"]  # there is none: no trial on the case's own device stands in


def test_the_pipeline_s_case_of_the_cpu_runs_on_a_device(ran: Ran, executor: FakeExecutor) -> None:
    code, out, _ = ran("reproduce", "fx-flag-collision", "--in", "pipeline", "--device", "cuda:1", "--json")
    assert (code, json.loads(out)["scenario"]["devices"]) == (3, "cuda:1")
    assert executor.ran == []


def test_trials_are_asked_for_on_that_device(
    ran: Ran, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("harness.control.skips.skip_reason", lambda scenario, environment, settings: "")
    found: list[str] = []

    def outcome(request: TrialRequest) -> Row:
        found.append(request.scenario.devices)
        return make_row(request)

    executor.outcome = outcome
    ran("reproduce", "user-lock-engine-deadlock", "--device", "cuda:0", "-n", "1", "-q", "--out", str(tmp_path / "run"))
    assert set(found) == {"cuda:0"}


@pytest.mark.parametrize(
    ("hazard", "device", "said"),
    [
        ("user-lock-inversion", "cuda:0", "runs on the CPU (cpu)"),
        ("compile-lock-engine-deadlock", "cpu", "runs on a device that autograd has a thread for"),
        ("compile-lock-engine-deadlock", "gpu", 'axis "devices": cannot read "gpu"'),
    ],
)
def test_a_device_that_does_not_go_with_the_program_is_refused_in_one_line(
    ran: Ran, executor: FakeExecutor, hazard: str, device: str, said: str
) -> None:
    code, out, err = ran("reproduce", hazard, "--device", device)
    assert (code, out, executor.ran) == (2, "", [])
    assert said in err
    assert err.count("\n") == 1


def test_replay_takes_a_timeout_and_can_be_quiet(
    ran: Ran, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    requests: list[TrialRequest] = []

    def outcome(request: TrialRequest) -> Row:
        requests.append(request)
        return make_row(request, schedule={"order": "same"})

    executor.outcome = outcome
    old = OldTrial(tmp_path, Scenario(schedule="pct:1:3"), {}, {}, ("ok",), {}, Recording(()))
    monkeypatch.setattr("harness.control.replay.read_trial", lambda folder: old)
    monkeypatch.setattr("harness.control.interpreter.find_python", lambda python: "python3")
    monkeypatch.setattr("harness.control.interpreter.describe_python", lambda python: {"torch": "2.13.0"})
    monkeypatch.setattr("harness.core.recording.check_same", lambda recording, torch, force: "")
    code, out, err = ran("replay", "t", "--timeout", "7", "--out", "one")
    assert (code, err) == (0, "001-replay: ok\n")
    code, quietly, err = ran("replay", "t", "-q", "--out", "two")
    assert (code, quietly, err) == (0, out, "")
    assert [request.timeout_s for request in requests] == [7, 300]
    assert executor.closed


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.control.skips.skip_reason", lambda scenario, environment, settings: "")


@pytest.mark.usefixtures("anywhere")
def test_what_the_catalogue_excludes_is_said_first_and_run_all_the_same(ran: Ran, executor: FakeExecutor) -> None:
    code, out, _ = ran("reproduce", "first-step-hole", "-n", "1", "-q", "--out", "one")
    assert out.splitlines()[0] == "first-step-hole: it cannot happen here: torch 2.13.0+cpu is not <2.13"
    assert out.splitlines()[1].startswith("first-step-hole: undecided 1/1")
    assert (code, bool(executor.ran)) == (1, True)
    _, out, _ = ran("reproduce", "first-step-hole", "-n", "1", "-q", "--out", "two", "--json")
    assert json.loads(out)["why_not"] == "torch 2.13.0+cpu is not <2.13"
    _, out, _ = ran("reproduce", "rng-rewind", "-n", "1", "-q", "--out", "three", "--json")
    assert json.loads(out)["why_not"] == ""


@pytest.mark.usefixtures("anywhere")
def test_an_effect_that_was_looked_for_is_told_with_what_was_measured(
    ran: Ran, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    facts = {"effect": True, "undone": ["manual_seed"], "largest_difference": 2.14e-6, "torch": {}, "regions": ["step"]}
    rest: dict[str, object] = {}
    executor.outcome = lambda request: make_row(
        request, facts={} if "counterfactual" in request.trial_id else facts, schedule={"order": ORDER_DONE}, **rest
    )
    code, out, _ = ran("reproduce", "compiling-leak", "-n", "1", "-q", "--out", "one")
    effect = find("compiling-leak").effect
    assert code == 0
    assert f"then {effect}" in " ".join(out.split())
    assert "measured: undone manual_seed; largest difference 2.14e-06\n" in out
    document = json.loads(Path("one/reproduce.json").read_text("utf-8"))
    assert (document["effect"], sorted(document["measured"])) == (effect, ["largest_difference", "undone"])
    rest["reason"] = "it said why"
    _, out, _ = ran("reproduce", "compiling-leak", "-n", "1", "-q", "--out", "two")
    assert "then it said why" in out
    assert effect[:40] not in out


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(
    ("ran", "said"),
    [
        (0, "interrupted: 0 of 3 times done; the trials are in one"),
        (2, "interrupted: 2 of 3 times done; the trials are in one"),
        (3, "interrupted: 3 of 3 times done, not the counterfactual; the trials are in one"),
    ],
)
def test_ctrl_c_is_acknowledged_at_once_and_what_was_done_is_said(
    executor: FakeExecutor, capfd: pytest.CaptureFixture[str], ran: int, said: str
) -> None:
    executor.outcome = lambda request: make_row(request, facts={"effect": True}, schedule={"order": ORDER_DONE})
    at_once: list[str] = []

    def press(_: int) -> None:
        if len(executor.ran) == ran:
            try:
                signal.raise_signal(signal.SIGINT)
            finally:  # before the running trials are ended
                at_once.append(capfd.readouterr().err)

    executor.before = press
    with pytest.raises(SystemExit) as ended:
        cli.main(["reproduce", "compiling-leak", "-n", "3", "-q", "--out", "one"])
    assert ended.value.code == 3
    assert at_once == ["ending the running trials; Ctrl-C again stops at once\n"]
    assert capfd.readouterr() == ("", f"{said}\n")
    assert executor.closed


@pytest.mark.usefixtures("anywhere")
def test_ctrl_c_before_the_first_trial_names_no_folder(
    monkeypatch: pytest.MonkeyPatch, executor: FakeExecutor, capfd: pytest.CaptureFixture[str]
) -> None:
    def make(name: str, *, python: str, jobs: int = 1) -> FakeExecutor:
        signal.raise_signal(signal.SIGINT)
        return executor

    monkeypatch.setattr("harness.control.executors.make_executor", make)
    with pytest.raises(SystemExit) as ended:
        cli.main(["reproduce", "compiling-leak", "-n", "3", "-q", "--out", "one"])
    assert ended.value.code == 3
    assert capfd.readouterr().err.splitlines()[1:] == ["interrupted: 0 of 3 times done"]


@pytest.mark.usefixtures("anywhere")
def test_ctrl_c_when_all_is_done_costs_nothing_that_was_found(
    monkeypatch: pytest.MonkeyPatch, executor: FakeExecutor, capfd: pytest.CaptureFixture[str]
) -> None:
    executor.outcome = lambda request: make_row(
        request, facts={"effect": "counterfactual" not in request.trial_id}, schedule={"order": ORDER_DONE}
    )
    monkeypatch.setattr(executor, "close", lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(SystemExit) as ended:
        cli.main(["reproduce", "compiling-leak", "-n", "1", "-q", "--out", "one"])
    assert ended.value.code == 0
    assert capfd.readouterr().out.startswith("compiling-leak: reproduced 1/1, counterfactual 0/1\n")


FAILED = {
    "torch": "2.13.0", "outcomes": ["graph_corrupt"],
    "errors": [{"label": "graph_corrupt", "type": "NameError", "message": "module is not installed as a submodule"}],
}  # fmt: skip
NEXT = [
    "the hazard behind it, where one is known: harness explain t",
    "to make that hazard happen by its own plan: harness reproduce module-call-under-trace",
]


def test_a_failure_that_a_replay_did_not_bring_back_has_a_next_step(
    ran: Ran, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path("t")
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(FAILED), encoding="utf-8")
    executor.outcome = lambda request: make_row(request, schedule={"order": "same"})
    old = OldTrial(folder, Scenario(schedule="pct:1:3"), {}, {}, ("graph_corrupt",), {}, Recording(()))
    monkeypatch.setattr("harness.control.replay.read_trial", lambda folder: old)
    monkeypatch.setattr("harness.control.interpreter.find_python", lambda python: "python3")
    monkeypatch.setattr("harness.control.interpreter.describe_python", lambda python: {"torch": "2.13.0"})
    monkeypatch.setattr("harness.core.recording.check_same", lambda recording, torch, force: "")
    code, out, _ = ran("replay", "t", "-q", "--out", "one")
    assert (code, out.splitlines()[1:]) == (1, ["outcome: ok; recorded graph_corrupt", *NEXT])
    _, out, _ = ran("replay", "t", "-q", "--json", "--out", "two")
    assert json.loads(out)["next"] == ["harness explain t", "harness reproduce module-call-under-trace"]
    (folder / "result.json").unlink()
    assert ran("replay", "t", "-q", "--out", "three")[1].splitlines()[2:] == NEXT[:1]


def test_a_search_that_finds_nothing_has_a_next_step(
    ran: Ran, executor: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path("t")
    folder.mkdir()
    (folder / "result.json").write_text(json.dumps(FAILED), encoding="utf-8")
    old = OldTrial(folder, Scenario(schedule="pct:1:3"), {}, {}, ("graph_corrupt",), {}, Recording(()))

    def nothing(*arguments: object, **options: object) -> None:
        raise NothingToMinimise("both orders pass")

    monkeypatch.setattr("harness.control.minimise.read_pair", lambda failing, passing: (old, None))
    monkeypatch.setattr("harness.control.minimise.minimise", nothing)
    monkeypatch.setattr("harness.control.interpreter.find_python", lambda python: "python3")
    code, out, _ = ran("minimise", "t", "-q", "--out", "one")
    said = "nothing found: both orders pass; try again, or name another trial that passed with --against"
    assert (code, out.splitlines()) == (1, [said, *NEXT])
    _, out, _ = ran("minimise", "t", "-q", "--json", "--out", "two")
    assert json.loads(out)["next"] == ["harness explain t", "harness reproduce module-call-under-trace"]
