"""What a test session has to do with run folders: which are its own, who makes them, what is said at its end."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.control.suites import Begun, Suites

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


def begin_runs(config: pytest.Config, selected: Mapping[Path, Collection[str]], workers: int = 1) -> None:
    """Make the run folders, or end pytest with one line and its exit code for wrong usage.

    `selected`: matrix file → ids of its scenarios that have tests. `workers`: processes that run tests at the same time.
    """
    if not selected:
        return
    from harness.core.errors import UserError

    try:
        suites = suites_of(config)
        suites.expect(selected)
        suites.begin(workers)
    except UserError as error:
        said = re.sub(r"--(out|python|jobs)\b", r"--harness-\1", str(error))
        said = said.replace("continue it with --resume, or ", "").replace("run harness ", "run pytest ")
        raise pytest.UsageError(said) from None


def conclusion(config: pytest.Config, begun: Begun) -> list[str]:
    """Judge a run and write its report; lines for the end of the session."""
    from harness.core.errors import UserError
    from harness.report.failure import tally
    from harness.report.html import write_report

    where = config.invocation_params.dir
    path = begun.folder.path
    try:
        told = tally(begun.conclude().summary)
    except UserError as error:
        told = f"not judged: {error}"
    try:
        report = seen_from(where, write_report(path))
    except (UserError, OSError) as error:  # a full disk must not cost what is said of other runs
        report = f"not written: {error}"
    return [
        f"{seen_from(where, Path(begun.matrix.file))}: {told}",
        f"  run folder: {seen_from(where, path)}",
        f"  report:     {report}",
    ]


def selection_of(ids: Iterable[str], config: pytest.Config) -> dict[Path, list[str]]:
    """The matrix files among test ids, whose paths are relative to the root folder, and the ids of their scenarios."""
    from harness.control.sniff import is_matrix

    names: dict[str, list[str]] = {}
    for test in ids:
        part, _, name = test.partition("::")
        names.setdefault(part, []).append(name.partition("@")[0])  # --dist loadgroup adds "@group"
    paths = {config.rootpath / part: found for part, found in names.items() if part.endswith(".toml")}
    return {path: found for path, found in paths.items() if is_matrix(path, named=True)}


def seen_from(here: Path, path: Path) -> str:
    """The path as a user in that folder would write it."""
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
