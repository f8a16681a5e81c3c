"""An executor of several jobs without processes: who runs beside whom is known, and the test says who ends next."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fake_runs import make_row

from harness.control.request import OnStart, Row, TrialRequest

Ends = Callable[[Sequence[TrialRequest]], int]
"""Of those that run, in the order in which they started: the place of the one that ends next."""


def first_ends(running: Sequence[TrialRequest]) -> int:
    return 0


def last_ends(running: Sequence[TrialRequest]) -> int:
    return len(running) - 1


class Slots:
    """Starts what there is room for, before anything ends. `beside`: who ran at each end; `calls`: asked for at once."""

    def __init__(
        self, jobs: int, outcome: Callable[[TrialRequest], Row] = make_row, ends: Ends = first_ends
    ) -> None:
        self._jobs, self._outcome, self._ends = jobs, outcome, ends
        self.started: list[str] = []
        self.beside: list[tuple[str, ...]] = []
        self.calls: list[list[str]] = []

    def run(self, trials: Sequence[TrialRequest], on_start: OnStart, on_row: Callable[[Row], None]) -> None:
        waiting, running = list(trials), list[TrialRequest]()
        self.calls.append([request.trial_id for request in trials])
        while waiting or running:
            while waiting and len(running) < self._jobs:
                request = waiting.pop(0)
                if on_start(request) is False:
                    continue
                assert request.folder.is_dir()
                assert not list(request.folder.iterdir())
                self.started.append(request.trial_id)
                running.append(request)
            if running:
                self.beside.append(tuple(request.trial_id for request in running))
                ending = running.pop(self._ends(running))
                try:
                    row = self._outcome(ending)
                except KeyboardInterrupt:
                    for request in [ending, *running]:
                        on_row(make_row(request, "interrupted"))
                    raise
                on_row(row)

    def close(self) -> None:
        """Nothing is left."""
