"""A trial as the text of an issue for PyTorch: everything that somebody needs who has never heard of the harness."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.analysis.dumps import Dump, join, parse
from harness.analysis.explain import Match, match
from harness.analysis.intervals import CONFIDENCE, failure_rate_interval
from harness.analysis.paths import without_home
from harness.analysis.row_signs import joined
from harness.control.dump_source import raised_of, signs_of
from harness.control.environment import allowed_variables
from harness.core.errors import UserError
from harness.core.outcome import FAILURES, INCOMPLETE, SKIPPED
from harness.core.versions import parse_specifier
from harness.hazards import find
from harness.hazards.base import Hazard
from harness.hazards.minimal import script_of, shows_on, versions_of
from harness.report.answer import FAILURE_WORDS
from harness.report.explanation import by_row
from harness.report.facts import environment_table
from harness.report.markdown import block, plain, prose, stack_block, table
from harness.report.text import one_line, stack
from harness.report.trial_source import Trial
from harness.report.witness import interleaving
from harness.report.wording import percent, plural

LONGEST_STACK = 8_000
LONGEST_DUMP = 24_000
LONGEST_HEADLINE = 110
MOST_EVENTS = 40
_FACTS = ("torch", "cuda", "python", "implementation", "harness", "platform", "cpu", "cores", "cores_usable", "gpus")

_FRAME = re.compile(r'^  File "([^"\n]*)", line \d+', re.MULTILINE)
_OBSERVER = re.compile(r"harness/(?:subject|torch_internals)/")

EXPECTED: dict[str, str] = {
    "fx_error": "A compiled callable runs in one thread whatever another thread traces or compiles.",
    "graph_corrupt": "A thread's compile or trace sees nothing of what another thread does meanwhile.",
    "dense": "A compiled function runs compiled, or an error or a warning says each time that it does not.",
    "numerics": "The numbers do not depend on what other threads compile meanwhile.",
    "no_grad": "Every parameter that was used gets a gradient, or an error says why not.",
    "state_leak": "What one thread sets or compiles does not change process-wide state under another.",
    "deadlock": "Both threads go on: no lock is held while waiting for a thread that may want it.",
    "hang": "The threads go on.",
}
_EXPECTED_ELSE = "The step runs as it does when no other thread compiles."


def upstream_text(trial: Trial, hazard: str = "") -> str:
    """The issue. `hazard`: its id in the catalogue, "" to find it by the stacks.

    Raises UserError: the trial did not fail, or no hazard is called so.
    """
    label = next((one for one in trial.row["outcomes"] if one in FAILURES), "")
    if not label:
        silent = [one for one in trial.row["outcomes"] if one in (*INCOMPLETE, SKIPPED)]
        said = f"it says nothing of torch ({', '.join(silent)})" if silent else "it ended well"
        raise UserError(f"{trial.folder}: there is nothing to report: {said}; give a trial that failed")
    first, known, alike = _told(trial, hazard)
    lines = [f"# {_title(first, label, known)}", ""]
    lines += _what_happened(trial, first, label)
    lines += _stacks(trial, first, label)
    lines += _witness(trial)
    lines += _why(known, alike, _version(trial))
    said = first["label"] if first and first["label"] in trial.row["outcomes"] else label
    lines += ["## Expected behaviour", "", EXPECTED.get(said, _EXPECTED_ELSE), ""]
    lines += _script(known, alike, _version(trial))
    lines += _environment(trial)
    text = without_home("\n".join(lines)).rstrip()
    return re.sub(r"\n{3,}(?=## )", "\n\n", text) + "\n"


def _told(trial: Trial, name: str) -> tuple[Mapping[str, Any] | None, Hazard | None, list[Match]]:
    """The error that the issue is of, what the catalogue has for it, and what else of it would look the same.

    All of it is of one error: the earliest that is no consequence and that the hazard fits, which is of the trial's own plan,
    or named, or whatever fits. Without such an error it is the earliest, and the hazard is sought in the stacks and in what
    else the trial tells.
    """
    asked = find(name) if name else _planned(trial)
    version = "" if asked else _version(trial)
    told = () if asked else signs_of(trial.folder, trial.row)
    errors = [error for error in trial.row["errors"] if not error["consequence"]]
    errors.sort(key=lambda error: math.inf if error["at_s"] is None else error["at_s"])
    for error in errors:
        found = match(Dump((), tuple(raised_of(error))), [asked] if asked else None, version)
        if found:
            beside = joined(found, told, version)
            also = [one for one in beside if one.hazard is not found[0].hazard and (one.certain or not found[0].certain)]
            return error, found[0].hazard, also
    first = errors[0] if errors else None
    if asked:
        return first, asked, []
    found = joined(match(parse(trial.stacks), torch=version), told, version)
    if found and (found[0].certain or not by_row(found[0])):
        return first, found[0].hazard, found[1:]
    return first, None, found


def against(trial: Trial, name: str) -> str:
    """A note where a hazard was named of which nothing in the trial tells, and it tells of another for certain; else "".

    Raises UserError: no hazard is called so.
    """
    asked, version = find(name), _version(trial)
    raised = (one for error in trial.row["errors"] if not error["consequence"] for one in raised_of(error))
    found = joined(match(join([Dump((), tuple(raised)), parse(trial.stacks)])), signs_of(trial.folder, trial.row))
    if asked is _planned(trial) or any(one.hazard is asked for one in found):
        return ""
    possible = (one for one in found if not version or parse_specifier(one.hazard.versions).contains(version))
    sure = next((one for one in possible if one.certain), None)
    if sure is None:
        return ""
    told = f"this trial tells of {sure.hazard.id} for certain, and of {asked.id} nowhere"
    return f"{told}: {sure.why}; without --hazard the report is of {sure.hazard.id}"


def _planned(trial: Trial) -> Hazard | None:
    try:
        return find(trial.hazard) if trial.hazard else None
    except UserError:  # a case of a file, or of another version's catalogue
        return None


def _version(trial: Trial) -> str:
    torch = str(trial.row["torch"] or trial.environment.get("torch") or "")
    return torch if torch[:1].isdigit() else ""


def _title(first: Mapping[str, Any] | None, label: str, known: Hazard | None) -> str:
    what = f"{first['type']}: {_headline(first['message'])}" if first else FAILURE_WORDS.get(label, label)
    return plain(f"{known.title}: {what}" if known else f"Multi-threaded training: {what}", 300)


def _headline(message: str) -> str:
    """The first sentence of a message, cut at a word."""
    line = one_line(message, LONGEST_STACK).split(". ")[0]
    return line if len(line) <= LONGEST_HEADLINE else line[:LONGEST_HEADLINE].rsplit(" ", 1)[0] + " …"


def _what_happened(trial: Trial, first: Mapping[str, Any] | None, label: str) -> list[str]:
    row = trial.row
    lines = ["## What happened", ""]
    if first:
        where = f" in `{one_line(first['region'], 40)}`" if str(first["region"]).isidentifier() else ""
        lines += [f"In a process whose threads share compiled code, {plain(_who(first))} failed{where}:", ""]
        lines += [block(f"{first['type']}: {first['message']}", 2_000), ""]
        others = [plain(_who(tracer)) for tracer in first["tracers"]]
        if others:
            lines += [f"At that moment {' and '.join(others)} was inside an FX trace.", ""]
    if row["reason"]:
        lines += [block(row["reason"], 2_000), ""]
    problems = [one for one in row["problems"] if one.get("label") != "hazard"]  # which stands under "Why"
    for problem in problems[:5]:
        lines += [f"* {plain(str(problem.get('label', '')))}: {prose(str(problem.get('text', '')), 500)}"]
    if row["dense_calls"]:
        lines += [*([""] if problems else []), f"{plural(row['dense_calls'], 'attention call')} ran uncompiled.", ""]
    ended = row["exit"]
    if ended.get("signal") and label in ("crash", "cuda_fault"):
        lines += [f"The process ended by {plain(str(ended['signal']))}.", ""]
    told = [labels for labels in trial.others if not set(labels) <= {*INCOMPLETE, SKIPPED}]
    if len(told) > 1:
        failed = sum(bool(set(labels) & set(FAILURES)) for labels in told)
        rate = failure_rate_interval(failed, len(told))
        bounds = f"{percent(rate.low)} to {percent(rate.high)} at {percent(CONFIDENCE)} confidence"
        runs = f"Of {plural(len(told), 'run')} of the same program, each in a process of its own, {failed} failed"
        lines += [f"{runs} ({bounds})."]
    return [*lines, ""]


def _who(part: Mapping[str, Any]) -> str:
    worker, thread = (one_line(str(part.get(key) or "?"), 60) for key in ("worker", "thread"))
    return f"thread {thread}" if worker in (thread, "?") else f"thread {thread} (working for {worker})"


def _stacks(trial: Trial, first: Mapping[str, Any] | None, label: str) -> list[str]:
    lines = ["## Stacks", ""]
    if first:
        lines += [f"{plain(_who(first))}, which failed:", "", _shown(first["traceback"], LONGEST_STACK), ""]
        for tracer in first["tracers"]:
            lines += [f"{plain(_who(tracer))}, which was tracing:", "", _shown(tracer["stack"], LONGEST_STACK), ""]
    dense = [
        (name, worker["facts"]["first_dense_stack"])
        for name, worker in trial.row["workers"].items()
        if isinstance(worker.get("facts"), dict) and isinstance(worker["facts"].get("first_dense_stack"), str)
    ]
    for name, text in dense[:1]:
        lines += [f"the first uncompiled call, of {plain(name)}:", "", _shown(text, LONGEST_STACK), ""]
    if trial.stacks.strip() and (label in ("deadlock", "hang", "crash", "cuda_fault") or not first):
        lines += ["all threads:", "", stack_block(_named_threads(trial.stacks), LONGEST_DUMP), ""]
    return lines if len(lines) > 2 else []


def _named_threads(stacks: str) -> str:
    """Of the dumps in a trial's `stacks.txt` the one of py-spy, which names the threads; all of it where there is none."""
    head, found, rest = stacks.partition("=== py-spy dump")
    dump = rest.partition("\n")[2].strip() if found else ""
    return f"{head.splitlines()[0]}\n\n{dump}" if dump.startswith("Process ") and head else stacks


