"""Workloads that end badly, each in one way. A subject imports this file as the user's own module would be."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

from harness.core.workload import Context, Scenario, Worker


class _OneWorker:
    def setup(self, scenario: Scenario, ctx: Context) -> None:
        self.scenario = scenario
        self.ctx = ctx

    def workers(self) -> list[Worker]:
        return [Worker("drafter-0", "drafter", "cpu", self.run)]

    def stop(self) -> None:
        pass

    def run(self) -> None:
        raise AssertionError("a subclass says how it ends")


class Segfault(_OneWorker):
    def run(self) -> None:
        self.ctx.step("drafter-0", tokens=1, loss=1.0)
        ctypes.string_at(0)


class Abort(_OneWorker):
    def run(self) -> None:
        self.ctx.step("drafter-0", tokens=1, loss=1.0)
        os.abort()


class Killed(_OneWorker):
    def run(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Exits(_OneWorker):
    def run(self) -> None:
        os._exit(7)


class WaitsForAFile(_OneWorker):
    """Goes on once the file of its settings is there, so that a test says when it ends."""

    def run(self) -> None:
        until = time.monotonic() + 60.0
        while not os.path.exists(self.ctx.settings["file"]):
            if time.monotonic() > until:
                raise RuntimeError("the file did not come")
            time.sleep(0.005)
        self.ctx.step("drafter-0", tokens=1, loss=1.0)


class FailsInSetup(_OneWorker):
    def setup(self, scenario: Scenario, ctx: Context) -> None:
        raise FileNotFoundError("no such model: planted")


class NoWorkers(_OneWorker):
    def workers(self) -> list[Worker]:
        return None  # type: ignore[return-value]


class FailsInWorkers(_OneWorker):
    def workers(self) -> list[Worker]:
        raise ValueError("planted: no workers today")


class EmptyWorkers(_OneWorker):
    def workers(self) -> list[Worker]:
        return []


class SameName(_OneWorker):
    def workers(self) -> list[Worker]:
        return [Worker("twin", "drafter", "cpu", self.run) for _ in range(2)]


class NoName(_OneWorker):
    def workers(self) -> list[Worker]:
        return [Worker("", "drafter", "cpu", self.run)]


class TakesNoStep(_OneWorker):
    def run(self) -> None:
        with self.ctx.region("step", "drafter-0"):
            pass


class LeavesInSetup(_OneWorker):
    def setup(self, scenario: Scenario, ctx: Context) -> None:
        sys.exit(0)


class InterruptsInSetup(_OneWorker):
    def setup(self, scenario: Scenario, ctx: Context) -> None:
        raise KeyboardInterrupt


class ExitsInSetup(_OneWorker):
    def setup(self, scenario: Scenario, ctx: Context) -> None:
        print("planted: cannot go on", flush=True)
        os._exit(0)


class SegfaultInSetup(_OneWorker):
    def setup(self, scenario: Scenario, ctx: Context) -> None:
        ctypes.string_at(0)


class NeverSetUp(_OneWorker):
    def setup(self, scenario: Scenario, ctx: Context) -> None:
        print("planted: waiting for a port", flush=True)
        threading.Event().wait()


class ExitsWithWords(_OneWorker):
    def run(self) -> None:
        print("planted: the last words", flush=True)
        os._exit(7)


class _Leaves(_OneWorker):
    """One worker leaves in its step as `leave` says; the other waits for it until `stop` is called."""

    leave: type[BaseException] = SystemExit

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        super().setup(scenario, ctx)
        self.stopped = threading.Event()

    def workers(self) -> list[Worker]:
        return [*super().workers(), Worker("drafter-1", "drafter", "cpu", self.wait)]

    def stop(self) -> None:
        self.stopped.set()

    def run(self) -> None:
        with self.ctx.region("step", "drafter-0"):
            raise self.leave

    def wait(self) -> None:
        if self.stopped.wait(60):
            self.ctx.step("drafter-1", tokens=1, loss=1.0)


class LeavesTheWorker(_Leaves):
    pass


class InterruptsTheWorker(_Leaves):
    leave = KeyboardInterrupt


class StopRaises(_Leaves):
    leave = ValueError

    def stop(self) -> None:
        super().stop()
        raise RuntimeError("planted: cannot stop")


class CheckLeaves(_OneWorker):
    def run(self) -> None:
        self.ctx.step("drafter-0", tokens=1, loss=1.0)

    def check(self) -> list[str]:
        sys.exit("planted: from the check")


class OwnLockCycle(_OneWorker):
    """Two threads, each with a lock that the other wants, of which the harness is not told."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        super().setup(scenario, ctx)
        self.locks = threading.Lock(), threading.Lock()
        self.both = threading.Barrier(2)

    def workers(self) -> list[Worker]:
        return [Worker(f"drafter-{i}", "drafter", "cpu", lambda i=i: self.cross(i)) for i in range(2)]  # type: ignore[misc]

    def cross(self, number: int) -> None:
        first, second = self.locks[number], self.locks[1 - number]
        with first:
            self.both.wait(60)
            with second:
                pass


