"""The figures of `tests.soak.gpu`, read from what its commands leave; and the list of checks, as far as it can be tried
without a GPU: every command is accepted, and says in one line that there is no device."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_runs import row

from harness import cli
from harness.core.matrix import load_matrix
from harness.core.scenario import Scenario
from harness.hazards import HAZARDS, find
from harness.hazards.base import NEEDS
from tests.soak.gpu_checks import figures
from tests.soak.gpu_checks.check import Check, Figure, Place
from tests.soak.gpu_checks.listed import CHECKS
from tests.soak.gpu_checks.session import ROOT

BY_NAME = {check.name: check for check in CHECKS}
ENVIRONMENT = {"schema": 1, "torch": "2.11.0+cu130", "options": {"repeats": 2}}
Read = Callable[[Path], Figure]


def _run_folder(base: Path, rows: list[dict[str, Any]], matrix: str = "schema = 1\n") -> Path:
    run = base / figures.RUN
    run.mkdir()
    (run / "environment.json").write_text(json.dumps(ENVIRONMENT))
    (run / "matrix.toml").write_text(matrix)
    (run / "results.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    return base


def _json(base: Path, found: Mapping[str, Any], name: str = figures.JSON) -> Path:
    (base / name).parent.mkdir(exist_ok=True)
    (base / name).write_text(json.dumps(found))
    return base


@pytest.mark.parametrize(
    ("failing", "text", "reached"), [("", "2 passed, 0 failed, 1 skipped", True), ("x", "1 passed, 1 failed, 1 skipped", False)]
)
def test_of_tests(tmp_path: Path, failing: str, text: str, reached: bool) -> None:
    broken = "<failure/>" if failing else ""
    cases = f'<testcase classname="a" name="t">{broken}</testcase><testcase/><testcase><skipped/></testcase>'
    (tmp_path / figures.JUNIT).write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    found = figures.tests(tmp_path)
    assert (found.text, found.reached) == (text, reached)
    assert found.values["failed"] == (["a::t"] if failing else [])


def test_tests_that_were_all_skipped_are_no_success(tmp_path: Path) -> None:
    (tmp_path / figures.JUNIT).write_text("<testsuite><testcase><skipped/></testcase></testsuite>")
    assert figures.tests(tmp_path).reached is False


@pytest.mark.parametrize(("reproduced", "other", "reached"), [(20, 0, True), (20, 1, False), (19, 0, False)])
def test_of_a_reproduction(tmp_path: Path, reproduced: int, other: int, reached: bool) -> None:
    found = {
        "hazard": "h", "torch": "2.11", "times": 20, "reproduced": reproduced, "infeasible": 0, "ending": "undecided",
        "reason": "why", "counterfactual": {"times": 20, "reproduced": other, "ordered": 20}, "outcomes": ["ok"],
        "seconds": [1.0], "scenario": {"devices": "cuda:0"},
    }  # fmt: skip
    figure = figures.reproduction(_json(tmp_path, found, "run/reproduce.json"))
    assert figure.text.startswith(f"{reproduced}/20, counterfactual {other}/20")
    assert ("undecided why" in figure.text) == (reproduced < 20)
    assert (figure.reached, figure.values["devices"]) == (reached, "cuda:0")


MATRIX = 'schema = 1\n[axes]\nlock = ["none", "every_step"]\n[[expect]]\nwhere = "lock=every_step"\nonly = ["ok"]\n'


def test_of_a_matrix(tmp_path: Path) -> None:
    locked = Scenario(lock="every_step")
    rows = [row(), row(None, 1, "interrupted"), row(locked), row(locked, 1, "fx_error")]
    found = figures.matrix(_run_folder(tmp_path, rows, MATRIX))
    assert found.text == "3 of 4 trials: 2 ok, 1 fx_error; 1 scenarios against expectation"
    assert list(found.values["broken"]) == [locked.id]
    assert found.reached is None  # it is not whole


@pytest.mark.parametrize(("label", "reached"), [("ok", True), ("deadlock", False)])
def test_of_a_whole_matrix(tmp_path: Path, label: str, reached: bool) -> None:
    rows = [row(scenario, repeat, label) for scenario in (Scenario(), Scenario(lock="every_step")) for repeat in (0, 1)]
    assert figures.matrix(_run_folder(tmp_path, rows, MATRIX)).reached is reached


@pytest.mark.parametrize(("share", "reached"), [(0.97, True), (0.9, False), (None, False)])
def test_of_busy_drafters(tmp_path: Path, share: float | None, reached: bool) -> None:
    waited = {"queue.get": 1.5}
    workers = {
        "drafter-0": {"role": "drafter", "busy": 0.99, "waited_s": {}},
        "drafter-1": {"role": "drafter", "busy": share, "waited_s": waited},
        "target-0": {"role": "target", "busy": 0.1},
    }
    found = figures.busy(_run_folder(tmp_path, [row(Scenario(drafters=2), workers=workers)]))
    assert found.reached is reached
    assert found.values["cpu off"]["waited_s"]["drafter-1"] == waited
    assert found.text == f"cpu off {99.0 if share is None else 100 * share:.1f}% (ok)"


def test_of_drafters_that_wait_for_nobody_and_whose_gpus_are_idle(tmp_path: Path) -> None:
    one = {"role": "drafter", "busy": 0.998, "warm_s": 10.0, "cpu_s": 4.5, "waited_s": {"queue.get": 0.02}}
    workers = {"drafter-0": one, "drafter-1": {**one, "cpu_s": 5.0}}
    shares = {"cuda:0": 0.53, "cuda:1": 0.56}
    load = {device: {"busy_mean": 0.3, "busy_warm": busy, "samples_warm": 30} for device, busy in shares.items()}
    ran = Scenario(drafters=2, devices="cuda:0+cuda:1", lock="warmup_barrier")
    found = figures.busy(_run_folder(tmp_path, [row(ran, workers=workers, gpu_load=load)]))
    assert found.text.startswith("cuda:0+cuda:1 off 99.8% (ok, cuda:0 53%, cuda:1 56%); cuda:0+cuda:1 off: drafter-0 and ")
    assert "their GPUs are busy 53 – 56 % of the time once all are warm: their threads ran 45 – 50 % of it" in found.text
    assert found.values["cuda:0+cuda:1 off"]["ran"] == {"drafter-0": 0.45, "drafter-1": 0.5}


def test_of_start_up(tmp_path: Path) -> None:
    rows = [
        row(Scenario(), tokens_per_s=1000.0, startup_s=2.0),
        row(Scenario(lock="compile_gate"), tokens_per_s=990.0, startup_s=3.0),
        row(Scenario(lock="first_step"), 0, "deadlock", tokens_per_s=None, startup_s=None),
        row(Scenario(cache="warm"), tokens_per_s=1000.0, startup_s=1.0),
    ]
    text = figures.startup(_run_folder(tmp_path, rows)).text
    assert text.endswith(
        "cpu cold: none 2.0 (× 1.00), compile_gate 3.0 (× 0.99), first_step deadlock; cpu warm: none 1.0 (× 1.00)"
    )


@pytest.mark.parametrize(
    ("label", "peak", "reached"), [("out_of_memory", 140, True), ("out_of_memory", None, False), ("ok", 140, False)]
)
def test_of_memory(tmp_path: Path, label: str, peak: int | None, reached: bool) -> None:
    def peaks(gigabytes: int | None) -> dict[str, Any]:
        return {} if gigabytes is None else {"cuda:0": {"peak_allocated": gigabytes * 10**9, "total": 150 * 10**9}}

    fits = row(Scenario(compile="layer"), memory=peaks(75))
    too_much = row(Scenario(compile="none"), 0, label, memory=peaks(peak))
    found = figures.memory(_run_folder(tmp_path, [fits, too_much]))
    assert found.reached is reached
    assert found.text.startswith("compile=layer ok, peak 75.0 GB of cuda:0; compile=none " + label)


def test_of_a_run_that_must_not_start(tmp_path: Path) -> None:
    reason = "devices=cuda:0+cuda:1 needs 2 CUDA device(s); 1 here"
    skipped = [row(None, number, "skipped", reason=reason) for number in (0, 1)]
    (tmp_path / "all").mkdir()
    found = figures.refused(_run_folder(tmp_path / "all", skipped))
    assert (found.text, found.reached) == (f"0 trials started; skipped: 2 × {reason}", True)
    (tmp_path / "one").mkdir()
    assert figures.refused(_run_folder(tmp_path / "one", [skipped[0], row(None, 1)])).reached is False


@pytest.mark.parametrize(
    ("after_s", "seconds", "reached"), [(7.9, 2.0, True), (8.1, 2.0, False), (None, 2.0, False), (4.0, None, False)]
)
def test_of_hangs(tmp_path: Path, after_s: float | None, seconds: float | None, reached: bool) -> None:
    one = {"watch": {"after_s": after_s}, "dump": {"seconds": seconds}}
    found = figures.hangs(_json(tmp_path, {"device": "a GPU", "timeout_s": 3.0, "hangs": {"one": one}}))
    assert found.reached is reached
    assert ("never" in found.text) == (after_s is None or seconds is None)


@pytest.mark.parametrize(("best", "reached"), [(139.0, True), (141.0, False)])
def test_of_a_drafter_s_step(tmp_path: Path, best: float, reached: bool) -> None:
    found = {
        "matrix_tflops": 770.0,
        "variants": {"fused": {"step_ms": 150.0, "of_matrix_rate": 0.59}, "graph": {"step_ms": best, "of_matrix_rate": 0.63}},
        "dense_over_fused": {"time": 4.3, "memory": 2.0},
        "relative_errors": {"fused": {"loss": 0.0, "gradients": 0.011}},
    }
    figure = figures.drafter_step(_json(tmp_path, found))
    assert figure.reached is reached
    for part in ("fused 150.0 ms (59%)", "time × 4.3, memory × 2.0", "gradients off by fused 1.1%"):
        assert part in figure.text


@pytest.mark.parametrize(
    ("share", "on", "reached"), [(0.002, [1.0, 1.01], True), (0.02, [1.0, 1.01], False), (0.002, [1.2, 1.3], False)]
)
def test_of_probes(tmp_path: Path, share: float, on: list[float], reached: bool) -> None:
    found = {"share": share, "step_ms": 8.0, "on_off": on, "off_off": [0.97, 1.04]}
    assert figures.probes(_json(tmp_path, found)).reached is reached


@pytest.mark.parametrize(("gate", "reached"), [([0.985, 1.0, 0.999], True), ([0.97, 0.98, 1.0], False)])
def test_of_what_a_lock_costs_once_warm(tmp_path: Path, gate: list[float], reached: bool) -> None:
    """The strategies that leave a hole do not count, however fast."""
    found = {"rounds": 3, "block": 16, "ratios": {"first_step": [1.0, 1.0, 1.0], "compile_gate": gate}}
    figure = figures.steady(_json(tmp_path, found))
    assert figure.reached is reached
    assert figure.text == f"once warm, to no lock (3 rounds of 16 steps): first_step × 1, compile_gate × {sorted(gate)[1]:.3g}"


def test_of_a_bisection(tmp_path: Path) -> None:
    _run_folder(tmp_path, [row()])
    _json(tmp_path, {}, "run/bisect.json")
    assert figures.bisection(tmp_path).text == "no answer yet, 1 trials"
    entry: dict[str, Any] = {"certified": 0, "startup_s": None, "tokens_per_s": None, "plans": {}}
    ladder = [
        {"lock": "none", "verdict": "unsafe", "trials": 3, "failures": 2, **entry},
        {"lock": "per_call", "verdict": "unsafe", "trials": 0, "failures": 0, **entry, "plans": {"hole": "reproduced"}},
        {"lock": "every_step", "verdict": "undecided", "trials": 0, "failures": 0, **entry},
        {"lock": "compile_gate", "verdict": "safe", "trials": 29, "failures": 0, **entry},
    ]
    answer = {
        "answer": "compile_gate", "verdict": "safe", "conclusion": "compile_gate is safe", "stopped": "", "trials_total": 32,
        "p_min": 0.1, "cost": {}, "open": [], "ladder": ladder,
    }  # fmt: skip
    found = figures.bisection(_json(tmp_path, {"answer": answer}, "run/bisect.json"))
    told = "none unsafe 2/3; per_call unsafe hole reproduced; compile_gate safe 0/29"
    assert found.text == f"compile_gate is safe; 32 trials, p_min 0.1: {told}"
    assert found.reached is True


@pytest.mark.parametrize(
    ("cured", "text", "reached"),
    [
        ([], "dflash 1/2 failed", None),
        (["ok"], "Cured 0/1 failed, dflash 1/2 failed", True),
        (["ok", "hang"], "Cured 1/2 failed, dflash 1/2 failed", False),
    ],
)
def test_of_a_remedy_that_is_put_to_the_test(cured: list[str], text: str, reached: bool | None, tmp_path: Path) -> None:
    died = [row(Scenario(), 0, "crash"), row(Scenario(), 1, "skipped"), row(Scenario(), 2)]
    with_remedy = Scenario(workload="tests.soak.importer_ends:Cured")
    found = figures.deaths(_run_folder(tmp_path, [*died, *(row(with_remedy, n, label) for n, label in enumerate(cured))]))
    assert (found.text, found.reached) == (text, reached)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_without_what_a_command_leaves_there_is_no_figure(check: Check, tmp_path: Path) -> None:
    with pytest.raises((OSError, ValueError, LookupError)):
        check.figure(tmp_path)


def test_names_are_folders_and_each_is_there_once() -> None:
    assert len(BY_NAME) == len(CHECKS)
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in BY_NAME)


def test_every_hazard_that_needs_one_device_is_reproduced_and_the_engine_s_deadlocks_on_cuda() -> None:
    for hazard in HAZARDS:
        if NEEDS[hazard.needs] == 1:
            assert f"reproduce-{hazard.id}" in BY_NAME
            assert (f"reproduce-{hazard.id}-in-pipeline" in BY_NAME) == (hazard.pipeline is not None)
    for name, check in BY_NAME.items():
        if name.startswith("reproduce-"):
            words = check.command(Place(Path("x"), 5))
            case = find(words[words.index("reproduce") + 1]).case(words[words.index("--in") + 1])
            assert case is not None
            moved = words[words.index("--device") + 1] if "--device" in words else case.scenario.devices
            assert moved == "cuda:0"


MATRICES = {"memory": "h200-memory", "matrix-h200": "h200", "matrix-h200x2": "h200x2", "start-up": "h200-startup"}


@pytest.mark.parametrize("name", [*MATRICES, "drafters-busy"])
def test_a_matrix_asks_for_as_many_devices_as_its_check_says(name: str, tmp_path: Path) -> None:
    words = BY_NAME[name].command(Place(tmp_path, 1))
    scenarios = load_matrix(ROOT / words[words.index("run") + 1]).scenarios
    seen = [len(set(re.findall(r"cuda:\d+", scenario.devices))) for scenario in scenarios]
    assert min(seen) == BY_NAME[name].devices, "the others are skipped where there are fewer"


def test_a_run_that_was_begun_is_gone_on_with(tmp_path: Path) -> None:
    command = BY_NAME["bisect-two-gpus"].command
    first = command(Place(tmp_path, 3))
    (tmp_path / figures.RUN).mkdir()
    assert command(Place(tmp_path, 3)) == first, "killed before it had begun"
    assert not (tmp_path / figures.RUN).exists()
    (tmp_path / figures.RUN).mkdir()
    (tmp_path / figures.RUN / "environment.json").write_text("{}")
    words = command(Place(tmp_path, 3))
    assert "--resume" in words
    assert "--p-min" not in words
    assert words[words.index("--jobs") + 1] == "3"


WITHOUT_A_GPU = ("two-gpus-asked-one-there", "reproduce-compile-lock-engine-deadlock-in-pipeline", "memory")


@pytest.mark.parametrize("name", WITHOUT_A_GPU)
def test_a_command_is_accepted_and_finds_no_device(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(ROOT)
    _, module, program, *words = BY_NAME[name].command(Place(tmp_path, 1))
    assert (module, program) == ("-m", "harness")
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    said = capsys.readouterr()
    assert ended.value.code == 3, said.err
    assert "CUDA" in said.out


def test_a_bisection_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to its first trial: without a device each would fail."""
    asked: list[Any] = []

    def begin(opened: Any, *rest: Any) -> None:
        asked.append(opened.question)
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.control.bisect.run_bisection", begin)
    for name, devices in (("bisect-two-gpus", "cuda:0+cuda:1"), ("bisect-one-gpu", "cuda:0")):
        folder = tmp_path / name
        folder.mkdir()
        for _ in range(2):  # begun, and gone on with
            with pytest.raises(SystemExit):
                cli.main(BY_NAME[name].command(Place(folder, 1))[3:])
            question = asked.pop()
            assert (question.contexts[0].devices, question.p_min) == (devices, 0.1)
