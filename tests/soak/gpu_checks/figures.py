"""What the commands leave behind → the figure that was asked for. Each reads JSON, rows or XML in the check's folder, and
raises OSError, ValueError or LookupError where that is missing or not whole."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from harness.analysis.resample import median_interval
from harness.analysis.starved import Seen, add_loads, what_starves
from harness.analysis.warm_time import Spent
from harness.control.conclusion import conclude
from harness.control.results import read_environment, read_rows
from harness.core.matrix import load_matrix
from harness.core.outcome import SKIPPED

from .check import Figure

RUN, JSON, JUNIT = "run", "figures.json", "junit.xml"
"""In a check's folder: the run folder of a command that makes one, what a benchmark was told to write, what pytest was."""

GOAL_STEP_MS, GOAL_BUSY, GOAL_PROBES, GOAL_STEADY, NAMED_WITHIN_S = 140.0, 0.95, 0.01, 0.99, 5.0
COVERING = ("warmup_barrier", "compile_gate", "warm_gate")
"""Strategies that no plan of the catalogue breaks while all steps are alike."""

_GB = 1e9


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of the run in a check's folder. Raises LookupError: there are none."""
    rows = list(read_rows(folder / RUN)) if (folder / RUN).exists() else []
    if not rows:
        raise LookupError("the run has no row")
    return rows


