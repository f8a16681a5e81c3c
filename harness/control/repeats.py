"""A plan's times: their endings, settled and told in order, whatever order they come in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from harness.control.request import Row
from harness.core.endings import Effect, Ending
from harness.core.outcome import INCOMPLETE, SKIPPED
from harness.core.plan import REPRODUCED

Note = Callable[[str], None]


def tells(effect: Effect, row: Row) -> bool:
    """Whether a trial says anything of its plan: it showed the effect, or it was not cut short by what is not the subject's."""
    return effect.seen(row) or row["outcome"] not in (*INCOMPLETE, SKIPPED)


def why_silent(row: Row) -> str:
    """Why a trial says nothing, on one line."""
    reason = " ".join(str(row.get("reason") or "").split())
    return f"{row['outcome']}: {reason}" if reason else str(row["outcome"])


@dataclass(frozen=True)
class One:
    """How one trial of a plan ended, its row, its folder, and whether it says anything (`tells`)."""

    ending: Ending
    row: Row
    trial: str
    told: bool


class Times:
    """`left` times are still to be run; `done` are settled, each by its own trial; `best` is the one trial to show.

    A time that ended otherwise than the best so far, and did not reproduce it, is *strange*: it is looked at once more,
    with every binding, before it and what follows is settled. That look can become the best, and be the only one to show
    that it can happen, but it is not the time: `second_look` counts the looks that reproduced what their time did not.
    """

    def __init__(self, times: int, first: One, note: Note) -> None:
        self.best = first
        self.done: list[One] = []
        self.second_look = 0
        self._times = times
        self._note = note
        self._ahead: dict[int, One] = {}  # ended, and not settled
        self._settle(first)
        self._advance()

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

    def looked_again(self, look: One) -> None:
        """What the strange one that is next came to at a second look; the time itself ends as its own trial did."""
        self.second_look += look.ending.name == REPRODUCED
        self._settle(self._ahead.pop(len(self.done)), look)
        self._advance()

    def _settle(self, one: One, look: One | None = None) -> None:
        for each in (one, look):
            if each is not None and self._better(each):
                self.best = each
        self.done.append(one)
        again = f"; at a second look {look.ending.name}" if look and look.ending.name != one.ending.name else ""
        self._note(f"{len(self.done)}/{self._times}: {_said(one)}{again}")

    def _advance(self) -> None:
        while len(self.done) in self._ahead and not self.strange:
            self._settle(self._ahead.pop(len(self.done)))

    def _better(self, one: One) -> bool:
        """Than the best so far: the first that reproduced it, before the first that says anything."""
        reproduced = one.ending.name == REPRODUCED and self.best.ending.name != REPRODUCED
        return reproduced or (one.told and not self.best.told)

    def _differs(self, one: One) -> bool:
        return one.ending.name not in (self.best.ending.name, REPRODUCED)


def _said(one: One) -> str:
    reason = f" ({one.ending.reason})" if one.ending.reason else ""
    return f"{one.ending.name}{reason}"
