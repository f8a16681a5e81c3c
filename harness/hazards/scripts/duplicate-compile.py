"""Two threads that meet the same cold function both compile it. All releases of torch, CPU.

The second has found nothing in the cache before it waits for the compile lock, and does not look again. Expected: one
graph. Exit code 1: two.
"""

import sys
import threading
import time

import torch

compiling = threading.Event()
graphs = []


def waits_for_lock(thread):
    """Whether the thread has come to Dynamo's compile, past its look into the cache."""
    frame = sys._current_frames().get(thread.ident)
    while frame is not None:
        if frame.f_code.co_filename.endswith("convert_frame.py"):
            return True
        frame = frame.f_back
    return False


def backend(graph, inputs):
    graphs.append(threading.current_thread().name)
    compiling.set()
    deadline = time.monotonic() + 30
    while len(graphs) == 1 and not waits_for_lock(second) and time.monotonic() < deadline:
        time.sleep(0.01)
    return graph.forward


@torch.compile(backend=backend)
def double(x):
    return x * 2


def late():
    compiling.wait(60)
    double(torch.ones(2))


first = threading.Thread(target=double, args=(torch.ones(2),), name="first")
second = threading.Thread(target=late, name="second")
for thread in (first, second):
    thread.start()
for thread in (first, second):
    thread.join(90)
print(f"torch {torch.__version__}: {len(graphs)} graphs of one function: {', '.join(graphs)}")
sys.exit(1 if len(graphs) > 1 else 0)
