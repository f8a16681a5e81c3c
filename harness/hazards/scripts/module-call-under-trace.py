"""Calling any eager nn.Module fails while another thread runs symbolic_trace. All releases of torch, CPU.

`symbolic_trace` patches `nn.Module.__call__` for the process, so that the other thread's module is taken for a part of
what is traced. Expected: the module runs. Exit code 1: it raised, or the trace has taken it in.
"""

import sys
import threading

import torch

inside, called = threading.Event(), threading.Event()
failed = []


class Traced(torch.nn.Module):
    def forward(self, x):
        inside.set()
        called.wait(30)
        return x * 2


def caller():
    module = torch.nn.Linear(2, 2)
    inside.wait(30)
    try:
        module(torch.ones(1, 2))
    except (NameError, RuntimeError) as error:
        failed.append(error)
    finally:
        called.set()


threads = [
    threading.Thread(target=torch.fx.symbolic_trace, args=(Traced(),)),
    threading.Thread(target=caller),
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
print(f"torch {torch.__version__}: {f'{type(failed[0]).__name__}: {failed[0]}' if failed else 'it did not happen'}")
sys.exit(1 if failed else 0)
