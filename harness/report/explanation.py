"""What `harness explain` found, for a person and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from harness.analysis.dump_values import Dump, Frame, Raised
from harness.analysis.explain import Match
from harness.analysis.paths import short_path
from harness.analysis.self_trace import REMEDY, SelfTrace, traces_itself
from harness.core.outcome import OK
from harness.report.text import one_line, visible
from harness.report.wording import plural

UNKNOWN = "none that is known"
NOTHING = "there is no traceback and no stack in it"
_LABEL = 9
_NATIVE = "which thread waits for a lock is seen only with native frames: py-spy dump --native --pid PID. "
_LOCKS = "a text of stacks does not say who holds a lock: while it hangs, harness dump PID does"


def print_explanation(
    console: Console, dump: Dump, found: Sequence[Match], told: Sequence[str] = (), *, ended_well: bool = False
) -> None:
    """What the file tells of itself, the hazards, the most specific first, or that there is none, and what was read.

    `ended_well`: it is a trial that did not fail, which comes first.
    """
    if ended_well:
        seen = "; what follows was seen, and did not fail it" if found else ""
        console.print(Text(f"this trial ended well (outcome {OK}){seen}\n", style="bold"), soft_wrap=True)
    for text in told:
        _line(console, "told", one_line(visible(text), 1_000))
    if told:
        console.print()
    whole, brief = _divided(found)
    for number, match in enumerate(whole):
        if number:
            console.print()
        same = number > 0 and match.exception is not None and match.exception is whole[number - 1].exception
        _print_match(console, match, also=number > 0, same=same)
    _print_brief(console, [match for match in brief if match.exception is not None], "the same message is also that of")
    untold = [match for match in brief if match.exception is None]
    for why in dict.fromkeys(match.why for match in untold):
        _print_brief(console, [match for match in untold if match.why == why], visible(why), first=not whole)
    own = _self_traces(dump)
    for number, trace in enumerate(own):
        if found or number:
            console.print()
        _print_self_trace(console, trace)
    if not found and not own:
        console.print(Text(UNKNOWN, style="bold"))
        for raised in [raised for raised in dump.exceptions if raised.type][:5]:
            _line(console, "raised", one_line(visible(raised.texts[0]), 200))
    if not found and not told and any(thread.frames for thread in dump.threads):
        python = all(frame.is_python for thread in dump.threads for frame in thread.frames)
        console.print(Text(f"\n{_NATIVE if python else ''}{_LOCKS}"))
    console.print(Text(f"\nread: {_read(dump, found)}", style="dim"))


def _divided(found: Sequence[Match]) -> tuple[list[Match], list[Match]]:
    """Those to be shown whole, and those of which the same message or row may be as well, the likely before the possible."""
    whole: list[Match] = []
    brief: list[Match] = []
    for match in found:
        known = match.exception is not None and any(match.exception is other.exception for other in whole)
        (brief if (known or by_row(match)) and not match.certain else whole).append(match)
    return whole, sorted(brief, key=lambda match: bool(match.missing))


def by_row(match: Match) -> bool:
    """No exception and no stack tells of it, but what else the row of a trial says."""
    return match.exception is None and not match.roles


def _print_brief(console: Console, found: Sequence[Match], head: str, *, first: bool = False) -> None:
    """A line each, and what was not seen that would tell them apart."""
    if not found:
        return
    console.print(Text(head if first else f"\n{head}"))
    for match in found:
        sure = "possible" if match.missing else "likely"
        console.print(Text(f"  {sure:<{_LABEL}}harness hazards {match.hazard.id}"), soft_wrap=True)
    for missing in dict.fromkeys(match.missing for match in found if match.missing):
        _line(console, "but", visible(missing))


def _self_traces(dump: Dump) -> list[SelfTrace]:
    found = [trace for trace in map(traces_itself, dump.exceptions) if trace is not None]
    return list({(str(trace.trace), str(trace.caller)): trace for trace in found}.values())


def _print_self_trace(console: Console, trace: SelfTrace) -> None:
    console.print(Text(visible(trace.says), style="bold"))
    if trace.raised.thread:
        _line(console, "thread", visible(trace.raised.thread))
    _line(console, "trace", visible(_place(trace.trace)))
    _line(console, "call", visible(f"{_place(trace.call)}, called from {_place(trace.caller)}"))
    _line(console, "remedy", REMEDY)


def _place(frame: Frame) -> str:
    return str(Frame(frame.function, short_path(frame.file), frame.line))


def _print_match(console: Console, match: Match, *, also: bool, same: bool) -> None:
    """`same`: it fits the same exception as the match before, whose thread and reason need no repeating."""
    hazard = match.hazard
    head = Text("also fits " if also else "", style="")
    head.append(hazard.id, style="bold red" if match.certain else "bold yellow")
    sure = "" if match.certain else " (possible)" if match.missing else " (likely)"
    head.append(f"  {hazard.title}{sure}")
    console.print(head)
    for role in () if same else match.roles:
        _line(console, role.role, visible(f"{role.thread} {role.doing}"))
        if role.at:
            _line(console, "", visible(f"at {role.at}"))
        if role.user and role.user != role.at:
            _line(console, "", visible(f"from {role.user}"))
    if not same:
        _line(console, "why", visible(match.why))
    _line(console, "torch", f"{hazard.versions or 'all versions'}; needs {hazard.needs}")
    _line(console, "what", f"{hazard.window}; {hazard.access}" if hazard.access else hazard.window)
    _line(console, "then", hazard.effect)
    _line(console, "remedy", hazard.remedy)
    if hazard.reference:
        _line(console, "see", ", ".join(hazard.reference))
    console.print(Text(f"  {'again':<{_LABEL}}{command(match)}"), soft_wrap=True)


def command(match: Match) -> str:
    """What makes it happen again."""
    return f"harness reproduce {match.hazard.id}"


def _line(console: Console, label: str, text: str) -> None:
    for number, line in enumerate(Text(text).wrap(console, max(20, console.width - 2 - _LABEL))):
        start = Text(f"{'' if number else label:<{_LABEL}}", style="dim")
        console.print(Padding(start + line, (0, 0, 0, 2)))


def _read(dump: Dump, found: Sequence[Match]) -> str:
    threads = [thread for thread in dump.threads if thread.frames]
    exceptions = _exceptions(dump)
    row = "what the row of the trial tells" if any(by_row(match) for match in found) else ""
    if not threads and not any(raised.frames for raised in exceptions):
        if row and not exceptions:
            return row
        return f"{plural(len(exceptions), 'message')} of an exception; {NOTHING}" if exceptions else NOTHING
    return f"{plural(len(threads), 'stack')}, {plural(len(exceptions), 'exception')}" + (f", {row}" if row else "")


def _exceptions(dump: Dump) -> list[Raised]:
    """Without what is only a text in which a message was looked for."""
    return [raised for raised in dump.exceptions if raised.type or raised.frames]


def explanation_json(
    dump: Dump, found: Sequence[Match], told: Sequence[str] = (), *, ended_well: bool = False
) -> dict[str, Any]:
    """`explain --json`: {"ended_well": false, "told": [...], "matches": [...], "self_traces": [...], "threads": [...],
    "exceptions": [...]}."""
    return {
        "ended_well": ended_well,
        "told": list(told),
        "matches": [
            {
                "id": match.hazard.id,
                "title": match.hazard.title,
                "certain": match.certain,
                "missing": match.missing,
                "why": match.why,
                "roles": [
                    {"role": role.role, "thread": role.thread, "doing": role.doing, "at": role.at, "from": role.user}
                    for role in match.roles
                ],
                "versions": match.hazard.versions,
                "needs": match.hazard.needs,
                "window": match.hazard.window,
                "access": match.hazard.access,
                "effect": match.hazard.effect,
                "remedy": match.hazard.remedy,
                "reference": list(match.hazard.reference),
                "reproduce": command(match),
            }
            for match in found
        ],
        "self_traces": [
            {
                "by": trace.by,
                "thread": trace.raised.thread,
                "says": trace.says,
                "trace": _place(trace.trace),
                "call": _place(trace.call),
                "from": _place(trace.caller),
                "remedy": REMEDY,
            }
            for trace in _self_traces(dump)
        ],
        "threads": [
            {
                "name": thread.name,
                "ident": thread.ident,
                "native_id": thread.native_id,
                "state": thread.state,
                "dump": thread.dump,
                "frames": [str(frame) for frame in thread.frames],
            }
            for thread in dump.threads
        ],
        "exceptions": [
            {
                "type": raised.type,
                "message": raised.message,
                "thread": raised.thread,
                "frames": [str(frame) for frame in raised.frames],
            }
            for raised in _exceptions(dump)
        ],
    }
