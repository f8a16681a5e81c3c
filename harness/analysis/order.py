"""Lock strategies as a partial order: which one holds at least all that another one holds, and what is cheap.

*Below* is about what is held, never about cost: what makes a strategy unsafe by letting threads meet makes every one
below it unsafe too. `process` is above all; `thread_local_fx` holds nothing and is comparable to `none` and `process`
alone; `compile_gate` lets a step that was seen before run beside others, which `first_step` does only to warm workers,
so neither is below the other; a barrier keeps optimizers apart from compiles, which `every_step` does not.

The rule does not cover a failure that a lock itself brings in (a deadlock): see `analysis.bisector`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from harness.core.errors import UserError
from harness.core.lockspec import LockSpec, parse_lock

MOST_UP_SETS = 20_000
"""Most ways in which a set of strategies can be split into safe and unsafe ones. Ten that are all incomparable have
1,024; more than this is a list that nobody meant."""

_TIMELINE = (
    "enter step",
    "enter mask",
    "leave mask",
    "enter forward",
    "enter attention",
    "leave attention",
    "leave forward",
    "enter loss",
    "leave loss",
    "enter backward",
    "leave backward",
    "leave step",
)
"""A worker's step, as far as locks tell one moment from another."""

_SPANS: dict[str, tuple[str, str]] = {
    "per_call": ("attention", "attention"),
    "per_forward": ("mask", "forward"),
    "first_step": ("mask", "backward"),
    "warmup_barrier": ("mask", "backward"),
    "every_step": ("step", "step"),
}
_MORE_THAN_FIRST_USE = ("warmup_barrier", "warm_gate", "every_step")


@dataclass(frozen=True)
class Order:
    """Strategies, cheapest first as far as is known before anything was measured, and what is strictly below each."""

    names: tuple[str, ...]
    below: Mapping[str, frozenset[str]]

    @cached_property
    def above(self) -> Mapping[str, frozenset[str]]:
        """What is strictly above each."""
        return {name: frozenset(other for other in self.names if name in self.below[other]) for name in self.names}

    @cached_property
    def just_below(self) -> Mapping[str, tuple[str, ...]]:
        """The greatest of those below each: with nothing in between."""
        return {
            name: tuple(
                other
                for other in self.names
                if other in self.below[name] and not any(other in self.below[third] for third in self.below[name])
            )
            for name in self.names
        }

    @cached_property
    def safe_sets(self) -> tuple[frozenset[str], ...]:
        """Every set that can be the set of safe strategies: with each member, all above it. Raises UserError: too many.

        The empty one is among them, and the whole.
        """
        found: list[frozenset[str]] = [frozenset()]
        # From the top down: a strategy can join any set that has all above it.
        for name in sorted(self.names, key=lambda name: (len(self.above[name]), self.names.index(name))):
            found += [members | {name} for members in found if self.above[name] <= members]
            if len(found) > MOST_UP_SETS:
                raise UserError(
                    f"{len(self.names)} lock strategies, most of which cannot be compared, are too many: name fewer"
                )
        return tuple(found)


def chain(names: Sequence[str]) -> Order:
    """Each is below all that follow."""
    return Order(tuple(names), {name: frozenset(names[:index]) for index, name in enumerate(names)})


_COST = {
    "none": 0.0,
    "thread_local_fx": 1.0,
    "compile_gate": 4.0,
    "warm_gate": 4.5,
    "warmup_barrier": 5.0,
    "every_step": 6.0,
    "process": 7.0,
}


def nominal_cost(name: str) -> float:
    """Where a strategy stands before anything was measured: those held at first use by how much of a step they hold."""
    spec = parse_lock(name)
    if spec.kind in _COST:
        return _COST[spec.kind]
    return 2.0 + sum(end - begin for begin, end in _holds(spec)) / len(_TIMELINE)


def strategy_order(names: Sequence[str]) -> Order:
    """The order of lock strategies, by what they hold; the cheapest, by `nominal_cost`, first.

    Raises UserError: none is left, one is no strategy, or two are the same under two names.
    """
    if not names:
        raise UserError("no lock strategy is left to compare; name at least one")
    names = sorted(names, key=nominal_cost)
    specs = {name: parse_lock(name) for name in names}
    if len(specs) < len(names):
        raise UserError(f"a lock strategy is named twice in {', '.join(names)}; name it once")
    below: dict[str, frozenset[str]] = {}
    for name, spec in specs.items():
        others = {other: other_spec for other, other_spec in specs.items() if other != name}
        for other, other_spec in others.items():
            if holds_at_least(spec, other_spec) and holds_at_least(other_spec, spec):
                raise UserError(f"lock strategies {other} and {name} are one and the same; name one of them")
        below[name] = frozenset(other for other, other_spec in others.items() if holds_at_least(spec, other_spec))
    return Order(tuple(names), below)


def holds_at_least(one: LockSpec, other: LockSpec) -> bool:
    """Whether `one` keeps apart all that `other` keeps apart. Every strategy does so of itself."""
    if one == other or other.kind == "none" or one.kind == "process":
        return True
    if other.kind == "compile_gate":
        return one.kind in ("warm_gate", "every_step")
    mine, theirs = _holds(one), _holds(other)
    if not mine or not theirs or other.kind in _MORE_THAN_FIRST_USE:
        return False
    return all(any(begin <= start and end <= stop for begin, stop in mine) for start, end in theirs)


def _holds(spec: LockSpec) -> list[tuple[int, int]]:
    """From where to where on the timeline each hold of a worker's first step goes; [] for what is no such strategy."""
    if spec.kind == "each":
        pairs = [(region, region) for region in spec.regions]
    elif spec.kind == "span":
        pairs = [(spec.first, spec.last)]
    else:
        pairs = [_SPANS[spec.kind]] if spec.kind in _SPANS else []
    return [(_TIMELINE.index(f"enter {first}"), _TIMELINE.index(f"leave {last}")) for first, last in pairs]
