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
        self.models: tuple[str | bytes, str | bytes] = ("H200", "H200")

    def nvmlInit(self) -> None:
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetName(self, handle: int) -> str | bytes:
        return self.models[handle]

    def nvmlDeviceGetUUID(self, handle: int) -> str | bytes:
        return ("GPU-ab12", b"GPU-b345")[handle]

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index > 1:
            raise self.NVMLError("Invalid Argument")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:
        if uuid != "MIG-c":
            raise self.NVMLError("Not Found")
        return 1

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
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
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
    apart = {"drafter-0": {"warm_s": 2.0, "first_good_s": 2.5}, "drafter-1": {"warm_s": 0.5, "first_good_s": 3.5}}
    assert warm_window({**row, "workers": apart, "scenario": {"lock": "process"}}) == (10.5, 11.5), "each was warm for itself"
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


def test_a_device_that_nvml_does_not_know_says_so(nvml: FakeNvml) -> None:
    load = GpuLoad()
    load.begin("t", "cuda:0/cuda:7")
    load.sample()
    load.sample()
    found = load.end("t")
    assert found["cuda:0"]["samples"] == 2
    assert found["cuda:7"] == {"unavailable": "NVML: Invalid Argument"}


@pytest.mark.parametrize(
    ("visible", "device", "found"),
    [
        ("GPU-b345,GPU-ab12", "cuda:0", 1),
        ("GPU-b345,GPU-ab12", "cuda:1", 0),
        ("GPU-b", "cuda:0", 1),
        ("GPU-a,GPU-b3", "cuda:1", 1),
        ("MIG-c", "cuda:0", 1),
        ("1", "cuda:0", 1),
        ("GPU-", "cuda:0", "GPU-, with which the names of 2 GPUs begin"),
        ("GPU-x", "cuda:0", "NVML: Not Found"),
        ("1", "cuda:1", "CUDA_VISIBLE_DEVICES=1 leaves no device 1"),
    ],
)
def test_a_device_is_the_one_that_cuda_takes_by_the_beginning_of_its_name(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str, device: str, found: int | str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    load = GpuLoad()
    load.begin("t", device)
    load.sample()
    told = load.end("t")[device]
    if isinstance(found, int):
        assert nvml.asked == [found]
        assert told["most_bytes"] == 1000 + found
    else:
        assert nvml.asked == []
        assert found in told["unavailable"]


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({}, []),
        ({"CUDA_VISIBLE_DEVICES": "1"}, []),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, []),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-b"}, [1]),
    ],
)
def test_of_different_gpus_none_is_taken_for_another(
    nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], asked: list[int]
) -> None:
    """CUDA counts the fastest first, unless it is told to count as NVML does."""
    nvml.models = ("T4", b"H200")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    load = GpuLoad()
    load.begin("t", "cuda:0")
    load.sample()
    told = load.end("t")["cuda:0"]
    assert nvml.asked == asked
    if not asked:
        assert told["unavailable"] == "CUDA may count H200 and T4 in another order than NVML; set CUDA_DEVICE_ORDER=PCI_BUS_ID"


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_load.importlib.util, "find_spec", lambda name: None)
    load = GpuLoad()
    load.begin("t", "cuda:0")
    load.sample()
    assert "harness[gpu]" in load.end("t")["unavailable"]


@pytest.mark.parametrize(
    ("visible", "number", "expected"),
    [(None, 1, 1), ("3,5", 1, 5), (" 3 , 5", 0, 3), ("GPU-a,GPU-b", 1, "GPU-b")],
)
def test_the_number_that_cuda_gives_and_the_device_that_nvml_knows(
    visible: str | None, number: int, expected: int | str
) -> None:
    assert visible_device(number, visible) == expected


@pytest.mark.parametrize(("visible", "number"), [("", 0), ("3", 1), ("3,", 1)])
def test_a_device_that_cuda_does_not_have_is_none_of_nvmls(visible: str, number: int) -> None:
    with pytest.raises(LookupError, match=f"leaves no device {number}"):
        visible_device(number, visible)
