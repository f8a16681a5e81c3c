"""Which hazards the row of a trial tells of where nothing was raised: by its settings, counts, problems and torch's log.

    found = signs({"dense_calls": 70, "outcomes": ["dense"], "scenario": {"dynamo": "limit_in_main"}, …}, log)
    joined(match(dump), found, torch)

Problems are worded by `harness.subject.probes.globals`, `harness.subject.watch` and `harness.pipeline.drafter_worker`, and
the hazards that a watch names by `harness.control.watch_hazards`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.analysis.explain import Match
from harness.core.errors import UserError
from harness.core.outcome import INCOMPLETE, OK
from harness.core.versions import parse_specifier

_PER_THREAD = ">=2.12"
_NESTED = "<2.14"
_LIMIT_WAS_HIT = re.compile(r"torch\._dynamo hit config\.((?:accumulated_)?(?:recompile|cache_size)_limit)")
"""How torch's log says that a limit was met: "torch._dynamo hit config.recompile_limit (8)"."""
_RAN_DENSE = "ran uncompiled, since"
_LIMITS = ("recompile_limit", "accumulated_recompile_limit")
_LEAKS: tuple[tuple[str, str, str], ...] = (
    ("rng-rewind", "state_leak", r"random generator changed while .* compiled|generator state of item \d+: it was put back"),
    ("globals-reverted", "state_leak", r"^the (?:default dtype|float32 matmul precision) changed while"),
    ("globals-reverted", "state_leak", r"^deterministic algorithms changed while"),
    ("globals-reverted", "state_leak", r"^(?:default dtype|deterministic \S+|float32 matmul precision|cuda \w+ \w+): "),
    ("fx-flag-stuck", "state_leak", r"^FX-tracing flag: "),
    ("limits-stuck", "state_leak", r"^Dynamo's settings: "),
)
"""Hazard, the label of the problem, and what its text says."""
NAMED = re.compile(r"this is ([\w-]+): ")
"""How a watch names a hazard for certain."""

_PATCHED = r"^nn\.Module\.__call__: "
_PATCHERS = ("fx-flag-stuck", "eager-flex-unsafe", "patches-reapplied")

UNTOLD = "the row does not say which setting it was; torch's log does, by \"hit config.recompile_limit\""
UNTOLD_PATCH = "the row does not say whose traces overlapped"


@dataclass(frozen=True)
class Sign:
    """A hazard by its id, and what in the row tells of it, in words.

    certain  nothing had to be supposed
    first    it is the first thing that went wrong: what else went wrong came after it
    missing  what would decide between several and was not seen, in words; "" when it is certain
    """

    hazard: str
    why: str
    certain: bool = True
    first: bool = False
    missing: str = ""


def signs(row: Mapping[str, Any], log: str = "") -> list[Sign]:
    """Of a row with its `scenario`, where that is known. `log`: what the trial's process printed.

    The row may be damaged: what has another form than a row's tells nothing.
    """
    outcomes = [label for label in _list(row.get("outcomes")) if label not in (OK, *INCOMPLETE)]
    found = [*_dense(row, outcomes, log), *_problems(row, outcomes), *_compiling(row), *_named(row)]
    certain = {sign.hazard for sign in found if sign.certain}
    kept = [sign for sign in found if sign.certain or sign.hazard not in certain]
    return list({sign.hazard: sign for sign in reversed(kept)}.values())[::-1]


def joined(found: Sequence[Match], told: Sequence[Sign], torch: str = "") -> list[Match]:
    """Matches of a dump, and those of its row's signs: first what went wrong first, last what is only possible.

    A sign is left out whose hazard is among the matches, which this torch cannot have, or that is one of several
    possible ones of which the matches, or another sign, name one for certain.
    """
    leading = {sign.hazard for sign in told if sign.first and sign.certain}
    found = [match for match in found if match.hazard.id not in leading or match.certain]
    found = sorted(found, key=lambda match: match.hazard.id not in leading)
    known = {match.hazard.id for match in found}
    sure = {match.hazard.id for match in found if match.certain} | {sign.hazard for sign in told if sign.certain}
    settled = {sign.missing for sign in told if not sign.certain and sign.hazard in sure}
    lead: list[Match] = []
    certain = [match for match in found if match.certain]
    rest = [match for match in found if not match.certain]
    for sign in told:
        if sign.hazard in known or (not sign.certain and sign.missing in settled):
            continue
        match = _match(sign, torch)
        if match is not None:
            (lead if sign.first and sign.certain else certain if sign.certain else rest).append(match)
    return [*lead, *certain, *rest]


def _match(sign: Sign, torch: str) -> Match | None:
    from harness.hazards import find

    try:
        hazard = find(sign.hazard)
    except UserError:  # of another version's catalogue
        return None
    if torch and not parse_specifier(hazard.versions).contains(torch):
        return None
    return Match(hazard, (), sign.why, sign.certain, missing=sign.missing)


