"""Plans: an order of sync points that makes one hazard happen, and how an attempt at it can end.

    Plan(
        roles={"A": "drafter", "B": "drafter"},
        gates=[Gate("!A", "compiled_call.enter", until="A traces")],
        steps=[
            Step("A", "compiled_call.enter"),
            Step("A", "fx.window.open", name="A traces"),
            Step("B", "compiled_call.checked"),
            Step("A", "fx.window.closing"),
        ],
        counterfactual=Counterfactual(
            gates=[Gate("!A", "compiled_call.enter", until="A is through")],
            steps=[Step("A", "fx.window.open"), Step("A", "region.step.exit", name="A is through")],
        ),
    )

*Steps* happen in this order: a role that reaches its next step before its turn is held there; at its turn it passes,
and goes on freely to its next one. A step is made when its thread has passed and has then come to its next point of any
kind, waits or has ended, so what follows the point has happened too. What a step does not name passes freely. *Gates*
hold others at a point until a step was made.

A *role* is one worker, with whatever threads work for it (an autograd thread during its backward), or one thread that
belongs to no worker. A thread is bound to the first role, in the order of their first steps, that is unbound and that it
is eligible for, when it reaches that role's first step; or at a gate `!ROLE`, which lets exactly that one through: that
is how to bind early. The kind of a role is a worker's role ("drafter"), a worker's name ("drafter-1"), "main", or "any".

A plan without steps is a deterministic test: nothing to order, only an effect to look for. How the effect shows is said
by an `Effect`, and the two are put together by `judge` (`harness.core.endings`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.core.axes import Value, coerce
from harness.core.errors import UserError, nearest, show
from harness.core.points import REGION_NAMES, check_point

REPRODUCED, HARMLESS, EXCLUDED = "reproduced", "harmless", "excluded"
UNREACHABLE, UNDECIDED = "unreachable", "undecided"
ENDINGS: dict[str, str] = {
    REPRODUCED: "the order happened, and so did the hazard's effect",
    HARMLESS: "the order happened, the effect did not",
    EXCLUDED: "a role waits on a lock that the strategy or torch holds against it; the lock and its holder are named",
    UNREACHABLE: "a role can no longer arrive: its thread ended, a cache serves it, or this version lacks the point",
    UNDECIDED: "none of these within the time limit, or the effect came outside of the plan's order",
}
"""How a trial of a plan ends."""

ORDER_DONE = "completed"
"""What the schedule says when all steps were made; whether that is `reproduced` or `harmless` is the effect's to say."""

STOP_DECIDED = "stop_decided"
"""In a trial's `extra`: it may end once it is known that its plan's order cannot come about."""

OCCURRENCES = 3
"""How many occurrences of a plan's first step are tried in one trial before it is given up (the first K)."""


class PlanError(UserError):
    """A plan names what there is not, or binds one role twice. Mend it at what is named."""


@dataclass(frozen=True)
class Step:
    """`role` passes `point`.

    nth     which of the role's matching occurrences since its previous step (since the start, for its first one)
    name    for gates to refer to; unique
    where   only occurrences while the role's worker is in this region
    info    only occurrences with this info (`harness.core.points.DOCS` says what it is)
    before  the role must get here before it passes this point, else the attempt is at once `unreachable`
    """

    role: str
    point: str
    nth: int = 1
    name: str | None = None
    where: str | None = None
    info: str | None = None
    before: str | None = None

    def __str__(self) -> str:
        which = f" #{self.nth}" if self.nth > 1 else ""
        inside = f" in {self.where}" if self.where else ""
        return f"{self.role} [{self.point}{which}{f' {self.info}' if self.info else ''}]{inside}"


@dataclass(frozen=True)
class Gate:
    """Holds `who` at `point` until the step named `until` was made.

    `who`: a role, once it is bound; or `!ROLE` for every thread that is not that role's: while ROLE is unbound, the first
    eligible thread that comes to the gate is bound to it and let through.
    """

    who: str
    point: str
    until: str

    @property
    def role(self) -> str:
        """The role that it names."""
        return self.who.removeprefix("!")


@dataclass(frozen=True)
class Counterfactual:
    """What must *not* have the effect: the same points in the harmless order, or, for a hazard that is no race, the remedy.

    gates, steps   run instead of the plan's, with its roles; no steps: the plan is not run at all
    axes           values of scenario axes to change (the remedy)
    settings       values of the workload's settings to change (the remedy)
    """

    gates: Sequence[Gate] = ()
    steps: Sequence[Step] = ()
    axes: Mapping[str, Value] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "gates", tuple(self.gates))
        object.__setattr__(self, "steps", tuple(self.steps))


