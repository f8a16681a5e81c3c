"""What a person sees when a bisection has ended: the answer with its counts, the table behind it, and what to paste."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.analysis.intervals import trials_for_safe
from harness.analysis.regions import RegionAnswer
from harness.analysis.turning import Version
from harness.analysis.verdicts import NOTHING_TO_FIX, Answer, Entry
from harness.control.bisect import BisectResult
from harness.control.bisect_torch import TorchResult
from harness.control.results import read_rows
from harness.core.lockspec import REGIONS
from harness.core.plan import REPRODUCED
from harness.report import wording
from harness.report.advice import advice
from harness.report.terminal import STYLES

WIDEST_WITNESS = 46

_NO_LOCKS = ("none", "thread_local_fx", "process")


def print_bisection(console: Console, result: BisectResult, folder: str, page: str = "") -> None:
    """The answer of `bisect locks` or `bisect regions`. `folder`: the run folder as a user would type it."""
    answer = result.answer
    torch = result.environment.get("torch", "")
    scenarios = wording.plural(len(result.question.contexts), "scenario")
    title = Text(f"bisect {result.question.what}", style="bold")
    title.append(
        f"  {result.question.target}: {scenarios}, {wording.plural(answer.trials_total, 'trial')} on torch {torch}",
        style="not bold",
    )
    console.print(title)
    for line in _said(answer, len(result.question.contexts)):
        console.print(line, soft_wrap=True)
    console.print()
    console.print(_ladder(answer) if isinstance(answer, Answer) else _sets(answer))
    for meaning in _legend(answer):
        console.print(meaning)
    _lines(console, "Still open", list(answer.open))
    if answer.answer is not None and answer.verdict == "safe":
        console.print()
        console.print(Text("To paste", style="bold"))
        for code in advice(answer.answer, *_as_tried(result, answer.answer)).splitlines():
            console.print(Text(f"  {code}"), soft_wrap=True)
    _lines(console, "Next", _next(result, folder, page))


def _as_tried(result: BisectResult, lock: str) -> tuple[Collection[str], bool]:
    """The regions that the strategy's trials entered, and whether they gave keys."""
    rows = [row for row in read_rows(result.run_dir) if row["scenario"]["lock"] == lock]
    facts = [row["facts"] for row in rows if "regions" in row.get("facts", {})]
    if not facts:
        return REGIONS, True
    return {region for fact in facts for region in fact["regions"]}, any(fact["keyed"] for fact in facts)


def print_versions(console: Console, result: TorchResult, folder: str, jobs: int = 1) -> None:
    """The answer of `bisect torch`. `jobs`: how many trials ran at the same time."""
    answer = result.answer
    title = Text("bisect torch", style="bold")
    title.append(f"  {result.question.target}: {wording.plural(answer.trials_total, 'trial')}", style="not bold")
    console.print(title)
    console.print(_answer_line(answer.conclusion, answer.verdict))
    if answer.stopped:
        console.print(Text(f"Stopped: {answer.stopped}.", style="yellow"))
    table = _table("torch", "verdict", "failed", "witness")
    for version in answer.versions:
        said = _witness(version.witness)
        if version.plan_failures and version.witness and version.witness.get("hazard"):
            said += f": found in {wording.plural(version.plan_trials, 'trial')} of plans"
        table.add_row(version.version, _verdict(version.verdict), _counts(version), said)
    console.print()
    console.print(table)
    _lines(console, "Still open", list(answer.open))
    _lines(
        console,
        "Next",
        [f"all rows: {folder}/<version>/results.jsonl", *_resume("torch", folder, answer.stopped, jobs)],
    )


def _said(answer: Answer | RegionAnswer, contexts: int) -> list[Text]:
    lines = [_answer_line(answer.conclusion, answer.verdict)]
    sure = f"{wording.percent(answer.confidence)} confidence"
    if answer.verdict == "safe" and answer.answer is not None:
        count = trials_for_safe(answer.p_min, answer.confidence)
        each = " in each scenario" if contexts > 1 else ""
        under = _harder(answer) if isinstance(answer, Answer) else ""
        lines.append(
            Text(
                f"0 of {count} fresh trials failed{each}{under}: it fails in fewer than "
                f"{wording.percent(answer.p_min)} of them (p_min; {sure})."
            )
        )
    if isinstance(answer, RegionAnswer) and answer.regions:
        lines.append(Text(f"{{{', '.join(answer.regions)}}} held {answer.hold}."))
    if isinstance(answer, Answer) and answer.verdict == "safe" and answer.conclusion != NOTHING_TO_FIX:
        below = (
            "every cheaper strategy failed or is below one that did" if answer.cheapest else "a cheaper one may be safe"
        )
        lines.append(Text(f"Is it the cheapest? {below[0].upper()}{below[1:]}."))
        if answer.answer == "process":
            lines.append(Text(_of_locks(answer)))
        if faster := _faster(answer):
            lines.append(Text(f"Faster by the median, and not certified: {'; '.join(faster)}."))
    if isinstance(answer, Answer) and answer.cost:
        cost = answer.cost
        lines.append(
            Text(f"Against {cost['against']}: steady {cost['tokens_per_s']}; until all are warm {cost['startup_s']}.")
        )
    if answer.stopped:
        lines.append(Text(f"Stopped: {answer.stopped}.", style="yellow"))
    return lines


