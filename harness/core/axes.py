"""The axes of a scenario: their names, order, values and defaults, and the check of a single value."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from harness.core.errors import MatrixError, nearest, show
from harness.core.lockspec import parse_lock
from harness.core.schedulespec import parse_schedule

Value = str | int
"""What an axis can hold."""


@dataclass(frozen=True)
class Axis:
    """One axis. ``choices`` belongs to kind ``choice``, ``minimum`` to kind ``int``."""

    name: str
    kind: Literal["choice", "str", "int"]
    default: Value
    doc: str
    choices: tuple[str, ...] = ()
    minimum: int | None = None


def _choice(name: str, doc: str, *choices: str) -> Axis:
    return Axis(name, "choice", choices[0], doc, choices=choices)


def _text(name: str, default: str, doc: str) -> Axis:
    return Axis(name, "str", default, doc)


def _count(name: str, minimum: int, default: int, doc: str) -> Axis:
    return Axis(name, "int", default, doc, minimum=minimum)


AXES: tuple[Axis, ...] = (
    _text("lock", "none", "lock strategy: a name, each:R+R or span:R..R"),
    _choice("lock_owner", "who owns a held lock: the worker, or the OS thread", "worker", "thread"),
    _choice(
        "warmup",
        "compile before the workers start: not at all, on the main thread, or there for each device",
        "none",
        "main_no_grad",
        "main_grad",
        "per_device",
    ),
    _choice("checkpoint", "activation checkpointing of the layers", "none", "reentrant", "non_reentrant"),
    _choice("cudagraphs", "CUDA graphs: off, inductor's trees, or captured by hand", "off", "trees", "manual"),
    _choice(
        "shapes",
        "padded to one length, as documents come, or a length per drafter",
        "fixed",
        "variable",
        "per_drafter",
    ),
    _choice("mask", "how the block mask is built", "eager", "compiled"),
    _choice("compile", "what torch.compile wraps", "attention", "layer", "drafter", "none"),
    _choice("code", "drafters share one code object, or each has its own", "shared", "each"),
    _choice(
        "dynamo",
        "Dynamo's configuration",
        "default",
        "nested_trace_allowed",
        "suppress_errors",
        "limit_in_main",
        "early_lowering",
    ),
    _choice("cache", "compiler caches on disk at the start of a trial", "cold", "warm"),
    _choice("replicas", "drafters train alone, or average gradients", "independent", "synchronised"),
    _count("drafters", 1, 3, "number of drafter threads"),
    _count("targets", 1, 1, "number of target threads"),
    _text("devices", "cpu", "cpu, hosted:0, or CUDA devices joined by +; the targets' / the drafters': cuda:0/cuda:1+cuda:2"),
    _text("backend", "auto", "torch.compile backend: auto, aot_eager, inductor, eager or another name"),
    _text("schedule", "none", "who may pass a sync point"),
    _choice("on_error", "what a worker does after a step that raised", "stop", "skip"),
    _text("workload", "dflash", "the code that runs"),
    _count("seed", 0, 0, "seed of data, weights and anchors"),
    _count("steps", 1, 6, "steps of each drafter"),
)
"""Every axis, in the order in which ids and tables show them."""

BY_NAME: dict[str, Axis] = {axis.name: axis for axis in AXES}

HOSTED = "hosted:0"
"""A device in host memory that autograd has a thread for, as for a GPU."""

INDUCTOR_EAGER = "inductor_eager"
"""The backend there: inductor up to its code generation."""

_CUDA = r"cuda:(?:0|[1-9]\d*)"
_DEVICES = re.compile(rf"cpu|{HOSTED}|{_CUDA}(\+{_CUDA})*(/{_CUDA}(\+{_CUDA})*)?")
_BACKEND = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def _check_lock(value: str) -> str:
    try:
        return parse_lock(value).name
    except MatrixError as error:
        raise MatrixError(f'axis "lock": {error}') from None


def _check_devices(value: str) -> str:
    if not _DEVICES.fullmatch(value):
        raise MatrixError(
            f'axis "devices": cannot read "{value}"; write cpu, cuda:0, cuda:0+cuda:1, the targets\' and the '
            "drafters' apart: cuda:0/cuda:1, or hosted:0"
        )
    for role in value.split("/"):
        listed = role.split("+")
        for device in listed:
            if listed.count(device) > 1:
                raise MatrixError(f'axis "devices": "{device}" is listed twice; name each device once for each role')
    return value


def _check_backend(value: str) -> str:
    if not _BACKEND.fullmatch(value):
        raise MatrixError(f'axis "backend": "{value}" cannot be the name of a torch.compile backend')
    return value


def _check_schedule(value: str) -> str:
    try:
        parse_schedule(value)
    except MatrixError as error:
        raise MatrixError(f'axis "schedule": {error}') from None
    return value


_CHECKS: dict[str, Callable[[str], str]] = {
    "lock": _check_lock,
    "devices": _check_devices,
    "backend": _check_backend,
    "schedule": _check_schedule,
}


def no_axis(name: str) -> str:
    """That no axis is called so, and which may have been meant: the nearest, or else any."""
    return f'no axis is called "{name}"{nearest(name, BY_NAME) or "; axes are " + ", ".join(BY_NAME)}'


def axis_named(name: str) -> Axis:
    """The axis of that name.

    Raises:
        MatrixError: there is none; the message names the nearest, or all where none is near.
    """
    axis = BY_NAME.get(name)
    if axis is None:
        raise MatrixError(no_axis(name))
    return axis


def coerce(name: str, value: object) -> Value:
    """The canonical value of an axis: ``value`` itself, but for a lock whose regions come in another order.

    Raises:
        MatrixError: unknown axis, wrong type (a bool is no int) or a value that the axis does not take.
    """
    axis = axis_named(name)
    if axis.kind == "int":
        if isinstance(value, bool) or not isinstance(value, int):
            raise MatrixError(f'axis "{name}": {show(value)} is not an integer')
        if axis.minimum is not None and value < axis.minimum:
            raise MatrixError(f'axis "{name}": {value} is too small; the least is {axis.minimum}')
        return value
    if not isinstance(value, str):
        raise MatrixError(f'axis "{name}": {show(value)} is not a string')
    if axis.kind == "choice":
        if value not in axis.choices:
            allowed = ", ".join(axis.choices)
            raise MatrixError(f'axis "{name}": no value "{value}"{nearest(value, axis.choices)}; it takes {allowed}')
        return value
    if not value or value != value.strip() or not value.isprintable():
        raise MatrixError(f'axis "{name}": {show(value)} is empty, or has blanks around it or control marks')
    check = _CHECKS.get(name)
    return value if check is None else check(value)
