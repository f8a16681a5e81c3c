"""What a lock strategy costs once all is warm: tokens/s to that of no lock, in blocks of steps of one process, in turn.

    python -m tests.benchmarks.steady_cost [--devices cuda:0+cuda:1] [--drafters 4] [--targets 2] [--rounds 20] [--block 16]
        [--minutes M]

All that the drafters run is compiled on the main thread before they start (`warmup = "per_device"`), so that no lock
at all cannot fail either. At the end of each block all drafters wait for each other and change the strategy together;
a strategy is one object in all its blocks, so it knows the keys of their steps. The first block, which warms what is
left, and each strategy's first, in which its first steps lie, are not counted. No lock is there twice: the one to the
other is the code against itself. `--minutes` ends it with the rounds that are whole by then. On CUDA with the sizes
of `scenarios/h200x2.toml`, else those of a run without a `[pipeline]` table.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.analysis.resample import median_interval
from harness.core.matrix import load_matrix
from harness.core.scenario import Scenario
from harness.core.settings import PipelineSettings
from harness.core.workload import NullContext
from harness.locks import make_strategy
from harness.pipeline.training import Pipeline
from harness.subject.torch_setup import prepare
from tests.benchmarks.machine import machine

LOCKS = ("none", "first_step", "warmup_barrier", "compile_gate", "warm_gate", "every_step")
AGAIN = "none, again"
SIZES = Path(__file__).parents[2] / "scenarios" / "h200x2.toml"
LONGEST_BLOCK_S = 120.0


@dataclass
class Block:
    """`began_s`: when all drafters had come; `ended_s`: when the last of them had done its steps."""

    lock: str
    began_s: float = 0.0
    ended_s: float = 0.0
    tokens: int = 0

    @property
    def tokens_per_s(self) -> float:
        """Of all drafters together."""
        return self.tokens / (self.ended_s - self.began_s)


class Switching(NullContext):
    """A context that holds each block's steps under that block's strategy."""

    def __init__(self, settings: Mapping[str, Any], drafters: Sequence[str], order: Sequence[str], steps: int) -> None:
        super().__init__(settings=settings)
        self._strategies = {lock: make_strategy(lock.partition(",")[0], workers=drafters) for lock in dict.fromkeys(order)}
        self.blocks = [Block(lock) for lock in order]
        self.whole = len(order)  # of the blocks
        self._steps_of_a_block = steps
        self._done = dict.fromkeys(drafters, 0)
        self._at = dict.fromkeys(drafters, -1)  # the block that each is in; a thread touches its own only
        self._together = threading.Barrier(len(drafters), action=self._begin)
        self._mutex_of_blocks = threading.Lock()
        self._ends_s, self._a_round = math.inf, len(order)
        self._stop: Callable[[], None] = lambda: None

    def end_at(self, time_s: float, a_round: int, stop: Callable[[], None]) -> None:
        """No further round of so many blocks begins from then on; `stop` ends the workers."""
        self._ends_s, self._a_round, self._stop = time_s, a_round, stop

    def _begin(self) -> None:
        """On one of the threads, while the others wait."""
        now, number = time.perf_counter(), min(self._done.values()) // self._steps_of_a_block
        self.blocks[number].began_s = now
        if now > self._ends_s and number % self._a_round == 1:  # the very first block is of no round
            self.whole = number
            self._ends_s = math.inf
            self._stop()

    def region(self, name: str, worker: str, key: Hashable = None) -> AbstractContextManager[None]:
        """The strategy's of the block; before a block's first step after all others have come. Raises BrokenBarrierError:
        one did not."""
        number = self._done[worker] // self._steps_of_a_block
        if name == "step" and number != self._at[worker]:
            self._together.wait(LONGEST_BLOCK_S)
            self._at[worker] = number
        return self._strategies[self.blocks[number].lock].region(name, worker, key)

    def step(self, worker: str, tokens: int, loss: float | None) -> None:
        """Its loss is there, so the device has done it."""
        if worker not in self._done:
            return  # a target's
        block = self.blocks[self._done[worker] // self._steps_of_a_block]
        with self._mutex_of_blocks:
            block.tokens += tokens
            block.ended_s = time.perf_counter()
        self._done[worker] += 1

    def step_failed(self, worker: str, error: BaseException) -> None:
        """Ends the run."""
        super().step_failed(worker, error)
        self._together.abort()


def run(
    scenario: Scenario,
    settings: Mapping[str, Any],
    locks: Sequence[str],
    rounds: int,
    block: int,
    minutes: float = math.inf,
) -> list[Block]:
    """The blocks in their order. Raises what a worker raised."""
    ends_s = time.perf_counter() + 60 * minutes
    order = ["every_step", *(list(locks) * (rounds + 1))]
    scenario = scenario.replace(steps=block * len(order))
    ctx = Switching(settings, [f"drafter-{i}" for i in range(scenario.drafters)], order, block)
    pipeline = Pipeline()
    pipeline.setup(scenario, ctx)
    ctx.end_at(ends_s, len(locks), pipeline.stop)
    pipeline.warm_up("per_device")

    def work(go: Any) -> None:
        try:
            go()
        except BaseException as error:
            ctx.step_failed(threading.current_thread().name, error)
            pipeline.stop()
            raise

    threads = [threading.Thread(target=work, args=(one.run,), name=one.name) for one in pipeline.workers()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if ctx.failures:
        raise ctx.failures[0][1]
    return ctx.blocks[: ctx.whole]


def ratios(blocks: Sequence[Block], locks: Sequence[str]) -> dict[str, list[float]]:
    """Each strategy's tokens/s to that of no lock in the same round; the first round is left out."""
    found: dict[str, list[float]] = {lock: [] for lock in locks[1:]}
    size = len(locks)
    for at in range(1 + size, len(blocks), size):
        base, *others = blocks[at : at + size]
        for one in others:
            found[one.lock].append(one.tokens_per_s / base.tokens_per_s)
    return found


