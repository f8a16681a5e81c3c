"""Silence of a watched process, seen from outside: a hang, unless the process or the watch itself was stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.control import watch_hangs
from harness.control.watch_hangs import SLACK_S, HangWatch
from harness.control.watch_program import Program
from harness.control.watch_rows import Process
from harness.core.stuck.views import Diagnosis, Finding

TIMEOUT_S = 10.0
LIMIT_S = TIMEOUT_S + SLACK_S


@dataclass
class Scene:
    """A clock, one process, and what was said of it."""

    folder: Path
    now: float = 1000.0
    beat: float = 1000.0
    stopped: bool = False
    said: list[str] = field(default_factory=list)
    kills: int = 0
    hung: list[bool] = field(default_factory=list)

    def kill(self) -> None:
        """The watch kills the program."""
        self.kills += 1

    def process(self) -> Process:
        """As it is now."""
        scene = self

        class Seen(Process):
            def beat(self) -> float | None:
                return scene.beat

            def stopped(self) -> bool:
                return scene.stopped

            def alive(self) -> bool:
                return True

        return Seen(self.folder, 7, 1, "train.py", "", "python", "3.11.7", 0.0)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    made = Scene(tmp_path)

    def dump(pid: int, *, hung: bool = False, **_: Any) -> Any:
        made.hung.append(hung)
        found = (Finding("gil", "rex holds the interpreter lock", (1,)),) if hung else ()
        return SimpleNamespace(diagnosis=Diagnosis((), found), hazards=(), note="")

    monkeypatch.setattr(watch_hangs, "time", SimpleNamespace(time=lambda: made.now))
    monkeypatch.setattr(watch_hangs, "pyspy_dump", lambda pid, folder: None)
    monkeypatch.setattr("harness.control.dump.dump_process", dump)
    return made


@pytest.fixture
def watch(scene: Scene) -> HangWatch:
    program: Any = SimpleNamespace(pid=7, kill=scene.kill)
    assert set(vars(program)) <= {"pid", *dir(Program)}
    return HangWatch(program, TIMEOUT_S, kill=True, say=scene.said.append)


def pass_time(scene: Scene, watch: HangWatch, seconds: float, beats: bool = False) -> None:
    """With a look each half second."""
    for _ in range(int(seconds * 2)):
        scene.now += 0.5
        if beats:
            scene.beat = scene.now
        watch.look([scene.process()])


def test_a_silent_process_is_looked_into_as_one_that_hangs(scene: Scene, watch: HangWatch) -> None:
    pass_time(scene, watch, LIMIT_S - 0.5)
    assert scene.said == []
    pass_time(scene, watch, 1)
    assert scene.hung == [True]
    assert "; rex holds the interpreter lock" in scene.said[0]
    assert watch.found[scene.folder.name].outside == "rex holds the interpreter lock"
    assert scene.kills == 1


def test_a_stopped_process_does_not_hang_and_is_told_once(scene: Scene, watch: HangWatch) -> None:
    scene.stopped = True
    pass_time(scene, watch, 5 * LIMIT_S)
    assert scene.said == ["process 7 is stopped, by a signal or a debugger: kill -CONT 7 lets it go on"]
    scene.stopped = False  # its watchdog has not looked yet
    pass_time(scene, watch, 1)
    pass_time(scene, watch, LIMIT_S, beats=True)
    scene.stopped = True
    pass_time(scene, watch, LIMIT_S)
    assert len(scene.said) == 1
    assert (scene.kills, watch.found[scene.folder.name].outside) == (0, "")


def test_a_short_stop_is_not_told(scene: Scene, watch: HangWatch) -> None:
    scene.stopped = True
    pass_time(scene, watch, TIMEOUT_S - 0.5)
    scene.stopped = False
    pass_time(scene, watch, LIMIT_S, beats=True)
    assert scene.said == []


def test_one_that_stays_silent_after_a_stop_hangs(scene: Scene, watch: HangWatch) -> None:
    scene.stopped = True
    pass_time(scene, watch, LIMIT_S)
    scene.stopped = False
    pass_time(scene, watch, LIMIT_S)
    assert scene.kills == 1


def test_after_a_sleep_of_the_machine_silence_counts_anew(scene: Scene, watch: HangWatch) -> None:
    pass_time(scene, watch, 1, beats=True)
    scene.now += 3600
    pass_time(scene, watch, LIMIT_S - 0.5)
    assert scene.said == []
    pass_time(scene, watch, 1.5)
    assert scene.kills == 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the state of a process is read from /proc")
def test_the_kernel_says_who_is_stopped(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = Process(tmp_path, child.pid, 1, "", "", "", "", 0.0)
    try:
        assert not process.stopped()
        child.send_signal(signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        assert process.stopped()
        assert process.alive()
        child.send_signal(signal.SIGCONT)
    finally:
        child.kill()
        child.communicate(timeout=60)
    assert not process.stopped()
    assert not process.alive()


def test_a_process_whose_watchdog_could_not_run_is_not_called_silent(scene: Scene, watch: HangWatch) -> None:
    said = {"final": False, "probes": {"watchdog": "unavailable: can't start new thread"}}
    (scene.folder / "result.json").write_text(json.dumps(said))
    for _ in range(8):
        scene.now += TIMEOUT_S / 3
        watch.look([scene.process()])
    assert (scene.said, scene.kills) == ([], 0)
    (scene.folder / "result.json").write_text(json.dumps({**said, "probes": {}}))
    watch.look([scene.process()])
    assert scene.kills == 1
