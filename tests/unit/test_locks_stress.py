"""Many threads at once, with failures, deaths and readers: what must never overlap does not, and all of them end.

The schedules are the operating system's, with a short switch interval; the programs come from fixed seeds. Each test
fails without exception if exclusion is broken or a wake-up is lost: it passes some thousand contended hand-overs.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from locks_support import LIMIT

from harness.locks import Strategy, StrategyAborted, make_strategy

WORKERS = [f"w{number}" for number in range(6)]
ORDER = ["mask", "forward", "loss", "backward"]


class Oops(Exception):
    pass


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Overlap:
    """Finds out whether two are inside at once; the pause inside lets others run and be found."""

    def __init__(self) -> None:
        self._inside: list[str] = []
        self.found: list[list[str]] = []
        self.passes = 0

    def begin(self, who: str) -> None:
        self._inside.append(who)
        time.sleep(0)
        inside = list(self._inside)
        if len(inside) != 1:
            self.found.append(inside)

    def end(self, who: str) -> None:
        self.passes += 1
        self._inside.remove(who)


def run_all(strategy: Strategy, program: Callable[[str, random.Random], None], seed: int = 0) -> None:
    """The program in a thread for each worker, with one more that keeps reading the wait graph."""
    errors: list[BaseException] = []
    over = threading.Event()

    def work(worker: str) -> None:
        try:
            program(worker, random.Random(f"{seed} {worker}"))
        except BaseException as error:  # noqa: BLE001  # raised again below
            errors.append(error)
        finally:
            strategy.worker_done(worker)

    def read() -> None:
        while not over.wait(0.001):
            strategy.wait_graph()

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in WORKERS]
    reader = threading.Thread(target=read, daemon=True)
    for thread in (*threads, reader):
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    over.set()
    stuck = [state for state in strategy.wait_graph() if state.waiters]
    hung = sum(thread.is_alive() for thread in threads)
    strategy.abort()
    assert not hung, stuck
    if errors:
        raise errors[0]
    assert all(state.holders == () and state.waiters == () for state in strategy.wait_graph())


@contextmanager
def step_of(strategy: Strategy, worker: str, key: object = None) -> Iterator[None]:
    """A step that may fail, of a worker that goes on."""
    try:
        with strategy.region("step", worker, key):
            yield
    except Oops:
        pass


@pytest.mark.parametrize("owner", ["worker", "thread"])
@pytest.mark.parametrize("name", ["per_call", "each:mask+backward", "every_step"])
def test_single_regions_exclude(name: str, owner: str) -> None:
    strategy, overlap = make_strategy(name, workers=WORKERS, owner=owner), Overlap()
    held = {"per_call": ["attention"], "each:mask+backward": ["mask", "backward"], "every_step": ["step"]}[name]

    def program(worker: str, rng: random.Random) -> None:
        for _ in range(60):
            region = rng.choice(held)
            try:
                with strategy.region(region, worker):
                    overlap.begin(worker)
                    overlap.end(worker)
                    raise Oops  # stay cold
            except Oops:
                pass

    run_all(strategy, program)
    assert overlap.found == []
    assert overlap.passes == 60 * len(WORKERS)


@pytest.mark.parametrize("owner", ["worker", "thread"])
@pytest.mark.parametrize(("name", "last"), [("per_forward", "forward"), ("first_step", "backward")])
def test_spans_exclude(name: str, last: str, owner: str) -> None:
    strategy, overlap = make_strategy(name, workers=WORKERS, owner=owner), Overlap()
    held = ORDER[: ORDER.index(last) + 1]

    def program(worker: str, rng: random.Random) -> None:
        for _ in range(40):
            failing = rng.choice(held)  # always inside the span, so that it stays cold
            with step_of(strategy, worker):
                for region in held[: held.index(failing) + 1]:
                    with strategy.region(region, worker):
                        if region == "mask":
                            overlap.begin(worker)
                        if region == failing:
                            overlap.end(worker)
                            raise Oops

    run_all(strategy, program)
    assert overlap.found == []
    assert overlap.passes == 40 * len(WORKERS)


@pytest.mark.parametrize("seed", range(3))
def test_the_gate_lets_nothing_run_beside_a_new_key(seed: int) -> None:
    strategy = make_strategy("compile_gate", workers=WORKERS)
    active: dict[str, bool] = {}  # worker → its key was new
    done: set[int] = set()
    found: list[dict[str, bool]] = []
    new: list[int] = []
    shared: list[int] = []

    def program(worker: str, rng: random.Random) -> None:
        for number in range(80):
            key = rng.randrange(number // 4 + 1)  # new ones keep coming
            with step_of(strategy, worker, key):
                (shared if key in done else new).append(key)
                active[worker] = key not in done
                time.sleep(0)
                seen = dict(active)
                if len(seen) > 1 and any(seen.values()):
                    found.append(seen)
                fails = rng.random() < 0.3
                if not fails:
                    done.add(key)
                del active[worker]
                if fails:
                    raise Oops

    run_all(strategy, program, seed)
    assert found == []
    assert len(done) <= len(new) < 80  # one exclusive success a key, and its failures
    assert len(new) + len(shared) == 80 * len(WORKERS)


@pytest.mark.parametrize("seed", range(25))
def test_the_barrier_loses_nobody(seed: int) -> None:
    strategy, overlap = make_strategy("warmup_barrier", workers=WORKERS), Overlap()
    warm: list[str] = []
    out: list[str] = []
    early: list[str] = []

    def program(worker: str, rng: random.Random) -> None:
        fate = rng.choice(["dies at once", "dies cold", "tries twice", "is well", "is well"])
        if fate == "dies at once":
            out.append(worker)
            return
        for failing in [True] * (fate != "is well") + [False] * (fate != "dies cold"):
            with step_of(strategy, worker):
                with strategy.region("mask", worker):
                    overlap.begin(worker)
                overlap.end(worker)
                if failing:
                    raise Oops
                with strategy.region("backward", worker):
                    warm.append(worker)
                if len(warm) + len(out) < len(WORKERS):
                    early.append(worker)
        if fate == "dies cold":
            out.append(worker)

    run_all(strategy, program, seed)
    assert early == []
    assert overlap.found == []
    assert len(warm) + len(out) == len(WORKERS)


@pytest.mark.parametrize("name", ["per_call", "first_step", "compile_gate", "every_step"])
def test_an_abort_in_the_middle_frees_everybody(name: str) -> None:
    strategy, stopped = make_strategy(name, workers=WORKERS), threading.Event()
    aborted: list[str] = []

    def program(worker: str, rng: random.Random) -> None:
        steps = 0
        while not stopped.is_set():
            try:
                with step_of(strategy, worker, rng.random()), strategy.region("mask", worker):
                    time.sleep(0)
                    with strategy.region("attention", worker):
                        raise Oops
            except StrategyAborted:
                aborted.append(worker)
            steps += 1
            if steps == 20 and worker == WORKERS[0]:
                regions = [strategy.region(region, worker, rng.random()) for region in ("step", "mask", "attention")]
                with regions[0], regions[1], regions[2]:
                    while len(strategy.wait_graph()[0].waiters) < len(WORKERS) - 1:
                        time.sleep(0)  # until all the others wait for this one
                    stopped.set()
                    strategy.abort()

    run_all(strategy, program)
    assert sorted(aborted) == WORKERS[1:]
