"""A warm-up under no_grad does not warm up training: the workers compile after all. All releases of torch, CPU.

Grad mode is guarded on. Exit code 1: a worker compiled once more.
"""

import sys
import threading

import torch

graphs = []


def backend(graph, inputs):
    graphs.append(threading.current_thread().name)
    return graph.forward


@torch.compile(backend=backend)
def double(x):
    return x * 2


with torch.no_grad():
    double(torch.ones(2, requires_grad=True))
worker = threading.Thread(target=double, args=(torch.ones(2, requires_grad=True),), name="worker")
worker.start()
worker.join(60)
print(f"torch {torch.__version__}: compiled in {', '.join(graphs)}")
sys.exit(1 if "worker" in graphs else 0)
