"""A plain trainer: threads that each train a small transformer of their own on their own data, without a queue.

All start from the same weights; the task is to repeat the first half of a sequence of random tokens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from harness.core.workload import Context, Scenario, Worker
from harness.workloads.model import Model, around_attention, build, causal_mask
from harness.workloads.settings import devices_of, learning_rate, not_here, read_sizes

FIXED = {"replicas": "independent", "code": "shared", "cudagraphs": "off", "mask": "eager", "targets": 1}
LENGTHS = (1.0, 0.5, 0.75)  # shapes=variable: parts of the full length, in turn


class Replica:
    """One thread's model, optimizer and data. `steps` batches of tokens [batch, length]."""

    def __init__(
        self, name: str, number: int, scenario: Scenario, sizes: dict[str, int], device: torch.device, rate: float
    ) -> None:
        self.name = name
        self.device = device
        self.model = build(scenario, sizes, device=device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate)
        draw = torch.Generator().manual_seed(1000 * (scenario.seed + 1) + number)
        self.batches = []
        for step in range(scenario.steps):
            part = {"fixed": 1.0, "per_drafter": LENGTHS[number % len(LENGTHS)]}.get(
                scenario.shapes, LENGTHS[step % len(LENGTHS)]
            )
            half = max(1, int(sizes["length"] * part) // 2)
            first = torch.randint(sizes["vocabulary"], (sizes["batch"], half), generator=draw)
            self.batches.append(torch.cat([first, first], dim=1).to(device))


class Trainer:
    """`drafters` threads ("trainer-0", …) of `steps` steps each."""

    def unsupported(self, scenario: Scenario) -> str:
        """Axes that it has no part for."""
        on_cpu = "cuda" not in scenario.devices
        if on_cpu and scenario.backend == "inductor" and scenario.compile != "none":
            return "backend=inductor: its flex_attention for the CPU has no backward"
        return not_here(scenario, FIXED)

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        """A replica for each thread; nothing is compiled."""
        sizes, rate = read_sizes(ctx.settings, scenario.workload), learning_rate(ctx.settings)
        devices = devices_of(scenario)
        self._ctx, self._scenario = ctx, scenario
        self._stopped = threading.Event()
        self._replicas = [
            Replica(f"trainer-{i}", i, scenario, sizes, devices[i % len(devices)], rate) for i in range(scenario.drafters)
        ]

    def workers(self) -> list[Worker]:
        """A thread for each replica."""
        return [Worker(r.name, "trainer", str(r.device), partial(self._train, r)) for r in self._replicas]

    def stop(self) -> None:
        """Each thread ends after its step."""
        self._stopped.set()

    def warm_up(self, kind: str) -> None:
        """The first replica's first batch, or each one's with `per_device`; with gradients unless `main_no_grad`."""
        for replica in self._replicas if kind == "per_device" else self._replicas[:1]:
            with torch.set_grad_enabled(kind != "main_no_grad"):
                loss = self._loss(replica, replica.batches[0], silent=True)
            if kind != "main_no_grad":
                loss.backward()  # type: ignore[no-untyped-call]
                replica.optimizer.zero_grad(set_to_none=True)

    def nudge(self, change: Callable[[Iterable[Tensor]], None]) -> None:
        """Begin with other weights: those that `change` makes of each replica's (`harness.core.workload.Nudges`)."""
        for replica in self._replicas:
            change(replica.model.parameters())

    def reference(self, scenario: Scenario) -> None:
        """One replica after another, on the calling thread."""
        for replica in self._replicas:
            self._train(replica)

    def _train(self, replica: Replica) -> None:
        for tokens in replica.batches:
            if self._stopped.is_set():
                return
            try:
                loss = self._step(replica, tokens)
            except Exception as error:  # noqa: BLE001  # whatever a step raises is reported, and may end this thread
                replica.optimizer.zero_grad(set_to_none=True)
                self._ctx.step_failed(replica.name, error)
                if self._scenario.on_error == "stop":
                    return
                continue
            self._ctx.gradients(replica.name, missing(replica.model))
            replica.optimizer.step()
            replica.optimizer.zero_grad(set_to_none=True)
            self._ctx.step(replica.name, tokens=tokens.numel(), loss=loss)

    def _step(self, replica: Replica, tokens: Tensor) -> float:
        key = (id(replica.model), str(replica.device), tuple(tokens.shape), True)
        with self._ctx.region("step", replica.name, key):
            loss = self._loss(replica, tokens)
            with self._ctx.region("backward", replica.name):
                loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    def _loss(self, replica: Replica, tokens: Tensor, silent: bool = False) -> Tensor:
        region = (lambda name, worker: nullcontext()) if silent else self._ctx.region
        name = replica.name
        with region("mask", name):
            mask = causal_mask(tokens.shape[1], replica.device)
        with region("forward", name):
            logits = replica.model(tokens, mask, around_attention(self._scenario, partial(region, "attention", name)))
        with region("loss", name):
            return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def missing(model: Model) -> list[str]:
    """Names of parameters that got no gradient."""
    return [name for name, parameter in model.named_parameters() if parameter.requires_grad and parameter.grad is None]
