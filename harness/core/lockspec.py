"""The names of lock strategies, as a grammar.

::

    lock  = NAME | "each:" region *("+" region) | "span:" region ".." region

``harness.locks`` holds a copy of this grammar, because that file can be vendored by itself; a test holds the
two equal.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.errors import MatrixError, nearest

NAMES: tuple[str, ...] = (
    "none",
    "per_call",
    "per_forward",
    "first_step",
    "warmup_barrier",
    "compile_gate",
    "warm_gate",
    "every_step",
    "thread_local_fx",
    "process",
)
"""Strategies without parameters, from the least held to the most."""

REGIONS: tuple[str, ...] = ("step", "mask", "forward", "attention", "loss", "backward")
"""Regions in the order in which a step enters them. ``step`` contains all, ``forward`` contains
``attention``."""

_LEFT_ORDER: tuple[str, ...] = ("mask", "attention", "forward", "loss", "backward", "step")


@dataclass(frozen=True)
class LockSpec:
    """A parsed lock name. ``regions`` belongs to kind ``each``; ``first`` and ``last`` to kind ``span``."""

    kind: str
    regions: tuple[str, ...] = ()
    first: str = ""
    last: str = ""

    @property
    def name(self) -> str:
        """The canonical name: two names of one strategy differ at most in the order of ``each`` regions."""
        if self.kind == "each":
            return "each:" + "+".join(self.regions)
        if self.kind == "span":
            return f"span:{self.first}..{self.last}"
        return self.kind

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Regions of which one must be entered before anything is held; () for what is no lock."""
        if self.kind == "each":
            return self.regions
        return (self.first,) if self.kind == "span" else _LOOKS_AT.get(self.kind, ())


_LOOKS_AT: dict[str, tuple[str, ...]] = {
    "per_call": ("attention",),
    **dict.fromkeys(("per_forward", "first_step", "warmup_barrier"), ("mask",)),
    **dict.fromkeys(("compile_gate", "warm_gate", "every_step"), ("step",)),
}


def parse_lock(name: str) -> LockSpec:
    """Read a lock name.

    Raises:
        MatrixError: the name is no strategy, a region is unknown or listed twice, or a span ends before it
            begins.
    """
    if name in NAMES:
        return LockSpec(name)
    kind, colon, rest = name.partition(":")
    if colon and kind == "each":
        return LockSpec("each", regions=_each_regions(name, rest))
    if colon and kind == "span":
        first, dots, last = rest.partition("..")
        if not dots:
            raise MatrixError(f'"{name}": a span is written span:FIRST..LAST, e.g. span:mask..backward')
        _check_region(name, first)
        _check_region(name, last)
        if not _begins_before(first, last):
            raise MatrixError(f'"{name}": "{last}" has ended before "{first}" begins; swap the two')
        return LockSpec("span", first=first, last=last)
    known = (*NAMES, "each:mask+forward", "span:mask..backward")
    hint = nearest(name, known) or _closest(name, known)
    raise MatrixError(f'no lock strategy is called "{name}"{hint}')


def _closest(name: str, known: Sequence[str]) -> str:
    """Where none is close enough to be meant: the likeliest, and where all of them stand."""
    close = difflib.get_close_matches(name.lower(), known, n=2, cutoff=0.3)
    return (f"; nearest: {', '.join(close)}" if close else "") + "; all of them: harness run --help"


def _each_regions(name: str, rest: str) -> tuple[str, ...]:
    listed = rest.split("+")
    for region in listed:
        _check_region(name, region)
        if listed.count(region) > 1:
            raise MatrixError(f'"{name}": region "{region}" is listed twice; name it once')
    return tuple(region for region in REGIONS if region in listed)


def _check_region(name: str, region: str) -> None:
    if region not in REGIONS:
        hint = nearest(region, REGIONS) or "; regions are " + ", ".join(REGIONS)
        raise MatrixError(f'"{name}": no region is called "{region}"{hint}')


def _begins_before(first: str, last: str) -> bool:
    """Whether ``first`` is entered before ``last`` is left. Containers are entered first and left last."""
    if first == last or last == "step" or first == "step":
        return True
    if {first, last} == {"forward", "attention"}:
        return True
    return _LEFT_ORDER.index(first) < _LEFT_ORDER.index(last)
