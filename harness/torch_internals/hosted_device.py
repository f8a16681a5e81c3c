"""A device in host memory whose backward runs on an autograd thread of its own: the engine's hazards without a GPU.

On the CPU a backward runs on the thread that asked for it; on an accelerator the engine has a thread a device, and that
thread is one side of `compile-lock-engine-deadlock` and `user-lock-engine-deadlock`. A device registered from Python for
`PrivateUse1` gets such a thread too (`pt_autograd_0`). Its operators run as the CPU's, on a tensor in host memory that
stands behind each of its own.

Private names: `torch.utils.backend_registration._setup_privateuseone_for_python_backend` and
`torch._C._acc.create_empty_tensor`. Verified on torch 2.11, 2.13 and 2.14.1; missing names:
unavailable. Torch has one device of this kind in a process, and it stays. `flex_cpu` lets flex_attention pass on it. What
stands behind a tensor is kept until torch uses the address of its storage again, so it is for short runs.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from .base import AVAILABLE, Availability, missing
from .hosted_failures import let_hooks_raise

NAME = "hosted"
"""As torch writes it: "hosted:0"."""

_BEHIND: dict[int, Tensor] = {}  # address of a storage of the device → the tensor in host memory
_kept: list[object] = []
"""A library that is freed takes its operators along."""

_once = threading.Lock()

_VIEWS = (
    *("permute", "transpose.int", "t", "expand", "slice.Tensor", "select.int", "diagonal", "unsqueeze", "unbind.int"),
    *("squeeze", "squeeze.dim", "squeeze.dims", "split.Tensor", "split_with_sizes"),
)
"""Operators that torch makes of `as_strided` for any device. Here they are made of what stands behind, for the tensor in front
knows no strides but those of a contiguous one; what is written to a view is so written to its tensor."""

_SETUP = "_setup_privateuseone_for_python_backend"


class _Module:
    """What torch looks up under `torch.hosted`: a checkpoint asks for autocast and for the device's generator."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        """It has no generator of its own."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def get_rng_state(self, device: object = None) -> Tensor:
        del device
        return torch.empty(0, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor, device: object = None) -> None:
        """It has no generator of its own."""


def register() -> Availability:
    """Gives torch the device, once a process; any thread may call it, before the first tensor on the device."""
    registration: Any = importlib.import_module("torch.utils.backend_registration")
    if not hasattr(registration, _SETUP):
        return missing("torch.utils.backend_registration", _SETUP)
    if not hasattr(getattr(torch._C, "_acc", None), "create_empty_tensor"):
        return missing("torch._C._acc", "create_empty_tensor")
    with _once:
        if _kept:
            return AVAILABLE
        taken = torch._C._get_privateuse1_backend_name()
        if taken != "privateuseone":
            return Availability(False, f'torch has one device registered from outside, and it is "{taken}" already')
        able = let_hooks_raise()
        if not able.ok:
            return able
        getattr(registration, _SETUP)(NAME, _Module())
        _kept.extend(_operators())
    return AVAILABLE


def _operators() -> tuple[Any, Any]:
    library: Any = torch.library.Library
    fallbacks, aten = library("_", "IMPL"), library("aten", "IMPL")
    fallbacks.fallback(_as_on_the_cpu, "PrivateUse1")
    aten.impl("_copy_from", _copy_from, "PrivateUse1")
    aten.impl("empty_strided", _empty_strided, "PrivateUse1")
    aten.impl("empty.memory_format", _empty, "PrivateUse1")
    for name in _VIEWS:
        aten.impl(name, _one_operator(name), "PrivateUse1")
    for name in ("view", "_unsafe_view", "_reshape_alias"):
        aten.impl(name, _reshaped, "PrivateUse1")
    aten.impl("as_strided", _as_strided, "PrivateUse1")
    return fallbacks, aten


def _one_operator(name: str) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return lambda *args, **kwargs: _as_on_the_cpu(operator, *args, **kwargs)


def _as_on_the_cpu(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Any operator that has no kernel for the device: run on what stands behind its tensors."""
    behind, named = tree_map(_behind, (args, kwargs))
    result = operator(*behind, **named)
    out = kwargs.get("out")
    if isinstance(out, Tensor):
        if out.shape != result.shape:  # an operator that gives an empty `out` its size
            out.data = _on_device(result)
        return out
    if args and result is behind[0]:
        return args[0]  # in place
    return tree_map(_on_device, result)


def _reshaped(tensor: Tensor, size: Any, stride: Any = None) -> Any:
    """Asked for by the strides of the tensor in front; a copy where what stands behind has others that do not allow a view."""
    del stride
    return _on_device(_behind(tensor).reshape(size))


def _as_strided(tensor: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Any:
    return _on_device(_strided(_behind(tensor), size, stride, storage_offset or 0))


def _strided(base: Tensor, size: Any, stride: Any, offset: int) -> Tensor:
    """Strides and offset are told of a contiguous tensor that begins its storage."""
    base = base.contiguous()
    return base.as_strided(size, stride, base.storage_offset() + offset)


def _on_device(value: Any) -> Any:
    """A tensor in front of this one, whatever its strides are."""
    if not isinstance(value, Tensor):
        return value
    tensor = torch._C._acc.create_empty_tensor(tuple(value.shape), value.dtype)
    _BEHIND[tensor.untyped_storage()._cdata] = value
    return tensor


def _behind(value: Any) -> Any:
    if isinstance(value, Tensor) and value.device.type == NAME:
        base = _BEHIND[value.untyped_storage()._cdata]
        if base.shape == value.shape and value.is_contiguous() and not value.storage_offset():
            return base
        return _strided(base, value.shape, value.stride(), int(value.storage_offset()))  # a view that torch made
    if isinstance(value, torch.device) and value.type == NAME:
        return torch.device("cpu")
    return value


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    del non_blocking
    _behind(target).copy_(_behind(source))
    return target


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_unused: object) -> Any:
    return _on_device(torch.empty_strided(size, stride, dtype=dtype))


def _empty(size: Any, *, dtype: Any = None, **_unused: object) -> Any:
    return _on_device(torch.empty(size, dtype=dtype))
