"""`harness.load`: a run folder as pandas frames. What each column means is said beside its name, and in docs/frames.md.

Text is never missing: what a trial did not say is "". Numbers that were not measured are NaN, or NA in integer columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.control.results import RESULTS, counted_rows, read_environment
from harness.control.rundir import TRIALS, not_a_run
from harness.core.axes import AXES
from harness.core.errors import MatrixError, RunFolderError, nearest
from harness.core.eventfile import LINES_NAME
from harness.core.events import read_events
from harness.core.outcome import FAILURES, INCOMPLETE, SKIPPED
from harness.core.rowshape import is_number, is_whole
from harness.core.scenario import Scenario

if TYPE_CHECKING:
    from pandas import DataFrame

Row = Mapping[str, Any]

TEXT, WHOLE, MAYBE_WHOLE, NUMBER, TRUTH, ANY = "str", "int64", "Int64", "float64", "bool", "object"

TRIAL_COLUMNS: dict[str, tuple[str, str]] = {
    "trial": (TEXT, "name of the trial and of its folder in trials/"),
    "scenario_id": (TEXT, "the scenario it is a repeat of"),
    "repeat": (WHOLE, "which repeat, from 0"),
    "outcome": (TEXT, "the label of its earliest cause, or ok"),
    "outcomes": (TEXT, "all its labels, earliest first, with blanks between"),
    "failed": (TRUTH, "whether one of them is the subject's fault"),
    "conclusive": (TRUTH, "whether it says anything of the subject: not skipped, not only out of memory and the like"),
    "reason": (TEXT, "why it was skipped, could not be set up, or hangs"),
    "fx_errors": (WHOLE, "steps that raised the FX error"),
    "dense_calls": (WHOLE, "attention calls that ran dense"),
    "compiles": (WHOLE, "graphs compiled"),
    "startup_s": (NUMBER, "seconds from the subject's start to the last drafter's first good step"),
    "tokens_per_s": (NUMBER, "real tokens a second while all drafters are warm"),
    "wall_s": (NUMBER, "seconds from the request to the end of the process"),
    "start_s": (NUMBER, "seconds from the request to the subject's readiness"),
    "steps_ok": (WHOLE, "good steps of all drafters"),
    "steps_failed": (WHOLE, "steps that raised"),
    "steps_expected": (WHOLE, "steps that a trial without a failure takes"),
    "errors": (WHOLE, "exceptions recorded; the errors frame has them"),
    "fingerprint": (TEXT, "of the first that is no consequence of another"),
    "exit": (TEXT, "how the process ended: exited, killed, timeout, hang, not started"),
    "exit_status": (MAYBE_WHOLE, "its exit status, NA when a signal ended it"),
    "exit_signal": (TEXT, "the signal that ended it"),
    "unavailable": (TEXT, "probes that could not work, with blanks between"),
    "torch": (TEXT, "torch.__version__ in the subject"),
    "python": (TEXT, "version of the subject's interpreter"),
}
"""Column of `trials` → (dtype, meaning). A column for each axis of the scenario follows, named as the axis."""

ERROR_COLUMNS: dict[str, tuple[str, str]] = {
    "trial": (TEXT, "the trial it happened in"),
    "scenario_id": (TEXT, "its scenario"),
    "label": (TEXT, "outcome label"),
    "type": (TEXT, "class of the exception"),
    "message": (TEXT, "its text"),
    "fingerprint": (TEXT, "equal for errors of one kind: type, normalised message, innermost torch frame"),
    "worker": (TEXT, "the worker whose step raised"),
    "thread": (TEXT, "the thread that raised"),
    "region": (TEXT, "the innermost region it was in"),
    "stage": (TEXT, "where it came outside of the workers: set-up, warm-up, reference or check"),
    "step": (MAYBE_WHOLE, "number of that worker's step, from 0; NA outside of the workers"),
    "at_s": (NUMBER, "seconds since the subject's start"),
    "consequence": (TRUTH, "whether it follows from another error"),
    "tracer": (TEXT, "the worker that was tracing at that moment; several with blanks between"),
    "traceback": (TEXT, "the whole traceback"),
    "tracer_stack": (TEXT, "stack of the first worker that was tracing"),
}
"""Column of `errors` → (dtype, meaning)."""

EVENT_COLUMNS: dict[str, tuple[str, str]] = {
    "t_s": (NUMBER, "seconds since the subject's start"),
    "thread": (TEXT, "name of the thread; autograd's own threads are autograd-<number>"),
    "ident": (WHOLE, "the thread's identifier"),
    "worker": (TEXT, "the worker it works for"),
    "kind": (TEXT, "what happened, e.g. region.enter; see harness.core.events.KINDS"),
    "region": (TEXT, "of region.*: its name"),
    "lock": (TEXT, "of strategy_lock.* and barrier.*: its name"),
    "what": (TEXT, "of compile.*: frame or graph"),
    "step": (MAYBE_WHOLE, "of step.*: its number, from 0"),
    "tokens": (MAYBE_WHOLE, "of step.done: real tokens"),
    "loss": (NUMBER, "of step.done"),
    "more": (ANY, "a dict of all that the columns before do not hold"),
}
"""Column of an event frame → (dtype, meaning)."""

_EVENT_KEYS = {"th": "thread", "id": "ident", "w": "worker", "k": "kind", "r": "region"}


class Run(NamedTuple):
    """A run folder. `environment` is environment.json; `events[trial]` reads that trial's events when asked."""

    trials: DataFrame
    errors: DataFrame
    events: Events
    environment: dict[str, Any]
    path: Path


