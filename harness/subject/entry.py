"""One trial, from `spec.json` to `result.json`, in a process that does nothing else."""

from __future__ import annotations

import faulthandler
import json
import platform
import signal
import sys
import threading
import traceback
from functools import partial
from pathlib import Path
from typing import Any

from harness import locks
from harness.core.errors import UserError
from harness.core.plan import STOP_DECIDED
from harness.core.scenario import Scenario
from harness.core.settings import parse_settings
from harness.core.workload import Checks, HasReference, KnowsLimits, Nudges, WarmsUp, Worker, Workload

from . import out_of_memory, result, torch_setup
from .context import TrialContext
from .errorlog import ErrorLog
from .eventlog import EventLog, text
from .identity import Threads
from .nudging import nudge
from .points import Points
from .prctl import ANYBODY, die_with_parent, let_read
from .probes import Probes
from .record import ErrorRecord, Trial
from .schedules import make_schedule
from .schedules.base import Setting
from .standing import DEADLOCK_S
from .stopping import REASON, Stopping
from .watchdog import Watchdog
from .workers import checked_workers
from .workloads import load

_NO_LOCKS = ("thread_local_fx", "process")
"""Values of the axis `lock` whose cure lies elsewhere: in `torch_setup` and in `split`."""

READS = 20
"""How often a result is put together where that meets a change, before the trial dies of it."""

UNSTARTED = locks.make_strategy("none", workers=())


class CannotRunHere(Exception):
    """The workload says that this scenario cannot run on this machine: the trial is skipped, with that reason."""


def run_trial(path: Path) -> int:
    """Run the trial that `path` describes; 0 when its result was written, whatever the outcome."""
    spec = json.loads(path.read_text(encoding="utf-8"))
    return _Run(spec).run()


