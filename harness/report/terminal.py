"""What a person sees when a run has ended: a table of 80 columns, then what is behind it and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from harness.analysis.errors import ErrorGroup
from harness.analysis.stuck import STUCK
from harness.analysis.summary import ScenarioSummary
from harness.core.matrix import Judgement
from harness.core.outcome import INCOMPLETE, SKIPPED
from harness.report import wording
from harness.report.following import INDENT, Whole, failing_settings, following, indented
from harness.report.names import left_out
from harness.report.view import RunView

STYLES = {"unsafe": "red", "safe": "green", "undecided": "yellow", "incomplete": "magenta"}
MOST_ERRORS = 5
MOST_REASON = 1_000
MOST_NAMES = 3
DENSE_PROBE = "dense"


def print_run(console: Console, view: RunView) -> None:
    """Print the whole report of a run."""
    signs = wording.UNICODE if console.encoding.lower().startswith("utf") else wording.ASCII
    console.print(_title(view))
    console.print(run_table(view, signs))
    console.print(_legend(view, signs))
    for line in _by_setting(view):
        console.print(line)
    for title, body in (
        ("Not as expected", _unexpected(view)),
        ("Errors", _errors(view)),
        ("Deadlocks, hangs and crashes", _stuck(view)),
        ("Several torch, each judged by itself", _by_torch(view)),
        ("Skipped", _skipped(view)),
        ("Incomplete", _incomplete(view)),
        ("No tok/s", _by_reason(view, [(item, item.no_rate) for item in view.summary.scenarios if item.no_rate])),
        ("Probes that cannot work here", _probes(view)),
        ("Next", following(view)),
    ):
        if body:
            console.print()
            console.print(Text(title, style="bold"))
            for line in body:
                # A command or a path is never broken: it is there to be copied.
                console.print(line, soft_wrap=isinstance(line, Whole))


def run_table(view: RunView, signs: wording.Signs = wording.UNICODE) -> Table:
    """The table of scenarios. It fits 80 columns: long names are broken at their blanks."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    judged = any(view.judgements.values())
    if judged:
        table.add_column("", width=1)
    table.add_column("scenario", overflow="fold", ratio=None)
    table.add_column("verdict", no_wrap=True)
    for name in ("FX", "dense", "start", "tok/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for item in view.summary.scenarios:
        row: list[RenderableType] = [_mark(view.judgements.get(item.id, ()), signs)] if judged else []
        row += [
            view.names[item.id],
            Text(wording.verdict(item, signs), style="dim" if item.skipped else STYLES[item.verdict]),
            _count(item, item.fx_errors, signs),
            _count(item, item.dense_calls, signs, DENSE_PROBE),
            wording.number(item.startup_s, signs),
            wording.number(item.tokens_per_s, signs),
        ]
        table.add_row(*row)
    return table


def _title(view: RunView) -> Text:
    trials = sum(item.trials for item in view.summary.scenarios)
    text = Text(view.matrix, style="bold")
    text.append(f"  {wording.plural(trials, 'trial')} on torch {view.torch}, {view.where}", style="not bold")
    return text


def _legend(view: RunView, signs: wording.Signs) -> Text:
    said = (
        "verdict: failures/trials (bound on the failure rate at 95 %). FX, dense: errors and "
        "calls, all trials. start: s until all drafters are warm. tok/s: once they are. "
        f"{signs.none}: not measured."
    )
    if any(view.judgements.values()):
        said += f" {signs.met} {signs.broken}: as expected or not; no mark: nothing expected, or nothing to judge by."
    unsaid = left_out([item.scenario for item in view.summary.scenarios], view.varying)
    return Text(said + (f" Not named: {unsaid}." if unsaid else ""), style="dim")


def _mark(judged: Sequence[Judgement], signs: wording.Signs) -> Text:
    if any(judgement.kind != "met" for judgement in judged):
        return Text(signs.broken, style="bold red")
    return Text(signs.met, style="green") if judged else Text("")


def _count(item: ScenarioSummary, count: int, signs: wording.Signs, probe: str = "") -> Text:
    """Where nothing could look, or no trial came to its end, nothing seen is not zero."""
    if not count and not any(_to_its_end(labels) for labels in item.labels):
        return Text(signs.none, style="dim")
    if not count and probe in item.unavailable:
        return Text("n/a", style="dim")
    return Text(str(count), style="bold" if count else "dim")


def _to_its_end(labels: Sequence[str]) -> bool:
    return not any(label in STUCK or label in INCOMPLETE or label == SKIPPED for label in labels)


def _unexpected(view: RunView) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for item in view.summary.scenarios:
        for judgement in view.judgements.get(item.id, ()):
            if judgement.kind != "met":
                line = Text(view.names[item.id], style="bold")
                line.append(f": {judgement.kind}: {judgement.text}", style="not bold red")
                lines.append(indented(line))
    return lines


def _errors(view: RunView) -> list[RenderableType]:
    groups = [group for group in view.summary.errors if not group.only_consequences]
    lines: list[RenderableType] = []
    for group in groups[:MOST_ERRORS]:
        lines += _error(view, group)
    if len(groups) > MOST_ERRORS:
        lines.append(indented(Text(f"and {len(groups) - MOST_ERRORS} more kinds of error", style="dim")))
    return lines


def _error(view: RunView, group: ErrorGroup) -> list[RenderableType]:
    head = Text(f"{group.count} × {group.label}", style="bold red")
    head.append(f" in {wording.plural(group.trials, 'trial')}: ", style="not bold default")
    head.append(f"{group.type}: {_one_line(group.message, 200)}", style="not bold default")
    lines: list[RenderableType] = [indented(head)]
    witness = group.witness
    who = wording.whereabouts(witness)
    if group.collision:
        others = " and ".join(wording.whereabouts(tracer, "was tracing") for tracer in group.collision)
        who += f", while {others}"
    lines.append(indented(Text(who), 2 * INDENT))
    lines.append(indented(Text(_named(view, list(group.scenarios))), 2 * INDENT))
    if view.verbose and witness.get("traceback"):
        lines.append(indented(Text(str(witness["traceback"]).rstrip(), style="dim"), 2 * INDENT))
        for tracer in group.collision:
            stack = f"stack of {tracer.get('worker')}:\n{str(tracer.get('stack', '')).rstrip()}"
            lines.append(indented(Text(stack, style="dim"), 2 * INDENT))
    return lines


def _stuck(view: RunView) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for group in view.summary.stuck[:MOST_ERRORS]:
        ran = {item.id: item.trials for item in view.summary.scenarios}
        trials = sum(ran[name] for name in group.scenarios)
        head = Text(f"{group.trials} × {group.label}", style="bold red")
        head.append(f" in {wording.plural(trials, 'trial')}: ", style="not bold default")
        head.append(_one_line(group.reason, MOST_REASON) or "no reason was recorded", style="not bold default")
        lines += [indented(head), indented(Text(_named(view, list(group.scenarios))), 2 * INDENT)]
    if len(view.summary.stuck) > MOST_ERRORS:
        lines.append(indented(Text(f"and {len(view.summary.stuck) - MOST_ERRORS} more kinds of them", style="dim")))
    return lines


def _named(view: RunView, ids: Sequence[str]) -> str:
    """The scenarios' names; of many the first."""
    more = f" and {len(ids) - MOST_NAMES} more" if len(ids) > MOST_NAMES else ""
    return "; ".join(view.names[name] for name in ids[:MOST_NAMES]) + more


def _skipped(view: RunView) -> list[RenderableType]:
    return _by_reason(view, [(item, item.reason) for item in view.summary.scenarios if item.skipped])


def _by_torch(view: RunView) -> list[RenderableType]:
    return _by_reason(view, [(item, wording.rates(item)) for item in view.summary.scenarios if item.by_torch])


def _incomplete(view: RunView) -> list[RenderableType]:
    found = []
    for item in view.summary.scenarios:
        silent = {label: count for label, count in item.outcomes.items() if label in INCOMPLETE}
        if silent:
            counts = ", ".join(f"{count} × {label}" for label, count in silent.items())
            found.append((item, f"{counts}: {item.reason}" if item.reason else counts))
    return _by_reason(view, found)


def _by_reason(view: RunView, found: Sequence[tuple[ScenarioSummary, str]]) -> list[RenderableType]:
    reasons: dict[str, list[str]] = {}
    for item, reason in found:
        reasons.setdefault(reason or "no reason given", []).append(item.id)
    lines: list[RenderableType] = []
    for reason, ids in reasons.items():
        line = Text(_named(view, ids), style="bold")
        line.append(f": {_one_line(reason, 300)}", style="not bold")
        lines.append(indented(line))
    return lines


def _probes(view: RunView) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for probe, reasons in view.summary.unavailable.items():
        whys = [f"{why} ({wording.plural(count, 'trial')})" for why, count in reasons.items()]
        lines.append(indented(Text(f"{probe}: {'; '.join(whys)}")))
    return lines


def _by_setting(view: RunView) -> list[RenderableType]:
    """That a setting of theirs fails these rows, and not their lock."""
    return [
        Text(f"{_named(view, ids)}: fails by {setting} and not by its lock ({hazard}).", style="yellow")
        for (setting, hazard), ids in failing_settings(view).items()
    ]


def _one_line(text: str, longest: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