@dataclass(frozen=True)
class Plan:
    """An order to be brought about; checked when it is made.

    Raises PlanError: an unknown point, role, region or axis (the nearest is named), a name given twice, a gate that waits
    for no step, a role without a step.
    """

    roles: Mapping[str, str] = field(default_factory=dict)
    gates: Sequence[Gate] = ()
    steps: Sequence[Step] = ()
    counterfactual: Counterfactual | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "gates", tuple(self.gates))
        object.__setattr__(self, "steps", tuple(self.steps))
        object.__setattr__(self, "roles", dict(self.roles))
        for role, kind in self.roles.items():
            if not role.isidentifier():
                raise PlanError(f'plan: role "{role}" is no name; use letters, as in A or B')
            if not isinstance(kind, str) or not kind.strip():
                raise PlanError(f'plan: role "{role}" binds to nothing; name a worker role, a worker, "main" or "any"')
        _check_order(self.roles, self.gates, self.steps, "plan")
        for role in self.roles:
            if not any(step.role == role for step in self.steps):
                raise PlanError(f'plan: role "{role}" has no step, so nothing would ever bind it; give it one, or drop it')
        if self.counterfactual is not None:
            self._check_counterfactual(self.counterfactual)

    def _check_counterfactual(self, other: Counterfactual) -> None:
        _check_order(self.roles, other.gates, other.steps, "counterfactual")
        if not (other.steps or other.axes or other.settings):
            raise PlanError("counterfactual: it changes nothing; give it steps, axes or settings")
        for axis, value in other.axes.items():
            coerce(axis, value)

    def without_effect(self) -> Plan:
        """The counterfactual as a plan of its own. Raises PlanError when there is none."""
        if self.counterfactual is None:
            raise PlanError("this plan has no counterfactual")
        used = {step.role for step in self.counterfactual.steps} | {gate.role for gate in self.counterfactual.gates}
        roles = {role: kind for role, kind in self.roles.items() if role in used}
        return _unchecked(roles, self.counterfactual.gates, self.counterfactual.steps)

    def to_json(self) -> dict[str, Any]:
        """As JSON values; `from_json` gives it back."""
        document: dict[str, Any] = {"roles": dict(self.roles), **_order_json(self.gates, self.steps)}
        if self.counterfactual is not None:
            other = self.counterfactual
            document["counterfactual"] = {
                **_order_json(other.gates, other.steps),
                "axes": dict(other.axes),
                "settings": dict(other.settings),
            }
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Plan:
        """The plan of a JSON object. Raises PlanError for an unknown key too."""
        _check_keys(document, ("roles", "gates", "steps", "counterfactual"), "plan")
        roles = document.get("roles", {})
        if not isinstance(roles, Mapping):
            raise PlanError("plan: roles is no table of names; write roles = {A = \"drafter\"}")
        other = document.get("counterfactual")
        counterfactual = None
        if other is not None:
            _check_keys(other, ("gates", "steps", "axes", "settings"), "counterfactual")
            gates, steps = _order_of(other, "counterfactual")
            changes = [other.get(key, {}) for key in ("axes", "settings")]
            for key, change in zip(("axes", "settings"), changes, strict=True):
                if not isinstance(change, Mapping):
                    raise PlanError(f"counterfactual: {key} = {show(change)} is no table of names and values")
            counterfactual = Counterfactual(gates, steps, *changes)
        gates, steps = _order_of(document, "plan")
        return cls(roles, gates, steps, counterfactual)

    def source(self) -> str:
        """As Python text, for a new catalogue entry."""
        lines = ["Plan(", f"    roles={dict(self.roles)!r},".replace("'", '"')]
        for name, items in (("gates", self.gates), ("steps", self.steps)):
            if items:
                lines += [f"    {name}=[", *(f"        {_call(item)}," for item in items), "    ],"]
        return "\n".join([*lines, ")"])


