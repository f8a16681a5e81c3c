"""The optimizer of the public recipes: clipped AdamW under a cosine schedule, on float32 weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from harness.pipeline.schedule import cosine_with_warmup


class DrafterOptimizer:
    """AdamW (betas 0.9 and 0.95) for one drafter.

    A model in bfloat16 or float16 trains on float32 copies of its weights: an update of a thousandth of a
    weight would be lost in rounding, and AdamW's epsilon is zero in float16.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        *,
        learning_rate: float,
        weight_decay: float,
        clip: float,
        total_steps: int,
        warmup_steps: int,
    ) -> None:
        self._parameters = list(parameters)
        self._masters = [p if p.dtype == torch.float32 else p.detach().float() for p in self._parameters]
        self._clip = clip
        self._learning_rate = learning_rate
        self._total, self._warmup = total_steps, warmup_steps
        self._adamw = torch.optim.AdamW(self._masters, lr=learning_rate, betas=(0.9, 0.95), weight_decay=weight_decay)

    def step(self, number: int) -> Tensor:
        """Apply the parameters' gradients as step `number` of the run (from 0), and clear them.

        Returns the norm of the gradients before clipping. A parameter without a gradient stays as it is.
        """
        for parameter, master in zip(self._parameters, self._masters, strict=True):
            if master is not parameter:
                master.grad = None if parameter.grad is None else parameter.grad.float()
        norm = nn.utils.clip_grad_norm_(self._masters, self._clip)
        factor = cosine_with_warmup(number, total=self._total, warmup=self._warmup)
        for group in self._adamw.param_groups:
            group["lr"] = self._learning_rate * factor
        self._adamw.step()
        with torch.no_grad():
            for parameter, master in zip(self._parameters, self._masters, strict=True):
                if master is not parameter:
                    parameter.copy_(master)
        self.zero_grad()
        return norm

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for tensor in (*self._parameters, *self._masters):
            tensor.grad = None
