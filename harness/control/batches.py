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


def always() -> bool:
    """There is no limit."""
    return True


def together(
    executor: Executor, works: Mapping[str, Work[T]], may_start: Callable[[], bool] = always
) -> Iterator[tuple[str, T]]:
    """Carry all out; each one's result as soon as it is there.

    In rounds: a batch of each in one go, so that one which is searched through for long leaves no job idle meanwhile. With
    several, a trial is known to the executor by the name of its work and its own: two works may call theirs alike.

    `may_start` is asked of each trial that is needed when its turn has come. A work that needed one which then was not to
    start has no result; those that ran have ended by then.
    """
    left = dict(works)
    while left:
        asked: dict[str, _Asked] = {}
        for name, work in list(left.items()):
            try:
                batch = next(work)
            except StopIteration as done:
                del left[name]
                yield name, done.value
                continue
            for request in batch.requests:
                known = replace(request, trial_id=f"{name}/{request.trial_id}") if len(works) > 1 else request
                asked[known.trial_id] = _Asked(name, batch, request, known)
        if asked:
            for name in _run(executor, asked, may_start):
                del left[name]


def alone(executor: Executor, work: Work[T]) -> T:
    """As `together`, of one."""
    [(_, result)] = together(executor, {"": work})
    return result


@dataclass(frozen=True)
class _Asked:
    """A trial of a round, of which work's batch it is, and as what the executor knows it."""

    work: str
    batch: Batch
    request: TrialRequest
    known: TrialRequest


def _run(executor: Executor, asked: Mapping[str, _Asked], may_start: Callable[[], bool]) -> set[str]:
    """Run a round; the works that still need a trial which was not to start."""
    refused: list[_Asked] = []

    def on_start(known: TrialRequest) -> bool:
        one = asked[known.trial_id]
        if not one.batch.needed(one.request):
            return False
        if not may_start():
            refused.append(one)
            return False
        one.request.folder.mkdir(parents=True)
        return True

    def on_row(row: Row) -> None:
        one = asked[row["trial"]]
        row["trial"] = one.request.trial_id
        one.batch.ended(one.request, row)

    executor.run([one.known for one in asked.values()], on_start, on_row)
    return {one.work for one in refused if one.batch.needed(one.request)}
