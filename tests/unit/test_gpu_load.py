"""The GPUs' load, with an NVML that is made up."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from harness.control import gpu_load
from harness.control.gpu_load import GpuLoad, visible_device, warm_window


class FakeNvml:
    """Two devices; device i is busy 10·i + what was counted, in percent."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.asked: list[int | str] = []
        self.open = False

    def nvmlInit(self) -> None:
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index > 1:
            raise self.NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        return {"GPU-b": 1}[uuid]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        self.asked.append(handle)
        return SimpleNamespace(gpu=10 * handle + 10 * len(self.asked))

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(used=1000 + handle)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(gpu_load.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(gpu_load, "EVERY_S", 0.0)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake


def test_means_and_peaks_of_the_devices_of_a_trial(nvml: FakeNvml) -> None:
    load = GpuLoad()
    load.begin("t", "cuda:1")
    load.sample()
    load.sample()
    assert load.end("t") == {"cuda:1": {"busy_mean": 0.25, "busy_most": 0.3, "most_bytes": 1001, "samples": 2}}
    load.close()
    assert not nvml.open


def test_the_load_once_warm_is_of_the_samples_in_that_time(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 11.0, 12.0, 13.0])
    monkeypatch.setattr(gpu_load.time, "perf_counter", lambda: next(times))
    load = GpuLoad()
    load.begin("t", "cuda:0")
    for _ in range(4):
        load.sample()  # 10, 20, 30, 40 %
    found = load.end("t", (10.5, 12.5))["cuda:0"]
    assert (found["busy_warm"], found["samples_warm"], found["busy_mean"], found["samples"]) == (0.25, 2, 0.25, 4)
    row = {
        "facts": {"clock_start_ns": 7_000_000_000}, "startup_s": 3.5,
        "workers": {"drafter-0": {"warm_s": 2.0}, "drafter-1": {"warm_s": 1.0}, "target-0": {"warm_s": None}},
    }  # fmt: skip
    assert warm_window(row) == (10.5, 12.5)
    for key in row:
        assert warm_window({k: v for k, v in row.items() if k != key}) is None


def test_a_device_that_has_no_load_of_its_own_says_so_and_the_others_theirs(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = nvml.nvmlDeviceGetUtilizationRates

    def refuse(handle: int) -> SimpleNamespace:
        if handle == 0:
            raise nvml.NVMLError("Not Supported")
        return asked(handle)

    monkeypatch.setattr(nvml, "nvmlDeviceGetUtilizationRates", refuse)
    load = GpuLoad()
    load.begin("t", "cuda:0+cuda:1")
    load.sample()
    load.sample()
    found = load.end("t")
    assert found["cuda:0"] == {"unavailable": "Not Supported"}
    assert found["cuda:1"]["samples"] == 2


def test_the_cpu_opens_nothing(nvml: FakeNvml) -> None:
    load = GpuLoad()
    load.begin("t", "cpu")
    load.sample()
    assert load.end("t") == {}
    assert not nvml.open
    assert not nvml.asked


def test_a_device_that_nvml_does_not_know_is_left_out(nvml: FakeNvml) -> None:
    load = GpuLoad()
    load.begin("t", "cuda:0/cuda:7")
    load.sample()
    assert set(load.end("t")) == {"cuda:0"}


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_load.importlib.util, "find_spec", lambda name: None)
    load = GpuLoad()
    load.begin("t", "cuda:0")
    load.sample()
    assert "harness[gpu]" in load.end("t")["unavailable"]


@pytest.mark.parametrize(
    ("visible", "number", "expected"),
    [(None, 1, 1), ("", 0, 0), ("3,5", 1, 5), ("GPU-a,GPU-b", 1, "GPU-b"), ("3", 1, 1)],
)
def test_the_number_that_cuda_gives_and_the_device_that_nvml_knows(
    visible: str | None, number: int, expected: int | str
) -> None:
    assert visible_device(number, visible) == expected
