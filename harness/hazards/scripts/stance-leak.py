"""`torch.compiler.set_stance` in one thread holds in all others. All releases of torch, CPU.

Expected: a stance is its thread's. Exit code 1: another thread's compiled call ran eager meanwhile.
"""

import sys
import threading

import torch

set_, called = threading.Event(), threading.Event()
graphs = []


def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward


@torch.compile(backend=backend)
def double(x):
    return x * 2


def debugger():
    with torch.compiler.set_stance("force_eager"):
        set_.set()
        called.wait(30)


thread = threading.Thread(target=debugger)
thread.start()
set_.wait(30)
double(torch.ones(2))
called.set()
thread.join(60)
print(f"torch {torch.__version__}: the main thread's call was {'compiled' if graphs else 'not compiled'}")
sys.exit(0 if graphs else 1)