def _shown(text: str, longest: int) -> str:
    """Its observers go before it is cut, or the cut would spare them."""
    return stack_block(without_observers(stack(text, len(text) + 1)), longest)


def without_observers(text: str) -> str:
    """A stack, outermost call first, up to its last frame of torch, when below it only the harness watched and waited."""
    frames = list(_FRAME.finditer(text))
    last = next((n for n in range(len(frames) - 1, -1, -1) if frames[n][1].startswith("torch/")), None)
    if last is None or last + 1 == len(frames) or not _OBSERVER.match(frames[last + 1][1]):
        return text
    return text[: frames[last + 1].start()].rstrip()


def _witness(trial: Trial) -> list[str]:
    """The interleaving of a plan, or the last events of the threads before the first failure."""
    if trial.witness:
        return ["## The order that makes it happen", "", block("\n".join(interleaving(trial.witness)), 12_000), ""]
    failures = ("step.failed", "deadlock", "hang", "flag.checked")
    place = next((n for n, event in enumerate(trial.events) if event["k"] in failures), len(trial.events) - 1)
    events = trial.events[max(0, place - MOST_EVENTS + 1) : place + 2]
    if not events:
        return []
    zero = events[0]["t"]
    rows = [
        f"{(event['t'] - zero) / 1e6:10.3f} ms  {one_line(str(event.get('th', '')), 24):24}  {one_line(_said(event), 120)}"
        for event in events
    ]
    return ["## The last events before it", "", block("\n".join(rows), 12_000), ""]


