"""The workload's side of the harness: what it is told wrongly, and what it must not take down."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.analysis.no_rate import why_no_rate
from harness.core.eventfile import RAW_NAME, read_raw
from harness.core.outcome import FAILURES
from harness.core.scenario import Scenario
from harness.locks import make_strategy
from harness.subject.context import TrialContext
from harness.subject.eventlog import EventLog
from harness.subject.identity import Threads
from harness.subject.points import Points
from harness.subject.probes import Probes
from harness.subject.record import Trial
from harness.subject.result import build


class Rig:
    """A context whose calling thread is `worker`."""

    def __init__(self, folder: Path, worker: str = "a", lock: str = "none") -> None:
        self.threads = Threads()
        self.log = EventLog(folder, self.threads)
        self.trial = Trial()
        points = Points()
        self.probes = Probes(self.log, self.threads, self.trial, points)
        strategy = make_strategy(lock, workers=("a", "b"), observer=self.probes.lock_event, warn=False)
        self.probes.install(Scenario(lock=lock), enabled=False)
        self.ctx = TrialContext({}, strategy, self.log, self.threads, self.trial, points)
        self.trial.tally(worker, "trainer")
        self.threads.current().worker = worker

    def row(self) -> dict[str, Any]:
        found = build(self.trial, Scenario(), stuck=("", ""), probes={}, extra={}, torch_version="", ran=True)
        return dict(json.loads(json.dumps(found)))  # what is no JSON value raises here

    def waits(self) -> list[Any]:
        """What is known of this thread's wait: (who can end it, edges)."""
        wait = self.threads.current().waits
        return [wait.on(), sorted(str(edge) for edge in self.probes.edges())]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.log.close()


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_whose_own_text_raises_is_an_error_all_the_same(rig: Rig) -> None:
    rig.ctx.step_failed("a", Unprintable())
    found = rig.row()
    assert found["outcomes"] == ["error"]
    assert found["errors"][0]["message"] == "<no text: Unprintable.__str__ raised RuntimeError>"
    assert "Unprintable" in found["errors"][0]["fingerprint"]


@pytest.mark.parametrize(
    ("on", "members"),
    [
        (None, None), ((), None), ("b", ("b",)), (["b", "c"], ("b", "c")),
        (lambda: "bob", ("bob",)), (lambda: ["b"], ("b",)), (lambda: (), ()), (lambda: None, None),
    ],
)  # fmt: skip
def test_who_can_end_a_wait_may_be_said_in_any_of_these_ways(rig: Rig, on: Any, members: object) -> None:
    with rig.ctx.waiting("a", "my lock", on):
        assert rig.waits()[0] == members


def test_a_function_that_raises_does_not_know_and_is_told_once(rig: Rig, capfd: pytest.CaptureFixture[str]) -> None:
    """It is asked by the watchdog and by schedules on other workers' threads: none of them may end by it."""
    ends: dict[str, bool] = {}

    def raises() -> list[str]:
        return [name for name in ("b",) if ends[name]]

    with rig.ctx.waiting("a", "my lock", raises):
        assert rig.waits() == [None, []]
        assert rig.waits() == [None, []]
    assert "KeyError: 'b'" in rig.ctx.facts["waiting_raised"]
    assert capfd.readouterr().err.count("Traceback") == 1


def test_a_wait_within_a_wait_is_counted_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.ctx.step("a", 1, 0.0)
    at = iter([1_000, 2_000, 5_000, 9_000])
    monkeypatch.setattr(rig.log, "emit", lambda *_: next(at))
    rig.trial.warm_ns = 0
    with rig.ctx.waiting("a", "my pool"), rig.ctx.waiting("a", "queue.get", "b"):
        pass
    rig.trial.good_step("a", 10_000, 1, 0.0)
    assert rig.trial.tally("a").as_json()["waited_s"] == {"my pool": 8e-6}


def test_a_strategy_s_lock_that_is_waited_for_within_a_wait_is_a_part_of_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path, lock="every_step")
    rig.probes.use(rig.ctx.strategy)
    rig.trial.warm_ns = 0
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        rig.threads.current().worker = "b"
        with rig.ctx.region("step", "b"):
            inside.set()
            assert leave.wait(20)

    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(20)
    threading.Timer(0.1, leave.set).start()
    with rig.ctx.waiting("a", "my pool"), rig.ctx.region("step", "a"):
        pass
    thread.join()
    rig.ctx.step("a", 1, 0.0)
    assert set(rig.trial.tally("a").as_json()["waited_s"]) == {"my pool"}
    rig.log.close()


def test_a_finding_takes_the_outcomes_of_failures_and_says_so_at_once(rig: Rig) -> None:
    rig.ctx.finding("a", "numerics", "off by one")
    assert rig.row()["outcomes"] == ["numerics"]
    with pytest.raises(ValueError, match=r'no outcome is called "numeric".*numerics'):
        rig.ctx.finding("a", "numeric", "?")
    with pytest.raises(ValueError, match=f'"ok"; there are {FAILURES[0]}, '):
        rig.ctx.finding("a", "ok", "?")


@pytest.mark.parametrize("name", ["logger", "queue"])
@pytest.mark.parametrize("tell", ["count", "fact"])
def test_a_fact_of_no_worker_s_takes_no_part_in_when_all_are_warm(rig: Rig, name: str, tell: str) -> None:
    rig.trial.tally("b", "trainer")
    say: dict[str, Callable[[], None]] = {
        "count": lambda: rig.ctx.count(name, "lines"), "fact": lambda: rig.ctx.fact(name, "lines", 3),
    }  # fmt: skip
    say[tell]()
    for worker in ("a", "b", "a", "b"):
        rig.ctx.step(worker, 5, 0.0)
    found = rig.row()
    assert found["startup_s"] is not None
    assert found["tokens_per_s"] is not None
    assert found["workers"]["b"]["warm_s"] is not None
    assert found["steps_ok"] == 4


def test_who_never_stepped_is_counted_where_the_rate_is_missing(rig: Rig) -> None:
    rig.trial.tally("b", "trainer")
    rig.ctx.step("a", 5, 0.0)
    assert why_no_rate(rig.row()) == "1 of 2 workers had no good step, so they were never all warm"


def test_a_loss_that_is_no_finite_number_is_told_as_such(rig: Rig, tmp_path: Path) -> None:
    """It is no step that raised; as an event its `loss` stays a number or null."""
    for loss in (float("nan"), float("-inf"), 0.5):
        rig.ctx.step("a", 1, loss)
    rig.ctx.step_failed("a", ValueError("no"))
    assert rig.row()["workers"]["a"]["losses"] == ["nan", "-inf", 0.5, None]
    events = [event for event in read_raw(tmp_path / RAW_NAME)[0] if event["k"] == "step.done"]
    assert [(event["loss"], event.get("not_finite")) for event in events] == [(None, "nan"), (None, "-inf"), (0.5, None)]


def test_tokens_and_loss_may_be_tensors_and_nothing_that_is_no_number(rig: Rig) -> None:
    rig.ctx.step("a", torch.tensor(16), torch.tensor(0.5))  # type: ignore[arg-type]
    rig.ctx.step("a", torch.tensor([True, True]).sum(), None)  # type: ignore[arg-type]
    worker = rig.row()["workers"]["a"]
    assert (worker["tokens"], worker["losses"]) == (18, [0.5, None])
    with pytest.raises(TypeError):
        rig.ctx.step("a", "16", 0.5)  # type: ignore[arg-type]
