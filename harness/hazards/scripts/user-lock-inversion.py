"""A lock of one's own, wanted inside a compile and held around one: a deadlock. All releases of torch, CPU.

A compiles, so it holds torch's compile lock, and its backend wants a lock that B holds; B compiles and waits for the
compile lock. Exit code 1: both wait for each other.
"""

import faulthandler
import os
import sys
import threading

import torch

mine = threading.Lock()
a_compiles, b_holds = threading.Event(), threading.Event()


def backend(graph, inputs):
    a_compiles.set()
    b_holds.wait(30)
    with mine:
        return graph.forward


def a():
    torch.compile(lambda x: x * 2, backend=backend)(torch.ones(2))


def b():
    a_compiles.wait(60)
    with mine:
        b_holds.set()
        torch.compile(lambda x: x * 3, backend="eager")(torch.ones(2))


threads = [threading.Thread(target=target, daemon=True) for target in (a, b)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(3)
if any(thread.is_alive() for thread in threads):
    print(f"torch {torch.__version__}: deadlock", flush=True)
    faulthandler.dump_traceback(file=sys.stdout, all_threads=True)
    os._exit(1)
print(f"torch {torch.__version__}: it did not happen")
