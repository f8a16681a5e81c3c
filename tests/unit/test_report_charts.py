"""Charts as numbers: to scale, with intervals where there are enough trials, and with the same as a table."""

from __future__ import annotations

import math
from typing import Any

import pytest
from fake_events import collision, region
from fake_runs import row
from hypothesis import given
from hypothesis import strategies as st
from test_report_spans import ROLES

from harness.core.scenario import Scenario
from harness.report.charts import MOST_IDLE, MOST_ROWS, Charts, charts_of, step_times
from harness.report.gather import Measures
from harness.report.plot import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, plot
from harness.report.sound import Sounder
from harness.report.spans import tell
from harness.report.speed import speed_groups
from harness.report.tallies import Tallies


def places(points: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in points.split())]


def test_a_line_is_to_scale() -> None:
    found = plot("t", [("a", [(0, 0), (5, 10), (10, 20)])], "x", "y")
    assert places(found.lines[0].points) == [
        (LEFT, HEIGHT - BOTTOM),
        ((LEFT + WIDTH - RIGHT) / 2, (HEIGHT - BOTTOM + TOP) / 2),
        (WIDTH - RIGHT, TOP),
    ]
    assert [tick.text for tick in found.y_ticks] == ["0", "5", "10", "15", "20"]
    assert (found.columns, found.lines[0].cells) == (("0", "5", "10"), ("0", "10", "20"))


def test_a_logarithmic_line_rises_evenly_by_tens() -> None:
    found = plot("t", [("a", [(0, 0.1), (1, 1), (2, 10)])], "x", "y", log=True)
    first, middle, last = (y for _, y in places(found.lines[0].points))
    assert middle - last == pytest.approx(first - middle, abs=0.11)
    assert [tick.text for tick in found.y_ticks] == ["0.1", "1", "10"]


@given(
    st.lists(st.lists(st.floats(0, 1e12), max_size=400), max_size=10),
    st.booleans(),
    st.none() | st.tuples(st.floats(0, 1e12), st.floats(1e-6, 1e12)),
)
def test_whatever_was_measured_stays_inside(
    values: list[list[float]], log: bool, ends: tuple[float, float] | None
) -> None:
    series = [(str(n), [(float(x), y) for x, y in enumerate(line)]) for n, line in enumerate(values)]
    found = plot("t", series, "x", "y", log=log, ends=ends)
    for line in found.lines:
        for x, y in places(line.points):
            assert LEFT - 0.1 <= x <= WIDTH - RIGHT + 0.1
            assert TOP - 0.1 <= y <= HEIGHT - BOTTOM + 0.1
    assert len(found.lines) + found.left_out == sum(bool(line) for line in values)
    assert len(found.columns) <= 12


def speed(values: list[float]) -> Any:
    from harness.analysis.summary import summarise

    rows = [row(Scenario(), repeat, startup_s=value) for repeat, value in enumerate(values)]
    [group] = speed_groups(summarise(rows).scenarios, {Scenario().id: Measures(values, [])}, [], {})
    return group.rows[0].startup


