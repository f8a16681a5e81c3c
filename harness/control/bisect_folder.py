"""What every kind of bisection needs: its options, its folder, and a listener for many small runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.control import results, rundir
from harness.control.bisect_question import QUESTION, Asked, Question
from harness.control.bisect_trials import TaggedRunFolder, open_tagged
from harness.control.environment import describe_environment
from harness.control.foreign import check_workloads
from harness.control.interpreter import find_python
from harness.control.listener import Listener
from harness.core.errors import RunFolderError, UserError

EXIT_SAFE, EXIT_UNSAFE, EXIT_OPEN = 0, 1, 3
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class BisectOptions:
    """What the user asked for."""

    asked: Asked
    out: Path | None = None
    resume: bool = False
    pythons: tuple[str, ...] = ()
    executor: str = "local"
    jobs: int = 1
    max_trials: int | None = None
    max_minutes: float | None = None


class Phase:
    """Says what is being done, once as long as it stays the same."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._said = ""

    def say(self, text: str) -> None:
        """Tell it if it is new."""
        if text != self._said:
            self._said = text
            self._note(text)


class _OnceBegun:
    """A listener of many small runs that look like one."""

    def __init__(self, listener: Listener, total: int) -> None:
        self._listener = listener
        self._total = total
        self._begun = False
        self.references = listener.references
        self.reference_started = listener.reference_started
        self.reference_ended = listener.reference_ended
        self.started = listener.started
        self.waits = listener.waits
        self.ended = listener.ended
        self.interrupting = listener.interrupting

    def begin(self, total: int, already: int) -> None:
        if not self._begun:
            self._begun = True
            self._listener.begin(max(total, self._total), already)


EXPECTED_TRIALS = 100
"""What progress counts against where no budget was given: about what a bisection takes."""


def once_begun(listener: Listener, options: BisectOptions) -> Listener:
    """The listener for all small runs of a bisection."""
    return _OnceBegun(listener, options.max_trials or EXPECTED_TRIALS)


def listed_pythons(given: Sequence[str]) -> tuple[str, ...]:
    """`--python A,B --python C` → A, B, C. Raises UserError: a blank entry."""
    found = [entry.strip() for text in given for entry in text.split(",")]
    if not all(found):
        raise UserError(f'--python "{",".join(given)}": an entry is blank; write --python A,B or --python A --python B')
    return tuple(found)


def check_budget(options: BisectOptions) -> None:
    """Raises UserError: --max-minutes is no time."""
    if options.max_minutes is not None and not options.max_minutes > 0:
        raise UserError(f"--max-minutes {options.max_minutes:g}: it is a time above 0")


def resumed_folder(options: BisectOptions) -> Path:
    """The folder to go on in. Raises RunFolderError: none is named, and there is no latest one."""
    if options.out is not None:
        return options.out
    latest = Path("reports") / "latest"
    if not latest.exists():
        raise RunFolderError("nothing to resume: there is no reports/latest; name the run folder with --out")
    return latest.resolve()


def environment_of(python: str | None, options: BisectOptions, question: Question) -> dict[str, Any]:
    """Facts of an interpreter and this machine. Raises UserError: it does not run, or has no torch."""
    environment = describe_environment(find_python(python))
    if environment["torch"] is None:
        raise UserError(f"{environment['executable']} has no torch; install it there, or name another with --python")
    check_workloads(question.contexts, environment["executable"])
    environment["options"] = {
        "matrix": f"bisect-{question.what}-{stem_of(question.target)}.toml",
        "repeats": 1,
        "only": None,
        "timeout_s": question.timeout_s,
        "executor": options.executor,
        "jobs": options.jobs,
    }
    return environment


@contextmanager
def open_folder(
    path: Path, question: Question, environment: dict[str, Any], *, resume: bool, note: Callable[[str], None]
) -> Iterator[TaggedRunFolder]:
    """Make or reopen one run folder. Raises RunFolderError: it is in use, or was begun with another torch."""
    before = results.read_environment(path) if resume else {}
    for key in ("torch", "python"):
        if before and before.get(key) != environment[key]:
            raise RunFolderError(
                f"{path} was begun with {key} {before.get(key)}, this is {key} {environment[key]}: "
                "name that interpreter with --python, or choose another --out"
            )
    with open_tagged(path, resume=resume) as folder:
        folder.write(results.MATRIX, question.matrix_text())
        folder.write(results.ENVIRONMENT, rundir.dump_environment({**environment, **before}))
        folder.write(QUESTION, json.dumps(question.to_json(), indent=1) + "\n")
        folder.open_results(note)
        yield folder


def keep_answer(folder: TaggedRunFolder, question: Question, answer: Mapping[str, Any]) -> None:
    """Write it beside the question."""
    document = {**question.to_json(), "answer": answer}
    folder.write(QUESTION, json.dumps(document, indent=1, ensure_ascii=False, default=str) + "\n")


def stem_of(target: str) -> str:
    return "scenario" if "=" in target else Path(target).stem
