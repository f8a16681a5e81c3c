"""The shipped workloads with one fault each, which their checks have to see."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.core.workload import Context, Scenario
from harness.workloads.inference_server import InferenceServer
from harness.workloads.trainer import Replica, Trainer


class WrongAnswer(InferenceServer):
    """One thread's answers are off by a thousandth."""

    def _answer(self, name: str, tokens: Tensor) -> Tensor:
        answer = super()._answer(name, tokens)
        return answer + 1e-3 if name == "server-1" else answer


class FrozenWeight(Trainer):
    """The head's bias takes no part in the loss."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        super().setup(scenario, ctx)
        for replica in self._replicas:
            self._spoil(replica)

    def _spoil(self, replica: Replica) -> None:
        bias = replica.model.head.bias
        assert isinstance(bias, torch.nn.Parameter)
        replica.model.head.register_forward_hook(lambda head, inputs, output: inputs[0] @ head.weight.T)
