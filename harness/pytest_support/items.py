"""A matrix file as a pytest file, and a scenario as a test."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest._code.code import ReprExceptionInfo, ReprFileLocation, ReprTracebackNative  # no public way to these

from harness.pytest_support.session import seen_from, suites_of

if TYPE_CHECKING:
    from harness.control.suite import Judged, Suite
    from harness.core.matrix import Matrix
    from harness.core.scenario import Scenario


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

        suite = suites_of(self.config).suite(self.path, self.matrix)
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
        """The words of a failed scenario, or of what the user can mend; a fault of ours keeps its traceback."""
        from harness.core.errors import UserError

        if isinstance(excinfo.value, ScenarioFailed):
            return _plain(excinfo.value.text, excinfo.value.headline, self.path)
        if isinstance(excinfo.value, UserError):
            return _plain(str(excinfo.value), str(excinfo.value), self.path)
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
            run_dir=seen_from(where, suite.folder.path),
            again=self._again(suite.repeats),
            whole=self.config.get_verbosity() >= 2,
        )
        return text, headline(judged.summary, judged.judgements)

    def _again(self, repeats: int) -> str:
        test = f"{seen_from(self.config.invocation_params.dir, self.path)}::{self.name}"
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


def _plain(text: str, headline: str, path: Path) -> ReprExceptionInfo:
    """Text that pytest shows as it is; the headline goes to its last lines and to JUnit's message."""
    return ReprExceptionInfo(ReprTracebackNative([text + "\n"]), ReprFileLocation(str(path), 1, headline))
