"""A module called in one thread while another traces its owner: the graph has the call in it. All releases of torch, CPU.

`symbolic_trace` patches `nn.Module.__call__` for the process. Where the module belongs to what is traced, as replicas often
share one, nothing is raised. Expected: the graph calls it once. Exit code 1: more often.
"""

import sys
import threading

import torch

inside, called = threading.Event(), threading.Event()


class Traced(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)

    def forward(self, x):
        inside.set()
        called.wait(30)
        return self.inner(x)


def caller():
    inside.wait(30)
    try:
        module.inner(torch.ones(1, 2))
    finally:
        called.set()


module = Traced()
thread = threading.Thread(target=caller)
thread.start()
graph = torch.fx.symbolic_trace(module).graph
thread.join(60)
calls = sum(node.op == "call_module" for node in graph.nodes)
print(f"torch {torch.__version__}: the traced module calls its part once, its graph {calls} times")
sys.exit(1 if calls != 1 else 0)