class _Run:
    """The trial's parts, and the order in which they come and go."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.folder = Path(spec["folder"])
        self.stacks = open(self.folder / "stacks.txt", "w", encoding="utf-8")  # noqa: SIM115  # open to the very end
        faulthandler.enable(file=self.stacks, all_threads=True)
        faulthandler.register(signal.SIGUSR1, file=self.stacks, all_threads=True)
        _allow_evidence_and_die_with_parent()
        self.scenario = Scenario.from_dict(spec["scenario"])
        self.trial = Trial()
        self.threads = Threads()
        self.log = EventLog(self.folder, self.threads)
        self.trial.tell = ErrorLog(self.folder, self.log.start_ns).append
        self.points = Points()
        self.probes = Probes(self.log, self.threads, self.trial, self.points)
        self.context = TrialContext({}, UNSTARTED, self.log, self.threads, self.trial, self.points)
        self.facts: dict[str, Any] = {}
        self.stuck = ("", "")
        self.ran = False  # all workers, to their ends
        self.stopped = False  # before that, since all was known
        wanted = bool(spec["extra"].get(STOP_DECIDED))
        self.stopping = Stopping(wanted, self.points.hopeless, self.threads.failing)
        self._written = threading.Lock()  # held by whoever writes the result: the main thread or the watchdog

    def run(self) -> int:
        """Set up, run, judge, write."""
        self.log.emit("subject.start")
        try:
            workload = self._set_up()
            workers = self._workers(workload)
            strategy = self._strategy(workers)
        except UserError as error:
            return self._finish_unstarted("setup_error", str(error))
        except CannotRunHere as reason:
            return self._finish_unstarted("skipped", str(reason))
        except BaseException as error:  # noqa: BLE001  # sys.exit too: it is the outcome, traceback and all
            label = self._failed(error, "set-up").label
            label = label if label == out_of_memory.LABEL else "setup_error"
            told = "" if isinstance(error, Exception) else ", raised during the set-up"
            return self._finish_unstarted(label, "".join(traceback.format_exception_only(error)).strip() + told)
        self.probes.place({worker.name: worker.device for worker in workers})
        self.context.strategy = strategy
        self.probes.use(strategy)
        self.log.emit("subject.begin")  # who dies from here on died of what it did (harness.control.rows)
        watchdog = Watchdog(
            self.folder,
            self.log,
            self.stacks,
            float(self.spec["hang_timeout_s"]),
            edges=self.probes.edges,
            compiling=self.probes.compiling,
            on_stuck=self._on_stuck,
            deadlock_s=float(self.spec["extra"].get("deadlock_s", DEADLOCK_S)),
            name_of=self.threads.label_of,
            on_look=self.stopping.looked,
        )
        watchdog.start()
        if self.spec["extra"].get("reference"):
            self._run_reference(workload)
        elif self._warm_up(workload):
            self.ran = self._run_workers(workload, workers, strategy)
            self.stopped = not self.ran
            if self.ran:
                self._check(workload)
        watchdog.stop()
        return self._finish()

    # the parts

    def _set_up(self) -> Workload:
        settings = self.spec["pipeline"]
        if self.scenario.workload == "dflash":  # another workload's keys are its own
            settings = parse_settings(settings, file=str(self.folder / "spec.json")).to_dict()
        self.context.settings = settings
        workload = self._workload()
        reason = workload.unsupported(self.scenario) if isinstance(workload, KnowsLimits) else ""
        if self.spec["extra"].get("reference") and not isinstance(workload, HasReference):
            reason = f'workload "{self.scenario.workload}" has no serial reference'
        if reason:
            raise CannotRunHere(reason)
        self._use_schedule()
        self.probes.install(self.scenario, enabled=bool(self.spec["probes"]))
        self.facts["torch"] = torch_setup.prepare(self.scenario)
        (self.folder / "ready").touch()
        self.log.emit("subject.ready")
        workload.setup(self.scenario, self.context)
        if self.spec["probes"]:
            self.probes.begin()
            self.context.sample = self.probes.sample
            self.context.stepped = self.probes.stepped
        return workload

    def _workers(self, workload: Workload) -> list[Worker]:
        """Those of the workload, with a tally each. Raises TypeError: they cannot be used."""
        workers = checked_workers(workload, self.scenario.workload)
        for worker in workers:
            self.trial.tally(worker.name, worker.role)
        return workers

    def _strategy(self, workers: list[Worker]) -> locks.Strategy:
        """What the axis `lock` says, for those who take steps through regions: a target has none. Raises ValueError."""
        return locks.make_strategy(
            "none" if self.scenario.lock in _NO_LOCKS else self.scenario.lock,
            workers=[w.name for w in workers if w.role == "drafter"] or [w.name for w in workers],
            owner=self.scenario.lock_owner,
            observer=self._lock_event,
            warn=False,  # the row of the trial says it (harness.control.rows)
        )

    def _workload(self) -> Workload:
        """As the axis says; the DFlash pipeline under `lock = "process"` comes in two halves (`split`)."""
        if self.scenario.workload == "dflash":
            if "drafter" in self.spec["extra"] or self.scenario.lock == "process":
                from .split import OneDrafter, SplitPipeline  # with transformers, which a fork must not have everywhere

                return OneDrafter(self.spec) if "drafter" in self.spec["extra"] else SplitPipeline(self.spec)
        elif self.scenario.lock == "process":
            raise CannotRunHere(f'lock=process: workload "{self.scenario.workload}" cannot be split into processes')
        return load(self.scenario.workload)

    def _use_schedule(self) -> None:
        facts = {"scenario": self.scenario.to_dict(), "pipeline": self.spec["pipeline"]}
        schedule = make_schedule(
            self.scenario.schedule,
            Setting(self.spec["extra"], self.threads, self.folder, self.log.now_ns, facts),
        )
        if schedule is not None:
            self.points.connect(schedule, self.threads)

    def _warm_up(self, workload: Workload) -> bool:
        if self.scenario.warmup == "none" or not isinstance(workload, WarmsUp):
            return True
        try:
            workload.warm_up(self.scenario.warmup)
        except BaseException as error:  # noqa: BLE001  # recorded with its traceback; the trial ends
            self._failed(error, "warm-up")
            return False
        return True

    def _run_reference(self, workload: Workload) -> None:
        """One drafter at a time, on this thread: what the losses are when nobody can disturb anybody."""
        assert isinstance(workload, HasReference)
        nudged = self.spec["extra"].get("nudged")
        if nudged:
            self.context.fact("", "nudged", isinstance(workload, Nudges))
        try:
            if nudged and isinstance(workload, Nudges):
                workload.nudge(partial(nudge, seed=int(nudged), moved={}))
            workload.reference(self.scenario)
        except BaseException as error:  # noqa: BLE001  # recorded with its traceback; the reference is then unavailable
            self._failed(error, "reference")

    def _run_workers(self, workload: Workload, workers: list[Worker], strategy: locks.Strategy) -> bool:
        """Whether they came to their ends."""
        threads = [
            threading.Thread(target=self._work, args=(worker, workload, strategy), name=worker.name)
            for worker in workers
        ]
        self.points.begin({worker.name: worker.role for worker in workers})
        for thread in threads:
            thread.start()
        return self.stopping.join(threads)

    def _work(self, worker: Worker, workload: Workload, strategy: locks.Strategy) -> None:
        thread = self.threads.current()
        thread.worker = worker.name
        self.log.emit("worker.start", f',"role":{text(str(worker.role))}')
        self.points.started(thread)
        try:
            torch_setup.apply_to_worker(self.scenario)
            worker.run()
        except BaseException as error:  # noqa: BLE001  # sys.exit too: it is an outcome, with its traceback
            try:
                self.trial.error(error, thread, worker.name, self.log.now_ns())
            finally:
                self._stop(workload, worker)  # it did not end by the workload's own rules: nobody may wait for it
        finally:
            thread.failing = False  # what it was is told by now
            self.trial.tally(worker.name).ended_ns = self.log.emit("worker.end")
            strategy.worker_done(worker.name)
            self.points.ended(thread)

    def _stop(self, workload: Workload, worker: Worker) -> None:
        try:
            workload.stop()
        except BaseException as error:  # noqa: BLE001  # it comes beside what ended the worker, and must not hide it
            traceback.print_exc()  # into the trial's output
            told = "".join(traceback.format_exception_only(error)).strip()
            problem = f"stop() of the workload, called since {worker.name} had ended early, raised {told}"
            self.trial.problems.append((self.log.now_ns(), "error", problem))

    def _check(self, workload: Workload) -> None:
        try:
            found = workload.check() if isinstance(workload, Checks) else ()
            for problem in [found] if isinstance(found, str) else found or ():
                self.trial.problems.append((self.log.now_ns(), "error", problem))
        except BaseException as error:  # noqa: BLE001  # recorded with its traceback, beside what the workers did
            self._failed(error, "check")
        for label, problem in self.probes.after():
            self.trial.problems.append((self.log.now_ns(), label, problem))

    def _failed(self, error: BaseException, stage: str) -> ErrorRecord:
        return self.trial.error(error, self.threads.current(), "", self.log.now_ns(), stage)

    def _lock_event(self, event: str, lock: str, worker: str) -> None:
        self.probes.lock_event(event, lock, worker)

    # the end

    def _on_stuck(self, label: str, reason: str) -> None:
        with self._written:
            self.stuck = (label, reason)
            self._write()

    def _finish_unstarted(self, label: str, reason: str) -> int:
        with self._written:
            document = self._document()
            if label == out_of_memory.LABEL:  # it has said the peak
                reason = f"{document['reason']}: {reason}"
            document.update(outcomes=[label], outcome=label, reason=reason)
            self.log.close()
            result.write(self.folder, document)
        return 0

    def _finish(self) -> int:
        with self._written:
            if not self.stuck[0]:
                self.log.emit("subject.end")
                if not self.stopped:  # else workers still tell of themselves: the events are sorted once they are gone
                    self.log.close()
                self._write()
        return 0

    def _document(self) -> dict[str, Any]:
        torch = sys.modules.get("torch")
        schedule = self.points.finish()
        memory = out_of_memory.highest([self.probes.memory(), *(t.peaks for t in self.trial.workers.values())])
        return result.build(
            self.trial,
            self.scenario,
            stuck=self.stuck,
            ran=self.ran,
            stopped=REASON if self.stopped else "",
            probes=self.probes.status,
            extra={
                "locks": self.probes.locks(),
                **({"memory": memory} if memory else {}),
                "dropped_events": dict(self.log.dropped),
                **({"schedule": schedule} if schedule else {}),
                "facts": {
                    "clock_start_ns": self.log.start_ns,
                    **self.facts,
                    **self.context.usage(),
                    **self.context.facts,
                },
            },
            torch_version="" if torch is None else str(torch.__version__),
        )

    def _write(self) -> None:
        """Of a trial that is stuck, or was stopped, workers go on: what grows while it is read is read again."""
        for left in reversed(range(READS)):
            try:
                result.write(self.folder, self._document())
                return
            except RuntimeError:  # a dictionary changed its size
                if not left:
                    raise


def _allow_evidence_and_die_with_parent() -> None:
    """On Linux: let py-spy of another process read this one, and go when the start server goes."""
    if platform.system() != "Linux":
        return
    let_read(ANYBODY)
    die_with_parent()


