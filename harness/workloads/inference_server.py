"""A server: request threads that answer from one compiled model, forward only, in batches of varying size.

Each answer is held against what the same weights gave without any compile; a difference is a finding (`numerics`).
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from functools import partial

import torch
from torch import Tensor

from harness.core.workload import Context, Scenario, Worker
from harness.workloads.model import around_attention, build, causal_mask, eager_twin
from harness.workloads.settings import devices_of, not_here, read_sizes

BATCHES = 4  # shapes=variable: batches of 1 to this; below the recompile limit
TOLERANCE = 1e-4  # float32; of the largest logit, where that is above 1
FIXED = {"checkpoint": "none", "replicas": "independent", "code": "shared", "cudagraphs": "off", "mask": "eager", "targets": 1}


class InferenceServer:
    """`drafters` request threads ("server-0", …) that answer `steps` requests each."""

    def unsupported(self, scenario: Scenario) -> str:
        """Axes that mean nothing for a forward pass of one model."""
        if scenario.devices.count("+"):
            return f"devices={scenario.devices}: one model is served, on one device"
        return not_here(scenario, FIXED)

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        """The model, every request, and the answer that each is to get."""
        sizes = read_sizes(ctx.settings, scenario.workload)
        self._ctx, self._scenario = ctx, scenario
        self._device = devices_of(scenario)[0]
        self._stopped = threading.Event()
        self._model = build(scenario, sizes, device=self._device).eval()
        plain = eager_twin(self._model, sizes, device=self._device).eval()
        self._mask = causal_mask(sizes["length"], self._device)
        self._names = [f"server-{i}" for i in range(scenario.drafters)]
        draw = torch.Generator().manual_seed(scenario.seed)
        self._requests: dict[str, list[tuple[Tensor, Tensor]]] = {}
        for number, name in enumerate(self._names):
            self._requests[name] = []
            for step in range(scenario.steps):
                batch = {"fixed": sizes["batch"], "per_drafter": number + 1}.get(
                    scenario.shapes, 1 + (number + step) % BATCHES
                )
                tokens = torch.randint(sizes["vocabulary"], (batch, sizes["length"]), generator=draw).to(self._device)
                with torch.no_grad():
                    answer = plain(tokens, self._mask, nullcontext)
                self._requests[name].append((tokens, answer))

    def workers(self) -> list[Worker]:
        """The request threads."""
        return [Worker(name, "server", str(self._device), partial(self._serve, name)) for name in self._names]

    def stop(self) -> None:
        """Each thread ends after the request that it answers."""
        self._stopped.set()

    def warm_up(self, kind: str) -> None:
        """Every kind of warm-up is the same here: a first request of each batch size, without gradients."""
        seen = {}
        for requests in self._requests.values():
            for tokens, _ in requests:
                seen[tokens.shape] = tokens
        with torch.no_grad():
            for tokens in seen.values():
                self._model(tokens, self._mask, nullcontext)

    def reference(self, scenario: Scenario) -> None:
        """All requests on the calling thread."""
        for name in self._names:
            self._serve(name)

    def _serve(self, name: str) -> None:
        for tokens, expected in self._requests[name]:
            if self._stopped.is_set():
                return
            try:
                answer = self._answer(name, tokens)
            except Exception as error:  # noqa: BLE001  # whatever a request raises is reported, and may end this thread
                self._ctx.step_failed(name, error)
                if self._scenario.on_error == "stop":
                    return
                continue
            off = (answer - expected).abs().max().item()
            if not off <= TOLERANCE * max(1.0, expected.abs().max().item()):
                self._ctx.finding(name, "numerics", f"an answer to {tokens.shape[0]} requests is off by {off:.3g} from eager")
            self._ctx.step(name, tokens=tokens.numel(), loss=answer.float().mean().item())

    def _answer(self, name: str, tokens: Tensor) -> Tensor:
        key = (id(self._model), str(self._device), tuple(tokens.shape), False)
        region = self._ctx.region
        around = around_attention(self._scenario, partial(region, "attention", name))
        with torch.no_grad(), region("step", name, key), region("forward", name):
            answer: Tensor = self._model(tokens, self._mask, around)
        return answer