def _dense(row: Mapping[str, Any], outcomes: list[Any], log: str) -> Iterator[Sign]:
    calls = row.get("dense_calls")
    texts = [text for label, text in _texts(row) if label == "dense" and _RAN_DENSE in text]
    first = outcomes[:1] == ["dense"]
    for text in texts[:1]:
        yield Sign("dense-by-config", text, first=first)
    settings = _settings(row, only_dense="dense" in outcomes)
    if settings and "dense" not in outcomes:
        yield Sign("dense-by-thread-config", settings, missing="nothing ran uncompiled so far", certain=False)
    if "dense" not in outcomes or not isinstance(calls, int) or calls < 1 or texts:
        return
    ran = f"{calls} calls of attention ran uncompiled"
    scenario, torch = _dict(row.get("scenario")), str(row.get("torch") or "")
    watched = str(scenario.get("workload") or "").startswith("watch:")  # a program of its own, which the axes do not describe
    dynamo = None if watched else scenario.get("dynamo")
    hit = _LIMIT_WAS_HIT.search(log)
    if settings:
        yield Sign("dense-by-thread-config", f"{ran}; {settings}", first=first)
    elif dynamo == "limit_in_main" and _among(torch, _PER_THREAD):
        said = "; the limit that was raised in the main thread (dynamo=limit_in_main) does not hold in workers"
        yield Sign("dense-by-thread-config", ran + said, first=first)
    elif dynamo == "nested_trace_allowed" and not hit and _among(torch, _NESTED):
        said = "; error_on_nested_fx_trace is off (dynamo=nested_trace_allowed)"
        yield Sign("dense-by-config", ran + said, first=first)
    elif hit and dynamo is not None:  # with the limit that holds everywhere
        yield Sign("dense-by-recompile-limit", f"{ran}; torch's log says that {hit[1]} was met", first=first)
    else:
        why = f"{ran}; torch's log says that {hit[1]} was met" if hit else ran
        missing = "the row does not say whether the limit was raised in the main thread" if hit else UNTOLD
        for name in ("dense-by-recompile-limit", "dense-by-thread-config", *(() if hit else ("dense-by-config",))):
            yield Sign(name, why, certain=False, missing=missing)


def _settings(row: Mapping[str, Any], *, only_dense: bool) -> str:
    """Which threads compiled under another limit than the main thread's, as a watch found it.

    `only_dense`: of the threads that ran dense, where the row has their names, because what ran dense in another thread has
    another cause.
    """
    workers = _dict(row.get("workers"))
    dense = {name for name, worker in workers.items() if _dict(worker).get("dense_calls")} if only_dense else set()
    for worker, settings in _dict(_dict(row.get("facts")).get("settings")).items():
        if dense and worker not in dense:
            continue
        for name in _LIMITS:
            one = _dict(_dict(settings).get(name))
            if one:
                return f"{worker} compiled with {name} {one.get('there')}, the main thread's is {one.get('here')}"
    return ""


def _problems(row: Mapping[str, Any], outcomes: list[Any]) -> Iterator[Sign]:
    for label, text in _texts(row):
        first = outcomes[:1] == [label]
        for hazard, of, says in _LEAKS:
            if label == of and re.search(says, text):
                yield Sign(hazard, text, first=first)
        if label == "state_leak" and re.search(_PATCHED, text):
            for name in _PATCHERS:
                yield Sign(name, text, certain=False, missing=UNTOLD_PATCH)


def _named(row: Mapping[str, Any]) -> Iterator[Sign]:
    """What a watch has named already, by stacks that may not have been kept."""
    for label, text in _texts(row):
        found = NAMED.match(text) if label == "hazard" else None
        if found:
            yield Sign(found[1], "the watch of the program named it by what it saw")


def _compiling(row: Mapping[str, Any]) -> Iterator[Sign]:
    counts = {name: _dict(_dict(worker).get("counts")) for name, worker in _dict(row.get("workers")).items()}
    told = {name: one.get("is_compiling_leaks") for name, one in counts.items()}
    said = ", ".join(f"{name} {count}" for name, count in told.items() if isinstance(count, int) and count > 0)
    if said:
        yield Sign("compiling-leak", f"torch.compiler.is_compiling() was True in threads that compiled nothing (times): {said}")


def _texts(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for problem in _list(row.get("problems")):
        if isinstance(problem, dict):
            yield str(problem.get("label") or ""), str(problem.get("text") or "")


def _among(torch: str, versions: str) -> bool:
    """Of a row that does not name its torch, every release is thought of."""
    return not torch[:1].isdigit() or parse_specifier(versions).contains(torch)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
