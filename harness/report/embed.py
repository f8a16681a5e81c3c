"""What the page's script needs: scenarios by axis, trials, and deflated blocks that it opens when they are asked for."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.control.request import Row
from harness.core.eventfile import LINES_NAME
from harness.core.outcome import OK
from harness.report import pack
from harness.report.chosen import Seen, by_use
from harness.report.evidence import BYTES as STACK_BYTES
from harness.report.grid import Scenarios, choose_axes, varying
from harness.report.rundata import RunData
from harness.report.scenarios import MARKS, ScenarioView
from harness.report.source import Source
from harness.report.spans import Story, tell
from harness.report.text import clip
from harness.report.timeline import columns, thinned
from harness.report.trialdata import Places, detail
from harness.report.wording import plural

BLOCK = 400_000
"""Characters of trials that are deflated together: opened at one click, and large enough to share what they repeat."""

WHOLE_BYTES = 5_800_000
"""Of the page: 6 MB are promised."""
OTHER_BYTES = STACK_BYTES + 700_000
A_SCENARIO = 1_300
"""Bytes of a scenario's cell, its line in the table and its place in the data, as they are with long names."""
LEAST_BYTES = 300_000
DETAILS_SHARE = 0.35
OWN_BYTES = 5_000_000
"""Of the page of one trial, for either."""
MOST_TIMELINES = 100
MOST_LOG_BYTES = 12_000_000
"""Of one trial's event log; a longer one is drawn on the trial's own page only."""
ALL_LOG_BYTES = 30_000_000
MOST_TRIALS = 30_000
MOST_ID_CHARACTERS = 300_000
"""Of trials that are not called `<scenario>--r<number>` in turn, as those of a run are."""
LONGEST_ID = 300


@dataclass(frozen=True)
class Embedded:
    """`data` is JSON; `blocks` are deflated, by their ids. `stories`: what the logs of good trials tell, by trial."""

    data: str
    blocks: tuple[tuple[str, str], ...]
    stories: dict[str, Story]
    note: str = ""
    """How many trials and timelines there are."""


class _Logs:
    """Reads event logs as long as there is room for them."""

    def __init__(self, data: RunData) -> None:
        self.source = data.source
        self.events = data.source.events
        self.left = ALL_LOG_BYTES
        self.count = 0

    def story(self, row: Row) -> tuple[Story | None, str]:
        """What the log tells, or None and why not."""
        size = _size(self.source, row["trial"])
        if size is None:
            return None, "the run folder holds no event log of this trial"
        if size > min(MOST_LOG_BYTES, self.left) or self.count >= MOST_TIMELINES:
            return None, "left out to keep this file small"
        self.left -= size
        self.count += 1
        return self.read(row), ""

    def read(self, row: Row) -> Story:
        """What the log tells, whatever its size."""
        roles = {name: str(worker.get("role") or "")[:40] for name, worker in row["workers"].items()}
        return tell(self.events(row["trial"]), roles)


def places_of(data: RunData) -> Places:
    """Of this run."""
    return Places(data.run_dir, data.command, lambda name: data.names.get(name, name), data.source.trial_file)


def embed(data: RunData, views: Sequence[ScenarioView], placed: Scenarios | None = None) -> Embedded:
    """Everything of a run that is shown when it is asked for. `placed`: where the scenarios stand in the grid; by their own
    values where nothing is said."""
    anchors = {view.id: view.anchor for view in views}
    chooser, logs, places = data.gathered.chooser, _Logs(data), places_of(data)
    room = max(LEAST_BYTES, WHOLE_BYTES - OTHER_BYTES - A_SCENARIO * len(views))
    blocks = _Blocks(int(DETAILS_SHARE * room), int((1 - DETAILS_SHARE) * room))
    stories: dict[str, Story] = {}
    for row in by_use([row for row in chooser.kept if row["scenario_id"] in anchors]):
        story, why = logs.story(row)
        if story is not None and row["outcome"] == OK:
            stories[row["trial"]] = story
        blocks.add(row["trial"], detail(row, places, story), story, why)
    blocks.close()
    document = {
        **_grid(data.values if placed is None else placed, views),
        "trials": _trials(views, chooser.seen),
        "labels": [list(labels) for labels in chooser.labels],
        "places": blocks.places,
        "timelines": blocks.timelines,
        "why": blocks.why,
        "run": shlex.quote(data.run_dir),
    }
    note = f"In this file: {plural(len(blocks.places), 'trial')}, {plural(len(blocks.timelines), 'timeline')}."
    return Embedded(pack.as_json(document), tuple(blocks.done), stories, note)