def document(folder: Path, name: str = JSON) -> dict[str, Any]:
    """A JSON file of a check's folder."""
    found = json.loads((folder / name).read_text("utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"{name} holds no object")
    return found


def tests(folder: Path) -> Figure:
    """Of pytest's JUnit file."""
    try:
        root = ElementTree.parse(folder / JUNIT).getroot()
    except ElementTree.ParseError as error:
        raise ValueError(f"{JUNIT}: {error}") from error
    cases = list(root.iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = [case for case in cases if case.find("skipped") is not None]
    passed = len(cases) - len(failed) - len(skipped)
    names = [f"{case.get('classname', '')}::{case.get('name', '')}" for case in failed]
    text = f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped"
    values = {"passed": passed, "failed": names, "skipped": len(skipped)}
    return Figure(text, values, passed > 0 and not failed)


def reproduction(folder: Path) -> Figure:
    """Of `reproduce.json`."""
    found = document(folder, f"{RUN}/reproduce.json")
    other = found["counterfactual"]
    times, reproduced = found["times"], found["reproduced"]
    text = f"{reproduced}/{times}, counterfactual {other['reproduced']}/{other['times']}"
    if reproduced < times:
        text += f"; else {found['ending']} {found['reason']}".rstrip()
    keys = ("hazard", "torch", "times", "reproduced", "infeasible", "ending", "reason", "counterfactual", "outcomes")
    values = {**{key: found[key] for key in keys}, "devices": found["scenario"]["devices"], "seconds": found["seconds"]}
    return Figure(text, values, 0 < times == reproduced and not other["reproduced"])


def matrix(folder: Path) -> Figure:
    """How many trials of a run have ended, how, and which expectations broke."""
    rows, run = rows_of(folder), folder / RUN
    environment = read_environment(run)
    planned = load_matrix(run / "matrix.toml")
    repeats = (environment.get("options") or {}).get("repeats") or planned.repeats
    expected = len(planned.scenarios) * repeats
    ended = [row for row in rows if row["outcome"] != "interrupted"]
    outcomes = Counter(str(row["outcome"]) for row in ended)
    judged = conclude(planned, run, environment, repeats, interrupted=False).judgements
    broken = {name: [one.text for one in all_ if one.kind != "met"] for name, all_ in judged.items()}
    broken = {name: texts for name, texts in broken.items() if texts}
    told = ", ".join(f"{n} {label}" for label, n in outcomes.most_common()) or "none"
    text = f"{len(ended)} of {expected} trials: {told}; {len(broken)} scenarios against expectation"
    values = {"ended": len(ended), "expected": expected, "outcomes": dict(outcomes), "broken": broken}
    return Figure(text, values, (not broken) if len(ended) == expected else None)


def deaths(folder: Path) -> Figure:
    """How many trials failed, by workload: one that is to, and one that is cured of it."""
    failed, ended = Counter[str](), Counter[str]()
    for row in rows_of(folder):
        if row["outcome"] not in (SKIPPED, "interrupted"):
            name = row["scenario"]["workload"].rpartition(":")[2]
            ended[name] += 1
            failed[name] += row["outcome"] != "ok"
    counts = {name: [failed[name], ended[name]] for name in sorted(ended)}
    text = ", ".join(f"{name} {count}/{n} failed" for name, (count, n) in counts.items())
    known = set(ended) == {"dflash", "Cured"}
    return Figure(text, counts, failed["dflash"] > 0 and not failed["Cured"] if known else None)


def busy(folder: Path) -> Figure:
    """By devices and CUDA-graph setting: the least busy drafter's share of its warm time and the load of its GPUs, and who it
    waited for, or what starves them."""
    values: dict[str, Any] = {}
    whys = []
    for row in rows_of(folder):
        if row["outcome"] == SKIPPED:
            continue  # two devices asked for, one there
        spent = {name: Spent() for name in row["workers"]}
        for name, one in row["workers"].items():
            spent[name].add(one)
        seen: dict[str, Seen] = {}
        add_loads(seen, row)
        why = what_starves(spent, seen, row["scenario"])
        whys += [f"{row['scenario']['devices']} {row['scenario']['cudagraphs']}: {why}"] if why else []
        drafters = {name: one for name, one in row["workers"].items() if one["role"] == "drafter"}
        values[f"{row['scenario']['devices']} {row['scenario']['cudagraphs']}"] = {
            "outcome": row["outcome"],
            "busy": {name: one.get("busy") for name, one in drafters.items()},
            "waited_s": {name: one.get("waited_s", {}) for name, one in drafters.items()},
            "ran": {name: spent[name].ran for name in drafters},
            "why": why,
            "gpu_load": row.get("gpu_load", {}),
            "tokens_per_s": row["tokens_per_s"],
        }
    shares = [share for one in values.values() for share in one["busy"].values()]
    parts = []
    for name, one in values.items():
        known = [share for share in one["busy"].values() if share is not None]
        loads = [f", {device} {load['busy_warm']:.0%}" for device, load in _loads(one["gpu_load"])]
        parts.append(f"{name} {f'{min(known):.1%}' if known else 'unknown'} ({one['outcome']}{''.join(loads)})")
    reached = bool(shares) and all(share is not None and share >= GOAL_BUSY for share in shares)
    return Figure("; ".join([", ".join(parts), *whys]), values, reached)


def _loads(found: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The devices whose load once warm is known."""
    return sorted((device, load) for device, load in found.items() if isinstance(load, dict) and "busy_warm" in load)


def startup(folder: Path) -> Figure:
    """By devices, cache and lock: seconds until all drafters are warm, and steady tokens/s against no lock of the same."""
    values: dict[str, dict[str, Any]] = {}
    for row in rows_of(folder):
        if row["outcome"] == SKIPPED:
            continue  # two devices asked for, one there
        axes = row["scenario"]
        values.setdefault(f"{axes['devices']} {axes['cache']}", {})[axes["lock"]] = {
            "outcome": row["outcome"], "startup_s": row["startup_s"], "tokens_per_s": row["tokens_per_s"]
        }  # fmt: skip
    parts = []
    for place, by_lock in values.items():
        base = by_lock.get("none", {}).get("tokens_per_s")
        said = []
        for lock, one in by_lock.items():
            speed = one["tokens_per_s"]
            one["speed_to_none"] = round(speed / base, 4) if speed and base else None
            warm = f"{one['startup_s']:.1f}" if one["startup_s"] is not None else one["outcome"]
            said.append(f"{lock} {warm}" + (f" (× {one['speed_to_none']:.2f})" if one["speed_to_none"] else ""))
        parts.append(f"{place}: " + ", ".join(said))
    return Figure("s until warm (tokens/s to none): " + "; ".join(parts), values)


def memory(folder: Path) -> Figure:
    """Peaks of the scenario that fits and of the one that does not."""
    values: dict[str, Any] = {}
    for row in rows_of(folder):
        peaks = {device: one["peak_allocated"] for device, one in (row.get("memory") or {}).items()}
        values[row["scenario"]["compile"]] = {"outcome": row["outcome"], "peak_allocated": peaks, "memory": row.get("memory")}
    parts = [
        f"compile={name} {one['outcome']}, peak "
        + (", ".join(f"{peak / _GB:.1f} GB of {device}" for device, peak in one["peak_allocated"].items()) or "not told")
        for name, one in values.items()
    ]
    fits, too_much = values.get("layer"), values.get("none")
    reached = None
    if fits is not None and too_much is not None:
        reached = fits["outcome"] == "ok" and too_much["outcome"] == "out_of_memory"
        reached = reached and all(one["peak_allocated"] for one in (fits, too_much))
    return Figure("; ".join(parts), values, reached)


def refused(folder: Path) -> Figure:
    """A run that must not start anything: every row skipped, with the reason."""
    rows = rows_of(folder)
    reasons = Counter(str(row["reason"]) for row in rows if row["outcome"] == SKIPPED)
    started = sum(row["outcome"] != SKIPPED for row in rows)
    text = f"{started} trials started; skipped: " + "; ".join(f"{n} × {reason}" for reason, n in reasons.items())
    good = not started and all("needs 2 CUDA device(s); 1 here" in reason for reason in reasons)
    return Figure(text, {"started": started, "reasons": dict(reasons)}, good)


def hangs(folder: Path) -> Figure:
    """Of `tests.soak.gpu_hangs`: how long after the hang a watch named it, and how long a dump took."""
    found = document(folder)
    parts = []
    for name, one in found["hangs"].items():
        watch, dump = one["watch"], one["dump"]
        late = "never" if watch["after_s"] is None else f"{watch['after_s']:.1f} s"
        looked = "never" if dump["seconds"] is None else f"{dump['seconds']:.1f} s"
        parts.append(f"{name}: watch {late}, dump {looked}")
    limit_s = found["timeout_s"] + NAMED_WITHIN_S
    good = all(
        one["watch"]["after_s"] is not None and one["watch"]["after_s"] <= limit_s and one["dump"]["seconds"] is not None
        for one in found["hangs"].values()
    )
    return Figure(f"on {found['device']}, timeout {found['timeout_s']:g} s: " + "; ".join(parts), found, good)


def drafter_step(folder: Path) -> Figure:
    """Of `tests.benchmarks.drafter_step --json`."""
    found = document(folder)
    parts = [f"{name} {one['step_ms']:.1f} ms ({one['of_matrix_rate']:.0%})" for name, one in found["variants"].items()]
    text = f"of {found['matrix_tflops']:.0f} TFLOP/s measured: " + ", ".join(parts)
    if "dense_over_fused" in found:
        ratio = found["dense_over_fused"]
        text += f"; dense / fused: time × {ratio['time']}, memory × {ratio['memory']}"
    apart = ", ".join(f"{name} {one['gradients']:.1%}" for name, one in found["relative_errors"].items())
    text += f"; gradients off by {apart}" + (f"; failed: {', '.join(found['failed'])}" if found.get("failed") else "")
    best = min(one["step_ms"] for one in found["variants"].values())
    return Figure(text, found, best <= GOAL_STEP_MS)


def probes(folder: Path) -> Figure:
    """Of `tests.benchmarks.probe_cost --json`."""
    found = document(folder)
    on, itself = statistics.median(found["on_off"]), found["off_off"]
    inside = min(itself) <= on <= max(itself)
    text = f"count × cost {found['share']:.3%} of {found['step_ms']:.2f} ms; on / off {on:.3f}, "
    text += f"{'inside' if inside else 'outside'} off / off {min(itself):.3f} – {max(itself):.3f} (n = {len(itself)})"
    return Figure(text, found, found["share"] <= GOAL_PROBES and inside)


def steady(folder: Path) -> Figure:
    """Of `tests.benchmarks.steady_cost --json`: tokens/s to no lock, medians over rounds with 95 % intervals."""
    found = document(folder)
    medians = {lock: median_interval(values) for lock, values in found["ratios"].items()}
    parts = [f"{lock} × {interval}" for lock, interval in medians.items() if interval is not None]
    best = max((one.value for lock, one in medians.items() if lock in COVERING and one is not None), default=0.0)
    rounds = f"{found['rounds']} rounds of {found['block']} steps"
    return Figure(f"once warm, to no lock ({rounds}): " + ", ".join(parts), found, best >= GOAL_STEADY)


def bisection(folder: Path) -> Figure:
    """The answer so far; without one, how many trials there are."""
    asked = document(folder, f"{RUN}/bisect.json")
    answer = asked.get("answer")
    if answer is None:
        rows = rows_of(folder)
        return Figure(f"no answer yet, {len(rows)} trials", {"trials": len(rows)})
    kept = ("lock", "verdict", "trials", "failures", "certified", "startup_s", "tokens_per_s", "plans")
    ladder = [{key: entry[key] for key in kept} for entry in answer["ladder"]]
    said = "; ".join(filter(None, map(_standing, ladder))) or "nothing is known yet"
    stopped = f" ({answer['stopped']})" if answer["stopped"] else ""
    text = f"{answer['conclusion']}{stopped}; {answer['trials_total']} trials, p_min {answer['p_min']:g}: {said}"
    told = ("answer", "verdict", "conclusion", "stopped", "trials_total", "p_min", "cost", "open")
    values = {key: answer[key] for key in told}
    reached = {"safe": True, "unsafe": False}.get(answer["verdict"])
    return Figure(text, {**values, "ladder": ladder}, reached)


def _standing(entry: dict[str, Any]) -> str:
    """A strategy of which something is known: its trials, and what its plans came to."""
    parts = [f"{entry['failures']}/{entry['trials']}"] if entry["trials"] else []
    parts += [f"{hazard} {ending}" for hazard, ending in entry["plans"].items()]
    return f"{entry['lock']} {entry['verdict']} {', '.join(parts)}" if parts else ""
