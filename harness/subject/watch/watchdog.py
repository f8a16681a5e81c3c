"""The one thread that the watch adds: it tells when nothing moves, and writes the account while the program runs.

Not a `threading.Thread`: the program's `threading.enumerate()` and `active_count()` are its own, and the interpreter does
not wait for it. It is paused around a fork, so that a child never inherits a lock that it held. Where it is the only other
thread it ends, and begins again: see `forks`.

A program need not report anything, so what counts as moving is `stillness`, and what counts as a hang is more than that:
* a cycle of waits that the probes know, standing for 5 s;
* threads that have stood still for the timeout, and whose stacks and locks explain why they cannot go on: a cycle, or a
  re-entrant lock whose owner ended, whatever the others do; a barrier one short, a lock without a known holder, a lost
  notify once nothing else of the program's own goes on, for until then it may still come to it;
* all threads still, nothing explained, none of them waits for a clock, a signal, a peer or a child, and the process does
  not compute; while a thread compiles, that takes four times as long.
* a thread that is in one run of the autograd engine for four times the timeout, computing or not.
"""

from __future__ import annotations

import faulthandler
import json
import os
import threading
import time
import traceback
from _thread import allocate_lock, start_new_thread  # the real ones, whatever the program puts in their place
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from harness.core.waitgraph import Edge

from ..prctl import let_read
from ..standing import DEADLOCK_S, LOOK_S, PATIENCE, StandingCycle
from . import forks
from .live import LiveState
from .process import Stuck, Watched

if TYPE_CHECKING:
    from harness.core.stuck.views import Diagnosis

    from .stillness import Stillness

FORK_S = 0.01
LATE_S = 3.0  # a look this long after the one before: the process was stopped, or native code kept it from running
WRITE_S = 1.0
WRITE_SHARE = 0.01  # of the time at most goes into writing the account while the program runs
MOST_REPORTS = 20


def _allow_evidence(pid: int) -> None:
    """Where the kernel lets only ancestors read a process (Yama's scope 1): also py-spy, a child of the control side's."""
    try:
        restricted = Path("/proc/sys/kernel/yama/ptrace_scope").read_text(encoding="ascii").strip() == "1"
    except OSError:
        return
    if restricted and pid:
        let_read(pid)


class _Running:
    """The thread, from one fork to the next."""

    def __init__(self) -> None:
        self.stopping = allocate_lock()
        self.ended = allocate_lock()
        self.native_id = 0
        self.stopping.acquire()
        self.ended.acquire()

    def stop(self) -> bool:
        """End, and wait for the end, but not for long; whether it came."""
        self.stopping.release()
        return self.ended.acquire(timeout=1.0)


