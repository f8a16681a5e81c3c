"""More shapes than the recompile limit: the rest runs uncompiled. All releases of torch, CPU.

Devices, static shapes and grad modes of all threads share one code object's cache, and so its limit of 8. Expected: all
calls of a compiled function run compiled, or fail. Exit code 1: some ran eager.
"""

import sys
import threading

import torch

torch._C._ensureCUDADeviceGuardSet()  # a CUDA build of 2.11 without a GPU crashes otherwise; another matter
graphs = []


def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward


@torch.compile(backend=backend, dynamic=False)
def double(x):
    return x * 2


def drafter(number):
    for length in range(4 * number + 2, 4 * number + 6):  # four shapes of its own
        double(torch.ones(length))


for number in range(3):
    thread = threading.Thread(target=drafter, args=(number,))
    thread.start()
    thread.join(120)
print(f"torch {torch.__version__}: 12 shapes of three threads, {len(graphs)} compiled; the others ran eager")
sys.exit(1 if len(graphs) < 12 else 0)
