"""The checks, first those that are worth most. Goals are those of the project; costs were seen or guessed on NVIDIA H200s."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable

from harness.control.results import ENVIRONMENT
from harness.core import lockspec
from harness.hazards import HAZARDS, find
from harness.hazards.base import NEEDS

from . import figures
from .check import Check, Place
from .figures import JSON, JUNIT, RUN
from .session import ROOT

TIMES = 20
ENGINE_DEADLOCKS = ("compile-lock-engine-deadlock", "user-lock-engine-deadlock")
"""Their cases run on a device in host memory; here on CUDA."""

OF_THE_CPU = ("fx-flag-collision", "first-step-hole", "fx-flag-collision-backward")
"""What can happen without CUDA, and does in the pipeline there too."""

P_MIN = "0.1"
_ONE_COMPILER = {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
"""Where trials run side by side, each with a pool of compile processes would be too many; and where few kernels are compiled,
to start that pool takes longer than they do. Not at real size: with one compiler those of the mask alone took a minute."""

LOCKS = ",".join(name for name in lockspec.NAMES if name != "process")
"""All but `process`, which is no lock: where it is the answer, being faster once warm, what a loop can hold is left open."""


def _python(*words: str) -> list[str]:
    return [sys.executable, "-m", *words]


def _pytest(*words: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        return _python("pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={place.folder / JUNIT}", *words)

    return command


def _benchmark(module: str, *words: str) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        return _python(module, *words, "--json", str(place.folder / JSON))

    return command


def _steady(name: str, where: str, devices: str, count: int) -> Check:
    words = ["--devices", devices, "--block", "8", "--minutes", "3", "--locks", *figures.COVERING, "every_step"]
    return Check(
        name, f"tokens/s of four drafters on {where} once all is warm, by strategy, to that of no lock",
        _benchmark("tests.benchmarks.steady_cost", *words), figures.steady,
        cost_s=220, devices=count, goal="≥ 0.99 of no lock, under a strategy that covers all first steps",
        variables=_ONE_COMPILER,
    )  # fmt: skip


def _in_run_folder(begin: list[str], resume: list[str]) -> Callable[[Place], list[str]]:
    """A harness command with a run folder: begun, or gone on with where an earlier part left one."""

    def command(place: Place) -> list[str]:
        run = place.folder / RUN
        begun = (run / ENVIRONMENT).exists()
        if run.exists() and not begun:
            shutil.rmtree(run)  # it was killed before it had begun
        words = [*resume, "--resume"] if begun else begin
        return _python("harness", *words, "--out", str(run), "--jobs", str(place.jobs), "-q")

    return command


def _run(matrix: str) -> Callable[[Place], list[str]]:
    return _in_run_folder(["run", f"scenarios/{matrix}.toml"], ["run"])


def _bisect(scenario: str) -> Callable[[Place], list[str]]:
    begin = ["bisect", "locks", scenario, "--locks", LOCKS, "--p-min", P_MIN, "--timeout", "180"]
    return _in_run_folder(begin, ["bisect", "locks"])


def _reproduce(hazard: str, where: str, device: str = "") -> Check:
    def command(place: Place) -> list[str]:
        moved = ["--device", device] if device else []
        limits = ["-n", str(TIMES), "-j", str(place.jobs), "--timeout", "120", "-q"]
        return _python("harness", "reproduce", hazard, "--in", where, *moved, *limits, "--out", str(place.folder / RUN))

    in_pipeline = where == "pipeline"
    return Check(
        name=f"reproduce-{hazard}" + ("-in-pipeline" if in_pipeline else ""),
        measures=f"{find(hazard).title}: {TIMES} times by plan" + (" in the pipeline" if in_pipeline else ""),
        command=command,
        figure=figures.reproduction,
        cost_s=220 if in_pipeline else 90,
        goal=f"{TIMES}/{TIMES}, counterfactual 0/{TIMES}",
        jobs=5,
        codes=(0, 1),
        variables=_ONE_COMPILER,
    )


def _of_a_device() -> list[Check]:
    """Every hazard that needs one CUDA device, and the deadlocks of the engine."""
    found = [_reproduce(name, where, "cuda:0") for where in ("pipeline", "program") for name in ENGINE_DEADLOCKS]
    needing = [hazard for hazard in HAZARDS if NEEDS[hazard.needs] == 1]
    found += [_reproduce(hazard.id, "program") for hazard in needing]
    return found + [_reproduce(hazard.id, "pipeline") for hazard in needing if hazard.pipeline is not None]


def _marked(place: Place) -> list[str]:
    """Only the files that have such tests: to collect all the others costs more than these tests."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    named = [str(path.relative_to(ROOT)) for path in files if "pytest.mark.cuda" in path.read_text("utf-8")]
    return _pytest("-m", "cuda", *named)(place)


