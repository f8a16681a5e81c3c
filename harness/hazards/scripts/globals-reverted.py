"""A setting made in one thread while another compiles is undone in silence. All releases of torch, CPU.

Dynamo saves process-wide settings when a compile begins and restores them at its end. Expected: what was set stays set.
Exit code 1: it is gone.
"""

import sys
import threading

import torch

compiling, has_set = threading.Event(), threading.Event()


def backend(graph, inputs):
    compiling.set()
    has_set.wait(30)
    return graph.forward


def compiler():
    torch.compile(lambda x: x * 2, backend=backend)(torch.ones(2))


thread = threading.Thread(target=compiler)
thread.start()
compiling.wait(60)
torch.manual_seed(1234)
torch.use_deterministic_algorithms(True)
has_set.set()
thread.join(60)
deterministic = torch.are_deterministic_algorithms_enabled()
drawn = torch.rand(2)
torch.manual_seed(1234)
seeded = torch.equal(drawn, torch.rand(2))

print(f"torch {torch.__version__}: after the compile: deterministic {deterministic}, numbers of the seed {seeded}")
sys.exit(0 if deterministic and seeded else 1)
