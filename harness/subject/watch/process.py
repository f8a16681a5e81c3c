"""One watched process: its folder, its account, and the moments at which that is written.

`result.json` is written whenever something was found, at most once a second, and at the end; so a process that is killed
leaves an account that is a second old at most, and its events, which are in a mapped file, whole. `final` says whether
the process wrote it as its last word.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import time
import traceback
from _thread import allocate_lock
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.causes import MOST_ERRORS, mark_consequences
from harness.core.interpreter_words import program_name
from harness.core.outcome import is_failure, primary

from ..classify import FX_ERROR, classify, torch_frame
from ..identity import Thread
from ..record import ErrorRecord, Trial
from .log import WatchLog
from .settings import Settings
from .threads import WatchedThreads, fit

if TYPE_CHECKING:
    from .probes import WatchProbes

WRITTEN_AT_ONCE = 16
"""Errors that ended a thread, after each of which the account is written; a program may have thousands."""
UNWRITTEN = "unwritten.txt"
MOST_FINDINGS = 200
MOST_COLLISIONS = 50  # kept with their stacks; more are counted
CONTROL_FLOW = (StopIteration, StopAsyncIteration)


@dataclass
class Finding:
    """Something wrong that raised nothing: its first occurrence, and how often it came."""

    label: str
    text: str
    at_ns: int
    count: int = 1


@dataclass
class Stuck:
    """A deadlock or hang. `ended_s`: when something moved again; None while it stands. Seconds since the start."""

    label: str
    reason: str
    at_s: float
    ended_s: float | None = None


class Watched:
    """Everything that is known of this process. `probes` comes with torch."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.pid = os.getpid()
        self.threads = WatchedThreads()
        self.trial = Trial()
        self.log = WatchLog(folder, self.threads)
        self.threads.now_ns = self.log.now_ns
        self.probes: WatchProbes | None = None
        self.status: dict[str, str] = {}  # of what is watched besides torch
        self.stuck: list[Stuck] = []
        self.signalled: dict[int, str] = {}  # children of multiprocessing that the program ended by a signal
        self.changed = True
        self.how = "running"
        self._findings: dict[str, Finding] = {}
        self._collisions = 0
        self._children = 0
        self._writing = allocate_lock()
        self._ended = False
        self._describe()

    def _describe(self) -> None:
        found = {
            "schema": 1,
            "pid": self.pid,
            "parent": os.getppid(),
            "program": program_name(sys.orig_argv or [sys.executable])[:100],
            "rank": os.environ.get("RANK", ""),
            "executable": sys.executable,
            "python": platform.python_version(),
            "began": time.time(),
        }
        (self.folder / "process.json").write_text(json.dumps(found) + "\n", encoding="utf-8")

    # what probes and hooks find

    def sample(self) -> None:
        """At both ends of every region."""
        if self.probes is not None:
            self.probes.sample()

    def finding(self, label: str, text: str, key: str, log: bool = False) -> None:
        """Record it, or that it came again."""
        found = self._findings.get(key)
        if found is not None:
            found.count += 1
        elif len(self._findings) < MOST_FINDINGS:
            self._findings[key] = Finding(label, text, self.log.now_ns())
            log = True
        if log:
            self.log.emit("finding", f',"label":"{label}"')
        self.changed = True

    def collision(self, thread: Thread, stack: str, tracers: list[dict[str, str]]) -> None:
        """A compiled call of `thread` was refused since `tracers` were inside a trace."""
        self._collisions += 1
        self.changed = True
        if self._collisions > MOST_COLLISIONS or len(self.trial.errors) >= MOST_ERRORS:
            return
        self.trial.errors.append(
            ErrorRecord(
                label="fx_error",
                type="RuntimeError",
                message=f"{FX_ERROR} a dynamo-optimized function. This is not supported at the moment.",
                fingerprint="refused by a compiled callable while another thread was tracing",
                worker=thread.worker,
                thread=thread.name,
                region=thread.region,
                step=thread.step,
                at_ns=self.log.now_ns(),
                traceback=stack,
                tracers=tracers,
            )
        )

    def caught(self, error: BaseException, where: str, region: str = "") -> None:
        """An exception was seen: one that ended the main thread ("main") or a "thread", or that somebody may yet handle.

        Of the latter (seen as it left a "region", or was kept by a "future") only what concerns torch is recorded.
        """
        if self.pid < 0:
            return  # a child that nobody follows: the account is its parent's
        try:
            self._caught(error, where, region)
        except Exception as ours:  # noqa: BLE001  # an exception whose text raises, say: the program is not to hear of it
            self.status["errors"] = f"unavailable: one could not be recorded: {type(ours).__name__}"

    def _caught(self, error: BaseException, where: str, region: str) -> None:
        if isinstance(error, CONTROL_FLOW) or getattr(error, "_harness_seen", False):
            return
        final = where in ("main", "thread")
        fault = classify(error)
        if not final and fault.label == "error" and not torch_frame(error):
            return
        try:
            error._harness_seen = True  # type: ignore[attr-defined]
            error._harness_region = region  # type: ignore[attr-defined]
        except AttributeError:  # a type with __slots__: it may be counted twice
            region = ""
        self.changed = True
        thread = self.threads.current()
        told = next((one for one in reversed(self.trial.errors) if one.thread == thread.name), None)
        if fault.label == "fx_error" and told is not None and told.label == "fx_error" and told.tracers:
            if not told.fingerprint.startswith("refused"):
                return
            told.fingerprint = fault.fingerprint  # the same, told as its check said so: now it has its own traceback
            told.traceback = "".join(traceback.format_exception(error))
            told.message = fault.message
            return
        record = self.trial.error(error, thread, thread.worker, self.log.now_ns())
        self.log.emit("error", f',"label":"{record.label}","error":"{fit(record.type)}","seen":"{where}"')
        if where == "thread" and len(self.trial.errors) <= WRITTEN_AT_ONCE:
            self.write()  # a process may crash for it before the next regular account

    def forked_child(self) -> None:
        """In the parent: it has a child more."""
        self._children += 1

    @property
    def fx_errors(self) -> int:
        """Refused calls and FX errors of any origin, also those that are no longer recorded one by one."""
        return max(self._collisions, sum(1 for one in list(self.trial.errors) if one.label == "fx_error"))

    # the account

    def document(self) -> dict[str, Any]:
        """The process as its row will have it.

        Imports nothing: that would run code, and after a Ctrl-C cost the program its end by SIGINT.
        """
        trial, probes = self.trial, self.probes
        if trial.errors:
            mark_consequences(trial.errors)
        workers = {name: tally.as_json() for name, tally in sorted(trial.workers.copy().items())}
        sums = dict(self.threads.sums)
        for name, one in sums.items():
            if name and (name in workers or one.engine_runs or one.steps or one.regions or one.lock_waits):
                known = workers.setdefault(name, {"role": "thread", "compiles": 0, "dense_calls": 0, "facts": {}})
                known["role"] = known["role"] or "thread"
                known["steps_ok"] = one.steps
                known["facts"] = {**known["facts"], "sums": _seconds(vars(one))}
        dense = sum(tally.dense_calls for tally in list(trial.workers.values())) + trial.other_dense_calls
        compiles = sum(tally.compiles for tally in list(trial.workers.values())) + trial.other_compiles
        problems = [
            {"label": one.label, "text": one.text + (f" ({one.count} times)" if one.count > 1 else "")}
            for one in list(self._findings.values())
        ]
        torch = sys.modules.get("torch")
        return {
            "schema": 1,
            "how": self.how,
            "final": self._ended,
            "outcomes": (labels := self._labels(dense, compiles)),
            "outcome": primary(labels),
            "reason": "; ".join(one.reason for one in self.stuck[-1:] if one.ended_s is None),
            "fx_errors": self.fx_errors,
            "dense_calls": dense,
            "compiles": compiles,
            "startup_s": None,
            "tokens_per_s": None,
            "steps_ok": sum(one.steps for one in sums.values()),
            "steps_failed": 0,
            "steps_expected": 0,
            "errors": [error.as_json() for error in list(trial.errors)],
            "errors_dropped": trial.errors_dropped + max(0, self._collisions - MOST_COLLISIONS),
            "problems": problems,
            "workers": workers,
            "probes": {**self.status, **({} if probes is None else probes.status)},
            "torch": "" if torch is None else str(getattr(torch, "__version__", "")),
            "python": platform.python_version(),
            "facts": {
                "torch_imported": torch is not None and hasattr(torch, "nn"),
                "dynamo_imported": "torch._dynamo" in sys.modules,
                "children_unseen": 0 if self.settings.follow else self._children,
                "signalled": self.signalled.copy(),
                "lived_s": self.log.now_ns() / 1e9,
                "events": self.log.account(),
                "stuck": [vars(one) for one in self.stuck],
                "other_dense_calls": trial.other_dense_calls,
                **({} if probes is None else self._why(probes)),
            },
        }

    def _why(self, probes: WatchProbes) -> dict[str, Any]:
        account = probes.account
        reasons = sorted(account.reasons.items(), key=lambda pair: -pair[1])
        return {
            "recompiles": [
                {"worker": worker, "function": function, "reason": reason, "count": count}
                for (worker, function, reason), count in reasons
            ],
            "recompiles_more": account.reasons_more,
            "settings": probes.differing_settings() if self._ended else {},
        }

    def _labels(self, dense: int, compiles: int) -> list[str]:
        trial = self.trial
        found = [(error.at_ns, error.label) for error in trial.errors if not error.consequence]
        found += [(one.at_ns, one.label) for one in self._findings.values() if is_failure(one.label)]
        if dense and compiles:  # where nothing is compiled, to run dense is what was asked for
            found.append((trial.first_dense_ns or 0, "dense"))
        labels = list(dict.fromkeys(label for _, label in sorted(found)))
        labels += [one.label for one in self.stuck if one.ended_s is None and one.label not in labels]
        return labels or ["ok"]

    def write(self) -> None:
        """The account as of now. Never raises: a full disk, or a fault of ours, is not to end the program."""
        if not self._writing.acquire(timeout=2.0):
            return
        try:
            self.changed = False
            text = self._text()
            partial = self.folder / "result.part"
            partial.write_text(text + "\n", encoding="utf-8")
            os.replace(partial, self.folder / "result.json")
        except Exception:  # noqa: BLE001  # told beside the account, if the disk lets us
            with contextlib.suppress(OSError):
                (self.folder / UNWRITTEN).write_text(traceback.format_exc(), encoding="utf-8")
        finally:
            self._writing.release()

    def _text(self) -> str:
        """One line: the encoder that indents is slow, and this runs beside the program."""
        for attempt in range(5):
            try:
                return json.dumps(self.document(), default=str)
            except RuntimeError:  # a thread added to a dictionary meanwhile
                if attempt == 4:
                    raise
        raise AssertionError

    def ending(self, how: str) -> None:
        """The process is about to end: "exited", or suddenly by "os._exit" or "exec"."""
        if os.getpid() != self.pid or (self._ended and how == "exited"):
            return
        self.how, self._ended = how, True
        self.log.emit("subject.end", f',"how":"{how}"')
        self.write()
        if how == "exec":  # which may fail, and the program goes on
            self.how, self._ended = "running", False

    # forks

    def stop(self) -> None:
        """In a child that nobody follows: silent from here on."""
        self.pid = -1
        self.log.stop()

    def reborn(self, folder: Path) -> None:
        """In a child that is followed: an account of its own, in this folder."""
        self.pid = os.getpid()
        self.folder = folder
        self._writing = allocate_lock()
        self.threads.forked()
        self.log.reopen(folder)
        self.trial.reset()
        self._findings.clear()
        self.stuck.clear()
        self._collisions = self._children = 0
        self.how, self._ended, self.changed = "running", False, True
        if self.probes is not None:
            self.probes.forked()
        self._describe()
        self.log.emit("subject.start")


def _seconds(sums: dict[str, Any]) -> dict[str, Any]:
    """Nanoseconds as seconds."""
    return {
        (name.removesuffix("_ns") + "_s" if name.endswith("_ns") else name): (
            round(value / 1e9, 6) if name.endswith("_ns") else dict(value) if isinstance(value, dict) else value
        )
        for name, value in sums.items()
    }
