"""A matrix file is a pytest file, a scenario a test, a repeat a trial inside that test.

    pytest scenarios/quick.toml -k first_step --harness-repeats 5

Under pytest-xdist the controller makes the run folder, and each worker runs its trials through a start server of its
own. Every pytest session of an environment loads this module, so it imports nothing but pytest until it meets a matrix.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.pytest_support.items import MatrixFile, ScenarioItem
from harness.pytest_support.session import STAMP, SUITES, begin_runs, conclusion, selection_of, suites_of

SAID: pytest.StashKey[list[str]] = pytest.StashKey()
"""Lines for the end of the session."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("harness", "races of torch.compile: matrix files as tests")
    group.addoption(
        "--harness-repeats", type=_count, metavar="N", help="trials of each scenario, instead of the matrix's number"
    )
    group.addoption(
        "--harness-out",
        metavar="DIR",
        help="the run folder, or for several matrix files the folder of theirs (default: reports/<matrix>-<time>)",
    )
    group.addoption("--harness-python", metavar="PY", help="the interpreter of the trials, with a torch of its own")
    group.addoption(
        "--harness-jobs", type=_count, default=1, metavar="N", help="trials of a scenario that run at the same time"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "harness(**axes): a scenario of a matrix file; -m \"harness(lock='none')\" selects by axis"
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> MatrixFile | None:
    if file_path.suffix != ".toml":
        return None
    from harness.control.sniff import in_run_folder, is_matrix

    named = parent.session.isinitpath(file_path)
    if not is_matrix(file_path, named=named) or (in_run_folder(file_path) and not named):
        return None
    return MatrixFile.from_parent(parent, path=file_path)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Of pytest-xdist: what a worker needs to find the run folders that the controller makes."""
    from harness.control.suites import session_stamp

    node.config.stash.setdefault(STAMP, session_stamp())
    node.workerinput["harness_stamp"] = node.config.stash[STAMP]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: Sequence[str]) -> None:
    """Of pytest-xdist, on the controller, before any test is handed out."""
    selected = selection_of(ids, node.config)
    if selected and node.config.getoption("dist") == "each":
        raise pytest.UsageError("--dist each would run every trial once a worker, in one run folder; use --dist load")
    begin_runs(node.config, selected, workers=node.workerinput["workercount"])


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    selected: dict[Path, list[str]] = {}
    for item in session.items:
        if isinstance(item, ScenarioItem):
            selected.setdefault(item.path, []).append(item.scenario.id)
    option = session.config.option
    if option.collectonly or not selected:
        return
    if hasattr(session.config, "workerinput"):
        suites_of(session.config).expect(selected)  # errors of collection stop no worker
    elif not session.testsfailed or option.continue_on_collection_errors:
        begin_runs(session.config, selected)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if isinstance(item, ScenarioItem) and report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (str(item.path), 1, report.longrepr[2])  # not the line of ours that raised
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    suites = session.config.stash.get(SUITES, None)
    if suites is not None:
        session.config.stash[SAID] = [line for begun in suites.finish() for line in conclusion(session.config, begun)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(SAID, None) or []
    if lines:
        terminalreporter.section("harness")
    for line in lines:
        terminalreporter.write_line(line)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)
