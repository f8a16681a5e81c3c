"""Threads → what is wrong: cycles of waits, waits that nobody can end, a call outside Python that all wait for."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.waitgraph import Edge, find_cycle

from .outside import serves
from .reasons import Reasons
from .source import Read
from .views import Diagnosis, Finding, Frame, ThreadView, Wait
from .waits import of_library


def diagnose(
    threads: Sequence[ThreadView], read: Read, known: Sequence[Edge] = (), *, hung: bool = False
) -> Diagnosis:
    """What the threads wait for and what is wrong.

    known  edges between thread names that are known for certain
    hung   the process is known to be stuck: a wait that nobody can end is then wrong, whatever other threads do

    A thread whose stack changed between two looks (`still` is False) runs, and is never called stuck; nor is one that
    computes, unless the process hangs and others wait for it.
    """
    held_up = _gil(threads, hung)
    if held_up is not None:
        return Diagnosis((), (held_up,))
    return _Verdict(Reasons(threads, read, known), hung).diagnosis()


def _gil(threads: Sequence[ThreadView], hung: bool) -> Finding | None:
    """Somebody has the interpreter lock and does not move: nobody else can run, whatever else they wait for."""
    for thread in threads:
        if thread.owns_gil and thread.still and thread.frames and (thread.asleep or hung):
            inside = f" (in {thread.native[0]})" if thread.native else ""
            where = f"{thread.frames[0].function} ({thread.frames[0].place})"
            text = (
                f"{thread.name} holds the interpreter lock in a native call that has not returned: {where}{inside}; "
                "no other Python thread can run"
            )
            return Finding("gil", text, (thread.ident,))
    return None


class _Verdict:
    """On one process at one moment."""

    def __init__(self, reasons: Reasons, hung: bool) -> None:
        self.threads, self.by_ident = reasons.threads, reasons.by_ident
        self.waits, self.sources = reasons.waits, reasons.sources
        self.hung = hung

    def diagnosis(self) -> Diagnosis:
        """Cycles first; then what all that are stuck wait for in the end."""
        stuck = self._stuck()
        findings: list[Finding] = []
        edges = [
            Edge(str(ident), wait.what, str(helper))
            for ident, wait in self.waits.items()
            if ident in stuck
            for helper in wait.helpers
            if helper in stuck
        ]
        while cycle := find_cycle(edges):
            members = [int(edge.waiter) for edge in cycle]
            findings.append(self._cycle([(int(edge.waiter), int(edge.holder)) for edge in cycle]))
            edges = [edge for edge in edges if int(edge.waiter) not in members]
        named = {ident for finding in findings for ident in finding.threads}
        barriers: set[str] = set()
        for ident in sorted(stuck - named, key=lambda ident: self.by_ident[ident].name):
            wait = self.waits[ident]
            if wait.kind == "barrier" and wait.nobody in barriers:
                continue  # all who are in it have been named together
            barriers.add(wait.nobody)
            if wait.helpers or wait.idle or not (wait.nobody or self.hung):
                continue
            if not (wait.certain or self._matters(ident, stuck)):
                continue
            why = f": {wait.nobody}" if wait.nobody else ""
            findings.append(Finding("nobody", self._says(wait) + why, (ident,)))
        if not findings:
            findings += self._native(stuck) or self._at_exit(stuck)
        return Diagnosis(tuple(self.waits.values()), tuple(_once(findings)))

    def _stuck(self) -> set[int]:
        """Threads that wait for what only others of them could end, or nobody.

        A wait with a time limit goes on by itself; in a process that is known to be stuck it comes back to where it was.
        """
        stuck = {ident for ident, wait in self.waits.items() if not wait.outside and (self.hung or not wait.timed)}
        while True:
            free = {ident for ident in stuck if not self._remains(ident, stuck)}
            if not free:
                return stuck
            stuck -= free

    def _remains(self, ident: int, stuck: set[int]) -> bool:
        wait = self.waits[ident]
        if wait.kind in ("lock", "join", "strategy", "module"):  # any holder that cannot go on is enough
            return not wait.helpers or any(helper in stuck for helper in wait.helpers)
        return all(helper in stuck for helper in wait.helpers)

    def _matters(self, ident: int, stuck: set[int]) -> bool:
        """Somebody waits for it, or nothing of the program's own goes on.

        Of a lock that nobody is seen to hold only the latter: whoever works may have taken it in a function that has ended.
        """
        waited_for = any(ident in wait.helpers for other, wait in self.waits.items() if other in stuck)
        if self.hung or (waited_for and self.waits[ident].kind != "lock"):
            return True
        return all(t.ident in stuck or self._aside(t) for t in self.threads)

    def _aside(self, thread: ThreadView) -> bool:
        """A thread without code of the program's own."""
        return all(of_library(frame) for frame in thread.frames)

    def _native(self, stuck: set[int]) -> list[Finding]:
        """A thread that waits in a call outside Python, and for which others wait."""
        found = []
        for thread in self.threads:
            if thread.ident in self.waits or not thread.frames or thread.still is False or thread.still is None:
                continue
            if serves(thread, self.sources):
                continue  # it waits for a time or a message, as it always does
            behind = self._behind(thread.ident)
            busy = thread.asleep is False
            if behind and (self.hung or not busy):
                who = ", ".join(sorted(self.by_ident[i].name for i in behind))
                verb = "waits" if len(behind) == 1 else "wait"
                where = f"{thread.frames[0].function} ({thread.frames[0].place})"
                inside = f", in {thread.native[0]}" if thread.native else ""
                call = self._call(thread.frames[0])
                does = "computes, and does not get on" if busy else "is in a native call that has not returned"
                text = f"{thread.name} {does}: {call}{where}{inside}; {who} {verb} for it"
                found.append(Finding("busy" if busy else "native", text, (thread.ident, *sorted(behind))))
        return found

    def _at_exit(self, stuck: set[int]) -> list[Finding]:
        """The main thread has ended, and threads that nobody ends keep the process."""
        for ident in stuck:
            wait = self.waits[ident]
            left = [other for other in wait.helpers if other in stuck]
            if wait.kind == "exit" and left:
                said = "; ".join(self._says(self.waits[other]) for other in left)
                text = f"{wait.thread.name} has come to its end, and the process waits for its threads to end: {said}"
                return [Finding("nobody", text, (*left, ident))]
        return []

    def _call(self, frame: Frame) -> str:
        lines = self.sources.lines(frame.file)
        text = lines[frame.line - 1].strip() if 0 < frame.line <= len(lines) else ""
        return f"`{text}` in " if text else ""

    def _behind(self, ident: int) -> set[int]:
        found: set[int] = set()
        waiting = [ident]
        while waiting:
            for other, wait in self.waits.items():
                if waiting[0] in wait.helpers and other not in found and wait.kind != "exit" and not wait.outside:
                    found.add(other)
                    waiting.append(other)
            waiting.pop(0)
        return found

    def _says(self, wait: Wait) -> str:
        return f"{wait.thread.name} waits for {wait.what}"

    def _cycle(self, links: list[tuple[int, int]]) -> Finding:
        parts = []
        for waiter, helper in links:
            wait = self.waits[waiter]
            has = wait.helpers[helper]
            name = "it itself" if helper == waiter else self.by_ident[helper].name
            if wait.kind == "join":
                parts.append(self._says(wait))
            elif has == "holds it":
                parts.append(f"{self._says(wait)}, held by {name}")
            elif has.startswith("took it"):
                parts.append(f"{self._says(wait)}, which {name} took{has.removeprefix('took it')}")
            else:
                parts.append(f"{self._says(wait)}, and {name} {has}")
        return Finding("cycle", "; ".join(parts), tuple(waiter for waiter, _ in links))


def _once(findings: list[Finding]) -> list[Finding]:
    return list({finding.text: finding for finding in findings}.values())
