"""`lock = "process"`: each drafter a process, with the same losses as in one process, and compared like any other."""

from __future__ import annotations

import json
import selectors
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pipeline_support import WAIT_S, Faulty, attention_on_cpu, context, scenario, serial

from harness.control.executors import LocalExecutor
from harness.control.request import TrialRequest
from harness.core.scenario import Scenario
from harness.pipeline import Pipeline
from harness.pipeline.target_worker import ItemQueue
from harness.pipeline.training import lone_drafter
from harness.subject import split as parts
from harness.subject.record import Trial
from harness.subject.result import build
from harness.subject.socket_queue import SocketQueue

AXES: dict[str, Any] = {"drafters": 2, "steps": 2}


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    found = LocalExecutor(jobs=1)
    yield found
    found.close()


def run(executor: LocalExecutor, folder: Path, **axes: Any) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    folder.mkdir()
    executor.run([TrialRequest("t", Scenario(**axes), 0, folder)], lambda _: None, rows.append)
    return rows[0]


def test_drafters_in_processes_compute_what_they_compute_in_one(executor: LocalExecutor, tmp_path: Path) -> None:
    split = run(executor, tmp_path / "split", lock="process", **AXES)
    whole = run(executor, tmp_path / "whole", lock="every_step", **AXES)
    assert (split["outcomes"], split["errors"]) == (["ok"], [])
    assert (split["steps_ok"], split["steps_failed"]) == (4, 0)
    assert split["compiles"] == 2, "each process compiles for itself"
    assert split["startup_s"] > 0
    for name in ("drafter-0", "drafter-1"):
        assert split["workers"][name]["losses"] == whole["workers"][name]["losses"], "to the bit"
        assert split["workers"][name]["facts"]["data"] == whole["workers"][name]["facts"]["data"]
        assert (tmp_path / "split" / name / "events.jsonl").exists()
        assert 0 < split["workers"][name]["cpu_s"] <= 1.2 * split["workers"][name]["warm_s"], "of its own process's thread"


@pytest.mark.parametrize(
    ("axes", "why"),
    [({"replicas": "synchronised"}, "averaging gradients"), ({"warmup": "main_grad"}, "does not serve")],
)
def test_what_cannot_cross_a_process_is_skipped_with_the_reason(
    executor: LocalExecutor, tmp_path: Path, axes: dict[str, str], why: str
) -> None:
    row = run(executor, tmp_path / "t", lock="process", **AXES, **axes)
    assert row["outcomes"] == ["skipped"]
    assert why in row["reason"]


def test_a_loss_of_a_drafters_process_that_is_no_finite_number_stays_one(tmp_path: Path) -> None:
    theirs, trial = Trial(), Trial()
    for loss in (0.5, float("nan"), float("inf"), None):
        theirs.good_step("drafter-0", 1, 1, loss)
    document = build(theirs, Scenario(), stuck=("", ""), probes={}, extra={}, torch_version="", ran=True)
    document["facts"] = {"clock_start_ns": 0, "steps": [[1, 1]]}
    (tmp_path / "result.json").write_text(json.dumps(document, allow_nan=False))
    ctx = SimpleNamespace(trial=trial, log=SimpleNamespace(start_ns=0))
    parts.SplitPipeline._merge(SimpleNamespace(_places=[("drafter-0", "")], _ctx=ctx), 0, tmp_path, 0)  # type: ignore[arg-type]
    assert trial.workers["drafter-0"].as_json()["losses"] == [0.5, "nan", "inf", None]


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Stands for a drafter's process, of which only the life is looked at."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@dataclass
class OneStepAtATime(Faulty):
    """Here the drafters share torch's state, which in processes of their own they do not: no two may be in a step."""

    mutex: Any = field(default_factory=threading.Lock)

    @contextmanager
    def region(self, name: str, worker: str, key: object = None) -> Iterator[None]:
        with self.mutex if name == "step" else nullcontext(), super().region(name, worker, key):
            yield


def apart(plan: dict[tuple[str, str], set[int]] | None = None) -> OneStepAtATime:
    return OneStepAtATime(settings=context().settings, plan=plan or {})


def in_parts(ctx: Faulty, child: Any, folder: Path, **axes: Any) -> tuple[Pipeline, list[SocketQueue]]:
    """The run in its parts, each on threads of this process instead of in a process of its own."""
    ran, whole = scenario(**axes), Pipeline()
    whole.setup_targets(ran, ctx)
    queues, bodies, escaped = [], [w.run for w in whole.workers()], []
    for number, queue in enumerate(whole.queues):
        ours, theirs = socket.socketpair()
        far = SocketQueue(theirs)
        queues.append(far)
        bodies.append(lone_drafter(ran, ctx, number, cast(ItemQueue, far)).run)
        bodies.append(lambda ours=ours, queue=queue: feed(ours, queue, child, folder))  # type: ignore[misc]

    def body(run: Any) -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - reported below, on the test's own thread
            escaped.append(error)

    threads = [threading.Thread(target=body, args=(run,), daemon=True) for run in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert not [thread for thread in threads if thread.is_alive()]
    assert not escaped, escaped
    return whole, queues


def feed(ours: socket.socket, queue: ItemQueue, child: Any, folder: Path) -> None:
    watch = parts._Watch(cast(Any, None), child, folder, threading.Event())
    watch._starts_until = 0.0
    with ours, selectors.DefaultSelector() as selector:
        selector.register(ours, selectors.EVENT_READ)
        while parts._asked(selector, ours, watch) and parts._send(ours, parts._next(queue, selector, watch)):
            pass
        queue.close()


def test_drafters_built_alone_have_the_losses_of_the_serial_run_to_the_bit(child: Any, tmp_path: Path) -> None:
    axes = {"drafters": 2, "targets": 2, "steps": 3, "compile": "none"}
    with attention_on_cpu():
        expected = serial(context(), **axes).ctx.steps
        ctx = apart()
        whole, queues = in_parts(ctx, child, tmp_path, **axes)
    assert {name: ctx.steps[name] for name in ("drafter-0", "drafter-1")} == {
        name: expected[name] for name in ("drafter-0", "drafter-1")
    }
    for queue, far in zip(whole.queues, queues, strict=True):
        assert (queue.counts.taken, queue.counts.left, far.arrived, far.unused) == (3, 0, 3, 0)


def test_a_drafter_that_fails_leaves_the_other_its_items_and_accounts_for_its_own(child: Any, tmp_path: Path) -> None:
    axes = {"drafters": 2, "steps": 4, "compile": "none"}
    with attention_on_cpu():
        ctx = apart({("drafter-0", "forward"): {1}})
        whole, queues = in_parts(ctx, child, tmp_path, **axes)
    (mine, other), (far, _) = whole.queues, queues
    assert [str(error) for _, error in ctx.failures] == ["planted in forward of drafter-0"]
    assert len(ctx.steps["drafter-1"]) == 4
    assert other.counts.taken == 4
    assert far.arrived - far.unused == 2, "handed over: the good step's and the failed one's"
    assert far.unused <= 1
    assert mine.counts.taken - far.arrived in (0, 1), "and what was on its way"
    assert mine.counts.offered == mine.counts.taken + mine.counts.left == 4