class Events(Mapping[str, "DataFrame"]):
    """Trial → frame of its events in order of time, read each time it is asked for."""

    def __init__(self, path: Path, trials: Iterable[str]) -> None:
        self._path = path
        self._trials = dict.fromkeys(trials)

    def __getitem__(self, trial: str) -> DataFrame:
        """Empty for a trial that left no events.

        Raises KeyError for a trial that the run does not have, RunFolderError where its events are damaged.
        """
        if trial not in self._trials:
            raise KeyError(f"{trial}: no such trial in {self._path}{nearest(trial, self._trials)}")
        log = self._path / TRIALS / trial / LINES_NAME
        return _frame(self._read(log) if log.exists() else (), EVENT_COLUMNS)

    @staticmethod
    def _read(log: Path) -> Iterator[dict[str, Any]]:
        for number, event in enumerate(read_events(log), 1):
            if wrong := _wrong_event(event):
                raise RunFolderError(f"{log}: event {number}: {wrong}; was the file edited?")
            yield _event(event)

    def __iter__(self) -> Iterator[str]:
        return iter(self._trials)

    def __len__(self) -> int:
        return len(self._trials)

    def all(self) -> DataFrame:
        """The events of all trials in one frame, with a column `trial` before the others. Mind the size."""
        import pandas as pd

        frames = [self[trial].assign(trial=trial) for trial in self]
        columns = ["trial", *EVENT_COLUMNS]
        if not frames:
            return _frame((), {"trial": TRIAL_COLUMNS["trial"], **EVENT_COLUMNS})
        return pd.concat(frames, ignore_index=True)[columns]


def load_run(run_dir: str | Path) -> Run:
    """Read a run folder; a row a trial, of an interrupted and repeated one the row that counts.

    Raises RunFolderError: it is none, is damaged, or a newer harness wrote it.
    """
    path = Path(run_dir)
    if other := not_a_run(path):
        raise RunFolderError(f"{path} {other}")
    path = path.resolve()  # events are read later: then this process may be elsewhere, and reports/latest another run
    trials: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    known: dict[str, object] = {}  # scenarios that were looked at, for most rows repeat one
    for row in counted_rows(path):
        if known.get(row["scenario_id"]) != row["scenario"]:
            if wrong := _wrong_scenario(row["scenario"]):
                raise RunFolderError(f"{path / RESULTS}: trial {row['trial']}: {wrong}; move its line out of the file")
            known[row["scenario_id"]] = row["scenario"]
        trials.append(trial_record(row))
        errors += [_error(row, error) for error in row.get("errors") or ()]
    return Run(
        _frame(trials, trial_columns()),
        _frame(errors, ERROR_COLUMNS),
        Events(path, (trial["trial"] for trial in trials)),
        read_environment(path),
        path,
    )


