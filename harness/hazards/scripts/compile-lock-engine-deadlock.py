"""Compiling flex_attention deadlocks with another thread's first compiled backward. torch 2.6 to 2.14, one CUDA device.

A compiles flex_attention with gradient: it holds torch's compile lock, and the operator's own joint trace needs the
device's autograd thread, which runs B's backward, whose lazy compile waits for the lock. Exit code 1: they deadlock.
"""

import faulthandler
import os
import sys
import threading

import torch
from torch.nn.attention.flex_attention import flex_attention

if not torch.cuda.is_available():
    print("needs a CUDA device")
    sys.exit(2)
engine_busy, a_holds_lock = threading.Event(), threading.Event()
flex_op = sys.modules["torch._higher_order_ops.flex_attention"]
joint = flex_op.create_fw_bw_graph


def joint_trace(*args, **kwargs):
    """Runs in A's compile, under the compile lock, before autograd.grad."""
    engine_busy.wait(60)
    a_holds_lock.set()
    return joint(*args, **kwargs)


def in_backward(gradient):
    """Runs on the device's autograd thread, before B's compiled backward is lowered."""
    engine_busy.set()
    a_holds_lock.wait(60)


flex_op.create_fw_bw_graph = joint_trace


def b():
    x = torch.randn(64, device="cuda", requires_grad=True)
    y = torch.compile(lambda t: t.sin().cos())(x)  # forward: compiled before A begins
    y.register_hook(in_backward)
    threads[0].start()
    y.sum().backward()


def a():
    q, k, v = (torch.randn(1, 2, 128, 64, device="cuda", requires_grad=True) for _ in range(3))
    torch.compile(flex_attention)(q, k, v).sum().backward()


threads = [threading.Thread(target=target, daemon=True, name=target.__name__) for target in (a, b)]
threads[1].start()
for thread in reversed(threads):
    thread.join(120)
if any(thread.is_alive() for thread in threads):
    print(f"torch {torch.__version__}: deadlock", flush=True)
    faulthandler.dump_traceback(file=sys.stdout, all_threads=True)
    os._exit(1)
print(f"torch {torch.__version__}: it did not happen")
