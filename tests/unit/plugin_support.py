"""Matrix files run by a pytest inside a pytest, with an executor that makes its rows up."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest
from fake_runs import FakeExecutor

from harness.control import executors
from harness.report import html

MATRIX = """\
schema = 1
[defaults]
repeats = 2
[axes]
lock = ["none", "first_step"]
[[expect]]
where = "lock=first_step"
only = ["ok"]
"""

PLUGIN = "harness.pytest_plugin"

CONFTEST = """\
import json
import os

from fake_runs import FakeExecutor, fx_row, make_row
from harness.control import executors
from harness.report import html

def outcome(request):
    return fx_row(request.scenario, request.repeat) if request.scenario.lock == "none" else make_row(request)

class Counting(FakeExecutor):
    def run(self, trials, on_start, on_row):
        for request in trials:
            if request.extra.get("reference"):
                (request.folder / "result.json").write_text(json.dumps(make_row(request)))
                with open("references.txt", "a") as file:
                    file.write(request.folder.name + "\\n")
        super().run(trials, on_start, on_row)

def make_executor(name, *, python, jobs):
    with open("executors.txt", "a") as file:
        file.write(f"{os.getpid()}\\n")
    return Counting(outcome)

executors.make_executor = make_executor
html.write_report = lambda run_dir: run_dir / "report.html"
"""
"""For a pytest in a process of its own, and its workers."""


def fake_executor(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    """One executor for every inner pytest of this process; their reports are a line long."""

    def write_report(run_dir: Path) -> Path:
        (run_dir / html.NAME).write_text("a report")
        return run_dir / html.NAME

    fake = FakeExecutor()
    monkeypatch.setattr(executors, "make_executor", lambda name, *, python, jobs: fake)
    monkeypatch.setattr(html, "write_report", write_report)
    return fake


def arguments(*more: str) -> list[str]:
    """Of the inner pytest; the plugin is named where no installed package brings it."""
    installed = any(entry.value == PLUGIN for entry in importlib.metadata.entry_points(group="pytest11"))
    return [*([] if installed else ["-p", PLUGIN]), *more]


def in_process(pytester: pytest.Pytester, *more: str) -> pytest.RunResult:
    """An inner pytest that shares this process's modules, and what a test has put into them."""
    return pytester.runpytest_inprocess(*arguments("-p", "no:xdist", *more))


def rows_of(run: Path) -> list[dict[str, Any]]:
    """All rows of a run folder, in file order."""
    return [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
