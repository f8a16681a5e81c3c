"""A plan in words: who is held where until what, and what happens in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harness.core.case import Case
from harness.core.endings import Effect
from harness.core.plan import Gate, Plan, Step
from harness.core.points import DOCS
from harness.core.scenario import Scenario


def plan_lines(plan: Plan) -> Iterator[str]:
    """One line for each role, gate and step; a plan without steps has one line."""
    if not plan.steps:
        yield "nothing to order: it happens whatever the threads do"
        return
    for role, kind in plan.roles.items():
        yield f"{role} is {_kind(kind)}"
    yield from _order_lines(plan.gates, plan.steps)


def counterfactual_lines(plan: Plan) -> Iterator[str]:
    """What is run to see that the effect stays away; nothing where the plan has none."""
    other = plan.counterfactual
    if other is None:
        return
    if other.steps:
        yield from _order_lines(other.gates, other.steps)
    for what, values in (("", other.axes), ("setting ", other.settings)):
        for name, value in values.items():
            yield f"{what}{name} = {value}"


def effect_words(effect: Effect) -> str:
    """How the effect shows in a trial."""
    ways = []
    if effect.labels:
        ways.append(f"a trial ends as {' or '.join(effect.labels)}" + (f' with "{effect.text}"' if effect.text else ""))
    if effect.fact:
        ways.append(f"the program finds it by itself ({effect.fact})")
    return ", or ".join(ways)


def scenario_words(case: Case) -> str:
    """What differs from the defaults, the workload first."""
    default = Scenario()
    axes = {name: value for name, value in case.scenario.to_dict().items() if value != default.value(name)}
    workload = str(axes.pop("workload", default.workload))
    values: Mapping[str, object] = {**axes, **case.settings}
    shown = ", ".join(f"{name}={value}" for name, value in values.items())
    return f"{workload.rsplit('.', 1)[-1]}" + (f" with {shown}" if shown else "")


def _order_lines(gates: Sequence[Gate], steps: Sequence[Step]) -> Iterator[str]:
    for gate in gates:
        who = f"everyone but {gate.role}" if gate.who.startswith("!") else gate.role
        yield f"until {_named(steps, gate.until)}, {who} is held at [{gate.point}]"
    for number, step in enumerate(steps, 1):
        yield f"{number}. {_step(step)}"


def _named(steps: Sequence[Step], name: str) -> str:
    number = next(number for number, step in enumerate(steps, 1) if step.name == name)
    return f"step {number} is made"


def _step(step: Step) -> str:
    nth = {1: "", 2: ", the second time", 3: ", the third time"}.get(step.nth, f", the {step.nth}th time")
    info = f" ({step.info})" if step.info else ""
    where = f" inside the region {step.where}" if step.where else ""
    before = f", before it comes to [{step.before}]" if step.before else ""
    doc = DOCS.get(step.point, "a mark of the program's own").split("; info:")[0]
    return f"{step.role} passes [{step.point}]{info}{nth}{where}{before}: {doc}"


def _kind(kind: str) -> str:
    return {"any": "any worker", "main": "the main thread"}.get(kind, f'a worker "{kind}"')
