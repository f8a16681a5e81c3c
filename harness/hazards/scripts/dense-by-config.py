"""`error_on_nested_fx_trace = False` turns the FX error into running uncompiled, in silence. torch < 2.14, CPU.

Expected: the compiled call is compiled, or something says that it is not. Exit code 1: it ran eager, without a word.
"""

import sys
import threading

import torch
import torch._dynamo.config as config
from torch.fx.experimental.proxy_tensor import make_fx

tracing, called = threading.Event(), threading.Event()
graphs, results = [], []


def traced(x):
    tracing.set()
    called.wait(30)
    return x * 3


def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward


@torch.compile(backend=backend)
def double(x):
    return x * 2


def caller():
    config.error_on_nested_fx_trace = False  # the cure that is passed around
    tracing.wait(30)
    try:
        results.append(double(torch.ones(2)))
    finally:
        called.set()


threads = [threading.Thread(target=make_fx(traced), args=(torch.ones(2),)), threading.Thread(target=caller)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
silent = len(results) == 1 and not graphs
print(f"torch {torch.__version__}: {'ran without being compiled, in silence' if silent else 'it did not happen'}")
sys.exit(1 if silent else 0)
