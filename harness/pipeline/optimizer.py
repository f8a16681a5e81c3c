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
        fused: bool | None = None,
    ) -> None:
        """`fused`: one kernel goes over all weights, once; None: on CUDA."""
        self._parameters = list(parameters)
        self._masters = [p if p.dtype == torch.float32 else p.detach().float() for p in self._parameters]
        self._clip = clip
        self._learning_rate = learning_rate
        self._total, self._warmup = total_steps, warmup_steps
        self._fused = all(master.is_cuda for master in self._masters) if fused is None else fused
        # foreach is torch's choice on a device that is not the CPU; there another drafter's compile breaks it (compiling-leak).
        self._adamw = torch.optim.AdamW(
            self._masters,
            lr=learning_rate,
            betas=(0.9, 0.95),
            weight_decay=weight_decay,
            foreach=False,
            fused=self._fused or None,
        )

    def step(self, number: int) -> Tensor:
        """Apply the parameters' gradients as step `number` of the run (from 0), and clear them.

        Returns the norm of the gradients before clipping. A parameter without a gradient stays as it is.
        """
        norm = self._into_masters()
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

    def _into_masters(self) -> Tensor:
        """The masters' gradients, to be applied so that their norm together is at most `clip`; returns the norm before.

        As `nn.utils.clip_grad_norm_`, but each gradient is read twice and written once, and where one kernel applies all it
        is told the factor: with a billion weights every pass more is felt.
        """
        pairs = [(p.grad, m) for p, m in zip(self._parameters, self._masters, strict=True) if p.grad is not None]
        if not pairs:
            return torch.zeros(())
        norms = [torch.linalg.vector_norm(gradient, dtype=master.dtype) for gradient, master in pairs]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        # One element, not none: a tensor without dimensions would not lift the product to the masters' precision.
        scale = (self._clip / (norm + 1e-6)).clamp(max=1.0).reshape(1)
        if self._fused:
            self._adamw.grad_scale = 1 / scale  # type: ignore[attr-defined]  # as GradScaler sets it: they are divided by it
        for parameter, master in zip(self._parameters, self._masters, strict=True):
            gradient = parameter.grad
            if gradient is not None:
                gradient = gradient.to(master.dtype) if self._fused else gradient * scale
            master.grad = gradient
        return norm

    def restart(self) -> None:
        """Take the parameters as they are now for the weights that training begins with. Before the first step."""
        with torch.no_grad():
            for parameter, master in zip(self._parameters, self._masters, strict=True):
                if master is not parameter:
                    master.copy_(parameter)

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for tensor in (*self._parameters, *self._masters):
            tensor.grad = None
