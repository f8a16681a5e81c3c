"""Importing CUDA-graph trees in a thread that ends gives up references that were never taken. torch < 2.12, CPU.

`torch._C._stash_obj_in_tls` takes no reference, and the end of the thread gives one up. Expected: the dictionaries are held as
often as before. Exit code 1: they are not; whoever uses them next, reads memory that is not theirs.
"""

import os
import sys
import threading
import time

import torch

held, thread_id = [], 0


def compile_first():
    """What the first compile with mode="reduce-overhead" does."""
    import torch._inductor.cudagraph_trees as trees

    global thread_id
    dictionaries = (trees.local.tree_manager_containers, trees.local.tree_manager_locks)
    held.extend([dictionary] * 16 for dictionary in dictionaries)
    thread_id = threading.get_native_id()


thread = threading.Thread(target=compile_first)
thread.start()
thread.join(60)
for _ in range(30_000):  # its thread-local storage goes after Python is done with it
    if not os.path.exists(f"/proc/self/task/{thread_id}"):
        break
    time.sleep(0.001)
counts = [sys.getrefcount(references[0]) - 1 for references in held]
print(f"torch {torch.__version__}: 16 references to each dictionary in a list, {counts[0]} and {counts[1]} counted")
sys.stdout.flush()
os._exit(1 if min(counts) < 16 else 0)