def parse_plan(text: str) -> Plan:
    """The plan of a JSON text. Raises PlanError, for a role that is bound twice too."""
    try:
        document = json.loads(text, object_pairs_hook=without_doubles)
    except (ValueError, RecursionError) as error:
        raise PlanError(f"plan: no JSON: {error}") from None
    return Plan.from_json(document)


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads(…, object_pairs_hook=…)`. Raises PlanError for a key that comes twice in one object."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise PlanError(f'plan: "{key}" is bound twice; bind each role, and give each key, once')
        found[key] = value
    return found


def bind(plan: Plan, binding: Mapping[str, str]) -> Plan:
    """The plan with roles bound to workers beforehand (`{"A": "drafter-2"}`).

    Raises PlanError: no such role, or no worker's name.
    """
    if not isinstance(binding, Mapping):
        raise PlanError(f"plan: bindings = {show(binding)} is no table of roles and workers")
    for role, worker in binding.items():
        if role not in plan.roles:
            raise PlanError(f'plan: no role is called "{role}"{nearest(role, plan.roles)}')
        if not isinstance(worker, str):
            raise PlanError(f'plan: role "{role}" is bound to {show(worker)}, which is no worker\'s name')
    workers = list(binding.values())
    for worker in workers:
        if workers.count(worker) > 1:
            raise PlanError(f'plan: "{worker}" is bound to two roles; one worker can play one role')
    return _unchecked({**plan.roles, **binding}, plan.gates, plan.steps, plan.counterfactual)


def _unchecked(
    roles: Mapping[str, str],
    gates: Sequence[Gate],
    steps: Sequence[Step],
    counterfactual: Counterfactual | None = None,
) -> Plan:
    """A plan made of the parts of one that was checked (a counterfactual's role may have a gate and no step)."""
    plan = object.__new__(Plan)
    values = {"roles": dict(roles), "gates": tuple(gates), "steps": tuple(steps), "counterfactual": counterfactual}
    for name, value in values.items():
        object.__setattr__(plan, name, value)
    return plan


def _check_order(roles: Mapping[str, str], gates: Sequence[Gate], steps: Sequence[Step], what: str) -> None:
    names: list[str] = []
    for step in steps:
        _check_role(step.role, roles, what)
        _check_point(step.point, what)
        if step.before is not None:
            _check_point(step.before, what)
        if isinstance(step.nth, bool) or not isinstance(step.nth, int) or step.nth < 1:
            raise PlanError(f"{what}: step {step.role} [{step.point}] has nth = {step.nth}; the first occurrence is 1")
        if step.where is not None and step.where not in REGION_NAMES:
            raise PlanError(f'{what}: no region is called "{step.where}"{nearest(step.where, REGION_NAMES)}')
        if step.name is not None:
            if step.name in names:
                raise PlanError(f'{what}: two steps are called "{step.name}"; name each once')
            names.append(step.name)
    for gate in gates:
        _check_role(gate.role, roles, what)
        _check_point(gate.point, what)
        if gate.until not in names:
            hint = nearest(gate.until, names)
            raise PlanError(f'{what}: a gate waits for "{gate.until}", but no step has that name{hint}')
        _check_passable(gate, steps, what)


def _check_passable(gate: Gate, steps: Sequence[Step], what: str) -> None:
    """A gate must not keep a role from a step that comes before the gate opens.

    The step's own occurrence is not held; an earlier one is, once the role is bound, and then the step's never comes.
    """
    opens = next(number for number, step in enumerate(steps) if step.name == gate.until)
    for number, step in enumerate(steps[: opens + 1]):
        held = (step.role != gate.role) if gate.who.startswith("!") else (step.role == gate.role)
        bound = any(other.role == step.role for other in steps[:number])
        if held and bound and step.point == gate.point and step.nth > 1:
            raise PlanError(
                f'{what}: the gate at {gate.point} holds {step.role} until "{gate.until}", which comes no sooner than {step}: '
                "neither could ever happen; let the gate wait for an earlier step"
            )


def _check_role(role: str, roles: Mapping[str, str], what: str) -> None:
    if role not in roles:
        raise PlanError(f'{what}: no role is called "{role}"{nearest(role, roles)}; list it in roles')


def _check_point(point: str, what: str) -> None:
    try:
        check_point(point)
    except UserError as error:
        raise PlanError(f"{what}: {error}") from None


def _order_json(gates: Sequence[Gate], steps: Sequence[Step]) -> dict[str, Any]:
    return {"gates": [_plain(gate) for gate in gates], "steps": [_plain(step) for step in steps]}


def _plain(item: Gate | Step) -> dict[str, Any]:
    """Its fields, without those that have their default."""
    fields = dataclasses.fields(item)
    return {f.name: getattr(item, f.name) for f in fields if getattr(item, f.name) != f.default}


def _call(item: Gate | Step) -> str:
    values = _plain(item)
    required = [f.name for f in dataclasses.fields(item) if f.default is dataclasses.MISSING and f.name != "until"]
    texts = [_quoted(values[name]) for name in required]
    texts += [f"{name}={_quoted(value)}" for name, value in values.items() if name not in required]
    return f"{type(item).__name__}({', '.join(texts)})"


def _quoted(value: object) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(value, str) else repr(value)


def _order_of(document: Mapping[str, Any], what: str) -> tuple[list[Gate], list[Step]]:
    for key in ("gates", "steps"):
        if not isinstance(document.get(key, []), list | tuple):
            raise PlanError(f"{what}: {key} = {show(document[key])} is no list of {key}")
    gates = [_made(Gate, item, f"{what}: a gate") for item in document.get("gates", ())]
    steps = [_made(Step, item, f"{what}: a step") for item in document.get("steps", ())]
    return gates, steps


def _made(kind: type[Any], item: Any, what: str) -> Any:
    fields = {f.name: f for f in dataclasses.fields(kind)}
    _check_keys(item, tuple(fields), what)
    for name, described in fields.items():
        if described.default is dataclasses.MISSING and name not in item:
            raise PlanError(f'{what} has no "{name}"')
        value = item.get(name, described.default)
        if name != "nth" and not isinstance(value, str) and (value is not None or described.default is not None):
            raise PlanError(f"{what}: {name} = {show(value)} is no text")
    return kind(**item)


def _check_keys(item: Any, known: tuple[str, ...], what: str) -> None:
    if not isinstance(item, Mapping):
        raise PlanError(f"{what} is no table of keys and values")
    for key in item:
        if key not in known:
            raise PlanError(f'{what}: no key "{key}"{nearest(str(key), known)}; it takes {", ".join(known)}')
