"""A compile in one thread sets the random generators of all threads back. All releases of torch, CPU.

Dynamo saves the state of torch's and of Python's generators when a compile begins and restores it at its end, for the
process. What another thread drew meanwhile, it draws again. Expected: two draws differ. Exit code 1: they are equal.
"""

import random
import sys
import threading

import torch

compiling, drawn = threading.Event(), threading.Event()
draws = []


def backend(graph, inputs):
    compiling.set()
    drawn.wait(30)
    return graph.forward


def compiler():
    torch.compile(lambda x: x * 2, backend=backend)(torch.ones(2))


thread = threading.Thread(target=compiler)
thread.start()
compiling.wait(60)
draws.append((torch.rand(3).tolist(), random.random()))  # while the other thread compiles
drawn.set()
thread.join(60)
draws.append((torch.rand(3).tolist(), random.random()))  # after it has compiled

print(f"torch {torch.__version__}: drew {draws[0]}\n and then {draws[1]}")
sys.exit(1 if draws[0][0] == draws[1][0] or draws[0][1] == draws[1][1] else 0)