def _of_locks(answer: Answer) -> str:
    """What an answer that is no lock leaves to whoever wants one: a lock that is safe, or of those that may be the one that
    was tried most."""
    locks = [entry for entry in answer.ladder if entry.lock not in _NO_LOCKS]
    safe = [entry for entry in locks if entry.verdict == "safe"]
    tried = [entry for entry in locks if entry.verdict == "undecided" and entry.trials]
    if not locks:
        return "It is no lock, and none was asked about."
    if not (safe or tried) and all(entry.verdict == "unsafe" for entry in locks):
        return "It is no lock, and all that were asked about are unsafe."
    if not (safe or tried):
        return "It is no lock, and none that may be safe was tried; --locks without process asks which is."
    best = max(safe or tried, key=lambda entry: entry.trials)
    counts = f"{best.failures}/{best.trials} failed, at most {wording.percent(best.failure_rate_upper)}"
    further = "" if safe else "; --locks without process asks which lock is safe"
    return f"It is no lock. {best.lock} is {best.verdict} ({counts}){further}."


def _faster(answer: Answer) -> list[str]:
    """Strategies that may be safe and whose median throughput is above the answer's, with the figures and counts:
    `each:loss, 812 against 700 tok/s (not told apart by their intervals), 0/12 failed (at most 22 %)`."""
    best = next(entry for entry in answer.ladder if entry.lock == answer.answer)
    found = []
    for entry in answer.ladder:
        if entry.verdict != "undecided" or not entry.tokens_per_s or not best.tokens_per_s:
            continue
        if entry.tokens_per_s > best.tokens_per_s:
            told = entry.tokens_interval and best.tokens_interval and entry.tokens_interval[0] > best.tokens_interval[1]
            rate = f"{wording.number(entry.tokens_per_s)} against {wording.number(best.tokens_per_s)} tok/s"
            bound = f"{entry.failures}/{entry.trials} failed (at most {wording.percent(entry.failure_rate_upper)})"
            found.append(f"{entry.lock}, {rate}{'' if told else ' (not told apart by their intervals)'}, {bound}")
    return found


def _harder(answer: Answer) -> str:
    """`, under delays:*:dense, where none failed 2/2`, when the certification was held under such a schedule."""
    certified = next(entry for entry in answer.ladder if entry.lock == answer.answer)
    schedule = certified.schedule
    if certified.rests_on:
        counts = Counter(one or "their own schedule" for one in certified.rests_on)
        return ", " + " and ".join(f"under {name} in {count} of them" for name, count in counts.items())
    if not schedule:
        return ""
    failed = [(entry.lock, entry.schedules[schedule]) for entry in answer.ladder if schedule in entry.schedules]
    shown = [f"{lock} {counts['failures']}/{counts['trials']}" for lock, counts in failed if counts["failures"]]
    return f", under {schedule}" + (f" (which failed {', '.join(shown)})" if shown else "")


def _under(entry: Entry) -> str:
    said = f"{entry.certified} fresh" if entry.verdict == "safe" else ""
    return " ".join(part for part in (said, entry.schedule and f"under {entry.schedule}") if part)


def _answer_line(conclusion: str, verdict: str) -> Text:
    return Text(f"Answer: {conclusion}", style=f"bold {STYLES.get(verdict, 'default')}")


def _ladder(answer: Answer) -> Table:
    table = _table("lock", "verdict", "failed", "start", "tok/s", "wait", "why")
    for entry in answer.ladder:
        table.add_row(
            entry.lock,
            _verdict(entry.verdict),
            _counts(entry),
            wording.number(entry.startup_s),
            wording.number(entry.tokens_per_s),
            wording.number(entry.wait_s),
            _why(entry),
        )
    return table


