"""A small real trainer, for `watch_cost`: knows nothing of the harness. Prints one JSON object.

`step_s`: median seconds of a warm step. `watch_program.py STEPS tiny`: of a step that computes next to nothing, in which
what a watch adds can be seen by itself.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch

WARM = 20
TINY_WARM = 1000


def main(steps: int) -> None:
    """Train."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        *(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.LayerNorm(256)) for _ in range(6)),
        torch.nn.Linear(256, 10),
    )
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    x, y = torch.randn(128, 256), torch.randint(0, 10, (128,))
    seconds: list[float] = []
    for _ in range(steps + WARM):
        began = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(compiled(x), y).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    print(json.dumps({"step_s": statistics.median(seconds[WARM:]), "steps": steps}))


def tiny(steps: int) -> None:
    """A compiled call, a backward and an optimizer's step of one number."""
    torch.set_num_threads(1)
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.0)
    compiled = torch.compile(lambda x: x * weight, backend="eager")
    x = torch.ones(1)
    seconds: list[float] = []
    for _ in range(steps + TINY_WARM):
        began = time.perf_counter()
        compiled(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - began)
    print(json.dumps({"step_s": statistics.median(seconds[TINY_WARM:]), "steps": steps}))


if __name__ == "__main__":
    (tiny if "tiny" in sys.argv else main)(int(sys.argv[1]))
