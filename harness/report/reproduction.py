"""What `harness reproduce` found, for a person."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from harness.control.reproduce import Reproduction
from harness.core.axes import BY_NAME
from harness.core.case import Case
from harness.core.errors import UserError
from harness.core.plan import ENDINGS, OCCURRENCES, REPRODUCED
from harness.core.scenario import Scenario
from harness.hazards import find
from harness.hazards.base import Hazard
from harness.report.text import one_line, visible
from harness.report.witness import interleaving

_NOT_MEASURED = ("torch", "regions", "keyed", "effect", "clock_start_ns", "steps")
"""Facts that every trial tells, or that only say that the effect is there."""
LONGEST_FACTS = 400


def print_reproduction(console: Console, found: Reproduction) -> None:
    """The counts, the witness or the reason, and where the trial is."""
    line = f"{found.case.name}: {_counts(found)}"
    if found.counterfactual_untried:
        trials = "trial" if found.counterfactual_silent == 1 else "trials"
        line += f", counterfactual could not be tried: {found.counterfactual_silent} {trials} said nothing ({_reason(found)})"
    elif found.counterfactual_times:
        line += f", counterfactual {found.counterfactual_reproduced}/{found.counterfactual_times}"
        if found.counterfactual_ordered < found.counterfactual_times:
            line += f" (its order came about {found.counterfactual_ordered} times)"
        if found.counterfactual_silent:
            line += f" ({found.counterfactual_silent} more said nothing: {_reason(found)})"
    console.print(Text(line, style="bold"), soft_wrap=True)
    console.print(Text(f"torch {found.row.get('torch') or '?'}, {_lock(found.case.scenario)}"), soft_wrap=True)
    told = found.ending.schedule
    if found.ending.name == REPRODUCED:
        for event in interleaving(told.get("witness", ()), console.width):
            console.print(Text(event), soft_wrap=True)
        for error in found.row.get("errors", ())[:1]:
            first = str(error["message"]).strip().splitlines()[0] if error["message"] else ""
            said = f"then {error['worker'] or error['thread']}: {error['type']}: {first}"
            console.print(Text(textwrap.shorten(said, console.width, placeholder=" …")))
        effect, facts = effect_of(found), measured(found)
        if effect:
            _fold(console, f"then {effect}")
        if facts:
            each = [f"{name.replace('_', ' ')} {_value(value)}" for name, value in facts.items()]
            _fold(console, f"measured: {visible(one_line('; '.join(each), LONGEST_FACTS))}")
        if found.row.get("reason"):  # whole: who waits for whom is what was to be shown
            _fold(console, f"then {' '.join(str(found.row['reason']).split())}")
    else:
        console.print(Text(f"{found.ending.name}: {ENDINGS[found.ending.name]}"))
        if found.ending.reason:
            console.print(Text(found.ending.reason))
        if told.get("lock"):
            console.print(Text(f"the lock: {told['lock']}, held by {told['holder']}"))
        tried = "binding" if found.tried == 1 else "bindings"
        console.print(Text(f"tried: {found.tried} {tried} of the roles, the first {OCCURRENCES} occurrences in each"))
        if found.merged:
            console.print(Text(f"not tried: {found.merged} that only exchange workers which nothing tells apart"))
    console.print(Text(f"trial: {found.trial}"), soft_wrap=True)


def _counts(found: Reproduction) -> str:
    """The endings over the times; what only a second look reproduced stands apart."""
    counted = [f"{name} {found.endings[name]}/{found.times}" for name in ENDINGS if found.endings[name]]
    if found.second_look:
        reproduced = [] if found.reproduced else [f"{REPRODUCED} 0/{found.times}"]
        counted = [*reproduced, *counted]
        counted.insert(1, f"{found.second_look} more at a second look")
    return ", ".join(counted)


def _reason(found: Reproduction) -> str:
    return visible(one_line(found.counterfactual_reason, LONGEST_FACTS))


def cannot_happen(case: Case, torch: str, cuda: int) -> str:
    """Why the catalogue says that the case's hazard cannot come about here; "" when it can, and for a case of a file."""
    hazard = _hazard(case)
    return "" if hazard is None else hazard.why_not(torch, cuda)


def effect_of(found: Reproduction) -> str:
    """What the catalogue says follows, where that was found by looking and neither raised nor told as a reason; else ""."""
    told = found.row.get("errors") or found.row.get("reason")
    if found.ending.name != REPRODUCED or told:
        return ""
    hazard = _hazard(found.case)
    return "" if hazard is None else hazard.effect


def measured(found: Reproduction) -> Mapping[str, Any]:
    """What the program told of its effect besides that it is there, by name."""
    if found.ending.name != REPRODUCED or not found.case.effect.fact:
        return {}
    facts = found.row.get("facts", {})
    left_out = (*_NOT_MEASURED, found.case.effect.fact)
    return {str(name): value for name, value in facts.items() if name not in left_out and not isinstance(value, dict)}


def _hazard(case: Case) -> Hazard | None:
    """Of the catalogue, when it is this hazard's case; None for another case of a file."""
    try:
        return find(case.name)
    except UserError:
        return None


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_value(one) for one in value) or "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _lock(scenario: Scenario) -> str:
    owner = f" (lock_owner={scenario.lock_owner})" if scenario.lock_owner != BY_NAME["lock_owner"].default else ""
    return f"lock {scenario.lock}{owner}"


def _fold(console: Console, text: str) -> None:
    lines = textwrap.wrap(text, console.width, subsequent_indent="  ", break_on_hyphens=False)
    console.print(Text("\n".join(lines)), soft_wrap=True)
