"""A compile that begins while another thread compiles runs no callback: tools undercount. torch >= 2.8, CPU.

B's backward is compiled at its first use, while A is in a compile. Expected: a start callback for each of the three
compiles. Exit code 1: one is missing.
"""

import sys
import threading

import torch
from torch._dynamo.callback import on_compile_start

compiling, forward_done, backward_done = threading.Event(), threading.Event(), threading.Event()
told = []
on_compile_start(lambda args: told.append(args.callback_trigger.name))


def backend(graph, inputs):
    compiling.set()
    backward_done.wait(5)
    return graph.forward


def a():
    forward_done.wait(60)
    torch.compile(lambda x: x * 3, backend=backend)(torch.ones(2))


def b():
    y = torch.compile(lambda x: x * 2, backend="aot_eager")(torch.ones(2, requires_grad=True))
    forward_done.set()
    compiling.wait(60)
    y.sum().backward()
    backward_done.set()


threads = [threading.Thread(target=target) for target in (a, b)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(90)
print(f"torch {torch.__version__}: three compiles, {len(told)} told: {', '.join(told)}")
sys.exit(1 if len(told) < 3 else 0)