def test_six_trials_bound_a_median_and_five_do_not() -> None:
    assert speed([1.0, 2.0, 3.0, 4.0, 5.0]).low == ""
    assert speed([1.0, 2.0, 3.0, 4.0, 5.0]).spread == "no interval; 1.0 to 5.0 seen"
    six = speed([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert (six.median, six.spread, six.low, six.high) == ("3.5", "1.0 to 6.0", "16.7", "100.0")
    many = speed([10.0 + n for n in range(61)])
    assert (many.median, many.spread) == ("40.0", "32.0 to 48.0"), "order statistics 23 and 39 of 61"


def tallied(rows: list[dict[str, Any]]) -> Tallies:
    found = Tallies()
    for one in rows:
        found.add(Sounder().sound(one))
    return found


def charts(*tallies: tuple[Scenario, Tallies]) -> Charts:
    return charts_of({s.id: t for s, t in tallies}, {s.id: s.to_dict() for s, _ in tallies}, [], {})


def worker(compiles: int, dense: int = 0) -> dict[str, Any]:
    return {"role": "drafter", "compiles": compiles, "dense_calls": dense, "facts": {}}


def test_work_is_by_thread_and_a_mean_of_trials() -> None:
    rows = [
        row(None, 0, workers={"drafter-0": worker(2), "drafter-1": worker(1)}, compiles=4),
        row(None, 1, workers={"drafter-0": worker(1), "drafter-1": worker(0)}, compiles=1),
    ]
    compiles, dense = charts((Scenario(), tallied(rows))).work
    assert compiles.columns == ("drafter-0", "drafter-1", "(no worker)")
    assert [(bar.text, bar.length) for bar in compiles.rows[0][1]] == [
        ("1.50", "100.0"),
        ("0.50", "33.3"),
        ("0.50", "33.3"),
    ]
    assert dense.empty


def test_locks_show_waiting_against_holding() -> None:
    locks = {"strategy": {"waits": 3, "taken": 4, "wait_s": 6.0, "hold_s": 2.0}}
    rows = [row(None, repeat, workers={"drafter-0": worker(1)}, locks=locks) for repeat in range(2)]
    [found] = charts((Scenario(), tallied(rows))).locks
    assert (found.lock, found.trials, found.waits) == ("the strategy's lock", 2, "3.0")
    assert (found.waited.text, found.waited.length, found.held.text, found.held.length) == ("6", "100.0", "2", "33.3")


def warm(role: str, waited: dict[str, float]) -> dict[str, Any]:
    return {**worker(1), "role": role, "warm_s": 10.0, "waited_s": waited, "waited_on_s": {"queue.put": {"drafter-1": 4.0}}}


def test_the_time_of_warm_workers_is_a_share_of_all_trials_and_who_is_idle_is_named_by_scenario() -> None:
    starved, fed = Scenario(), Scenario(shapes="variable")
    few = {"drafter-0": warm("drafter", {"queue.get": 4.0}), "target-0": warm("target", {"queue.put": 9.0})}
    many = {"drafter-0": warm("drafter", {"queue.get": 0.001}), "target-0": warm("target", {})}
    found = charts(
        (starved, tallied([row(starved, 0, workers=few)])), (fed, tallied([row(fed, 0, workers=many)]))
    )
    assert [(one.worker, one.busy.text, one.waited, one.seconds) for one in found.warm] == [
        ("drafter-0", "80", ("20.0", "", "", ""), "20.0"), ("target-0", "55", ("", "45.0", "", ""), "20.0"),
    ]  # fmt: skip
    [(scenario, why)] = found.idle
    assert scenario == starved.id
    assert why.endswith("for room in the queue of drafter-1: a greater queue_depth would let it go on")


def test_gpus_that_are_idle_although_nobody_waits_are_told_of_over_all_trials() -> None:
    scenario = Scenario(drafters=1, devices="cuda:0")
    one = {**warm("drafter", {"queue.get": 0.02}), "warm_s": 10.0}
    rows = []
    for repeat, (busy, samples, cpu_s) in enumerate(((0.5, 30.0, 4.0), (0.7, 30.0, 6.0), (0.99, 3.0, 5.0))):
        load = {"cuda:0": {"busy_mean": 0.3, "busy_warm": busy, "samples_warm": samples}}
        rows.append(row(scenario, repeat, workers={"drafter-0": {**one, "cpu_s": cpu_s}}, gpu_load=load))
    [(_, why)] = charts((scenario, tallied(rows))).idle
    assert why.startswith("drafter-0 waits for nobody, yet its GPU is busy 60 % of the time once all are warm: its thread ran ")
    assert "ran 50 % of it" in why


def test_of_an_older_harness_s_rows_nothing_is_said() -> None:
    old = {**worker(1), "waited_s": {"queue.get": 3.0}, "busy": 0.5}
    found = charts((Scenario(), tallied([row(None, 0, workers={"drafter-0": old})])))
    assert (found.warm, found.idle) == ((), ())


def test_the_load_of_a_device_is_a_mean_of_trials_once_warm_and_whole() -> None:
    loads = [
        {"cuda:0": {"busy_mean": 0.1, "busy_most": 0.9, "busy_warm": 0.8, "most_bytes": 2.0 * 2**30, "samples": 9}},
        {"cuda:0": {"busy_mean": 0.3, "busy_most": 0.9, "busy_warm": 0.6, "most_bytes": 4.0 * 2**30, "samples": 9}},
        {"cuda:0": {"busy_mean": 0.2, "busy_most": 0.2, "most_bytes": 0, "samples": 9}, "cuda:1": {"unavailable": "MIG"}},
        {"unavailable": "nvidia-ml-py is not installed"},
    ]
    rows = [row(None, n, workers={"d": worker(1)}, gpu_load=load) for n, load in enumerate(loads)]
    [found] = charts((Scenario(), tallied(rows))).devices
    assert (found.device, found.warm.text, found.warm.length, found.whole.text) == ("cuda:0", "70", "70.0", "20")
    assert (found.memory, found.trials) == ("4.0", 3)


def test_of_long_tables_it_is_said_how_many_rows_are_not_shown() -> None:
    scenarios = [Scenario(schedule=f"pct:1:{depth}") for depth in range(1, MOST_ROWS + 4)]
    idle = {"drafter-0": warm("drafter", {"queue.get": 4.0})}
    locks = {"strategy": {"waits": 1, "taken": 1, "wait_s": 1.0, "hold_s": 1.0}}
    found = charts(*((one, tallied([row(one, 0, workers=idle, locks=locks)])) for one in scenarios))
    assert found.left_out == {"work": 3, "peaks": 0, "locks": 3, "warm": 3, "idle": 43, "devices": 0}
    assert [len(rows) for rows in (found.work[0].rows, found.locks, found.warm, found.idle)] == [MOST_ROWS] * 3 + [MOST_IDLE]


def test_cold_and_warm_caches_and_schedules_are_not_added_up() -> None:
    cold, warm_cache = Scenario(), Scenario(cache="warm")
    seven, eight = Scenario(schedule="delays:7:dense"), Scenario(schedule="delays:8:dense")
    found = charts(*((one, tallied([row(one, 0, workers={"d": worker(n)})])) for n, one in enumerate((cold, warm_cache), 1)))
    assert [(lock, bars[0].text) for lock, bars in found.work[0].rows] == [("none, cache=cold", "1"), ("none, cache=warm", "2")]
    found = charts(*((one, tallied([row(one, 0, workers={"d": worker(n)})])) for n, one in enumerate((cold, seven, eight), 1)))
    assert [(lock, bars[0].text) for lock, bars in found.work[0].rows] == [
        ("none, schedule=none", "1"), ("none, schedule=delays:*:dense", "2.50"),
    ]  # fmt: skip


def test_memory_is_shown_where_it_was_measured_and_nowhere_else() -> None:
    plain = charts((Scenario(), tallied([row(None, 0, workers={"drafter-0": worker(1)})])))
    assert (plain.peaks, plain.memory) == ((), ())
    peaks = {"cuda:0": {"peak_allocated": 2.0 * 2**30, "peak_reserved": 4.0 * 2**30}}
    [peak] = charts((Scenario(), tallied([row(None, 0, workers={"d": worker(1)}, memory=peaks)]))).peaks
    assert (peak.device, peak.allocated.text, peak.allocated.length, peak.reserved.text) == ("cuda:0", "2", "50.0", "4")


def test_a_story_gives_step_times_memory_and_the_compile_lock() -> None:
    story = tell(collision(), ROLES)
    assert step_times(story) == {"drafter-0": [(0.0, pytest.approx(0.075))]}, "a step that failed has no time"
    good = Sounder().sound(row(None, 0, workers={"drafter-0": worker(1)}))
    found = charts_of(
        {good["scenario_id"]: tallied([good])}, {good["scenario_id"]: good["scenario"]}, [(good, story)], {}
    )
    assert [line.name for line in found.memory[0].lines] == ["cuda:0 allocated", "cuda:0 reserved"]
    assert [line.cells for line in found.memory[0].lines] == [("1",), ("2",)]
    [lock] = [one for one in found.locks if one.lock == "torch's compile lock"]
    assert (lock.waited.text, lock.held.text) == ("0.05", "0.08")
    assert math.isclose(float(lock.held.length), 100.0)


def of_steps(lock: str, *ms: float) -> tuple[dict[str, Any], Any]:
    """A trial whose drafter made steps of these lengths, and its story."""
    events, at = [], 0.0
    for length in ms:
        events += region("drafter-0", "step", at, at + length)
        at += length
    good = Sounder().sound(row(Scenario(lock=lock), 0, workers={"drafter-0": worker(1)}))
    return good, tell(events, ROLES)


def test_step_times_of_all_trials_are_to_one_scale() -> None:
    """A step of 20 ms is as high in each chart, though one of them has nothing below it and nothing above 0.1 s."""
    stories = [of_steps("none", 20, 50), of_steps("every_step", 2, 20, 8_000)]
    few, many = charts_of({}, {}, stories, {}).steps
    assert [tick.text for tick in few.y_ticks] == [tick.text for tick in many.y_ticks] == ["0.001", "0.01", "0.1", "1", "10"]
    assert places(few.lines[0].points)[0][1] == places(many.lines[0].points)[1][1]
