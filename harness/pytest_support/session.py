"""What a test session has to do with run folders: which are its own, who makes them, what is said at its end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.control.conclusion import RunResult
    from harness.control.suites import Suites

STAMP: pytest.StashKey[str] = pytest.StashKey()
"""Of a controller of pytest-xdist: what its workers are told."""
SUITES: pytest.StashKey[Suites] = pytest.StashKey()


def suites_of(config: pytest.Config) -> Suites:
    """The suites of this session, as this process sees them."""
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


def begin_runs(config: pytest.Config, files: Iterable[Path]) -> None:
    """Make the run folders, or end pytest with one line and its exit code for wrong usage."""
    files = list(files)
    if not files:
        return
    from harness.core.errors import UserError

    try:
        suites = suites_of(config)
        suites.expect(files)
        suites.begin()
    except UserError as error:
        said = re.sub(r"--(out|python|jobs)\b", r"--harness-\1", str(error))
        raise pytest.UsageError(said.replace("continue it with --resume, or ", "")) from None


def conclusion(config: pytest.Config, result: RunResult) -> list[str]:
    """Write the report of a run; lines for the end of the session."""
    from harness.core.errors import UserError
    from harness.report.failure import tally
    from harness.report.html import write_report

    where = config.invocation_params.dir
    try:
        report = seen_from(where, write_report(result.run_dir))
    except UserError as error:
        report = f"not written: {error}"
    return [
        f"{seen_from(where, Path(result.matrix.file))}: {tally(result.summary)}",
        f"  run folder: {seen_from(where, result.run_dir)}",
        f"  report:     {report}",
    ]


def files_of(ids: Iterable[str], config: pytest.Config) -> Iterator[Path]:
    """The matrix files among test ids, whose paths are relative to the root folder."""
    from harness.control.sniff import is_matrix

    for part in dict.fromkeys(name.partition("::")[0] for name in ids):
        path = config.rootpath / part
        if path.suffix == ".toml" and is_matrix(path, named=True):
            yield path


def seen_from(here: Path, path: Path) -> str:
    """The path as a user in that folder would write it."""
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