_CORRECT = (
    Check(
        "tests-cuda", "the tests that are marked cuda", _marked, figures.tests,
        cost_s=25, goal="all pass", jobs=2,
    ),
    Check(
        "tests-start-server", "trials by fork: the server's preload never initialises CUDA",
        _pytest("tests/integration/test_start_server.py"), figures.tests,
        cost_s=30, goal="all pass", jobs=2,
    ),
    Check(
        "tests-hangs", "the engine's deadlocks in a trial, under a watch and in a dump, on CUDA",
        _pytest(
            "tests/integration/test_hangs.py", "tests/integration/test_watch_hangs.py",
            "-k", "compile_lock_engine or recompute_lock",
        ), figures.tests,
        cost_s=70, goal="all pass", jobs=7,
    ),
    Check(
        "two-gpus-asked-one-there", "a matrix for two GPUs where one can be seen: nothing starts",
        _in_run_folder(["run", "scenarios/h200x2.toml", "--repeats", "1"], ["run"]), figures.refused,
        cost_s=5, goal="exit 3, with the reason", jobs=1, codes=(3,), variables={"CUDA_VISIBLE_DEVICES": "0"},
    ),
    Check(
        "hangs-named", "a compile-lock deadlock and a recompute's lock, under harness watch and harness dump: time until named",
        _benchmark("tests.soak.gpu_hangs"), figures.hangs,
        cost_s=45, goal="within the hang timeout + 5 s, and by the dump", jobs=2, codes=(0, 1),
    ),
)  # fmt: skip

_MEASURED = (
    Check(
        "memory", "peak of a real-size step, and the same with dense attention, which asks for too much",
        _run("h200-memory"), figures.memory,
        cost_s=180, goal="ok, and out_of_memory with its peak", codes=(0, 1),
    ),
    Check(
        "drafter-step", "a drafter's step at the size of Qwen3-8B's: time, rate, memory, errors against float32",
        _benchmark("tests.benchmarks.drafter_step", "--steps", "6"), figures.drafter_step,
        cost_s=180, goal="≤ 140 ms",
    ),
    Check(
        "drafters-busy", "share of its time, once warm, in which each real-size drafter does not wait",
        _run("h200-real"), figures.busy,
        cost_s=450, goal="≥ 95 % each", slice_s=110, codes=(0, 1),
    ),
    Check(
        "probe-cost", "probes by count × cost, and on / off against off / off",
        _benchmark("tests.benchmarks.probe_cost", "--devices", "cuda:0", "--pairs", "4"), figures.probes,
        cost_s=160, goal="≤ 1 %, and inside",
    ),
    _steady("steady-cost-two-gpus", "two GPUs", "cuda:0+cuda:1", 2),
    _steady("steady-cost", "one GPU", "cuda:0", 1),
    Check(
        "start-up", "time until all drafters are warm, and tokens/s, by strategy, with cold and with warm caches",
        _run("h200-startup"), figures.startup,
        cost_s=320, slice_s=40, codes=(0, 1),
    ),
)  # fmt: skip

_LONG = (
    Check(
        "importer-ends", "drafters under every_step with CUDA-graph trees: as torch has them, and with its references taken",
        _in_run_folder(["run", "tests/soak/importer_ends.matrix"], ["run"]), figures.deaths,
        cost_s=120, goal="some die, and none of the others", jobs=14, slice_s=60, codes=(0, 1), variables=_ONE_COMPILER,
    ),
    Check(
        "matrix-h200", "every row of scenarios/h200.toml", _run("h200"), figures.matrix,
        cost_s=400, goal="every expectation holds", jobs=14, slice_s=60, codes=(0, 1), variables=_ONE_COMPILER,
    ),
    Check(
        "matrix-h200x2", "every row of scenarios/h200x2.toml", _run("h200x2"), figures.matrix,
        cost_s=400, devices=2, goal="every expectation holds", jobs=24, slice_s=60, codes=(0, 1), variables=_ONE_COMPILER,
    ),
    Check(
        "bisect-two-gpus", f"the cheapest safe lock of four drafters on two GPUs, p_min {P_MIN}",
        _bisect("drafters=4,targets=2,devices=cuda:0+cuda:1,checkpoint=non_reentrant"), figures.bisection,
        cost_s=700, devices=2, goal="a strategy is safe", jobs=24, slice_s=90, codes=(0, 1), variables=_ONE_COMPILER,
    ),
    Check(
        "bisect-one-gpu", f"the cheapest safe lock of three drafters on one GPU, p_min {P_MIN}",
        _bisect("drafters=3,devices=cuda:0,shapes=per_drafter,checkpoint=non_reentrant"), figures.bisection,
        cost_s=400, goal="a strategy is safe", jobs=14, slice_s=90, codes=(0, 1), variables=_ONE_COMPILER,
    ),
)  # fmt: skip

CHECKS: tuple[Check, ...] = (
    *_CORRECT,
    *_of_a_device(),
    *_MEASURED,
    *_LONG,
    *(_reproduce(name, "pipeline", "cuda:0") for name in OF_THE_CPU),
)
