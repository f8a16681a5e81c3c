"""One trial as the page shows it when it is asked for: what failed, who held what, and how to see it again."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.control.request import Row
from harness.core.outcome import FAILURES, INCOMPLETE, OK
from harness.core.recording import NAME as RECORDING
from harness.report import moments
from harness.report.evidence import event_of, exit_of, place_of, who_of
from harness.report.moments import Standing
from harness.report.spans import Story
from harness.report.text import clip, innermost, one_line, stack
from harness.report.timeline import TICK_NS
from harness.report.witness import interleaving
from harness.report.wording import number, plural

MOST_ERRORS = 6
MOST_TRACERS = 3
LONGEST_STACK = 8_000
LONGEST_MESSAGE = 1_500
LONGEST_DUMP = 20_000
LONGEST_OUTPUT = 3_000
MOST_WITNESS_LINES = 200
MOST_WITNESS_EVENTS = 300
GIB = 2**30
STUCK = frozenset({"deadlock", "hang", "crash"})

Detail = dict[str, Any]


@dataclass(frozen=True)
class Places:
    """Where things are: the run folder as typed, what runs a scenario again, its short name, and a trial's files."""

    run_dir: str
    command: Callable[[str], str]
    name: Callable[[str], str]
    files: Callable[[str, str, int, bool], str]

    def folder(self, trial: str) -> str:
        """Of a trial, as typed."""
        return f"{self.run_dir}/trials/{trial}"


def mark_of(row: Row) -> str:
    """Which of the page's states its outcome looks like."""
    if row["outcome"] == OK:
        return "safe"
    return "unsafe" if any(label in FAILURES for label in row["outcomes"]) else "incomplete"


def detail(row: Row, places: Places, story: Story | None) -> Detail:
    """The trial, in texts and numbers that JSON has. `story` is what its event log tells, None without one."""
    stuck = STUCK.intersection(row["outcomes"])
    said = [] if stuck else [problem for problem in row["problems"] if isinstance(problem.get("text"), str)]
    return {
        "id": row["trial"],
        "name": places.name(row["scenario_id"]),
        "state": mark_of(row),
        "labels": list(row["outcomes"]),
        "reason": clip(row["reason"], LONGEST_MESSAGE) if not said else "",
        "problems": [
            [one_line(str(one.get("label", "")), 100), clip(one["text"], LONGEST_MESSAGE)] for one in said[:MOST_ERRORS]
        ],
        "facts": _facts(row),
        "commands": _commands(row, places),
        "folder": places.folder(row["trial"]),
        "errors": [_error(error, story) for error in row["errors"][:MOST_ERRORS]],
        "more": max(0, len(row["errors"]) - MOST_ERRORS) + row["errors_dropped"],
        "end": _end(row, story) if stuck else None,
        "dumps": _dumps(row, places) if stuck else [],
        "last": [list(event_of(event)) for event in row["last_events"]],
        "witness": _witness(row),
        "incomplete": all(label in INCOMPLETE for label in row["outcomes"]),
    }


def _facts(row: Row) -> list[list[str]]:
    scenario = row["scenario"]
    workers = [f"{name} {worker.get('steps_ok', '?')}" for name, worker in list(row["workers"].items())[:32]]
    found = [
        ("seed", str(scenario["seed"])),
        ("schedule", str(scenario["schedule"])),
        ("lock", str(scenario["lock"])),
        ("torch", row["torch"]),
        ("steps", f"{row['steps_ok']:,} of {row['steps_expected']:,} good, {row['steps_failed']:,} failed"),
        ("good steps by worker", ", ".join(workers)),
        ("compiles", f"{row['compiles']:,}"),
        ("dense calls", f"{row['dense_calls']:,}"),
        ("start-up", f"{number(row['startup_s'])} s" if row["startup_s"] is not None else ""),
        ("throughput", f"{number(row['tokens_per_s'])} tokens/s" if row["tokens_per_s"] is not None else ""),
        *((f"peak memory on {device}", _peak(peaks)) for device, peaks in row["memory"].items()),
        ("took", f"{number(row['wall_s'])} s" if row["wall_s"] else ""),
        ("ended", exit_of(row["exit"]).removeprefix("The process").removeprefix(":").strip(" .")),
        *((f"compared: {name}", text) for name, text in row["oracles"].items()),
        *((f"probe {name}", text) for name, text in row["probes"].items() if text != OK),
    ]
    return [[one_line(name, 100), one_line(text, 600)] for name, text in found if text]


def _peak(peaks: Mapping[str, float]) -> str:
    named = (("peak_allocated", "allocated"), ("peak_reserved", "reserved"), ("total", "there"))
    return ", ".join(f"{peaks[key] / GIB:.1f} GiB {word}" for key, word in named if key in peaks)


