"""A matrix file is a pytest file, a scenario a test, a repeat a trial inside that test.

    pytest scenarios/quick.toml -k first_step --harness-repeats 5

Under pytest-xdist the controller makes the run folder, and each worker runs its trials through a start server of its
own. Every pytest session of an environment loads this module, so it imports nothing but pytest until it meets a matrix.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest._code.code import ReprExceptionInfo, ReprFileLocation, ReprTracebackNative  # no public way to these

if TYPE_CHECKING:
    from harness.control.conclusion import RunResult
    from harness.control.suite import Judged, Suite
    from harness.control.suites import Suites
    from harness.core.matrix import Matrix
    from harness.core.scenario import Scenario

STAMP: pytest.StashKey[str] = pytest.StashKey()
SUITES: pytest.StashKey[Suites] = pytest.StashKey()
SAID: pytest.StashKey[list[str]] = pytest.StashKey()


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
    files = list(_files_of(ids, node.config))
    if files and node.config.getoption("dist") == "each":
        raise pytest.UsageError("--dist each would run every trial once a worker, in one run folder; use --dist load")
    _begin(node.config, files)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    files = {item.path for item in session.items if isinstance(item, ScenarioItem)}
    if session.config.option.collectonly or not files:
        return
    if hasattr(session.config, "workerinput"):
        _suites(session.config).expect(files)
    else:
        _begin(session.config, files)


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
        session.config.stash[SAID] = [
            line for result in suites.finish() for line in _conclusion(session.config, result)
        ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(SAID, None) or []
    if lines:
        terminalreporter.section("harness")
    for line in lines:
        terminalreporter.write_line(line)


class MatrixFile(pytest.File):
    """A matrix file."""

    def collect(self) -> Iterator[ScenarioItem]:
        """Its scenarios. Bad input is one line, which names file and key."""
        from harness.core.errors import UserError
        from harness.core.matrix import load_matrix

        if hasattr(self.config, "workerinput") and not self.path.is_relative_to(self.config.rootpath):
            below = f"must be below the root folder, {self.config.rootpath}"
            raise self.CollectError(f"{self.path}: under pytest-xdist it {below}; see pytest's --rootdir")
        try:
            matrix = load_matrix(self.path)
        except UserError as error:
            raise self.CollectError(str(error)) from None
        for scenario in matrix.scenarios:
            yield ScenarioItem.from_parent(self, name=scenario.id, matrix=matrix, scenario=scenario)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *rest: Any) -> Any:
        """A message of ours without a traceback, and in pytest's last lines too."""
        if isinstance(excinfo.value, self.CollectError):
            return _plain(str(excinfo.value), str(excinfo.value), self.path)
        return super().repr_failure(excinfo)


class ScenarioItem(pytest.Item):
    """A scenario: its trials are run and judged."""

    def __init__(self, *, matrix: Matrix, scenario: Scenario, **rest: Any) -> None:
        super().__init__(**rest)
        self.matrix = matrix
        self.scenario = scenario
        self.add_marker(pytest.mark.harness(**scenario.to_dict()))

    def runtest(self) -> None:
        """Run the trials; fail unless every expectation holds and at least one trial says something."""
        from harness.report.failure import counts, properties

        suite = _suites(self.config).suite(self.path, self.matrix)
        judged = suite.run(self.scenario)
        summary = judged.summary
        self.user_properties[:] = properties(summary, str(suite.folder.path))  # not twice when run again
        if summary.skipped:
            pytest.skip(summary.reason)
        if judged.broken or not summary.conclusive:
            raise ScenarioFailed(*self._words(judged, suite))
        silent = summary.trials - summary.conclusive
        if silent:
            self.warn(IncompleteWarning(f"{silent} of {summary.trials} trials say nothing: {counts(summary)}"))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The words of a failed scenario; anything else is our own fault and keeps its traceback."""
        if isinstance(excinfo.value, ScenarioFailed):
            return _plain(excinfo.value.text, excinfo.value.headline, self.path)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the test stands: in the file, for a scenario has no line of its own."""
        return self.path, 0, self.name

    def _words(self, judged: Judged, suite: Suite) -> tuple[str, str]:
        from harness.report.failure import failure_text, headline

        where = self.config.invocation_params.dir
        text = failure_text(
            judged.summary,
            judged.errors,
            judged.judgements,
            judged.rows,
            name=self.scenario.describe(self.matrix.axes_varying),
            run_dir=_seen_from(where, suite.folder.path),
            again=self._again(suite.repeats),
            whole=self.config.get_verbosity() >= 2,
        )
        return text, headline(judged.summary, judged.judgements)

    def _again(self, repeats: int) -> str:
        test = f"{_seen_from(self.config.invocation_params.dir, self.path)}::{self.name}"
        python = self.config.getoption("--harness-python")
        more = ["--harness-python", str(python)] if python else []
        return shlex.join(["pytest", test, "--harness-repeats", str(repeats), *more])


