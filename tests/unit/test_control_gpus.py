"""How many GPUs there are: by an nvidia-smi that is made up, and by a file system that is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from harness.control import environment as environment_module
from harness.control import gpus as module
from harness.control.gpus import Gpus, find_gpus
from harness.control.memory_need import memory_of
from harness.control.skips import UNCOUNTED, skip_reason, visible_gpus
from harness.core.scenario import Scenario
from harness.report.catalogue import At
from harness.report.facts import environment_table

H200 = {"name": "NVIDIA H200", "memory_mib": 143771, "driver": "580.1"}
SEEN = {"name": "NVIDIA H200", "memory_mib": None, "driver": None}
UNNAMED = {**SEEN, "name": "NVIDIA GPU"}
LATE = "sleep 30"
FAILS = "echo 'NVIDIA-SMI has failed' >&2; exit 9"
FAILED = "nvidia-smi ended with exit status 9: NVIDIA-SMI has failed"


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes an nvidia-smi, the only program of that name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(module.shutil, "which", lambda name: str(folder / name) if (folder / name).exists() else None)

    def write(script: str) -> None:
        path = folder / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


def machine(folder: Path, *, files: tuple[str, ...] = (), known: tuple[str, ...] = ()) -> Path:
    """A root with device files and with what the driver tells of each GPU."""
    (folder / "dev").mkdir(parents=True)
    for name in files:
        (folder / "dev" / name).touch()
    for number, model in enumerate(known):
        of_gpu = folder / "proc" / "driver" / "nvidia" / "gpus" / f"0000:0{number}:00.0"
        of_gpu.mkdir(parents=True)
        (of_gpu / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 17\n")
    return folder


def test_they_come_from_nvidia_smi(tmp_path: Path, smi: Callable[[str], None]) -> None:
    """And then nothing else is asked."""
    root = machine(tmp_path / "root", files=("nvidia0", "nvidia1"), known=("x", "x"))
    smi("echo 'NVIDIA H200, 143771, 580.1'")
    assert find_gpus(root) == Gpus([H200])
    smi("echo 'NVIDIA A, B, [N/A], 580.1'")
    assert find_gpus(root) == Gpus([{**H200, "name": "NVIDIA A, B", "memory_mib": None}])
    smi("echo 'No devices were found'; exit 6")
    assert find_gpus(root) == Gpus()


TWO = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")


@pytest.mark.parametrize(
    ("script", "files", "known", "expected"),
    [
        # no nvidia-smi
        ("", (), (), Gpus()),
        ("", (), ("NVIDIA H200",) * 8, Gpus()),  # a container that was given none
        ("", TWO, ("NVIDIA H200",) * 2, Gpus([SEEN] * 2)),
        ("", TWO, (), Gpus([UNNAMED] * 2, counted=False)),
        ("", TWO, ("NVIDIA H200",) * 8, Gpus([SEEN] * 2, counted=False)),
        ("", TWO, ("NVIDIA H200", "T4"), Gpus([SEEN, {**SEEN, "name": "T4"}])),
        ("", TWO, ("NVIDIA H200", "T4", "T4"), Gpus([UNNAMED] * 2, counted=False)),
        ("", ("nvidiactl",), (), Gpus(counted=False)),
        ("", ("dxg",), (), Gpus(counted=False)),
        # one that fails
        (FAILS, (), (), Gpus()),
        (FAILS, TWO, ("NVIDIA H200",) * 2, Gpus([SEEN] * 2)),
        (f"echo 'NVIDIA H200, 143771, 580.1'; echo 'GPU 1, of two, is lost'; {FAILS}", ("nvidiactl",), (),
         Gpus([H200], counted=False)),
        (f"echo 'NVIDIA H200, 143771, 580.1'; {FAILS}", TWO, ("NVIDIA H200",) * 2, Gpus([SEEN] * 2)),
        # one that takes too long
        (LATE, (), (), Gpus(counted=False)),
        (LATE, TWO, ("NVIDIA H200",) * 2, Gpus([SEEN] * 2)),
        (LATE, ("nvidia0",), (), Gpus([UNNAMED], counted=False)),
    ],
)  # fmt: skip
def test_where_it_does_not_say_the_driver_does_or_they_are_not_counted(
    tmp_path: Path, smi: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, script: str, files: tuple[str, ...],
    known: tuple[str, ...], expected: Gpus,
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "NVIDIA_SMI_TIMEOUT_S", 0.2 if script == LATE else 20.0)
    if script:
        smi(script)
    found = find_gpus(machine(tmp_path / "root", files=files, known=known))
    assert (found.listed, found.counted) == (expected.listed, expected.counted)
    note = {"": "there is no nvidia-smi", LATE: "nvidia-smi took more than 0.2 s"}.get(script, FAILED)
    assert found.note.startswith(note.partition(":")[0])


def test_a_failure_is_told_in_its_own_words(tmp_path: Path, smi: Callable[[str], None]) -> None:
    smi(FAILS)
    assert find_gpus(machine(tmp_path / "root")).note == FAILED
    (tmp_path / "bin" / "nvidia-smi").write_text("not a program")
    (tmp_path / "bin" / "nvidia-smi").chmod(0o644)
    assert find_gpus(tmp_path / "root").note == "nvidia-smi does not run: Permission denied"


def environment_of(found: Gpus, visible: str | None = None) -> dict[str, Any]:
    told = {"gpus": found.listed, "gpus_counted": found.counted, "gpus_note": found.note}
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    return {"torch": "2.11.0+cu130", "variables": variables, **told}


@pytest.mark.parametrize(
    ("found", "visible", "reason"),
    [
        (Gpus(note="why"), None, "devices=cuda:0+cuda:1 needs 2 CUDA device(s); 0 here (why)"),
        (Gpus([SEEN], note="why"), None, "devices=cuda:0+cuda:1 needs 2 CUDA device(s); 1 here (why)"),
        (Gpus([SEEN]), None, "devices=cuda:0+cuda:1 needs 2 CUDA device(s); 1 here"),
        (Gpus(counted=False, note="why"), None, ""),
        (Gpus([SEEN], counted=False, note="why"), None, ""),
        (Gpus(counted=False, note="why"), "3,1", ""),
        (Gpus(counted=False, note="why"), "3", "devices=cuda:0+cuda:1 needs 2 CUDA device(s); 1 here (why)"),
        (Gpus(counted=False, note="why"), "", "devices=cuda:0+cuda:1 needs 2 CUDA device(s); 0 here (why)"),
    ],
)
def test_nothing_is_skipped_for_gpus_that_are_not_counted(found: Gpus, visible: str | None, reason: str) -> None:
    assert skip_reason(Scenario(devices="cuda:0+cuda:1"), environment_of(found, visible), {}) == reason


def test_an_older_folder_has_counted_its_gpus() -> None:
    told = {"gpus": [H200], "variables": {}}
    assert visible_gpus(told) == 1
    assert memory_of("cuda:0", told) == 143771 << 20


def test_the_memory_of_gpus_that_are_not_counted_is_not_known() -> None:
    assert visible_gpus(environment_of(Gpus([H200], counted=False))) == UNCOUNTED
    assert memory_of("cuda:0", environment_of(Gpus([H200], counted=False))) is None


@pytest.mark.parametrize(
    ("found", "row"),
    [
        (Gpus(), "none that nvidia-smi lists"),
        (Gpus(note="why"), "none: why"),
        (Gpus(counted=False, note="why"), "not known: why"),
        (Gpus([H200] * 2), "2 × NVIDIA H200; driver 580.1"),
        (Gpus([SEEN] * 2, note="why"), "2 × NVIDIA H200; why"),
        (Gpus([UNNAMED], counted=False, note="why"), "1 × NVIDIA GPU at least; why"),
    ],
)
def test_the_report_says_whether_they_are_counted_and_why_not(found: Gpus, row: str) -> None:
    assert environment_table({"gpus": found.listed, "gpus_counted": found.counted, "gpus_note": found.note}) == [("GPUs", row)]


def test_the_catalogue_gives_no_number_that_is_not_known() -> None:
    assert str(At("2.11.0", UNCOUNTED, "python", counted=False)) == "torch 2.11.0, CUDA devices not counted"
    assert str(At("2.11.0", 2, "python")) == "torch 2.11.0, 2 CUDA devices"


def test_the_environment_says_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Gpus([UNNAMED], counted=False, note="nvidia-smi took more than 20 s")
    monkeypatch.setattr(environment_module, "find_gpus", lambda: found)
    monkeypatch.setattr(environment_module, "describe_python", lambda python: {})
    told = environment_module.describe_environment("python", [])
    assert {"listed": told["gpus"], "counted": told["gpus_counted"], "note": told["gpus_note"]} == asdict(found)
