"""`torch.compiler.is_compiling()` is True in a thread that compiles nothing, while another does. torch >= 2.13, CPU.

Code that branches on it, eager optimizers among it, takes the wrong branch. Expected: False. Exit code 1: it is True.
"""

import sys
import threading

import torch

compiling, asked = threading.Event(), threading.Event()


def traced(x):
    return x * 2


def backend(graph, inputs):
    compiling.set()
    asked.wait(30)
    return graph.forward


thread = threading.Thread(target=torch.compile(traced, backend=backend), args=(torch.ones(2),))
thread.start()
compiling.wait(60)
answer = torch.compiler.is_compiling()
asked.set()
thread.join(60)
after = torch.compiler.is_compiling()
print(f"torch {torch.__version__}: is_compiling() in the main thread, which compiles nothing: {answer}, later {after}")
sys.exit(1 if answer else 0)
