"""A scenario: one point of the matrix, an immutable value that is checked when it is made."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from harness.core.axes import AXES, Value, axis_named, coerce
from harness.core.errors import MatrixError, show

MAX_ID = 150
"""Longest id, in characters: a trial's folder adds to it and must stay below the 255 bytes of a file name."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_.+:-]")


@dataclass(frozen=True)
class Scenario:
    """One value for every axis; see ``harness.core.axes`` for what each means.

    Raises:
        MatrixError: a value that its axis does not take.
    """

    lock: str = "none"
    lock_owner: str = "worker"
    warmup: str = "none"
    checkpoint: str = "none"
    cudagraphs: str = "off"
    shapes: str = "fixed"
    mask: str = "eager"
    compile: str = "attention"
    code: str = "shared"
    dynamo: str = "default"
    cache: str = "cold"
    replicas: str = "independent"
    drafters: int = 3
    targets: int = 1
    devices: str = "cpu"
    backend: str = "auto"
    schedule: str = "none"
    on_error: str = "stop"
    workload: str = "dflash"
    seed: int = 0
    steps: int = 6

    def __post_init__(self) -> None:
        for axis in AXES:
            object.__setattr__(self, axis.name, coerce(axis.name, getattr(self, axis.name)))

    @cached_property
    def id(self) -> str:
        """The non-default ``axis=value``s in axis order, joined by ``,``; ``default`` when nothing differs.

        Safe as a file name and different for different scenarios: ``:`` is written ``-`` and any other odd
        character ``_``, and where that, or the cut at ``MAX_ID`` characters, loses something (a value that
        itself holds ``-`` counts), ``~`` and eight hexadecimal digits of a hash follow.
        """
        differing = [(axis.name, str(self.value(axis.name))) for axis in AXES if self.value(axis.name) != axis.default]
        if not differing:
            return "default"
        text = ",".join(f"{name}={_UNSAFE.sub('_', value).replace(':', '-')}" for name, value in differing)
        lossy = any("-" in value or _UNSAFE.search(value) for _, value in differing)
        if not lossy and len(text) <= MAX_ID:
            return text
        digest = hashlib.sha256(repr(differing).encode()).hexdigest()[:8]
        return f"{text[: MAX_ID - 9]}~{digest}"

    def value(self, axis: str) -> Value:
        """The value of the axis of that name.

        Raises:
            MatrixError: no such axis.
        """
        value: Value = getattr(self, axis_named(axis).name)
        return value

    def to_dict(self) -> dict[str, Value]:
        """Every axis, in axis order."""
        return {axis.name: self.value(axis.name) for axis in AXES}

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> Scenario:
        """The scenario with these values and defaults for the axes that are missing.

        Raises:
            MatrixError: an unknown axis, or a value that its axis does not take; no table at all.
        """
        if not isinstance(values, Mapping):
            raise MatrixError(f"scenario = {show(values)} is no table of axes and values")
        checked = {name: coerce(name, value) for name, value in values.items()}
        return dataclasses.replace(cls(), **checked)  # type: ignore[arg-type]

    def replace(self, **axes: Value) -> Scenario:
        """This scenario with other values on the axes named; raises as ``from_dict``."""
        return Scenario.from_dict({**self.to_dict(), **axes})

    def describe(self, varying_axes: Iterable[str]) -> str:
        """``axis=value, …`` for the axes that vary in a matrix, in axis order; the id when none does."""
        wanted = {axis_named(name).name for name in varying_axes}
        shown = [f"{axis.name}={self.value(axis.name)}" for axis in AXES if axis.name in wanted]
        return ", ".join(shown) or self.id