def _commands(row: Row, places: Places) -> list[list[str]]:
    folder = places.folder(row["trial"])
    found = [["Run its scenario again", places.command(row["scenario_id"])]]
    if RECORDING in row["evidence"]:
        found.append(["Replay this very order of threads", f"harness replay {shlex.quote(folder)}"])
    if any(label in FAILURES for label in row["outcomes"]):
        found.append(["What is known of it, with the remedy", f"harness explain {shlex.quote(folder)}"])
        found.append(["The text of a bug report", f"harness upstream {shlex.quote(folder)}"])
    return [pair for pair in found if pair[1]]


def _error(error: Mapping[str, Any], story: Story | None) -> Detail:
    tracers = error["tracers"][:MOST_TRACERS]
    others = [f"{who_of(one)} was tracing in {one['region'] or '?'}" for one in tracers]
    place = place_of(error) if error["region"] or error.get("stage") else f" outside of all regions{place_of(error)}"
    who = f"{who_of(error)} failed{place}"
    stacks = [(f"{who_of(error)}: failed", error["traceback"])]
    stacks += [(f"{who_of(one)}: was tracing", one["stack"]) for one in tracers]
    moment = moments.moment_of(story, error) if story else None
    held = moments.at(story, moment) if story and moment is not None else []
    notes = [_late(error, moment)] if moment is not None else []
    dropped = len(error["tracers"]) - len(tracers) + error["tracers_dropped"]
    notes += [f"{plural(dropped, 'more thread')} traced at that moment."] if dropped > 0 else []
    return {
        "label": error["label"],
        "message": f"{error['type']}: {clip(error['message'], LONGEST_MESSAGE)}",
        "who": f"{who}, while {' and '.join(others)}." if others else f"{who}.",
        "follows": error["consequence"],
        "note": " ".join(filter(None, notes)),
        "stacks": [_stack(title, text) for title, text in stacks if text],
        "at": None if moment is None else moment // TICK_NS,
        "lane": None if story is None else moments.lane_of(story, error["thread"], error["worker"]),
        "held": [_standing(one, error) for one in held],
    }


def _late(error: Mapping[str, Any], moment: int) -> str:
    """That the moment is inferred, where the log says so itself only later."""
    late = error["at_s"] - moment / 1e9
    if error["label"] != "fx_error" or late < 0.001:
        return ""
    return (
        f"Shown at the last moment at which the log has the other thread tracing; the error was written down "
        f"{1e3 * late:.0f} ms later."
    )


def _standing(one: Standing, error: Mapping[str, Any]) -> list[str]:
    """thread, regions, holds, waits for, is doing. What the probe noted of tracers counts: the log is written later."""
    doing = list(one.doing)
    if any(tracer["thread"] == one.thread for tracer in error.get("tracers", ())):
        doing = [text for text in doing if not text.startswith("tracing")] + ["tracing: the FX flag is its own"]
    return [one.thread, one.regions, ", ".join(one.holds), ", ".join(one.waits), ", ".join(doing)]


def _stack(title: str, text: str) -> list[str]:
    shown = stack(text, LONGEST_STACK)
    return [title, one_line(innermost(shown), 300), shown]


def _end(row: Row, story: Story | None) -> Detail | None:
    """Who was where when nothing went on any more."""
    if story is None:
        return None
    told = next((m.at for lane in story.lanes for m in lane.marks if m.kind in STUCK), story.end)
    held = [_standing(one, {}) for one in moments.at(story, told)]
    return {"label": row["outcome"], "at": told // TICK_NS, "held": held}


def _dumps(row: Row, places: Places) -> list[list[str]]:
    dump = places.files(row["trial"], "stacks.txt", LONGEST_DUMP, False)
    output = places.files(row["trial"], "stdout.txt", LONGEST_OUTPUT, True)
    texts = (("stacks.txt", stack(dump, LONGEST_DUMP)), ("stdout.txt, its end", output.strip()))
    return [[title, text] for title, text in texts if text]


def _witness(row: Row) -> list[str]:
    """The order that a plan brought about; [] without a plan, or of one in another version's words."""
    told = row["schedule"].get("witness")
    if not isinstance(told, list):
        return []
    events = [
        event
        for event in told[-MOST_WITNESS_EVENTS:]
        if isinstance(event, dict) and {"seat", "point", "event"} <= event.keys()
    ]
    try:
        return [clip(line, 400) for line in interleaving(events, 110)[:MOST_WITNESS_LINES]]
    except (TypeError, ValueError):
        return []
