"""What a lock costs once all is warm: every block runs under its strategy, by all drafters together."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest
from pipeline_support import attention_on_cpu

from harness.core.scenario import Scenario
from harness.core.settings import PipelineSettings
from tests.benchmarks import steady_cost
from tests.benchmarks.steady_cost import AGAIN, Block, Switching, ratios, run


@pytest.fixture(autouse=True, scope="module")
def flex() -> Iterator[None]:
    with attention_on_cpu():
        yield


def test_every_block_is_run_under_its_strategy_by_all_drafters(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: Counter[tuple[str, str]] = Counter()
    made = steady_cost.make_strategy

    def counting(name: str, **rest: object) -> object:
        strategy = made(name, **rest)  # type: ignore[arg-type]
        region = strategy.region

        def count(place: str, worker: str, key: object = None) -> object:
            if place == "step":
                entered[name, worker] += 1
            return region(place, worker, key)

        strategy.region = count  # type: ignore[method-assign, assignment]
        return strategy

    monkeypatch.setattr(steady_cost, "make_strategy", counting)
    scenario = Scenario(drafters=2, targets=1)
    blocks = run(scenario, PipelineSettings().to_dict(), ["none", "warm_gate", AGAIN], 1, 2)
    assert [block.lock for block in blocks] == ["every_step", *["none", "warm_gate", AGAIN] * 2]
    assert all(block.tokens > 0 and block.ended_s > block.began_s for block in blocks)
    assert all(block.began_s >= before.ended_s for before, block in pairwise(blocks))
    assert {lock: count for (lock, worker), count in entered.items() if worker == "drafter-1"} == {
        "every_step": 2, "none": 8, "warm_gate": 4,
    }  # fmt: skip


@pytest.mark.parametrize("minutes", [0.0, 0.02])
def test_at_the_time_limit_the_rounds_that_are_whole_are_kept(minutes: float) -> None:
    locks = ["none", "warm_gate", AGAIN]
    blocks = run(Scenario(drafters=2, targets=1), PipelineSettings().to_dict(), locks, 5_000, 2, minutes)
    assert (len(blocks) - 1) % len(locks) == 0
    assert len(blocks) < 15_000
    assert all(block.tokens > 0 and block.ended_s > block.began_s for block in blocks)
    assert minutes or len(blocks) == 1
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("drafter", "target"))]


def test_too_few_rounds_are_an_error_that_says_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady_cost, "prepare", lambda _: {})  # it is for good, and other tests share this process
    monkeypatch.setattr("sys.argv", ["steady_cost", "--drafters", "2", "--targets", "1", "--block", "2", "--minutes", "0"])
    with pytest.raises(SystemExit, match="error: 0 rounds after the first within 0 min; give more, or --block less"):
        steady_cost.main()


def test_a_worker_that_fails_ends_the_run_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LookupError("no such step")

    monkeypatch.setattr("harness.pipeline.optimizer.DrafterOptimizer.step", fail)
    scenario = Scenario(drafters=2, targets=1)
    with pytest.raises(LookupError, match="no such step"):
        run(scenario, PipelineSettings().to_dict(), ["none", AGAIN], 1, 2)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("drafter", "target"))]


def test_a_ratio_is_to_no_lock_of_the_same_round_and_the_first_round_is_left_out() -> None:
    locks = ["none", "x", AGAIN]
    rates = [9, *(1, 1, 1), *(10, 5, 20), *(4, 8, 4)]
    blocks = [Block(lock, 0.0, 1.0, rate) for lock, rate in zip(["every_step", *locks * 3], rates, strict=True)]
    assert ratios(blocks, locks) == {"x": [0.5, 2.0], AGAIN: [2.0, 1.0]}


def test_a_drafter_that_does_not_come_lets_the_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady_cost, "LONGEST_BLOCK_S", 0.05)
    ctx = Switching({}, ["a", "b"], ["none"], 1)
    with pytest.raises(threading.BrokenBarrierError):
        ctx.region("step", "a")
