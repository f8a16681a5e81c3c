"""Whether two runs can be compared: what differs between them beside what is asked, and what that forbids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.axes import AXES

Environment = Mapping[str, Any]

_NEVER_POOLED = ("cache", "schedule", "devices")
"""Axes whose values are never counted together, and whose difference makes another question."""

_SPEED_FACTS = {"cpu": "processor", "cores_usable": "usable cores", "machine": "machine"}
_SPEED_OPTIONS = {"jobs": "--jobs", "executor": "--executor"}
_SUBJECT_FACTS = {"torch": "torch", "python": "Python", "cuda": "CUDA", "harness": "dflash-harness"}


@dataclass(frozen=True)
class Fairness:
    """What differs between two runs, a sentence each.

    refused   nothing can be compared: the trials did something else
    speed     throughput and start-up are not compared; failures are
    cuda      the same, for scenarios on CUDA devices only
    asked     differences that are the question, or that the answer has to be read with
    """

    refused: tuple[str, ...]
    speed: tuple[str, ...]
    cuda: tuple[str, ...]
    asked: tuple[str, ...]

    def speed_of(self, devices: str) -> tuple[str, ...]:
        """Why the speed of a scenario on these devices is not compared; () when it can be."""
        return self.speed + (self.cuda if "cuda" in devices else ())


@dataclass(frozen=True)
class Alone:
    """A scenario that only one run has; `near` says which of the other run's it is not to be mistaken for."""

    scenario_id: str
    near: str
    scenario: Mapping[str, Any]


def fairness(
    before: Environment,
    after: Environment,
    pipelines: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
    software: tuple[Sequence[str], Sequence[str]],
) -> Fairness:
    """Weigh two runs. `pipelines`: settings, with their defaults where these are known, None where the matrix cannot be
    read; `software`: the torch releases that the trials of either ran under.
    """
    refused, asked = [], []
    mine, theirs = pipelines
    if mine is None or theirs is None:
        asked.append("the matrix of one run cannot be read, so whether the pipelines are alike is not known")
    else:
        differing = [
            f"{key} {_setting(mine, key, theirs)} → {_setting(theirs, key, mine)}"
            for key in dict.fromkeys([*mine, *theirs])
            if (key in mine) != (key in theirs) or mine.get(key) != theirs.get(key)
        ]
        if differing:
            refused.append(f"other pipeline settings: {', '.join(differing)}")
    for side, found in zip(("before", "after"), software, strict=True):
        if len(set(found)) > 1:
            refused.append(f"the trials {side} ran under different torch: {', '.join(sorted(set(found)))}")
    speed = _differing(before, after, _SPEED_FACTS, "other ")
    speed += _differing(_options(before), _options(after), _SPEED_OPTIONS, "other ")
    speed += [text for side, run in (("before", before), ("after", after)) for text in _varied(side, run)]
    variables = (_mapping(before.get("variables")), _mapping(after.get("variables")))
    names = {name: name for name in dict.fromkeys([*variables[0], *variables[1]]) if not name.startswith("PYTHON")}
    speed += _differing(variables[0], variables[1], names, "other ")
    gpus = [_gpus(before), _gpus(after)]
    cuda = [f"other GPUs: {gpus[0] or 'none'} → {gpus[1] or 'none'}"] if gpus[0] != gpus[1] else []
    asked += _differing(before, after, _SUBJECT_FACTS, "")
    if not before or not after:
        asked.append("where one of them ran is not known, so whether the machines are alike is not either")
    return Fairness(tuple(refused), tuple(speed), tuple(cuda), tuple(asked))


def alone(
    only: Mapping[str, Mapping[str, Any]], others: Mapping[str, Mapping[str, Any]], shared: set[str]
) -> list[Alone]:
    """The scenarios of one run that the other lacks, with the nearest of the other that has no partner either."""
    free: dict[tuple[str, ...], Mapping[str, Any]] = {}
    for name, axes in others.items():
        if name not in shared:
            free.setdefault(_question(axes), axes)
    found = []
    for name, axes in only.items():
        if name in shared:
            continue
        other = free.get(_question(axes))
        near = (
            [f"{axis}={other.get(axis)}" for axis in _NEVER_POOLED if axes.get(axis) != other.get(axis)]
            if other
            else []
        )
        found.append(Alone(name, ", ".join(near), axes))
    return found


def _question(axes: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(axes.get(axis.name)) for axis in AXES if axis.name not in _NEVER_POOLED)


def _differing(before: Mapping[str, Any], after: Mapping[str, Any], names: Mapping[str, str], prefix: str) -> list[str]:
    return [
        f"{prefix}{word}: {_shown(before.get(key))} → {_shown(after.get(key))}"
        for key, word in names.items()
        if before.get(key) != after.get(key) and (before or after)
    ]


def _varied(side: str, environment: Environment) -> list[str]:
    """What the trials of one run differ in among themselves, as a resumed run notes it down."""
    varied = _mapping(_options(environment).get("varied"))
    return [
        f"the trials {side} ran with different {word}: {', '.join(map(str, values))}"
        for key, word in _SPEED_OPTIONS.items()
        if isinstance(values := varied.get(key), list) and len(values) > 1
    ]


def _options(environment: Environment) -> Mapping[str, Any]:
    return _mapping(environment.get("options"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _gpus(environment: Environment) -> str:
    listed = environment.get("gpus")
    names = [str(gpu.get("name", "?")) for gpu in listed if isinstance(gpu, dict)] if isinstance(listed, list) else []
    return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))


def _setting(settings: Mapping[str, Any], key: str, others: Mapping[str, Any]) -> str:
    """As the other's is told from it: `""` and one that is not there, or `5` and `"5"`, are never shown alike."""
    if key not in settings:
        return "not set"
    value = settings[key]
    alike = key in others and str(others[key]) == str(value)
    return f'"{value}"' if value == "" or (alike and isinstance(value, str)) else str(value)


def _shown(value: object) -> str:
    return "none" if value in (None, "") else str(value)