class ScenarioFailed(Exception):
    """A scenario is not what its matrix expects. `text` is for the report, `headline` for one line."""

    def __init__(self, text: str, headline: str) -> None:
        super().__init__(headline)
        self.text = text
        self.headline = headline


class IncompleteWarning(pytest.PytestWarning):
    """Some trials of a scenario that passed say nothing of the subject: out of memory, or not set up."""


def _suites(config: pytest.Config) -> Suites:
    if SUITES not in config.stash:
        from harness.control.suites import SuiteOptions, Suites, session_stamp

        here = config.invocation_params.dir
        out = config.getoption("--harness-out")
        worker = getattr(config, "workerinput", {})
        config.stash[SUITES] = Suites(
            SuiteOptions(
                out=here / out if out else None,
                reports=here / "reports",
                stamp=worker.get("harness_stamp") or config.stash.get(STAMP, "") or session_stamp(),
                python=config.getoption("--harness-python"),
                repeats=config.getoption("--harness-repeats"),
                jobs=config.getoption("--harness-jobs"),
                command=["pytest", *map(str, config.invocation_params.args)],
            )
        )
    return config.stash[SUITES]


def _begin(config: pytest.Config, files: Iterable[Path]) -> None:
    """Make the run folders, or end pytest with one line and its exit code for wrong usage."""
    files = list(files)
    if not files:
        return
    from harness.core.errors import UserError

    try:
        suites = _suites(config)
        suites.expect(files)
        suites.begin()
    except UserError as error:
        said = re.sub(r"--(out|python|jobs)\b", r"--harness-\1", str(error))
        raise pytest.UsageError(said.replace("continue it with --resume, or ", "")) from None


def _conclusion(config: pytest.Config, result: RunResult) -> list[str]:
    """Write the report of a run; lines for the end of the session."""
    from harness.core.errors import UserError
    from harness.report.failure import tally
    from harness.report.html import write_report

    where = config.invocation_params.dir
    try:
        report = _seen_from(where, write_report(result.run_dir))
    except UserError as error:
        report = f"not written: {error}"
    return [
        f"{_seen_from(where, Path(result.matrix.file))}: {tally(result.summary)}",
        f"  run folder: {_seen_from(where, result.run_dir)}",
        f"  report:     {report}",
    ]


def _files_of(ids: Iterable[str], config: pytest.Config) -> Iterator[Path]:
    """The matrix files among test ids, whose paths are relative to the root folder."""
    from harness.control.sniff import is_matrix

    for part in dict.fromkeys(name.partition("::")[0] for name in ids):
        path = config.rootpath / part
        if path.suffix == ".toml" and is_matrix(path, named=True):
            yield path


def _plain(text: str, headline: str, path: Path) -> ReprExceptionInfo:
    """Text that pytest shows as it is; the headline goes to its last lines and to JUnit's message."""
    return ReprExceptionInfo(ReprTracebackNative([text + "\n"]), ReprFileLocation(str(path), 1, headline))


def _seen_from(here: Path, path: Path) -> str:
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)
