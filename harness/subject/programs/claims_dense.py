"""Compiled attention past the recompile limit: does anything say that it runs dense? On the CPU, forward only."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from harness.torch_internals import dynamo_config

from .parts import Parts

LIMIT, LENGTHS = 2, 5
"""Graphs that Dynamo may keep (8 unless set: this is to save time), and lengths that are called."""


class _Records(logging.Handler):
    """Counts what torch logs at WARNING or above while a call runs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps its text."""
        self.texts.append(record.getMessage())


def attend(query: Tensor) -> Tensor:
    """Attention of [1, 1, L, 16] to itself; returns the same shape."""
    out = flex_attention(query, query, query)
    assert isinstance(out, Tensor)
    return out


class PastTheLimit(Parts):
    """One worker calls compiled attention with more static lengths than Dynamo keeps.

    Facts: `dense`, calls that ran uncompiled; `raised`, `warned`, of these those that raised, or during which torch warned or
    logged a warning.
    """

    def build(self) -> None:
        """Every warning is shown, as often as it comes."""
        self._ran_dense = False
        self._attend = torch.compile(self._noting, backend="eager", dynamic=False)
        self._records = _Records()
        logging.getLogger("torch").addHandler(self._records)
        warnings.simplefilter("always")
        warnings.showwarning = self._note

    def _noting(self, query: Tensor) -> Tensor:
        if not torch.compiler.is_dynamo_compiling():  # a constant to the compiler, so only uncompiled runs come here
            self._ran_dense = True
        return attend(query)

    def _note(self, message: Warning | str, *_: object, **__: object) -> None:
        self._records.texts.append(str(message))

    def parts(self) -> Mapping[str, Callable[[], None]]:
        """One worker is enough."""
        return {"caller": self._call}

    def _call(self) -> None:
        dynamo_config.apply(dynamo_config.DynamoSettings(recompile_limit=LIMIT))
        dense = raised = warned = 0
        for length in range(16, 16 + LENGTHS):
            self._ran_dense = False
            self._records.texts.clear()
            try:
                self._attend(torch.ones(1, 1, length, 16))
            except RuntimeError:
                raised += 1
            dense += self._ran_dense
            warned += self._ran_dense and bool(self._records.texts)
        for name, value in (("dense", dense), ("raised", raised), ("warned", warned)):
            self.ctx.fact("", name, value)