class WatchDog:
    """`start` … `stop`; `pause`, `resume`, `reborn` and `forget` around forks."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._timeout_s = watched.settings.hang_timeout_s
        self._renew()

    def _renew(self) -> None:
        self._running: _Running | None = None
        self._looking = allocate_lock()
        self._paused_by: set[int] = set()
        self._ended_for_fork = False
        self._look_at = time.monotonic() + LOOK_S  # whatever forks come in between
        self._write_at = 0.0
        self._stillness: Stillness | None = None
        self._cycle = StandingCycle(DEADLOCK_S)
        self._examined: set[tuple[int, tuple[int, int]]] = set()
        self._whole_examined = False
        self._long: set[tuple[int, int]] = set()
        self._reports = 0
        self._standing: dict[int, tuple[int, int]] = {}  # of the report that stands: its threads and their places
        self._live = LiveState(self._watched) if self._watched.settings.live else None

    def start(self) -> None:
        """Begin to look, and go on after a fork."""
        self._running = running = _Running()
        try:
            start_new_thread(self._watch, (running,))
        except RuntimeError as error:  # a limit on threads
            self._running = None
            self._watched.status["watchdog"] = f"unavailable: {error}"
            self._watched.write()

    def stop(self) -> None:
        """End, and wait for the end, but not for long: the program wants to go."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()
        if self._stillness is not None:  # a program that ends may have gone on since the last look
            self._went_on(self._stillness, self._stillness.look(time.monotonic(), own=-1))

    def pause(self) -> None:
        """Before a fork: no look is under way from here on."""
        running = self._running
        if running is None or not self._looking.acquire(timeout=1.0):
            return
        self._paused_by.add(threading.get_ident())
        if forks.would_be_warned_of():
            self._ended_for_fork = True
            if running.stop():
                forks.wait_until_gone(running.native_id)

    def resume(self, forking: FrameType | None) -> None:
        """After it, in the parent. `forking`: the frame that called it."""
        me = threading.get_ident()  # several threads may fork at a time
        if me not in self._paused_by:
            return
        self._paused_by.discard(me)
        if self._ended_for_fork and forks.COUNTED_AFTER_HOOKS:
            forks.once_returned(forking, self._again)
        else:
            self._again()

    def _again(self) -> None:
        ended, self._ended_for_fork = self._ended_for_fork, False
        if ended and self._running is not None:
            self.start()
        self._looking.release()

    def reborn(self) -> None:
        """In the child, which has no thread but the one that forked."""
        self._renew()
        self.start()

    def forget(self) -> None:
        """In a child that is not watched."""
        self._renew()

    # its own thread

    def _watch(self, running: _Running) -> None:
        own = self._watched.threads.own()
        running.native_id = own.native_id
        looking = self._looking
        try:
            while not running.stopping.acquire(timeout=max(0.0, self._look_at - time.monotonic())):
                if not looking.acquire(timeout=FORK_S):
                    continue  # a fork, which may want the end of this thread
                try:
                    self._look(time.monotonic(), own.ident)
                finally:
                    looking.release()
                self._look_at = time.monotonic() + LOOK_S
        except Exception:  # noqa: BLE001  # nobody would see it on a thread of ours; the report does
            self._running = None
            self._watched.status["watchdog"] = f"unavailable: it failed: {traceback.format_exc()[-1500:]}"
            self._watched.write()  # so that its silence is not taken for the program's
        finally:
            running.ended.release()

    def _look(self, now: float, own: int) -> None:
        watched = self._watched
        os.utime(watched.folder / "process.json")
        if watched.changed and now >= self._write_at:
            watched.write()
            took = time.monotonic() - now
            self._write_at = now + max(WRITE_S, took / WRITE_SHARE)
        if self._stillness is None:
            # Here and not at the top: a start-up of the program does not wait for it, and nor does a hang.
            from harness.core.stuck.waits import machinery

            from .. import live  # noqa: F401
            from .stillness import Stillness

            _allow_evidence(watched.settings.control)
            ask_after_s = min(1.0, self._timeout_s / 8)
            native_id = watched.threads.native_id
            self._stillness = Stillness(machinery, native_id, ask_after_s=ask_after_s, late_s=LATE_S)
        edges = watched.probes.edges() if watched.probes is not None else []
        since = self._stillness.look(now, own)
        self._went_on(self._stillness, since)
        if self._live is not None:
            self._live.look(now, edges)
        if self._known_cycle(now, edges):
            return  # it is told: that others wait behind it says no more
        self._still(now, since, edges, self._stillness)
        self._long_in_engine(since)

    def _known_cycle(self, now: float, edges: list[Edge]) -> bool:
        if told := self._cycle.look(edges, now):
            self._report("deadlock", told, [])
        return self._cycle.again

    def _still(self, now: float, since: dict[int, float], edges: list[Edge], stillness: Stillness) -> None:
        from .stillness import waits_outside

        still = [ident for ident, began in since.items() if now - began >= self._timeout_s]
        fresh = [ident for ident in still if (ident, stillness.place(ident)) not in self._examined]
        whole = len(still) == len(since) and self._whole(now, since, stillness)
        if not fresh and not (whole and not self._whole_examined):
            self._whole_examined = self._whole_examined and whole
            return
        self._examined = {(ident, stillness.place(ident)) for ident in still}
        self._whole_examined = whole
        found, whole = self._explain(edges, whole)
        native_id = self._watched.threads.native_id
        told = [
            finding
            for finding in (found.findings if found else ())
            if set(finding.threads) <= set(still)
            # Somebody waits for a thread that waits for a clock or a peer: a server without a request looks like that.
            and not (finding.kind == "native" and waits_outside(finding.threads[:1], native_id))
        ]
        if not stillness.there({ident for finding in told for ident in finding.threads} if told else still):
            self._examined, self._whole_examined = set(), False
            return  # a part has gone on while this was found out: what has not is looked at once more
        if told:
            label = "deadlock" if any(finding.kind == "cycle" for finding in told) else "hang"
            idents = [ident for finding in told for ident in finding.threads]
            self._report(label, "; ".join(finding.text for finding in told), idents, found)
        elif whole:
            longest = max(now - began for began in since.values())
            waits = [f"{wait.thread.name} waits for {wait.what}" for wait in found.waits if not wait.idle] if found else []
            text = "; ".join(waits) or "no known lock is waited for: see the stacks"
            self._report("hang", f"nothing has moved for {longest:.0f} s; {text}", still, found)

    def _whole(self, now: float, since: dict[int, float], stillness: Stillness) -> bool:
        """All threads are still: whether that is a hang of the whole process."""
        from .stillness import waits_outside

        latest = max(since.values(), default=now)
        silent_s = (self._watched.log.now_ns() - self._watched.log.last_ns) / 1e9
        compiling = any(thread.compiling for thread in list(self._watched.threads.by_ident.values()))
        busy = stillness.busy(now, now - self._timeout_s)
        long_enough = min(now - latest, silent_s) >= (PATIENCE if compiling else 1) * self._timeout_s
        return bool(since) and long_enough and not busy and not waits_outside(since, self._watched.threads.native_id)

    def _long_in_engine(self, living: dict[int, float]) -> None:
        """A device that never answers keeps the thread that waits for it computing."""
        now_ns = self._watched.log.now_ns()
        for thread in list(self._watched.threads.by_ident.values()):
            began: int = getattr(thread, "engine_began", 0)
            for_s = (now_ns - began) / 1e9
            if thread.in_engine and began and for_s >= PATIENCE * self._timeout_s and (thread.ident, began) not in self._long:
                self._long.add((thread.ident, began))
                if thread.ident in living and thread.ident not in self._standing:
                    text = f"{thread.label()} has been in one run of the autograd engine for {for_s:.0f} s"
                    self._report("hang", text, [thread.ident])

    def _explain(self, edges: list[Edge], whole: bool) -> tuple[Diagnosis | None, bool]:
        """What is wrong, and whether that is of the whole process: not where a wait of the program's own may end by itself, by
        a time limit, a signal's handler or a call back. A loop that does a little every second looks still from one look to
        another. A library's own thread that ticks (tqdm's, say) does nothing for the program.
        """
        from harness.core.stuck.diagnose import diagnose

        from ..live import read_file, threads_now

        try:
            threads = threads_now(self._name, {threading.get_ident()})
            found = diagnose(threads, read_file, edges, hung=whole)
            if whole and any(wait.by_itself and not wait.idle for wait in found.waits):
                whole, cycles = False, [finding for finding in found.findings if finding.kind == "cycle"]
                found = diagnose(threads, read_file, edges)
                further = [finding for finding in cycles if finding not in found.findings]
                found = replace(found, findings=(*found.findings, *further))
            return found, whole
        except Exception:  # noqa: BLE001  # a hang is told all the same; the traceback goes to the evidence
            self._evidence("why could not be found out:\n" + traceback.format_exc())
            return None, whole

    def _name(self, ident: int) -> str:
        return self._watched.threads.label_of(ident)

    # a report

    def _report(self, label: str, reason: str, idents: list[int], found: Diagnosis | None = None) -> None:
        watched = self._watched
        self._reports += 1
        if self._reports > MOST_REPORTS or any(one.reason == reason and one.ended_s is None for one in watched.stuck):
            return
        at_s = watched.log.now_ns() / 1e9
        watched.stuck.append(Stuck(label, reason, at_s))
        watched.log.emit(label, f',"why":{json.dumps(reason)}')
        lines = [f"=== {label} at {at_s:.1f} s: {reason}"]
        lines += [
            f"{wait.thread.name} waits for {wait.what}{f': {wait.nobody}' if wait.nobody else ''}"
            for wait in (found.waits if found is not None else ())
        ]
        known = {thread.ident: thread.name for thread in threading.enumerate()}
        lines += [f"Thread 0x{ident:016x} is {name}" for ident, name in known.items()]
        self._evidence("\n".join(lines), stacks=True)
        watched.write()
        partial = watched.folder / "hang.part"
        partial.write_text(json.dumps({"label": label, "reason": reason, "at_s": at_s}) + "\n", encoding="utf-8")
        os.replace(partial, watched.folder / "hang.json")  # the sign for outside: native stacks, a word, perhaps a kill
        if self._stillness is not None:
            self._standing = {ident: self._stillness.place(ident) for ident in idents}

    def _evidence(self, text: str, stacks: bool = False) -> None:
        with open(self._watched.folder / "stacks.txt", "a", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            if stacks:
                faulthandler.dump_traceback(file=file, all_threads=True)

    def _went_on(self, stillness: Stillness, since: dict[int, float]) -> None:
        """A thread of the report that stands has moved: it was slow, or somebody helped."""
        if not self._standing or all(
            ident in since and stillness.place(ident) == place for ident, place in self._standing.items()
        ):
            return
        self._standing = {}
        now_s = self._watched.log.now_ns() / 1e9
        for one in self._watched.stuck:
            if one.ended_s is None:
                one.ended_s = now_s
        self._watched.changed = True