def _said(event: Mapping[str, Any]) -> str:
    more = {key: value for key, value in event.items() if key not in ("t", "th", "id", "w", "k")}
    return " ".join([str(event["k"]), *(f"{key}={value}" for key, value in more.items())])


def _why(known: Hazard | None, alike: Sequence[Match], torch: str) -> list[str]:
    lines = ["## Why", ""]
    if known is None:
        return [*lines, *_untold(alike)] if alike else []
    window = " × ".join(prose(part, 600) for part in (known.window, known.access) if part)
    lines += [f"{window}.", "", f"{prose(known.effect, 600)}.", ""]
    if known.versions:
        lines += [f"Releases it is known of: `{known.versions}`", ""]
        if torch and not parse_specifier(known.versions).contains(torch):
            lines += [f"This trial ran on torch {plain(torch)}, which is none of them.", ""]
    lines += [f"* torch {plain(release)}: {prose(text, 400)}" for release, text in known.found.items()]
    lines += [f"* {reference}" for reference in known.reference]
    rest = [one for one in alike if not (by_row(one) and one.certain)]
    beside = [f"It also shows: {prose(one.hazard.title)}: {prose(one.why, 400)}." for one in alike if one not in rest]
    lines += ["", *beside] if beside else []
    others = [one.hazard.title for one in rest if not by_row(one)]
    lines += ["", f"It could also be: {prose('; '.join(others), 600)}."] if others else []
    return [*lines, ""]


