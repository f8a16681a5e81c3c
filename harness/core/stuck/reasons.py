"""What each thread of a process waits for, and who could end that: all that is read or inferred, without a verdict."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from harness.core.waitgraph import Edge

from .helpers import ENDED_BY, Held, Same, could_end, holds_of, learn, made_with, places
from .outside import calls_back, ended_by_signal, of_processes
from .source import Read, Sources, loops_around
from .views import Frame, ThreadView, Value, Wait
from .waits import Spot, ends_with, lock_words, of_library, spot

UNKNOWN_HOLDER = "lock of unknown holder"
"""Kind of a wait for a lock whose helpers may hold it, all of them: nobody is known to."""


class Reasons:
    """One process at one moment."""

    def __init__(self, threads: Sequence[ThreadView], read: Read, known: Sequence[Edge]) -> None:
        self.threads = list(threads)
        self.by_ident = {thread.ident: thread for thread in threads}
        self.sources = Sources(read)
        self.known = known
        self.same = Same()
        self.spots: dict[int, Spot] = {}
        for thread in threads:
            at = spot(thread, self.sources) if thread.still is not False and thread.asleep is not False else None
            if at is not None:
                self.spots[thread.ident] = at
        learn(self.spots, self.sources, self.same)
        self.holds: dict[int, list[Held]] = {
            thread.ident: holds_of(thread, self.spots.get(thread.ident), self.sources, self.same) for thread in threads
        }
        self.spots = self._which()
        self.perhaps = self._not_taken_yet()
        self.files = list(dict.fromkeys(f.file for t in threads for f in t.frames if not of_library(f)))
        self.waits = {ident: self._wait(self.by_ident[ident], at) for ident, at in self.spots.items()}
        self._add_known()
        self._by_elimination()

    def _wait(self, thread: ThreadView, at: Spot) -> Wait:
        library = all(of_library(frame) for frame in thread.frames)
        idle = library and at.kind not in ("lock", "module", "engine", "exit", "barrier")
        outside = certain = False
        what = self._words(thread, at)
        if at.kind == "lock":
            helpers, nobody = self._holders(thread, at)
            certain = not helpers and at.value is not None and bool(at.value.fact("owner"))
            outside = not helpers and of_processes(at)
        elif at.kind == "join":
            helpers, nobody = self._joined(at)
        elif at.kind == "module":
            helpers, nobody = self._importers(thread)
        elif at.kind == "engine":
            helpers, nobody = self._engine_threads()
        elif at.kind in ("exit", "future"):
            helpers = self._others(thread, at)
            nobody = "no other thread runs a pool's work, so what is queued there is never begun"
        else:
            helpers, nobody = self._enders(thread, at)
            if not helpers:
                helpers = self._callers_back(thread, at)
                outside = bool(helpers) or ended_by_signal(at, self.files, ENDED_BY[at.kind], self.sources)
        loose = at.kind == "lock" and bool(helpers) and all(has.startswith("may ") for has in helpers.values())
        kind = UNKNOWN_HOLDER if loose else at.kind
        nobody = "" if helpers or outside else nobody
        return Wait(thread, kind, what, helpers, nobody, idle, at.key, at.limit is not None, outside, certain)

    def _callers_back(self, thread: ThreadView, at: Spot) -> dict[int, str]:
        """Threads that may end the wait once their time or a message has come: no code of the program's is on their stacks."""
        barrier = at.kind == "barrier"
        return {
            other.ident: "may come to it" if barrier else "may be who ends such a wait, from a call back"
            for other in self.threads
            if other.ident != thread.ident and calls_back(other, self.sources)
        }

    def _which(self) -> dict[int, Spot]:
        """Of several locks on one line, the one that another thread holds; else the one that another may hold."""
        return {
            ident: next((found for may in (False, True) if (found := self._taken(ident, at, may)) is not None), at)
            for ident, at in self.spots.items()
        }

    def _taken(self, waiter: int, at: Spot, may: bool) -> Spot | None:
        if at.kind != "lock" or not at.others:
            return None
        for expression, value in ((at.expression, at.value), *at.others):
            if expression is None:
                continue
            key = None if value is None else self.same.of(value.key)
            taken = any(
                hold.key is not None and hold.key == key and (may or not hold.may)
                for ident, holds in self.holds.items()
                if ident != waiter
                for hold in holds
            )
            if taken:
                return Spot("lock", at.frame, value, ast.unparse(expression), expression, limit=at.limit)
        return None

    def _not_taken_yet(self) -> list[tuple[str, Held]]:
        """Take away what threads may hold by the very `with` at which they wait: they wait for it, as far as is known.

        (thread's name, lock) of what was taken away: its body may run already, in a call that is not known to be a wait.
        """
        found = []
        for ident, at in self.spots.items():
            own = [hold for hold in self.holds[ident] if hold.waits and at.kind == "lock" and self._means(hold, at)]
            self.holds[ident] = [hold for hold in self.holds[ident] if hold not in own]
            found += [(self.by_ident[ident].name, hold) for hold in own]
        return found

    def _words(self, thread: ThreadView, at: Spot) -> str:
        name = f" `{at.written}`" if at.written else ""
        own = next((frame for frame in thread.frames if not of_library(frame)), at.frame)
        place = f" ({at.frame.place}{f', from {own.place}' if own is not at.frame and of_library(at.frame) else ''})"
        said = {
            "lock": lock_words(at),
            "condition": f"a notify of condition{name}",
            "event": f"event{name} to be set",
            "semaphore": f"semaphore{name}",
            "barrier": f"barrier{name}",
            "queue.put": f"room in queue{name}",
            "queue.get": f"an item of queue{name}",
            "queue.join": f"the tasks of queue{name} to be done",
            "join": "the end of a thread",
            "future": "the result of a future",
            "module": "the import of a module",
            "engine": "autograd's engine",
            "exit": "the program's threads to end, before it exits",
        }
        text = said.get(at.kind, at.kind)
        if at.kind == "module" and (module := self._module(thread, at)):
            text = f"module {module}, which is being imported"
        if at.kind == "join" and (ident := self._thread_of(at.value)) in self.by_ident:
            text = f"{self.by_ident[ident].name} to end"
        return text + place

    def _holders(self, thread: ThreadView, at: Spot) -> tuple[dict[int, str], str]:
        owner = None if at.value is None else at.value.fact("owner")
        if owner:
            if owner in self.by_ident:
                place = next((h.place for h in self.holds[owner] if self._means(h, at)), "")
                return {owner: f"took it at {place}" if place else "holds it"}, ""
            name = at.value.fact("owner name") if at.value is not None else None
            return {}, f"its owner, {name or f'thread {owner}'}, has ended without letting go" + self._taken_at(at)
        found: dict[int, Held] = {}
        own: dict[int, Held] = {}
        loose: dict[int, Held] = {}
        own_loose: dict[int, Held] = {}
        reentrant = at.value is not None and "RLock" in at.value.kind  # would have let its own thread in
        for ident, hold in ((ident, hold) for ident, holds in self.holds.items() for hold in holds if self._means(hold, at)):
            if ident != thread.ident:
                (loose if hold.may else found)[ident] = hold
            elif not reentrant and not hold.acquired:
                (own_loose if hold.may else own)[ident] = hold
        if len(found) > 1:  # one has it at a time: who is inside of a `with` on it, if that is one
            inside = {ident: hold for ident, hold in found.items() if hold.sure}
            found, loose = (inside, loose) if len(inside) == 1 else ({}, found | loose)
        sure = found or own
        helpers = {ident: _took(hold, sure=bool(sure)) for ident, hold in (sure or loose or own_loose).items()}
        return helpers, "no living thread is in code that holds it" + self._perhaps(at)

    def _perhaps(self, at: Spot) -> str:
        """Who may have it after all, and where else it is taken."""
        told = dict.fromkeys(
            f"; {name} may have it, and wait in what follows `with` on that line ({hold.place})"
            for name, hold in self.perhaps
            if self._means(hold, at)
        )
        return "".join(told) + self._taken_at(at)

    def _means(self, hold: Held, at: Spot) -> bool:
        if hold.key is not None and at.key is not None and hold.key == self.same.of(at.key):
            return True
        return hold.key is None and at.key is None and bool(hold.name) and hold.name == at.written.rsplit(".", 1)[-1]

    def _taken_at(self, at: Spot) -> str:
        found = places(at, self.files, frozenset({"acquire"}), self.sources)
        own = f"{at.frame.place}"
        found = [place for place in found if not place.startswith(own)]
        return f"; it is taken without `with` at {'; '.join(found[:3])}" if found else ""

    def _joined(self, at: Spot) -> tuple[dict[int, str], str]:
        ident = self._thread_of(at.value)
        if ident in self.by_ident:
            return {ident: "has not ended"}, ""
        return {}, "which thread is not known"

    def _thread_of(self, value: Value | None) -> int:
        if value is None:
            return 0
        told = value.fact("ident")
        if isinstance(told, int):
            return told
        for thread in self.threads:
            for frame in thread.frames[-3:]:
                own = frame.names("self") if ends_with(frame.file, "threading.py") else None
                if own is not None and own.key == value.key:
                    return thread.ident
        return 0

    def _module(self, thread: ThreadView, at: Spot) -> str:
        told = "" if at.value is None else str(at.value.fact("name") or "")
        return told or next(iter(_importing(thread.frames[:4])), "")

    def _importers(self, thread: ThreadView) -> tuple[dict[int, str], str]:
        wanted = _importing(thread.frames[:4])
        owner = self.spots[thread.ident].value
        ident = None if owner is None else owner.fact("owner")
        if ident in self.by_ident:
            return {ident: "imports it"}, ""
        found = {
            other.ident: "imports it"
            for other in self.threads
            if other.ident != thread.ident and wanted and wanted & _importing(other.frames)
        }
        return found, "no living thread imports it"

    def _engine_threads(self) -> tuple[dict[int, str], str]:
        found = {t.ident: "runs a backward for the engine" for t in self.threads if is_engine(t)}
        return found, "no thread of the engine runs Python code"

    def _others(self, thread: ThreadView, at: Spot) -> dict[int, str]:
        """Future: threads that run a pool's work, that of another process or an event loop. Exit: every other thread."""
        if at.kind == "exit":
            return {other.ident: "has not ended" for other in self.threads if other.ident != thread.ident}
        return {
            other.ident: has
            for other in self.threads
            if other.ident != thread.ident and (has := next(filter(None, map(_runs_work, other.frames)), ""))
        }

    def _enders(self, thread: ThreadView, at: Spot) -> tuple[dict[int, str], str]:
        found = could_end(at, thread, self.threads, self.sources, self.same)
        if at.kind == "barrier":
            inside = {i for i, s in self.spots.items() if s.kind == "barrier" and self._one(s, at)}
            found = {ident: place for ident, place in found.items() if ident not in inside}
            parties = at.value.fact("parties") if at.value is not None else None
            parties = parties or made_with(at.written.rsplit(".", 1)[-1], "Barrier", self.files, self.sources)
            names = sorted(self.by_ident[i].name for i in inside)
            of = f" of {parties} parties" if parties else ""
            verb = "waits" if len(names) == 1 else "wait"
            said = f"{len(names)}{of} {verb} in it ({', '.join(names)}), and no other living thread comes to it"
            return {i: f"{'may' if p[0] == '?' else 'would'} come to it at {p.lstrip('?')}" for i, p in found.items()}, said
        verb = {"queue.put": "takes from it", "queue.get": "puts into it"}.get(at.kind, "ends such a wait")
        said = {
            "condition": "no living thread's code notifies it",
            "event": "no living thread's code sets it",
            "semaphore": "no living thread's code releases it",
            "queue.put": "it is full, and no living thread's code takes from it",
            "queue.get": "it is empty, and no living thread's code puts into it",
            "queue.join": "no living thread's code marks a task as done",
        }.get(at.kind, "nobody can end it")
        calls = places(at, self.files, ENDED_BY[at.kind], self.sources)
        if of_library(at.frame):
            said = ""  # it may end its wait by ways that are on no stack
        elif calls:
            said += f" (that is done at {'; '.join(calls[:3])})"
        if at.kind == "condition" and not of_library(at.frame):
            block = self.sources.block(at.frame)
            if block is not None and not loops_around(block, at.frame.line) and "wait_for" not in self._line(at):
                said += "; the wait tests nothing first, so a notify that came before it is lost"
        return {
            ident: f"may be who {verb}, at {place[1:]}" if place.startswith("?") else f"{verb} at {place}"
            for ident, place in found.items()
        }, said

    def _one(self, first: Spot, second: Spot) -> bool:
        return first.key is not None and second.key is not None and self.same.of(first.key) == self.same.of(second.key)

    def _add_known(self) -> None:
        """Edges that a probe or the events know for certain take the place of what was inferred for that thread."""
        by_name = {thread.name: thread for thread in self.threads}
        told: dict[int, dict[int, str]] = {}
        words: dict[int, str] = {}
        for edge in self.known:
            waiter, holder = by_name.get(edge.waiter), by_name.get(edge.holder)
            if waiter is not None and holder is not None and waiter.still is not False:
                told.setdefault(waiter.ident, {})[holder.ident] = "holds it"
                words[waiter.ident] = edge.what
        for ident, helpers in told.items():
            self.waits[ident] = Wait(self.by_ident[ident], "strategy", words[ident], helpers)

    def _by_elimination(self) -> None:
        """A lock without a holder, where a name is all that is known of it: other stuck threads that may have it.

        Those hold a lock which nobody is known to wait for, and which, by its name alone, may be the same.
        """
        matched = {self.same.of(w.key) for w in self.waits.values() if w.kind == "lock" and w.helpers}
        for ident, wait in list(self.waits.items()):
            if wait.kind != "lock" or wait.helpers or wait.key is None:
                continue
            loose = {
                other: f"may hold it (took `{hold.written}` at {hold.place})"
                for other, holds in self.holds.items()
                for hold in holds
                if other != ident and other in self.waits and hold.key is not None and hold.key not in matched
                if not (isinstance(hold.key, int) and isinstance(wait.key, int))
            }
            if loose:
                self.waits[ident] = replace(wait, kind=UNKNOWN_HOLDER, helpers=loose, nobody="")

    def _line(self, at: Spot) -> str:
        lines = self.sources.lines(at.frame.file)
        return lines[at.frame.line - 1] if 0 < at.frame.line <= len(lines) else ""


