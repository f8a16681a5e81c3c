"""What the page of a run shows, in its order: a view model without markup, made by pure functions."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from harness.analysis.intervals import CONFIDENCE, P_MIN, trials_for_safe
from harness.control.bisect_question import QUESTION
from harness.report import facts
from harness.report.answer import Answer, answer
from harness.report.bisected import Bisected, read_bisected
from harness.report.charts import Charts, charts_of
from harness.report.comparison import Comparison, comparison_of
from harness.report.embed import Embedded, embed, good_stories
from harness.report.evidence import MOST_ERRORS, MOST_OCCASIONS, Budget, Example, Shower
from harness.report.expectations import Expectations, expectations_of, judgement
from harness.report.gather import Groups, Occasion, Oracle
from harness.report.grid import Grid, lay_out, shared, varying
from harness.report.names import left_out
from harness.report.rundata import RunData
from harness.report.scenarios import MARKS, WORDS, ScenarioView, most_telling, scenario_views
from harness.report.speed import STRATEGY, SpeedGroup, speed_groups
from harness.report.text import one_line
from harness.report.trial_events import read_document
from harness.report.unseen import Reason, blind_probes, incomplete, no_rate, oracles, skipped
from harness.report.wording import percent, plural

MOST_SCENARIOS = 2_000
MOST_SPEED_GROUPS = 100
LONGEST_MATRIX_NAME = 100

HOW_TO_READ = (
    "unsafe means that at least one trial failed: one witnessed failure is proof, and k/n says how often it was seen.",
    (
        f"safe means that at least {trials_for_safe()} trials ran and none failed, which excludes a failure rate of "
        f"{percent(P_MIN)} or more at {percent(CONFIDENCE)} confidence; it does not exclude a rarer failure."
    ),
    (
        "Anything between is undecided, and the bound beside it is what the trials so far exclude: 0/5 (≤ 45 %) says "
        "that a failure in up to 45 % of all trials would still fit what was seen."
    ),
    (
        "Beside a count stands what the rate may be, exact (Clopper and Pearson) at "
        f"{percent(CONFIDENCE)} confidence: 3/5 (15–95 %) lies between the two, 0/5 (≤ 45 %) and 5/5 (≥ 55 %) beyond one."
    ),
)


_SAFE_OF_A_BISECTION = (
    "safe is the bisection's own verdict: fresh trials of the strategy, as many as the rate that it was asked to exclude "
    "takes, and none failed; it does not exclude a rarer failure."
)


@dataclass(frozen=True)
class Evidence:
    """Examples of one sort of trouble. `more`: kinds that are not shown."""

    examples: tuple[Example, ...]
    more: int
    note: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing of the sort."""
        return not self.examples and not self.note


@dataclass(frozen=True)
class Page:
    """Everything there is to see."""

    title: str
    subtitle: tuple[str, ...]
    left_out: tuple[str, ...]
    answer: Answer
    judgement: str
    grid: Grid[tuple[ScenarioView, ...]]
    legend: tuple[tuple[str, str, str, str], ...]
    unsaid: str
    scenarios: tuple[ScenarioView, ...]
    expectations: Expectations
    comparison: Comparison | None
    speed: tuple[SpeedGroup, ...]
    speed_more: int
    no_rate: tuple[Reason, ...]
    charts: Charts
    errors: Evidence
    dense: Evidence
    stuck: Evidence
    findings: Evidence
    skipped: tuple[Reason, ...]
    incomplete: tuple[Reason, ...]
    probes: tuple[tuple[str, str], ...]
    oracles: tuple[tuple[str, str, Oracle], ...]
    environment: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]
    how_to_read: tuple[str, ...]
    embedded: Embedded
    one_trial: str
    bisected: Bisected | None

    @property
    def outside_plans(self) -> str:
        """Where a bisection's plans have failed: that what follows is of the other trials."""
        failed = self.bisected is not None and any(row.hazard or row.beside for row in self.bisected.rows)
        return " outside of plans (for those see above)" if failed else ""


