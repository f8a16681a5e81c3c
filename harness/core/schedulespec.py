"""The values of the axis `schedule`: a kind and its parameters, joined by colons."""

from __future__ import annotations

from dataclasses import dataclass

from harness.core.errors import MatrixError, nearest

KINDS: dict[str, str] = {
    "none": "none",
    "delays": "delays:SEED or delays:SEED:SETTING",
    "pct": "pct:SEED:DEPTH or pct:SEED:DEPTH:POINTS",
    "directed": "directed (with a plan: harness reproduce)",
    "replay": "replay (with a recording: harness replay)",
}

PORTFOLIO: dict[str, str] = {
    "dense": "half of all points, up to 2 ms",
    "rare": "one point in fifty, up to 100 ms",
    "windows": "every window, compile and lowering kept open for up to 20 ms",
    "edges": "every region's entry and exit, up to 10 ms",
    "start": "all workers start at once, and meet again before their first compiled call",
    "switch": "the interpreter switches threads as often as it can",
}
"""The settings of `delays`. A portfolio, since each hides what another shows: a long delay in a window lets two threads
meet in it and keeps a third from ever coming near; with short ones it is the other way round."""


@dataclass(frozen=True)
class ScheduleSpec:
    """A kind of schedule and its parameters, checked."""

    kind: str
    seed: int = 0
    setting: str = ""  # of delays; "": chosen by the seed
    depth: int = 1  # of pct
    points: int = 0  # of pct: how many points a run is expected to pass; 0: the default


def parse_schedule(text: str) -> ScheduleSpec:
    """The schedule that `text` names. Raises MatrixError: an unknown kind or setting, a parameter too few or no number."""
    kind, *parameters = text.split(":")
    if kind not in KINDS:
        raise MatrixError(f'no schedule is called "{kind}"{nearest(kind, KINDS)}; it takes {"; ".join(KINDS.values())}')
    if kind == "delays" and len(parameters) in (1, 2):
        setting = parameters[1] if len(parameters) > 1 else ""
        if setting and setting not in PORTFOLIO:
            known = ", ".join(PORTFOLIO)
            raise MatrixError(f'schedule "{text}": no setting "{setting}"{nearest(setting, PORTFOLIO)}; it takes {known}')
        return ScheduleSpec(kind, seed=_number(text, parameters[0], 0), setting=setting)
    if kind == "pct" and len(parameters) in (2, 3):
        depth = _number(text, parameters[1], 1)
        points = _number(text, parameters[2], 1) if len(parameters) > 2 else 0
        return ScheduleSpec(kind, seed=_number(text, parameters[0], 0), depth=depth, points=points)
    if kind in ("none", "directed", "replay") and not parameters:
        return ScheduleSpec(kind)
    raise MatrixError(f'schedule "{text}": write {KINDS[kind]}')


def _number(text: str, value: str, least: int) -> int:
    if value == "*":
        raise MatrixError(
            f'schedule "{text}": "*" stands for another seed in each trial, as harness bisect writes what it tried; '
            f'a matrix names one seed: {text.replace("*", "0")}'
        )
    if not (value.isascii() and value.isdigit()) or int(value) < least:
        raise MatrixError(f'schedule "{text}": "{value}" is no whole number of at least {least}')
    return int(value)
