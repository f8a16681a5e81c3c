"""A barrier between replicas inside a locked region: a deadlock, whatever is compiled. All releases of torch, CPU.

A holds the lock and waits for B at the barrier; B waits for the lock. Exit code 1: both wait for each other.
"""

import faulthandler
import os
import sys
import threading

import torch

lock, barrier = threading.Lock(), threading.Barrier(2)


@torch.compile(backend="eager")
def double(x):
    return x * 2


def drafter():
    with lock:  # around the whole step
        double(torch.ones(2))
        barrier.wait()  # gradients of all replicas are averaged here


threads = [threading.Thread(target=drafter, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(3)
if any(thread.is_alive() for thread in threads):
    print(f"torch {torch.__version__}: deadlock", flush=True)
    faulthandler.dump_traceback(file=sys.stdout, all_threads=True)
    os._exit(1)
print(f"torch {torch.__version__}: it did not happen")