def _untold(possible: Sequence[Match]) -> list[str]:
    """What is only possible, by what the trial tells of it."""
    lines = []
    for why in dict.fromkeys(one.why for one in possible):
        titles = "; ".join(one.hazard.title for one in possible if one.why == why)
        lines += [f"{prose(why, 400)}. It could be: {prose(titles, 600)}.", ""]
    return lines


def _script(known: Hazard | None, alike: Sequence[Match], torch: str) -> list[str]:
    """The script of the hazard; where it has none that can show it on this torch, of the next that would look the same,
    which is said. Where only scripts for other releases are there, that they are."""
    candidates = [known, *(one.hazard for one in alike if not by_row(one))] if known else []
    scripts = [one for one in candidates if script_of(one.id)]
    hazard = next((one for one in scripts if _on(one, torch)), None)
    if hazard is None and not scripts:
        return []
    lines = ["## Minimal script", ""]
    if hazard is None:
        needs = " and ".join(dict.fromkeys(part for part in (scripts[0].versions, versions_of(scripts[0].id)) if part))
        said = f"None is attached: that of this problem needs torch {needs}, and this trial ran on torch {torch}."
        return [*lines, plain(said), ""]
    lines += ["It needs nothing but torch, and ends with exit code 1 when it happens.", ""]
    if hazard is not known:
        lines[2] += f" It shows the nearest that can be shown so: {prose(hazard.title)}."
    return [*lines, block(script_of(hazard.id), 20_000, "python"), ""]


def _on(hazard: Hazard, torch: str) -> bool:
    """Both the hazard and its script are of this release; "" for one that is not known."""
    return not torch or (parse_specifier(hazard.versions).contains(torch) and shows_on(hazard.id, torch))


def _environment(trial: Trial) -> list[str]:
    """Facts by name; whatever else the file may hold is left out."""
    facts = {key: trial.environment[key] for key in _FACTS if key in trial.environment}
    facts["torch"] = trial.row["torch"] or facts.get("torch")
    packages = trial.environment.get("packages")
    variables = trial.environment.get("variables")
    if isinstance(packages, dict):
        facts["packages"] = packages
    if isinstance(variables, dict):
        facts["variables"] = allowed_variables({str(name): str(value) for name, value in variables.items()})
    scenario = ", ".join(f"{axis}={value}" for axis, value in trial.row["scenario"].items())
    rows = [(plain(name), plain(value, 600)) for name, value in environment_table(facts)]
    return [
        "## Environment",
        "",
        *table(("", ""), rows),
        "",
        f"Found with dflash-harness, scenario: {plain(scenario, 1_000)}",
    ]
