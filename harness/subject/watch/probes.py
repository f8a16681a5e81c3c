"""The probes of a trial in a program of somebody else's: installed as torch's parts get imported, and never earlier.

Imported only once torch is there. What a trial asks of its scenario is asked here of the threads: who compiled how much
and why, who waited how long, whose settings differ from the main thread's.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from harness.core.scenario import Scenario
from harness.core.waitgraph import Edge
from harness.torch_internals.compile_state import CompileState
from harness.torch_internals.dynamo_config import DynamoSettings, read
from harness.torch_internals.recompiles import Recompiles

from ..points import SILENT
from ..probes.base import MakeProbe, Probe, Quiet, Scope, said
from ..probes.compiling import CompileLockProbe, CompilesProbe
from ..probes.compiling_flag import CompilingFlagProbe
from ..probes.dense import DenseProbe
from ..probes.engine import EngineProbe
from ..probes.fx import STACK_FRAMES, FlagCheckProbe, FxTraceProbe
from .process import Watched
from .threads import OTHERS, sums_now

LONG_NS = 1_000_000_000
MOST_REASONS = 300
LONGEST_REASON = 300


class _FlagCheck(FlagCheckProbe):
    """A collision is recorded as the check refuses, for the program may handle the exception that follows."""

    def __init__(self, scope: Scope, watched: Watched) -> None:
        super().__init__(scope)
        self._watched = watched

    def checked(self, answer: bool) -> None:
        super().checked(answer)
        if not answer:
            return
        thread = self._threads.current()
        others = [found for found in thread.collision or () if found["thread"] != thread.name]
        if thread.tracing or not others:
            return
        if read_settings_quietly().error_on_nested_fx_trace is False:
            who = ", ".join(found["worker"] or found["thread"] for found in others)
            text = f"{thread.worker}: a compiled function ran uncompiled, since {who} was tracing at that moment"
            self._watched.finding("dense", text, key=f"nested {thread.worker}")
            return
        stack = "".join(traceback.format_stack(sys._getframe(2))[-STACK_FRAMES:])
        self._watched.collision(thread, stack, others)


class _Compiles(CompilesProbe):
    """The settings that each thread compiles under are kept, for the comparison with the main thread's."""

    def __init__(self, scope: Scope, account: Account) -> None:
        super().__init__(scope)
        self._account = account

    def compile_start(self, what: str) -> None:
        super().compile_start(what)
        if what == "frame":
            self._account.settings[self._threads.current().worker or OTHERS] = read()


class _CompileLock(CompileLockProbe):
    """With sums of the waits."""

    def compile_lock_wait(self) -> None:
        super().compile_lock_wait()
        thread = self._threads.current()
        thread.lock_began = self._log.now_ns()  # type: ignore[attr-defined]

    def compile_lock_acquired(self) -> None:
        super().compile_lock_acquired()
        thread = self._threads.current()
        began = thread.lock_began  # type: ignore[attr-defined]
        if began:
            thread.lock_began = 0  # type: ignore[attr-defined]
            sums, took = sums_now(thread), self._log.now_ns() - began
            sums.lock_waits += 1
            sums.lock_wait_ns += took
            sums.lock_longest_ns = max(sums.lock_longest_ns, took)


class _Engine(EngineProbe):
    """With sums, and a mark at a run that took long."""

    def __init__(self, scope: Scope, watched: Watched) -> None:
        super().__init__(scope)
        self._mark = watched.log.mark

    def engine_enter(self, roots: Sequence[Any]) -> None:
        super().engine_enter(roots)
        thread = self._threads.current()
        if thread.in_engine == 1:
            thread.engine_began = self._log.now_ns()  # type: ignore[attr-defined]

    def engine_exit(self) -> None:
        super().engine_exit()
        thread = self._threads.current()
        if thread.in_engine:
            return
        sums = sums_now(thread)
        took = self._log.now_ns() - thread.engine_began  # type: ignore[attr-defined]
        sums.engine_runs += 1
        sums.engine_ns += took
        if took > sums.engine_longest_ns:
            sums.engine_longest_ns = took
        if took > LONG_NS:
            self._mark()


class _Steps(Quiet):
    """An optimizer's step is a step of its thread."""

    name = "steps"

    def __init__(self, scope: Scope) -> None:
        self._threads = scope.threads

    def install(self) -> str:
        """Adds a hook that torch has for it."""
        register_optimizer_step_post_hook(self._after)
        return "ok"

    def _after(self, *_: Any) -> None:
        thread = self._threads.current()
        thread.step += 1
        thread.collision = None
        sums_now(thread).steps += 1