def embed_trial(data: RunData, row: Row) -> Embedded:
    """One trial alone, with its timeline whatever its size."""
    logs, blocks = _Logs(data), _Blocks(OWN_BYTES, OWN_BYTES)
    story, why = (None, "the run folder holds no event log of this trial")
    if _size(logs.source, row["trial"]) is not None:
        story, why = logs.read(row), ""
    blocks.add(row["trial"], detail(row, places_of(data), story), story, why)
    blocks.close()
    document = {
        "only": clip(row["trial"], LONGEST_ID),
        "places": blocks.places,
        "timelines": blocks.timelines,
        "why": blocks.why,
        "run": shlex.quote(data.run_dir),
    }
    return Embedded(pack.as_json(document), tuple(blocks.done), {})


class _Blocks:
    """Trials in deflated blocks of some size, timelines in one each; both end where their room does."""

    def __init__(self, details: int, timelines: int) -> None:
        self.done: list[tuple[str, str]] = []
        self.places: dict[str, list[int]] = {}  # trial → (block, place in it)
        self.timelines: dict[str, int] = {}  # trial → block
        self.why: dict[str, str] = {}  # trial → why there is no timeline
        self._left = [details, timelines]
        self._waiting: list[tuple[str, Any]] = []
        self._size = 0

    def add(self, trial: str, shown: Any, story: Story | None, why: str) -> None:
        """One trial, and its timeline when there is one and room for it."""
        trial = clip(trial, LONGEST_ID)
        self._waiting.append((trial, shown))
        self._size += sum(len(text) for error in shown["errors"] for *_, text in error["stacks"])
        self._size += 2_000 + sum(len(text) for _, text in shown["dumps"])
        if self._size >= BLOCK:
            self.close()
        if story is not None:
            text = pack.deflated(columns(*thinned(story)))
            if len(text) <= self._left[1]:
                self._left[1] -= len(text)
                self.timelines[trial] = self._append(text)
            else:
                why = "left out to keep this file small"
        if why:
            self.why[trial] = why

    def close(self) -> None:
        """Deflate what waits."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        if not waiting:
            return
        text = pack.deflated([shown for _, shown in waiting])
        if len(text) > self._left[0]:
            return
        self._left[0] -= len(text)
        block = self._append(text)
        self.places.update({trial: [block, place] for place, (trial, _) in enumerate(waiting)})

    def _append(self, text: str) -> int:
        self.done.append((f"block-{len(self.done)}", text))
        return len(self.done) - 1


def _grid(placed: Scenarios, views: Sequence[ScenarioView]) -> dict[str, Any]:
    """The scenarios' values on the axes that vary, as numbers of values."""
    values = {view.id: placed[view.id] for view in views}
    axes = varying(values)
    found: dict[str, list[str]] = {axis: [] for axis in axes}
    scenarios = []
    for view in views:
        place = []
        for axis in axes:
            text = clip(str(values[view.id][axis]), 200)
            if text not in found[axis]:
                found[axis].append(text)
            place.append(found[axis].index(text))
        scenarios.append([view.anchor, list(MARKS).index(view.state), clip(view.id, LONGEST_ID), place])
    chosen = choose_axes(values) if values else ("", "")
    return {
        "axes": [[axis, found[axis]] for axis in axes],
        "chosen": list(chosen),
        "states": list(MARKS),
        "scenarios": scenarios,
    }


def _trials(views: Sequence[ScenarioView], seen: dict[str, Seen]) -> list[Any]:
    """For each view the outcomes of its trials, and their ids where these are not `<scenario>--r<number>` in turn."""
    found: list[Any] = []
    left, characters = MOST_TRIALS, MOST_ID_CHARACTERS
    for view in views:
        trials = seen.get(view.id)
        if trials is None or left <= 0:
            found.append([[], []])
            continue
        left -= len(trials.ids)
        regular = all(trial == f"{view.id}--r{number}" for number, trial in enumerate(trials.ids))
        ids = [] if regular else [clip(trial, LONGEST_ID) for trial in trials.ids]
        characters -= sum(map(len, ids))
        found.append([trials.outcomes, ids] if characters >= 0 else [[], []])
    return found


def _size(source: Source, trial: str) -> int | None:
    """Bytes of a trial's event log; None without one, or for one that lies outside of the run folder."""
    try:
        path = source.trial_path(trial, LINES_NAME)
        return None if path is None else path.stat().st_size
    except (OSError, ValueError):
        return None


def good_stories(embedded: Embedded, rows: Iterable[Row]) -> list[tuple[Row, Story]]:
    """The good trials whose logs were read, with what they tell."""
    return [(row, embedded.stories[row["trial"]]) for row in rows if row["trial"] in embedded.stories]
