"""Compiling flex_attention deadlocks with another thread's first compiled backward. torch >= 2.6; no GPU is needed.

A compiles flex_attention with gradient: it holds torch's compile lock, and the operator's own joint trace needs the
device's autograd thread, which runs B's backward, whose lazy compile waits for the lock. Exit code 1: they deadlock.

Without a CUDA device it runs on one that is registered from Python (torch 2.10 and later): its tensors lie in host memory,
and autograd has a thread for it as for a GPU. Inductor has no kernels for it, so its graphs run operator by operator.
"""

import faulthandler
import importlib
import os
import sys
import threading

import torch
from torch.nn.attention.flex_attention import flex_attention
from torch.utils._pytree import tree_map

engine_busy, a_holds_lock, a_has_traced = threading.Event(), threading.Event(), threading.Event()
flex = importlib.import_module("torch.nn.attention.flex_attention")
flex_op = importlib.import_module("torch._higher_order_ops.flex_attention")
joint = flex_op.create_fw_bw_graph
in_host_memory = {}  # address of a storage of the device: the tensor behind it


def to_device(x):
    if not isinstance(x, torch.Tensor):
        return x
    made = torch._C._acc.create_empty_tensor(tuple(x.shape), x.dtype)
    plain = x.is_contiguous() and not x.storage_offset()
    in_host_memory[made.untyped_storage()._cdata] = x if plain else x.clone(memory_format=torch.contiguous_format)
    return made


def to_host(x):
    if isinstance(x, torch.device):
        return torch.device("cpu") if x.type == "hosted" else x
    if not isinstance(x, torch.Tensor) or x.device.type != "hosted":
        return x
    return in_host_memory[x.untyped_storage()._cdata].as_strided(x.shape, x.stride(), x.storage_offset())


def any_operator(operator, *args, **kwargs):
    given, named = tree_map(to_host, (args, kwargs))
    result, out = operator(*given, **named), kwargs.get("out")
    if out is None:
        return args[0] if args and result is given[0] else tree_map(to_device, result)
    if out.shape != result.shape:  # it was empty, to be given its size
        out.data = to_device(result)
    return out


def copy(source, target, non_blocking=False):
    to_host(target).copy_(to_host(source))
    return target


def register_a_device():
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    torch._C._ensureCUDADeviceGuardSet()  # a CUDA build without a device makes it up on a thread that stays
    _setup_privateuseone_for_python_backend("hosted")
    everything, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    everything.fallback(any_operator, "PrivateUse1")
    aten.impl("_copy_from", copy, "PrivateUse1")
    aten.impl("empty_strided", lambda *size, dtype=None, **_: to_device(torch.empty_strided(*size, dtype=dtype)), "PrivateUse1")
    aten.impl("empty.memory_format", lambda size, dtype=None, **_: to_device(torch.empty(size, dtype=dtype)), "PrivateUse1")
    flex._validate_device = lambda *_: None  # flex_attention lets only its own four devices pass
    return everything, aten


def up_to_codegen(graph, example_inputs):
    from torch._inductor.compile_fx import compile_fx

    def as_it_is(lowered, example, **_):
        def run(args):
            return lowered(*args)

        run._boxed_call = True
        return run

    return compile_fx(graph, example_inputs, inner_compile=as_it_is)


def joint_trace(*args, **kwargs):
    """Runs in A's compile, under the compile lock, before autograd.grad."""
    engine_busy.wait(60)
    a_holds_lock.set()
    traced = joint(*args, **kwargs)
    a_has_traced.set()
    return traced


def in_backward(gradient):
    """Runs on the device's autograd thread, before B's compiled backward is lowered."""
    engine_busy.set()
    a_holds_lock.wait(60)


flex_op.create_fw_bw_graph = joint_trace
if torch.cuda.is_available():
    device, backend = "cuda", "inductor"
else:
    kept = register_a_device()
    device, backend = "hosted", up_to_codegen


def b():
    x = torch.randn(64).to(device).requires_grad_()
    y = torch.compile(lambda t: t.sin().cos(), backend=backend)(x)  # forward: compiled before A begins
    y.register_hook(in_backward)
    threads[0].start()
    y.sum().backward()


def a():
    q, k, v = (torch.randn(1, 2, 128, 64).to(device).requires_grad_() for _ in range(3))
    torch.compile(flex_attention, backend=backend)(q, k, v).sum().backward()


threads = [threading.Thread(target=target, daemon=True, name=target.__name__) for target in (a, b)]
threads[1].start()
if not a_holds_lock.wait(300):
    sys.exit("A never came to its joint trace")
if not a_has_traced.wait(10):  # alone it takes a fraction of a second
    print(f"torch {torch.__version__}: deadlock", flush=True)
    faulthandler.dump_traceback(file=sys.stdout, all_threads=True)
    os._exit(1)
for thread in reversed(threads):
    thread.join(300)
print(f"torch {torch.__version__}: it did not happen")