def _legend(answer: Answer | RegionAnswer) -> list[str]:
    """What the words and figures of the table mean, of those that stand in it."""
    if not isinstance(answer, Answer):
        return []
    lines = []
    if any(entry.witness and entry.witness.get("hazard") for entry in answer.ladder):
        lines.append("by plan: threads were held until the harmful order came about, which any scheduler may bring about.")
    if any(entry.witness and entry.witness.get("plan") for entry in answer.ladder):
        lines.append("in a plan: it failed while threads were held for a plan, in another way than that is made for.")
    if any(_why(entry) == _under(entry) and entry.schedule for entry in answer.ladder):
        lines.append("under delays:*:…: a schedule: threads are delayed at their sync points, by another seed in each trial.")
    if plan_trials := sum(entry.plan_trials for entry in answer.ladder):
        lines.append(f"{plan_trials} of the trials were of plans.")
    if answer.beside:
        tried = [entry for entry in answer.ladder if entry.trials and entry.verdict in ("safe", "undecided")]
        without = ", ".join(entry.lock for entry in tried if not entry.measured)
        priced = any(entry.measured for entry in tried)
        if without and answer.conclusion != NOTHING_TO_FIX:
            further = f"; of {without} there are none, so the order of the list stands for their cost"
        else:
            further = "" if priced else "; there are none"
        lines.append(f"start, tok/s, wait: of trials that ran by themselves{further}.")
    return lines


def _counts(entry: Entry | Version) -> str:
    """`1/59`; `by plan` of what a plan has settled, whose counts stand with its witness; `in a plan` of what failed in a trial
    of one beside its order; `plans only` of what was asked by plans and has not failed; `not run`."""
    counts = [f"{entry.failures}/{entry.trials}"] if entry.trials else []
    if entry.plan_failures and not entry.failures:
        counts.append("in a plan" if entry.witness and entry.witness.get("plan") else "by plan")
    return ", ".join(counts) or ("plans only" if entry.plan_trials else "not run")


def _why(entry: Entry) -> str:
    if entry.verdict == "incomplete":
        return entry.reason
    if entry.witness:
        said = _witness(entry.witness)
        reproduced = sum(ending == REPRODUCED for ending in entry.plans.values())
        plans = f"{reproduced} of {len(entry.plans)} hazards' plans reproduced"
        return f"{said}: {plans}" if entry.witness.get("hazard") else said
    if entry.implied_by:
        return f"holds less than {entry.implied_by}"
    return _under(entry)


def _sets(answer: RegionAnswer) -> Table:
    table = _table("lock", "verdict", "failed", "witness")
    for one in answer.tested:
        table.add_row(one.lock, _verdict(one.verdict), f"{one.failures}/{one.trials}", _witness(one.witness))
    return table


def _witness(witness: Mapping[str, Any] | None) -> str:
    """`fx_error: drafter-1 in forward, against drafter-0 in mask`."""
    if not witness:
        return ""
    if witness.get("hazard"):
        return f"{witness['hazard']}, by plan"
    said = str(witness.get("label", "")) + (f" ({witness['known_as']})" if witness.get("known_as") else "")
    if witness.get("worker"):
        said += f": {witness['worker']}" + (f" in {witness['region']}" if witness.get("region") else "")
    others = [f"{one.get('worker') or '?'} in {one.get('region') or '?'}" for one in witness.get("against") or ()]
    said += f", against {others[0]}" if others else ""
    return f"{said}, while the plan of {witness['plan']} was tried" if witness.get("plan") else said


def _next(result: BisectResult, folder: str, page: str) -> list[str]:
    answer = result.answer
    lines = []
    entries: Sequence[Any] = answer.ladder if isinstance(answer, Answer) else answer.tested
    witness = next((entry.witness for entry in reversed(entries) if entry.witness), None)
    if witness and witness.get("trial"):
        evidence = shlex.quote(f"{folder}/{witness['trial']}/")
        lines.append(f"evidence of a failure, its hazard and remedy: harness explain {evidence}")
    if page:
        lines.append(f"the report, for a browser: {page}")
    lines.append(f"all rows: {folder}/results.jsonl")
    if isinstance(answer, Answer) and answer.verdict == "safe" and not answer.cheapest and not answer.stopped:
        lines.append(f"to settle what is open: {_command(result.question.what, folder, result.jobs)} --thorough")
    return lines + _resume(result.question.what, folder, answer.stopped, result.jobs)


def _resume(what: str, folder: str, stopped: str, jobs: int) -> list[str]:
    return [f"to go on: {_command(what, folder, jobs)}"] if stopped else []


def _command(what: str, folder: str, jobs: int) -> str:
    at_once = f" -j {jobs}" if jobs != 1 else ""
    return f"harness bisect {what} --resume --out {shlex.quote(folder)}{at_once}"


def _verdict(verdict: str) -> Text:
    return Text(verdict, style=STYLES.get(verdict, "default"))


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for name in columns:
        right = name in ("failed", "start", "tok/s", "wait")
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=right)
    return table


def _lines(console: Console, title: str, lines: Sequence[str]) -> None:
    if lines:
        console.print()
        console.print(Text(title, style="bold"))
        for line in lines:
            console.print(Text(f"  {line}"), soft_wrap=True)