class FailsToImport:
    def __init__(self) -> None:
        import a_module_that_is_not_there  # noqa: F401


class Raises(_OneWorker):
    def run(self) -> None:
        raise ValueError("planted: worker 17 at 0xdeadbeef")


class StepFails(_OneWorker):
    def run(self) -> None:
        try:
            with self.ctx.region("step", "drafter-0"), self.ctx.region("forward", "drafter-0"):
                raise KeyError("planted")
        except KeyError as error:
            self.ctx.step_failed("drafter-0", error)
        self.ctx.step("drafter-0", tokens=3, loss=2.0)


class OutOfMemory(_OneWorker):
    """As torch's allocator says it on a device."""

    def run(self) -> None:
        self.ctx.step("drafter-0", tokens=1, loss=1.0)
        try:
            with self.ctx.region("step", "drafter-0"):
                raise torch_error()
        except RuntimeError as error:
            self.ctx.step_failed("drafter-0", error)


class OutOfHostMemory(_OneWorker):
    """No error is planted: more is asked for than any machine has."""

    def run(self) -> None:
        import torch

        torch.empty(1 << 50)


class OutOfMemoryInSetup(_OneWorker):
    def setup(self, scenario: Scenario, ctx: Context) -> None:
        raise torch_error()


def torch_error() -> RuntimeError:
    import torch

    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB")


class Hangs(_OneWorker):
    def run(self) -> None:
        self.ctx.step("drafter-0", tokens=1, loss=1.0)
        threading.Event().wait()


class HoldsTheInterpreterLock(_OneWorker):
    """A native call that keeps the interpreter lock, so that not even the watchdog runs."""

    def run(self) -> None:
        time.sleep(1.0)  # the watchdog has shown its first sign of life
        ctypes.PyDLL(None).sleep(3600)


class LockCycle:
    """Two workers, the strategy's lock and a barrier: one waits in the barrier holding the lock, one for the lock."""

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        self.ctx = ctx
        self.inside = threading.Event()
        self.never = threading.Event()

    def workers(self) -> list[Worker]:
        return [
            Worker("drafter-0", "drafter", "cpu", self.first),
            Worker("drafter-1", "drafter", "cpu", self.second),
        ]

    def stop(self) -> None:
        self.never.set()

    def first(self) -> None:
        with self.ctx.region("step", "drafter-0"):
            self.inside.set()
            # What a recompute on another thread under a thread-owned lock does: wait for the lock that oneself holds.
            other = threading.Thread(target=self._again, name="recompute")
            other.start()
            other.join()

    def _again(self) -> None:
        with self.ctx.region("step", "drafter-0"):
            pass

    def second(self) -> None:
        self.inside.wait(10)
        with self.ctx.region("step", "drafter-1"):
            pass


class Chatters(_OneWorker):
    def run(self) -> None:
        for _ in range(64):
            sys.stdout.write("x" * 65536)
        sys.stdout.flush()
        self.ctx.step("drafter-0", tokens=1, loss=1.0)


class LeavesAChild(_OneWorker):
    """A grandchild that would sleep for an hour; its pid is a fact of the result."""

    def run(self) -> None:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        self.ctx.fact("drafter-0", "child", child.pid)
        self.ctx.step("drafter-0", tokens=1, loss=1.0)
