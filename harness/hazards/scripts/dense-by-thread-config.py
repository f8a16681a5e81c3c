"""torch._dynamo.config is per thread: a limit raised in the main thread is the default in a worker. torch >= 2.12, CPU.

Beyond the limit a compiled function runs eager, in silence (compiled flex_attention: dense). Expected: what the main
thread sets holds for the threads that it starts. Exit code 1: it does not, and calls ran uncompiled.
"""

import sys
import threading

import torch
import torch._dynamo.config as config

SHAPES = range(2, 14)
graphs = []
seen = []


def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward


@torch.compile(backend=backend, dynamic=False)
def double(x):
    return x * 2


def worker():
    seen.append(config.recompile_limit)
    for length in SHAPES:
        double(torch.ones(length))


config.recompile_limit = 64
thread = threading.Thread(target=worker)
thread.start()
thread.join(120)
print(f"torch {torch.__version__}: set to 64 in the main thread, {seen[0]} in the worker;")
print(f"{len(graphs)} of {len(SHAPES)} shapes were compiled, the others ran eager")
sys.exit(1 if len(graphs) < len(SHAPES) else 0)
