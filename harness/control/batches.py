"""Work that runs trials in batches, each made of what came of the one before; several such at once on one executor.

    def work() -> Work[int]:
        rows = []
        yield Batch(requests, needed=lambda request: not rows, ended=lambda request, row: rows.append(row))
        return len(rows)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from harness.control.request import Executor, Row, TrialRequest

T = TypeVar("T")


def _always(request: TrialRequest) -> bool:
    del request
    return True


@dataclass(frozen=True)
class Batch:
    """Trials that may run at the same time; they start in this order. Their folders are made then, and not before.

    needed  asked when a trial's turn has come: whether it is to be run still
    ended   told of each as it ends
    """

    requests: Sequence[TrialRequest]
    ended: Callable[[TrialRequest, Row], None]
    needed: Callable[[TrialRequest], bool] = _always


Work = Generator[Batch, None, T]
"""Yields a batch, goes on when all of it has ended, and returns what it was for."""


def together(executor: Executor, works: Mapping[str, Work[T]]) -> Iterator[tuple[str, T]]:
    """Carry all out; each one's result as soon as it is there.

    In rounds: a batch of each in one go, so that one which is searched through for long leaves no job idle meanwhile. With
    several, a trial is known to the executor by the name of its work and its own: two works may call theirs alike.
    """
    left = dict(works)
    while left:
        round_of: dict[str, tuple[Batch, TrialRequest]] = {}
        asked: list[TrialRequest] = []
        for name, work in list(left.items()):
            try:
                batch = next(work)
            except StopIteration as done:
                del left[name]
                yield name, done.value
                continue
            for request in batch.requests:
                known = replace(request, trial_id=f"{name}/{request.trial_id}") if len(works) > 1 else request
                round_of[known.trial_id] = batch, request
                asked.append(known)
        if asked:
            _run(executor, asked, round_of)


def alone(executor: Executor, work: Work[T]) -> T:
    """As `together`, of one."""
    [(_, result)] = together(executor, {"": work})
    return result


def _run(
    executor: Executor, asked: Sequence[TrialRequest], round_of: Mapping[str, tuple[Batch, TrialRequest]]
) -> None:
    def on_start(known: TrialRequest) -> bool:
        batch, request = round_of[known.trial_id]
        if not batch.needed(request):
            return False
        request.folder.mkdir(parents=True)
        return True

    def on_row(row: Row) -> None:
        batch, request = round_of[row["trial"]]
        row["trial"] = request.trial_id
        batch.ended(request, row)

    executor.run(asked, on_start, on_row)
