"""Two threads, one after the other, build a block mask while the dictionary of node annotations is replaced.

That is what a compile of another thread does when it ends; here it happens in every mask, so nothing is left to chance.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.fx.traceback
from torch.nn.attention.flex_attention import create_block_mask

argsort = torch.argsort


def sort_and_replace(*args: Any, **kwargs: Any) -> torch.Tensor:
    torch.fx.traceback.current_meta = {}
    return argsort(*args, **kwargs)


def causal(_batch: Any, _head: Any, query: Any, key: Any) -> Any:
    return query >= key


def train() -> None:
    create_block_mask(causal, 1, 1, 128, 128, device="cpu")


torch.argsort = sort_and_replace
for number in range(2):
    trainer = threading.Thread(target=train, name=f"trainer-{number}")
    trainer.start()
    trainer.join()