def _wrong_scenario(given: Mapping[str, object]) -> str:
    try:
        Scenario.from_dict(given)
    except MatrixError as error:
        return f"its scenario is none that this version knows: {error}"
    return ""


def trial_columns() -> dict[str, tuple[str, str]]:
    """All columns of `trials`, the axes' too: column → (dtype, meaning)."""
    return {**TRIAL_COLUMNS, **{axis.name: (WHOLE if axis.kind == "int" else TEXT, axis.doc) for axis in AXES}}


def _frame(records: Iterable[Mapping[str, Any]], columns: Mapping[str, tuple[str, str]]) -> DataFrame:
    import pandas as pd

    found = list(records)
    empty: Mapping[str, Any] = {TEXT: "", WHOLE: 0, TRUTH: False, MAYBE_WHOLE: pd.NA, NUMBER: float("nan")}

    def values(name: str, dtype: str) -> list[Any]:
        missing = empty.get(dtype)
        cells = (record.get(name) for record in found)
        return [missing if value is None else _writable(value) if dtype == TEXT else value for value in cells]

    return pd.DataFrame({name: pd.Series(values(name, dtype), dtype=dtype) for name, (dtype, _) in columns.items()})


def _writable(value: object) -> str:
    """As text. Half a character, from a file's name that is no UTF-8, is escaped: pandas does not take it."""
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def trial_record(row: Row) -> dict[str, Any]:
    """The cells of a row of `trials`, by column."""
    labels = list(row["outcomes"])
    errors = row.get("errors") or ()
    ended = row.get("exit") or {}
    causes = [str(error.get("fingerprint") or "") for error in errors if not error.get("consequence")]
    return {
        **{name: row.get(name) for name in TRIAL_COLUMNS},
        **{axis.name: row["scenario"].get(axis.name, axis.default) for axis in AXES},
        "outcomes": " ".join(labels),
        "failed": any(label in FAILURES for label in labels),
        "conclusive": not all(label in (*INCOMPLETE, SKIPPED) for label in labels),
        "errors": len(errors),
        "fingerprint": causes[0] if causes else "",
        "exit": ended.get("how"),
        "exit_status": ended.get("status"),
        "exit_signal": ended.get("signal"),
        "unavailable": " ".join(
            probe for probe, state in (row.get("probes") or {}).items() if str(state).startswith("unavailable")
        ),
    }


def _error(row: Row, error: Mapping[str, Any]) -> dict[str, Any]:
    tracers = error.get("tracers") or ()
    return {
        **error,
        "step": None if error.get("stage") else error.get("step"),
        "trial": row["trial"],
        "scenario_id": row["scenario_id"],
        "tracer": " ".join(str(tracer.get("worker") or tracer.get("thread") or "?") for tracer in tracers),
        "tracer_stack": tracers[0].get("stack") if tracers else "",
    }


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    known = {_EVENT_KEYS.get(key, key): value for key, value in event.items() if key != "t"}
    more = {key: value for key, value in known.items() if key not in EVENT_COLUMNS}
    return {**known, "t_s": event["t"] / 1e9, "more": more}


def _wrong_event(event: Mapping[str, Any]) -> str:
    """What keeps an event out of a frame, in words; "" when nothing does."""
    if not is_number(event.get("t")):
        return '"t" is not a number'
    for key, value in event.items():
        dtype = EVENT_COLUMNS.get(_EVENT_KEYS.get(key, key), (ANY, ""))[0]
        if value is None or dtype == ANY:
            continue
        if dtype in (WHOLE, MAYBE_WHOLE) and not is_whole(value):
            return f'"{key}" is not a whole number'
        if dtype == NUMBER and not is_number(value):
            return f'"{key}" is not a number'
        if dtype == TEXT and isinstance(value, (list, dict)):
            return f'"{key}" is not a text'
    return ""