def build_page(data: RunData, baseline: RunData | None = None) -> Page:
    """The page of a run, compared with another where there is one. A bisection's has its answer for a headline."""
    bisected = read_bisected(data.source.path, data.run_dir)
    views = scenario_views(data)
    if bisected is not None:
        views = [bisected.shown(view, data.values[view.id]) for view in views]
    shown = most_telling(views, MOST_SCENARIOS)
    values = {view.id: data.values[view.id] for view in shown}
    anchors = {view.id: view.anchor for view in shown}
    others = [axis for axis in varying(values) if axis != STRATEGY]
    ran = [item for item in data.summary.scenarios if item.id in anchors]
    speed = speed_groups(ran, data.gathered.measures, others, anchors)
    expectations = expectations_of(data, shown)
    budget = Budget()
    shower = Shower(
        data.names, data.command, lambda trial: f"{data.run_dir}/trials/{trial}/", data.source.trial_file, budget
    )
    gathered = data.gathered
    dropped = gathered.errors_dropped
    errors = Evidence(
        tuple(shower.errors(data.summary.errors)),
        max(0, len(data.summary.errors) - MOST_ERRORS),
        f"{plural(dropped, 'further error')} counted by trials that kept no more of them." if dropped else "",
    )
    placed = values if bisected is None else {name: bisected.place(one) for name, one in values.items()}
    embedded = embed(data, shown, placed)
    charts = charts_of(gathered.tallies, values, good_stories(embedded, gathered.chooser.kept), data.names)
    dense = Evidence(tuple(shower.dense(gathered.dense.values())), _more(gathered.dense), _dense_note(data))
    stuck = Evidence(tuple(shower.stuck(gathered.stuck.values())), _more(gathered.stuck))
    findings = Evidence(tuple(shower.findings(gathered.findings.values())), _more(gathered.findings))
    return Page(
        title=_title(data),
        subtitle=_subtitle(data),
        left_out=_left_out(data, len(views) - len(shown), budget, judged=bisected is None),
        answer=answer(data.summary.scenarios, len(data.not_run)) if bisected is None else bisected.answer,
        judgement=judgement(expectations) if bisected is None else "",  # a bisection is after failures
        grid=lay_out(*shared(placed, {view.id: view for view in shown})),
        legend=tuple(
            (name, mark, word, (name == "safe" and bisected and bisected.meaning_of_safe) or meaning)
            for name, mark in MARKS.items()
            for word, meaning in (WORDS[name],)
            if any(view.state == name for view in views)
        ),
        unsaid=left_out(list(values.values()), data.varying),
        scenarios=tuple(shown),
        expectations=expectations,
        comparison=None if baseline is None else comparison_of(baseline, data, anchors),
        speed=tuple(speed[:MOST_SPEED_GROUPS]),
        speed_more=max(0, len(speed) - MOST_SPEED_GROUPS),
        no_rate=no_rate(data),
        charts=charts,
        errors=errors,
        dense=dense,
        stuck=stuck,
        findings=findings,
        skipped=skipped(data),
        incomplete=incomplete(data),
        probes=blind_probes(data),
        oracles=oracles(data),
        environment=tuple(facts.environment_table(data.environment)),
        commands=_commands(data, bisected),
        how_to_read=HOW_TO_READ if bisected is None else (HOW_TO_READ[0], _SAFE_OF_A_BISECTION, *HOW_TO_READ[2:]),
        embedded=embedded,
        one_trial=f"harness report {shlex.quote(data.run_dir)} --trial ID",
        bisected=bisected,
    )


def _title(data: RunData) -> str:
    options = data.environment.get("options")
    matrix = options.get("matrix") if isinstance(options, dict) else None
    return one_line(Path(str(matrix)).stem if matrix else Path(data.run_dir).name, LONGEST_MATRIX_NAME)


def _subtitle(data: RunData) -> tuple[str, ...]:
    trials = sum(item.trials for item in data.summary.scenarios)
    begun = str(data.environment.get("created") or "")[:40].replace("T", " ").replace("Z", " UTC")
    return tuple(
        filter(
            None,
            (
                f"{plural(trials, 'trial')} of {plural(len(data.values), 'scenario')}",
                f"torch {one_line(data.torches, 60)}",
                facts.where(data.environment),
                f"begun {begun}" if begun else "",
            ),
        )
    )


def _left_out(data: RunData, hidden: int, budget: Budget, judged: bool) -> tuple[str, ...]:
    notes = list(data.source.notes)
    if hidden:
        notes.append(f"Counted but not shown: {plural(hidden, 'scenario')}; those that failed were kept.")
    if budget.refused:
        notes.append(f"Left out to keep this file small: {plural(budget.refused, 'stack')}.")
    known = {torch for torch, python in data.gathered.software if python}
    # A process that died told its torch at most, and is of no other software for it.
    pairs = [(found, n) for found, n in data.gathered.software.items() if found[1] or found[0] not in known]
    if len(pairs) > 1:
        mixed = "; ".join(
            f"torch {torch}, Python {python or '?'}: {plural(n, 'trial')}" for (torch, python), n in pairs
        )
        notes.append(f"The trials ran under different software, so their counts should not be added up: {mixed}.")
    foreign = data.by_id.keys() - data.in_matrix if data.matrix else ()
    if foreign and judged:
        notes.append(f"Not named by matrix.toml, so shown but not judged: {plural(len(foreign), 'scenario')}.")
    return tuple(one_line(note, 1_000) for note in notes)


def _more(groups: Groups[Occasion]) -> int:
    return max(0, len(groups.found) - MOST_OCCASIONS) + groups.others


def _dense_note(data: RunData) -> str:
    calls = sum(item.dense_calls for item in data.summary.scenarios)
    if not calls:
        return ""
    elsewhere = data.gathered.dense_elsewhere
    by_none = f", {elsewhere:,} of them by threads of no worker" if elsewhere else ""
    return f"{plural(calls, 'call')} in {plural(data.gathered.dense_trials, 'trial')}{by_none}."


def _commands(data: RunData, bisected: Bisected | None) -> tuple[tuple[str, str], ...]:
    """(what it does, the command)."""
    found = [("This run was made by", facts.typed(data.environment))]
    folder = shlex.quote(data.run_dir)
    if data.not_run or any("interrupted" in item.outcomes for item in data.summary.scenarios):
        bisected = read_document(data.source.path / QUESTION).get("what")
        command = f"bisect {shlex.quote(bisected)}" if isinstance(bisected, str) else "run"
        found.append(("Go on with it", f"harness {command} --resume --out {folder}"))
    undecided = any(item.verdict == "undecided" and not item.skipped and not item.by_torch for item in data.summary.scenarios)
    if undecided and bisected is None:
        more = f"harness run --resume --out {folder} --repeats {trials_for_safe()}"
        found.append((f"Run each scenario {trials_for_safe()} times, which decides what is undecided", more))
    witness = next((group for group in data.summary.errors if not group.only_consequences), None)
    if witness is not None:
        found.append(
            ("Run the scenario of the first error again", data.command(str(witness.witness.get("scenario_id"))))
        )
    found.append(("Make this page again", f"harness report {folder}"))
    return tuple((what, command) for what, command in found if command)
