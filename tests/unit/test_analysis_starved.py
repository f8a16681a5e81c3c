"""GPUs that are idle although no drafter waits, and what is known of why."""

from __future__ import annotations

from typing import Any

import pytest
from fake_runs import row

from harness.analysis.starved import LOADED, MIN_SAMPLES, Seen, add_loads, devices_of, ends_of, what_starves
from harness.analysis.warm_time import Spent
from harness.core.scenario import Scenario

TWO: dict[str, Any] = {"lock": "warmup_barrier", "drafters": 2, "devices": "cuda:0+cuda:1"}


def worker(role: str, cpu_s: float | None = None, waited_s: float = 0.02, warm_s: float = 10.0) -> dict[str, Any]:
    told = {} if cpu_s is None else {"cpu_s": cpu_s}
    return {"role": role, "warm_s": warm_s, "waited_s": {"queue.get": waited_s}, "waited_on_s": {}, **told}


def load(share: float, samples: int = 40) -> dict[str, float]:
    return {"busy_mean": 0.3, "busy_most": 1.0, "most_bytes": 1, "samples": 99, "busy_warm": share, "samples_warm": samples}


def drafters(*cpu_s: float | None, **more: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {**{f"drafter-{n}": worker("drafter", cpu) for n, cpu in enumerate(cpu_s)}, **more}


def said(workers: dict[str, Any], gpu_load: dict[str, Any], trials: int = 1, **axes: Any) -> str:
    scenario = Scenario(**axes)
    spent: dict[str, Spent] = {name: Spent() for name in workers}
    seen: dict[str, Seen] = {}
    for repeat in range(trials):
        found = row(scenario, repeat, workers=workers, gpu_load=gpu_load)
        add_loads(seen, found)
        for name, one in workers.items():
            spent[name].add(one)
    return what_starves(spent, seen, scenario.to_dict())


MEASURED = {"cuda:0": load(0.53), "cuda:1": load(0.56)}
TARGET = {"target-0": {**worker("target", 1.0), "waited_s": {"queue.put": 9.0}}}


@pytest.mark.parametrize("trials", [1, 3])
def test_threads_that_did_not_run_all_the_time_and_share_a_lock(trials: int) -> None:
    assert said(drafters(4.5, 5.0, **TARGET), MEASURED, trials, **TWO) == (
        "drafter-0 and drafter-1 wait for nobody, yet their GPUs are busy 53 – 56 % of the time once all are warm: "
        "their threads ran 45 – 50 % of it, so kernels are launched too slowly: else they waited for a core, the driver, "
        "autograd's thread in backward or the interpreter lock, which all threads of the process share; "
        'cudagraphs = "manual", lock = "process" or larger steps may help'
    )


def test_threads_that_ran_all_the_time_are_the_limit_themselves() -> None:
    assert said(drafters(9.7, 9.9, **TARGET), MEASURED, **TWO) == (
        "drafter-0 and drafter-1 wait for nobody, yet their GPUs are busy 53 – 56 % of the time once all are warm: "
        "their threads ran 97 – 99 % of it, so they cannot launch kernels any faster; "
        'cudagraphs = "manual" or larger steps may help'
    )


def test_a_process_of_its_own_shares_no_lock_and_is_no_advice() -> None:
    assert said(drafters(4.5, **TARGET), {"cuda:0": load(0.5)}, lock="process", drafters=1, devices="cuda:0") == (
        "drafter-0 waits for nobody, yet its GPU is busy 50 % of the time once all are warm: its thread ran 45 % of it, so "
        "kernels are launched too slowly: else it waited for a core, the driver or autograd's thread in backward; "
        'cudagraphs = "manual" or larger steps may help'
    )


def test_rows_without_the_threads_time_say_that_it_is_not_known() -> None:
    assert said(drafters(None, 5.0, **TARGET), MEASURED, **TWO) == (
        "drafter-0 and drafter-1 wait for nobody, yet their GPUs are busy 53 – 56 % of the time once all are warm: kernels are "
        "launched too slowly, and how long their threads ran is not known; all threads of the process share one interpreter "
        "lock; "
        'cudagraphs = "manual", lock = "process" or larger steps may help'
    )


@pytest.mark.parametrize(
    ("axes", "helps"),
    [
        ({"cudagraphs": "manual"}, 'lock = "process" or larger steps may help'),
        ({"shapes": "variable"}, 'lock = "process" or larger steps may help'),
        ({"replicas": "synchronised"}, 'cudagraphs = "manual" or larger steps may help'),
        ({"warmup": "main_grad"}, 'cudagraphs = "manual" or larger steps may help'),
        ({"workload": "my.module:Mine"}, "CUDA graphs or larger steps may help"),
        ({"workload": "my.module:Mine", "cudagraphs": "manual"}, "; larger steps may help"),
    ],
)
def test_nothing_is_advised_that_is_done_or_cannot_be(axes: dict[str, str], helps: str) -> None:
    found = said(drafters(4.5, 5.0, **TARGET), MEASURED, **{**TWO, **axes})
    assert found.endswith(helps)
    assert found.count('"') == helps.count('"')


FED = {"cuda:0": load(0.98), "cuda:1": load(LOADED)}


@pytest.mark.parametrize(
    "gpu_load",
    [
        FED, {}, {"unavailable": "nvidia-ml-py is not installed"}, {"cuda:0": {"unavailable": "MIG"}},
        {"cuda:0": {"busy_mean": 0.3}}, {"cuda:0": load(0.5, MIN_SAMPLES - 1)}, {"cuda:0": {**load(0.5), "busy_warm": "x"}},
        {"cuda:0": [1]}, {"cuda:2": load(0.1)},
    ],
)  # fmt: skip
def test_of_loaded_devices_and_of_unknown_ones_nothing_is_said(gpu_load: dict[str, Any]) -> None:
    assert said(drafters(4.5, 5.0), gpu_load, **TWO) == ""


def test_rows_of_a_harness_before_warm_times_say_nothing() -> None:
    old = {"role": "drafter", "waited_s": {"queue.get": 3.0}, "busy": 0.99}
    assert said({"drafter-0": old, "drafter-1": old}, MEASURED, **TWO) == ""


def test_enough_samples_are_enough() -> None:
    assert said(drafters(4.5, 5.0), {"cuda:0": load(0.5, MIN_SAMPLES)}, **TWO).startswith("drafter-0 waits for nobody")


def test_a_device_of_targets_alone_is_no_finding() -> None:
    apart = {"devices": "cuda:0/cuda:1", "drafters": 1}
    assert said(drafters(4.5, **TARGET), {"cuda:0": load(0.1), "cuda:1": load(0.95)}, **apart) == ""
    assert "its GPU is busy 50 %" in said(drafters(4.5, **TARGET), {"cuda:0": load(0.1), "cuda:1": load(0.5)}, **apart)


def test_drafters_who_wait_keep_their_sentence_and_their_device_says_no_more() -> None:
    idle = {"drafter-0": worker("drafter", 4.0, 3.0)}
    alone = said({**idle, **TARGET}, {"cuda:0": load(0.5)}, drafters=1, devices="cuda:0")
    assert alone.startswith("drafter-0 is busy 70 % of the time once all are warm: it waits 30 % of its time for items")
    assert "GPU" not in alone
    beside = {**idle, "drafter-1": worker("drafter", 4.0), **TARGET}
    assert "GPU" not in said(beside, {"cuda:0": load(0.5)}, drafters=2, devices="cuda:0"), "idle for the other's sake, maybe"
    both = said(beside, MEASURED, **TWO)
    assert both.startswith("drafter-0 is busy 70 %")
    assert "; drafter-1 waits for nobody, yet its GPU is busy 56 %" in both


def test_a_device_whose_drafter_ended_early_is_idle_for_want_of_one() -> None:
    """Busy for 4.8 of its 5 s, in a window of 10; and for 4 of them, which is 80 %."""
    workers = {"drafter-0": worker("drafter", 4.0, warm_s=5.0), "drafter-1": worker("drafter", 9.0)}
    assert said(workers, {"cuda:0": load(0.48), "cuda:1": load(0.95)}, **TWO) == ""
    assert "its GPU is busy 40 %" in said(workers, {"cuda:0": load(0.4), "cuda:1": load(0.95)}, **TWO)
    assert said(workers, {"cuda:0": load(0.95)}, drafters=2, devices="cuda:0") == ""
    assert "their GPU is busy 70 %" in said(workers, {"cuda:0": load(0.7)}, drafters=2, devices="cuda:0"), "the other went on"


def test_where_a_drafter_runs() -> None:
    axes = Scenario(devices="cuda:5/cuda:0+cuda:1", drafters=3).to_dict()
    assert [devices_of(f"drafter-{n}", axes) for n in range(3)] == [("cuda:0",), ("cuda:1",), ("cuda:0",)]
    assert devices_of("mine", axes) == ("cuda:0", "cuda:1")
    assert devices_of("drafter-0", {**axes, "workload": "my.module:Mine"}) == ("cuda:0", "cuda:1")


def test_of_another_s_workload_all_devices_that_it_may_run_on_must_be_idle() -> None:
    mine = {"workload": "my.module:Mine", "devices": "cuda:0+cuda:1", "drafters": 1}
    assert said({"a": worker("trainer", 4.5)}, {"cuda:0": load(0.5), "cuda:1": load(0.95)}, **mine) == ""
    found = said({"a": worker("trainer", 4.5)}, MEASURED, **mine)
    assert found.startswith("a waits for nobody, yet its GPUs are busy 53 – 56 % of the time")
    assert "interpreter lock" not in found, "it is alone in its process"
    early = {"a": worker("trainer", 4.5), "b": worker("trainer", 2.0, warm_s=5.0)}
    assert said(early, MEASURED, **mine) == "", "one of them may be b's"


def test_drafters_of_processes_of_their_own_end_by_their_own_warm_time() -> None:
    """One was warm at 20 s for 20 s, the other, and with it all, at 30 s, for 15 s."""
    first = {**worker("drafter", warm_s=20.0), "first_good_s": 20.0}
    second = {**worker("drafter", warm_s=15.0), "first_good_s": 30.0}
    workers = {"drafter-0": first, "drafter-1": second, "target-0": {"role": "target", "warm_s": None}}
    apart = row(Scenario(lock="process", drafters=2), workers=workers, startup_s=30.0)
    assert ends_of(apart) == {"drafter-0": 10.0, "drafter-1": 15.0}
    assert ends_of({**apart, "scenario": Scenario(drafters=2).to_dict()}) == {"drafter-0": 20.0, "drafter-1": 15.0}
    assert ends_of({}) == ends_of({"workers": {"a": 3}, "scenario": None}) == {}


@pytest.mark.parametrize("cpu_s", ["x", -1.0, float("nan"), True, None])
def test_a_thread_s_time_that_cannot_be_read_is_not_known(cpu_s: Any) -> None:
    one = Spent()
    one.add({**worker("drafter"), "cpu_s": cpu_s})
    assert one.ran is None
    one.add(worker("drafter", 50.0))
    assert one.ran == 1.0, "never more than the time there was, of the trials that tell"
    joined = Spent()
    joined.join(one)
    assert (joined.ran, joined.warm) == (1.0, 20.0)
