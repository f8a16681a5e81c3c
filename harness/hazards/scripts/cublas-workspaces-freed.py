"""Recording CUDA graphs in one thread while others multiply: an illegal memory access. torch 2.11, CUDA.

Before each recording torch drops the cuBLAS workspaces of all threads and empties the allocator's cache: the workspace that
another thread has just chosen is no longer mapped when its kernel starts. Expected: all graphs are recorded. Exit code 1: not.
"""

import os
import sys
import threading

import torch

if not torch.cuda.is_available():
    print("needs a CUDA device")
    sys.exit(2)
GRAPHS = 400
ended = threading.Event()
said, recorded = [], 0


def record():
    global recorded
    twice = torch.compile(lambda x: x * 2, mode="reduce-overhead", dynamic=True)
    with torch.no_grad():
        x = torch.ones(GRAPHS + 8, device="cuda")
        for length in range(8, GRAPHS + 8):
            twice(x[:length])
            twice(x[:length])  # the second call of a length records its graph
            recorded += 1


def multiply():
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        a = torch.ones(64, 8192, dtype=torch.bfloat16, device="cuda")
        while not ended.is_set():
            for inner in (2048, 4096, 8192):
                a[:, :inner] @ a[:, :inner].T
            torch.cuda.current_stream().synchronize()


def noting(work):
    try:
        work()
    except RuntimeError as error:
        said.append(f"{work.__name__}: {str(error).splitlines()[0]}")
    finally:
        if work is record:
            ended.set()


threads = [threading.Thread(target=noting, args=(work,)) for work in (record, multiply, multiply, multiply)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(f"torch {torch.__version__}: {recorded} of {GRAPHS} graphs recorded", *said, sep="\n")
sys.stdout.flush()
os._exit(1 if said else 0)
