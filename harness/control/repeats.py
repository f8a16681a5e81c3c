"""A plan's times: their endings, settled and told in order, whatever order they come in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.control.request import Row
from harness.core.endings import Ending
from harness.core.plan import REPRODUCED

Note = Callable[[str], None]


@dataclass(frozen=True)
class One:
    """How one trial of a plan ended, its row, and its folder."""

    ending: Ending
    row: Row
    trial: str


class Times:
    """`left` times are still to be run; `done` are settled, `best` of them is the one to show.

    A time that ended otherwise than the best so far, and did not reproduce it, is *strange*: it is looked at once more,
    with every binding, before it and what follows is settled.
    """

    def __init__(self, times: int, first: One, note: Note) -> None:
        self.best = first
        self.done: list[One] = []
        self._times = times
        self._note = note
        self._ahead: dict[int, One] = {}  # ended, and not settled
        self.settle(first)

    @property
    def left(self) -> int:
        """Times that have no ending."""
        return self._times - len(self.done) - len(self._ahead)

    @property
    def strange(self) -> bool:
        """Whether it is the next one's turn to be looked at once more."""
        one = self._ahead.get(len(self.done))
        return one is not None and self._differs(one)

    @property
    def enough(self) -> bool:
        """Whether what has ended is to be settled before another one starts."""
        return any(self._differs(one) for one in self._ahead.values())

    def ended(self, number: int, one: One) -> None:
        """Of time `number`, from 0."""
        self._ahead[number] = one
        self._advance()

    def settle(self, one: One) -> None:
        """The next one ended so for good."""
        self._ahead.pop(len(self.done), None)
        if one.ending.name == REPRODUCED and self.best.ending.name != REPRODUCED:
            self.best = one
        self.done.append(one)
        self._note(f"{len(self.done)}/{self._times}: {_said(one)}")
        self._advance()

    def _advance(self) -> None:
        while len(self.done) in self._ahead and not self.strange:
            self.settle(self._ahead[len(self.done)])

    def _differs(self, one: One) -> bool:
        return one.ending.name not in (self.best.ending.name, REPRODUCED)


def _said(one: One) -> str:
    reason = f" ({one.ending.reason})" if one.ending.reason else ""
    return f"{one.ending.name}{reason}"