def _took(hold: Held, *, sure: bool) -> str:
    return f"took it at {hold.place}" if sure else f"may hold it, taken at {hold.place}"


_WORKS = (
    ("futures/thread.py", "run", "runs work of a pool"),
    ("futures/process.py", "run", "hands work to other processes"),
    ("asyncio/base_events.py", "run_forever", "runs an event loop"),
)


def _runs_work(frame: Frame) -> str:
    """What a frame of the standard library does, if that is to bring about the results of futures."""
    bare = frame.function.rsplit(".", 1)[-1]
    return next((has for tail, name, has in _WORKS if bare == name and ends_with(frame.file, tail)), "")


def is_engine(thread: ThreadView) -> bool:
    """A thread that Python did not start and that runs Python code: autograd's, for a device."""
    last = thread.frames[-1] if thread.frames else None
    return last is not None and last.function not in ("<module>", "Thread._bootstrap", "_bootstrap", "_run_module_as_main")


def _importing(frames: Sequence[Frame]) -> set[str]:
    """Modules that a stack imports, by the import system's own variables."""
    found = set()
    for frame in frames:
        if "importlib._bootstrap" in frame.file and frame.function in ("_find_and_load", "_lock_unlock_module"):
            value = frame.names("name")
            text = None if value is None else value.fact("text")
            if text:
                found.add(str(text).strip("'\""))
    return found
