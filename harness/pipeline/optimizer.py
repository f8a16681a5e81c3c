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
        narrow = [(p, m) for p, m in zip(self._parameters, self._masters, strict=True) if m is not p]
        if narrow:
            with torch.no_grad():
                torch._foreach_copy_([p for p, _ in narrow], [m for _, m in narrow])
        self.zero_grad()
        return norm

    def _into_masters(self) -> Tensor:
        """The masters' gradients, to be applied so that their norm together is at most `clip`; returns the norm before.

        As `nn.utils.clip_grad_norm_`, but where one kernel applies them it is told the factor: with a billion weights
        every pass more is felt. Lists of tensors go to torch at once, for a kernel over many of them.
        """
        given = [parameter.grad for parameter in self._parameters]
        pairs = [(gradient, m) for gradient, m in zip(given, self._masters, strict=True) if gradient is not None]
        if not pairs:
            return torch.zeros(())
        gradients = [gradient for gradient, _ in pairs]
        norms = torch._foreach_norm(gradients, 2, dtype=pairs[0][1].dtype)
        norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        if any(gradient.dtype != master.dtype for gradient, master in pairs):
            wide = [torch.empty_like(master) for _, master in pairs]
            torch._foreach_copy_(wide, gradients)
            gradients = wide
        ready = iter(gradients)
        for master, gradient in zip(self._masters, given, strict=True):
            master.grad = None if gradient is None else next(ready)
        scale = (self._clip / (norm + 1e-6)).clamp(max=1.0)
        if self._fused:
            self._adamw.grad_scale = 1 / scale  # type: ignore[attr-defined]  # as GradScaler sets it: they are divided by it
        else:
            torch._foreach_mul_(gradients, scale)
        return norm

    def zero_grad(self) -> None:
        """Drop all gradients."""
        for tensor in (*self._parameters, *self._masters):
            tensor.grad = None
