"""What is known of a process's threads, from inside or outside, in one form."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class Value(Protocol):
    """An object of the program. `key` is equal for the same object: its address, or how it is reached."""

    @property
    def key(self) -> Hashable: ...

    @property
    def kind(self) -> str:
        """Name of its type; "" when not known."""
        ...

    def attribute(self, name: str) -> Value | None:
        """None when it cannot be told without running code of the program."""
        ...

    def item(self, index: Value) -> Value | None:
        """As `attribute`, for `value[index]`."""
        ...

    def fact(self, name: str) -> Any:
        """`owner` (thread ident), `parties`, `waiting`, `size`, `ident`, `name`, `text`; None when not known."""
        ...


MOST_TOLD = 5


def _nothing(_name: str) -> Value | None:
    return None


@dataclass(frozen=True, eq=False)
class Frame:
    """One Python frame.

    function  its name, qualified where the interpreter says so: "Queue.get"
    names     a variable, local or global, to its value
    span      (line, end line, column, end column) of the instruction that runs; None when not known
    """

    function: str
    file: str
    line: int
    names: Callable[[str], Value | None] = _nothing
    span: tuple[int, int, int, int] | None = None

    @property
    def place(self) -> str:
        """`train.py:12`."""
        return f"{self.file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{self.line}"


@dataclass(frozen=True, eq=False)
class ThreadView:
    """One thread. `frames`: innermost first. `native`: names of native frames above them, where they were read.

    still     its stack was the same in two looks; None when there was one
    owns_gil  it holds the interpreter lock; None when not known
    asleep    it hardly ran between the looks; None when not known
    """

    name: str
    ident: int
    frames: Sequence[Frame]
    native: tuple[str, ...] = ()
    still: bool | None = None
    owns_gil: bool | None = None
    asleep: bool | None = None


@dataclass(frozen=True)
class Wait:
    """A thread that waits, and who could end that.

    kind     lock, lock of unknown holder, condition, event, semaphore, barrier, queue.put, queue.get, queue.join, join,
             future, module, engine, exit, strategy
    what     in words, with the place: "lock `b` (train.py:6)"
    helpers  ident → what that thread has or does: "took it at train.py:4". Holders of a lock: all are needed; else any
    nobody   why there is none, when there is none
    idle     a wait of a library's own thread for work: nothing is wrong with it by itself
    timed    it has a time limit, and ends by itself
    outside  it may be ended from outside the process, or by a clock: by a signal's handler, or a thread that calls back
    certain  nobody can end it, whatever the others do: its owner has ended
    """

    thread: ThreadView
    kind: str
    what: str
    helpers: dict[int, str] = field(default_factory=dict)
    nobody: str = ""
    idle: bool = False
    key: Hashable = None
    timed: bool = False
    outside: bool = False
    certain: bool = False

    @property
    def by_itself(self) -> bool:
        """Whether it may end without another thread of the program's."""
        return self.timed or self.outside


@dataclass(frozen=True)
class Finding:
    """What is wrong. `kind`: cycle, nobody, native, busy, gil. `text`: one sentence. `threads`: idents, the culprit first."""

    kind: str
    text: str
    threads: tuple[int, ...]


@dataclass(frozen=True)
class Diagnosis:
    """All waits, and what is wrong, worst first; no finding when nothing is known to be."""

    waits: tuple[Wait, ...]
    findings: tuple[Finding, ...]

    def in_words(self) -> str:
        """What is wrong, in one line; of many findings the first few."""
        told = [finding.text for finding in self.findings[:MOST_TOLD]]
        more = len(self.findings) - MOST_TOLD
        return "; ".join([*told, f"and {more} more"] if more > 0 else told)
