"""Plans, replays and their commands with real trials: a process each, through the executor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.control.batches import alone
from harness.control.bindings import bindings
from harness.control.executors import LocalExecutor
from harness.control.minimise import minimise, read_pair
from harness.control.replay import read_trial, replay
from harness.control.reproduce import WATCHED, Reproduction, reproduce, reproducing
from harness.control.request import Row, TrialRequest
from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.errors import UserError
from harness.core.events import read_events
from harness.core.plan import Counterfactual, Gate, Plan, Step
from harness.core.scenario import Scenario
from harness.core.versions import parse_version
from harness.subject.stopping import REASON

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TWO = {"A": "worker", "B": "worker"}
LOST = Plan(
    TWO,
    steps=[Step("A", "mark.read"), Step("B", "mark.read"), Step("A", "mark.write")],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "mark.read", until="A is through")],
        steps=[Step("A", "mark.read"), Step("A", "region.step.exit", name="A is through"), Step("B", "mark.read")],
    ),
)
COLLIDE = Plan(
    TWO,
    gates=[Gate("!A", "compiled_call.enter", until="A traces")],
    steps=[
        Step("A", "fx.window.open", name="A traces"),
        Step("B", "compiled_call.checked"),
        Step("A", "fx.window.closing"),
    ],
    counterfactual=Counterfactual(
        gates=[Gate("!A", "compiled_call.enter", until="A is through")],
        steps=[Step("A", "fx.window.open"), Step("A", "region.backward.exit", nth=2, name="A is through")],
    ),
)
OCCURS = parse_version("2.12")  # from here on torch hides a compile's own trace from other threads


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(HERE)
    found = LocalExecutor()
    try:
        found.wait_ready()
        yield found
    finally:
        found.close()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def case(workload: str, plan: Plan, effect: Effect, **axes: Any) -> Case:
    return Case(workload, "", Scenario(workload=f"schedule_programs:{workload}", **axes), plan, effect)


LOST_CASE = case("LostUpdate", LOST, Effect(fact="effect"))


def test_a_plan_is_reproduced_each_time_and_its_counterfactual_never(executor: LocalExecutor, tmp_path: Path) -> None:
    notes: list[str] = []
    found = reproduce(LOST_CASE, executor, tmp_path, times=3, note=notes.append)
    assert (found.reproduced, found.counterfactual_reproduced, found.counterfactual_ordered) == (3, 0, 3)
    assert found.exit_code == 0
    document = found.to_json()
    assert document["counterfactual"] == {"times": 3, "reproduced": 0, "ordered": 3}
    assert [line["point"] for line in document["witness"]] == ["mark.read", "mark.read", "mark.write"]
    assert notes == ["1/3: reproduced", "2/3: reproduced", "3/3: reproduced", "counterfactual: 0/3"]
    assert max(found.seconds) < 3 or os.getloadavg()[0] > 4


def test_under_a_lock_it_is_excluded_by_name_after_all_bindings_were_tried(executor: LocalExecutor, tmp_path: Path) -> None:
    locked = case("LostUpdate", LOST, Effect(fact="effect"), lock="every_step")
    found = reproduce(locked, executor, tmp_path, times=1, note=lambda _: None)
    document = found.to_json()
    assert document["excluded"] == 1
    assert document["infeasible"] == 1
    assert document["lock"] == "the strategy lock (every_step)"
    assert document["bindings_tried"] == 3  # free, and the two ways to cast two workers
    assert document["counterfactual"]["times"] == 0
    assert found.exit_code == 1


class Enough:
    """Watches trials, as a bisection does."""

    enough = False

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def tell(self, row: Row, folder: Path) -> None:
        self.rows.append(row)


def watched(executor: LocalExecutor, folder: Path, workload: str) -> tuple[Reproduction, list[Row]]:
    """As a bisection carries a plan out: one that a lock excludes."""
    locked = case(workload, LOST, Effect(fact="never"), lock="every_step")
    watcher = Enough()
    found = alone(executor, reproducing(locked, folder, times=1, note=lambda _: None, watcher=watcher))
    assert found.ending.name == "excluded"
    return found, watcher.rows


def test_of_a_watched_trial_nothing_is_awaited_once_its_order_cannot_come_about(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    """Its workers never end, and their accounts grow while the result is written."""
    found, rows = watched(executor, tmp_path, "LostForEver")
    assert [(row["outcomes"], row["reason"]) for row in rows] == [(["ok"], REASON)] * 3
    assert {row["exit"]["how"] for row in rows} == {"exited"}
    kinds = [event["k"] for event in read_events(Path(found.trial) / "events.jsonl")]
    assert "subject.end" in kinds  # what its workers had told until then is there, sorted


def test_a_failure_on_its_way_is_awaited_and_named(executor: LocalExecutor, tmp_path: Path) -> None:
    _, rows = watched(executor, tmp_path, "LostAndFails")
    assert [row["outcomes"] for row in rows] == [["error"]] * 3
    assert {row["errors"][0]["message"] for row in rows} == {"of the race"}
    assert {row["reason"] for row in rows} == {""}, "that it was stopped is no reason of a failure"


def test_a_deadlock_that_only_the_stacks_show_is_left_to_the_watchdog(executor: LocalExecutor, tmp_path: Path) -> None:
    """Without a plan, for the sake of a short hang timeout; `stop_decided` asks for no more than it does in a bisection."""
    plan = LOST.to_json()
    scenario = Scenario(workload="schedule_programs:LostAndStuck", lock="every_step", schedule="directed")
    extra = {"plan": plan, **WATCHED}
    request = TrialRequest("stuck", scenario, 0, tmp_path / "stuck", hang_timeout_s=3, extra=extra)
    request.folder.mkdir()
    rows: list[Row] = []
    executor.run([request], lambda _: None, rows.append)
    assert rows[0]["schedule"]["order"] == "excluded"
    assert rows[0]["outcomes"] == ["deadlock"], rows[0]["reason"]


def test_a_replay_of_a_trial_that_was_stopped_goes_to_its_end(executor: LocalExecutor, tmp_path: Path) -> None:
    found, _ = watched(executor, tmp_path, "LostUpdate")
    spec = json.loads((Path(found.trial) / "spec.json").read_text())
    assert spec["extra"]["stop_decided"] is True
    again = replay(read_trial(Path(found.trial)), executor, tmp_path / "again")
    assert (again.row["steps_ok"], again.row["reason"]) == (2, "")


def test_a_watched_trial_whose_order_came_about_goes_on_to_its_end(executor: LocalExecutor, tmp_path: Path) -> None:
    watcher = Enough()
    found = alone(executor, reproducing(LOST_CASE, tmp_path, times=1, note=lambda _: None, watcher=watcher))
    assert found.ending.name == "reproduced"  # by its check, which comes after the last worker
    assert watcher.rows[0]["reason"] == "an update was lost"


def test_a_deadlock_is_had_in_seconds_and_named_by_its_locks(executor: LocalExecutor, tmp_path: Path) -> None:
    plan = Plan(
        TWO,
        steps=[Step("A", "mark.first"), Step("B", "mark.second"), Step("A", "mark.second")],
        counterfactual=Counterfactual(
            gates=[Gate("!A", "mark.first", until="A has both")],
            steps=[Step("A", "mark.first"), Step("A", "mark.both", name="A has both"), Step("B", "mark.both")],
        ),
    )
    deadlock = case("Inversion", plan, Effect(labels=("deadlock",)))
    found = reproduce(deadlock, executor, tmp_path, times=1, note=lambda _: None)
    assert (found.reproduced, found.counterfactual_reproduced, found.counterfactual_ordered) == (1, 0, 1)
    assert "lock a" in found.row["reason"]
    assert "lock b" in found.row["reason"]
    assert found.seconds[0] < 5 or os.getloadavg()[0] > 4


def test_the_fx_flag_collision_is_had_where_torch_has_it(executor: LocalExecutor, tmp_path: Path) -> None:
    found = reproduce(
        case("Collide", COLLIDE, Effect(labels=("fx_error",))), executor, tmp_path, times=2, note=lambda _: None
    )
    if parse_version(executor.torch) < OCCURS:
        assert (found.reproduced, found.counterfactual_reproduced) == (2, 0)
        assert found.row["errors"][0]["tracers"][0]["worker"] == found.ending.schedule["bindings"]["A"]
    else:
        assert found.endings["harmless"] == 2


def test_a_trace_by_user_code_is_seen_by_all_threads_up_to_2_13(executor: LocalExecutor, tmp_path: Path) -> None:
    plan = Plan(
        {"A": "tracer", "B": "caller"},
        gates=[Gate("!A", "compiled_call.enter", until="A traces")],
        steps=[
            Step("A", "fx.window.open", name="A traces"),
            Step("B", "compiled_call.checked"),
            Step("A", "fx.window.closing"),
        ],
        counterfactual=Counterfactual(
            gates=[Gate("!A", "compiled_call.enter", until="A has traced")],
            steps=[Step("A", "fx.window.open"), Step("A", "fx.window.closed", info="outermost", name="A has traced")],
        ),
    )
    found = reproduce(case("UserTrace", plan, Effect(labels=("fx_error",))), executor, tmp_path, times=2, note=lambda _: None)
    if parse_version(executor.torch) < parse_version("2.14"):
        assert (found.reproduced, found.counterfactual_reproduced) == (2, 0)
    else:
        assert found.endings["harmless"] == 2


@pytest.mark.parametrize("schedule", ["pct:3:2:80", "delays:5:switch", "delays:2:windows"])
def test_a_recorded_trial_comes_back_in_the_same_order(executor: LocalExecutor, tmp_path: Path, schedule: str) -> None:
    folder = record(executor, tmp_path, "Collide", schedule)
    old = read_trial(folder)
    assert len(old.recording.events) > 40
    again = replay(old, executor, tmp_path / "again")
    assert again.same_order, again.difference
    assert again.same_outcome
    assert again.exit_code == 0


def test_a_directed_trial_is_replayed_by_its_plan_and_bindings(executor: LocalExecutor, tmp_path: Path) -> None:
    found = reproduce(LOST_CASE, executor, tmp_path / "run", times=1, note=lambda _: None)
    old = read_trial(Path(found.trial))
    again = replay(old, executor, tmp_path / "again")
    assert again.same_order, again.difference
    assert [event.seat for event in old.recording.events] == [
        found.ending.schedule["bindings"][role] for role in ("A", "B", "A")
    ]


def test_a_failing_trial_is_reduced_to_its_critical_pair(executor: LocalExecutor, tmp_path: Path) -> None:
    ended: dict[str, Path] = {}
    for seed in range(30):
        folder = record(executor, tmp_path, "LostUpdate", f"pct:{seed}:2:10", name=f"seed-{seed}")
        ended.setdefault(read_trial(folder).outcomes[0], folder)
        if len(ended) == 2:
            break
    failing, passing = read_pair(ended["error"], None)
    assert passing is not None
    found = minimise(failing, passing, executor, tmp_path / "out", times=2, note=lambda _: None)
    assert found.case is not None
    assert {event.point for event in found.pair.events} <= {"mark.read", "mark.write"}
    assert found.confirmed is not None
    assert found.confirmed.reproduced == 2
    with pytest.raises(UserError, match="needs a trial that failed"):
        read_pair(ended["ok"], None)
    with pytest.raises(UserError, match="needs a trial that passed"):
        read_pair(ended["error"], ended["error"])


def record(executor: LocalExecutor, base: Path, workload: str, schedule: str, name: str = "recorded") -> Path:
    folder = base / name
    folder.mkdir()
    request = TrialRequest(name, Scenario(workload=f"schedule_programs:{workload}", schedule=schedule), 0, folder)
    executor.run([request], lambda _: None, lambda _: None)
    return folder


def test_every_way_to_cast_the_workers_is_tried() -> None:
    workers = {"w0": "worker", "w1": "worker", "t0": "target"}
    plan = Plan({"A": "worker", "B": "any"}, steps=[Step("A", "mark.a"), Step("B", "mark.b")])
    found = {(each["A"], each["B"]) for each in bindings(plan, workers)}
    assert found == {("w0", "w1"), ("w0", "t0"), ("w1", "w0"), ("w1", "t0")}


def harness(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}"}
    return subprocess.run(
        [sys.executable, "-m", "harness.cli", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_commands_from_a_file_to_a_replay(tmp_path: Path) -> None:
    (tmp_path / "lost.json").write_text(json.dumps(LOST_CASE.to_json()))
    done = harness("reproduce", "lost.json", "-n", "2", "--json", "--quiet", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["reproduced"], document["counterfactual"]["reproduced"]) == (2, 0)
    replayed = harness("replay", document["trial"], "--out", "again", cwd=tmp_path)
    assert replayed.returncode == 0, replayed.stderr
    assert replayed.stdout.startswith("order: same")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reproduce", "none.json"), "none.json: cannot be read"),
        (("reproduce", "bad.json"), 'did you mean "fx.window.open"'),
        (("replay", "nowhere"), "not the folder of a trial"),
        (("replay", "cut"), "cut off"),
        (("replay", "other"), "other versions"),
        (("minimise", "nowhere"), "not the folder of a trial"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    plan = {"roles": {"A": "worker"}, "steps": [{"role": "A", "point": "fx.windw.open"}]}
    (tmp_path / "bad.json").write_text(json.dumps({**LOST_CASE.to_json(), "plan": plan}))
    for name, lines in (
        ("cut", ['{"schema":1}', '["a","mark.x",""]']),
        ("other", ['{"schema":1,"torch":"1.0","harness":"0.0"}', '{"end":0}']),
    ):
        folder = tmp_path / name
        folder.mkdir()
        spec = {"scenario": Scenario(schedule="pct:1:2").to_dict(), "pipeline": {}, "extra": {}}
        (folder / "spec.json").write_text(json.dumps(spec))
        (folder / "result.json").write_text('{"outcomes": ["ok"]}')
        (folder / "recording.jsonl").write_text("".join(line + "\n" for line in lines))
    done = harness(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