class _Reasons(Quiet):
    """Why graphs were compiled again, by worker and function."""

    name = "recompiles"

    def __init__(self, scope: Scope, account: Account) -> None:
        self._threads = scope.threads
        self._log = scope.log
        self._account = account
        self._adapter = Recompiles()

    def install(self) -> str:
        """Wraps the function that finds the guard that failed."""
        return said(self._adapter.install(self))

    def recompiled(self, function: str, reason: str) -> None:
        """On the thread that compiles again."""
        key = (self._threads.current().worker, function, " ".join(reason.split())[:LONGEST_REASON])
        reasons = self._account.reasons
        if key in reasons or len(reasons) < MOST_REASONS:
            reasons[key] = reasons.get(key, 0) + 1
        else:
            self._account.reasons_more += 1
        self._log.emit("recompile")


class _State(Quiet):
    """State of the process that a compile saves and puts back, although another thread changed it meanwhile."""

    name = "compile_state"

    def __init__(self, scope: Scope, watched: Watched) -> None:
        self._threads = scope.threads
        self._watched = watched
        self._adapter = CompileState()

    def install(self) -> str:
        """Wraps what torch calls between saving and putting back."""
        return said(self._adapter.install(self))

    def saving(self) -> None:
        """From here on what others change is undone."""
        self._threads.current().saved_ns = self._watched.log.now_ns()  # type: ignore[attr-defined]

    def undone(self, what: str, before: str, now: str) -> None:
        """About to be put back, on the thread that compiled."""
        threads = self._watched.threads
        since: int = threads.current().saved_ns  # type: ignore[attr-defined]
        if threading.active_count() < 2 and threads.last_end_ns < since:
            return  # nobody else: the compile drew itself, and torch means to undo that
        worker = self._threads.current().worker
        change = f" ({before} before, {now} after)" if before else ""
        text = f"{what} changed while {worker} compiled{change}; the compile put the old state back"
        self._watched.finding("state_leak", text, key=f"{what} {worker}", log=True)


class Account:
    """What the probes above gather besides events and the trial's own counts."""

    def __init__(self) -> None:
        self.reasons: dict[tuple[str, str, str], int] = {}
        self.reasons_more = 0
        self.settings: dict[str, DynamoSettings] = {}


class WatchProbes:
    """Installed in three steps, each at the end of an import: torch, Dynamo, flex attention."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._scope = Scope(watched.log, watched.threads, watched.trial, Scenario(), SILENT)
        self._probes: list[Probe] = []
        self.account = Account()
        self.status: dict[str, str] = {}

    def torch_imported(self) -> None:
        """`import torch` has ended."""
        watched = self._watched
        self._install(lambda scope: _FlagCheck(scope, watched))
        self._install(FxTraceProbe)
        self._install(lambda scope: _Engine(scope, watched))
        self._install(_Steps)

    def dynamo_imported(self) -> None:
        """`import torch._dynamo` has ended: somebody is about to compile."""
        watched, account = self._watched, self.account
        self._install(_CompileLock)
        self._install(lambda scope: _Compiles(scope, account))
        self._install(lambda scope: _Reasons(scope, account))
        self._install(lambda scope: _State(scope, watched))
        self._install(CompilingFlagProbe)

    def flex_imported(self) -> None:
        """The module of `flex_attention` was imported."""
        self._install(DenseProbe)

    def _install(self, make: MakeProbe) -> None:
        probe = make(self._scope)
        try:
            status = probe.install()
        except Exception as error:  # noqa: BLE001  # the program must not fail for our sake: the report says what is unseen
            status = f"unavailable: {type(error).__name__}: {error}"
        self.status[probe.name] = status
        if status == "ok":
            self._probes.append(probe)

    def sample(self) -> None:
        """At both ends of every region."""
        for probe in self._probes:
            probe.sample()

    def edges(self) -> list[Edge]:
        """Who waits for whom, by all probes."""
        return [edge for probe in self._probes for edge in probe.edges()]

    def forked(self) -> None:
        """In the child of a fork: the counts begin anew."""
        self.account.reasons.clear()
        self.account.settings.clear()

    def differing_settings(self) -> dict[str, dict[str, Any]]:
        """Worker → Dynamo settings that it compiled under and that are not those of the calling (main) thread."""
        if not self.account.settings:
            return {}
        mine = vars(read())
        found: dict[str, dict[str, Any]] = {}
        for worker, settings in list(self.account.settings.items()):
            other = {
                name: {"here": mine[name], "there": value}
                for name, value in vars(settings).items()
                if value != mine[name]
            }
            if other:
                found[worker] = other
        return found


def read_settings_quietly() -> DynamoSettings:
    """Dynamo's settings; all unknown where Dynamo is not imported yet, which nothing here may cause."""
    return read() if "torch._dynamo.config" in sys.modules else DynamoSettings()