def main() -> None:
    """Print the ratios, and with --json write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--drafters", type=int, default=4)
    parser.add_argument("--targets", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--block", type=int, default=16, help="steps of each drafter in a block")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no further round after that time")
    parser.add_argument("--locks", nargs="+", default=list(LOCKS[1:]))
    parser.add_argument("--json", default="", help="also write the figures to this file")
    options = parser.parse_args()
    cuda = "cuda" in options.devices
    settings = {**PipelineSettings().to_dict(), **(load_matrix(SIZES).pipeline if cuda else {})}
    # Equal lengths: in blocks of few steps, who has the longer items would be told instead of the lock.
    scenario = Scenario(
        devices=options.devices, drafters=options.drafters, targets=options.targets, warmup="per_device",
        checkpoint="non_reentrant", shapes="fixed",
    )  # fmt: skip
    locks = ["none", *options.locks, AGAIN]
    prepare(scenario)
    blocks = run(scenario, settings, locks, options.rounds, options.block, options.minutes)
    rounds = (len(blocks) - 1) // len(locks) - 1
    if rounds < 2:
        told = f"{max(0, rounds)} rounds after the first within {options.minutes:g} min"
        raise SystemExit(f"error: {told}; give more, or --block less")
    rate = median_interval([one.tokens_per_s for one in blocks[1:] if one.lock == "none"][1:])
    found = {lock: median_interval(values) for lock, values in ratios(blocks, locks).items()}
    device = torch.cuda.get_device_name() if cuda else "cpu"
    print(f"{machine()}, {device}, torch {torch.__version__}")
    print(f"{options.drafters} drafters, {rounds} rounds of blocks of {options.block} steps; no lock: {rate} tokens/s")
    for lock, interval in found.items():
        print(f"{lock:16} × {interval}")
    if options.json:
        document = {
            "machine": machine(), "device": device, "torch": torch.__version__, "scenario": scenario.to_dict(),
            "rounds": rounds, "block": options.block,
            "tokens_per_s": None if rate is None else rate.value, "ratios": ratios(blocks, locks),
        }  # fmt: skip
        Path(options.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
