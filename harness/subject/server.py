"""Starts subjects for the control side: by a fork of this process, which has torch imported, or as a fresh interpreter.

    python -m harness.subject.server FD [--preload auto|cpu|cuda|none]

FD is one end of a private socket pair. Requests and answers are JSON lines; a request to start carries the write end of
a pipe for the subject's standard output and error. The process stays single-threaded and compiles nothing, so a fork of
it is as good as a fresh interpreter. It ends, and takes every subject with it, when the other end is closed: a control
process that is killed leaves nothing behind.

    → {"op": "start", "trial": ID, "spec": PATH, "how": "fork"|"exec", "env": {...}}   + 1 file descriptor
    → {"op": "kill", "trial": ID}
    ← {"ev": "ready", "torch": VERSION, "fork": true|false, "why": TEXT, "import_s": SECONDS}
    ← {"ev": "started", "trial": ID, "pid": PID}      ← {"ev": "ended", "trial": ID, "status": WAIT STATUS}
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

# What a fork may have imported. Where there is a CUDA device: importing compile_fx leaves a thread of the driver behind
# (torch 2.11), and importing transformers one of an allocator's, so neither is preloaded there.
PRELOAD: dict[str, tuple[str, ...]] = {
    "none": (),
    "cpu": (
        "torch",
        "torch._dynamo",
        "torch._functorch.aot_autograd",
        "torch._inductor.compile_fx",
        "torch.nn.attention.flex_attention",
        "transformers.models.qwen3.modeling_qwen3",
        "harness.pipeline",
        "harness.subject.entry",
    ),
}
PRELOAD["cuda"] = ("torch", "torch._dynamo", "torch._functorch.aot_autograd", "harness.subject.entry")

OPTIONAL = frozenset({"transformers", "safetensors"})
"""What only the DFlash pipeline takes. Where they are missing its trials say so, and others run."""

DEVICE_FILES = Path("/dev")


class Server:
    """The loop: requests from the socket, ends of children from SIGCHLD through a pipe."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._children: dict[int, str] = {}
        self._buffer = b""
        self._fds: list[int] = []
        self._wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the control side's to handle

    def say(self, **message: Any) -> None:
        """One answer; a closed socket ends the server."""
        self._sock.sendall(json.dumps(message).encode() + b"\n")

    def serve(self) -> None:
        """Until the other end closes; then every subject is killed."""
        try:
            while True:
                readable, _, _ = select.select([self._sock.fileno(), self._wake_read], [], [])
                if self._wake_read in readable:
                    os.read(self._wake_read, 4096)
                    self._reap()
                if self._sock.fileno() in readable and not self._receive():
                    return
        except (BrokenPipeError, ConnectionResetError):
            return
        finally:
            for pid in list(self._children):
                _kill_group(pid)

    def _receive(self) -> bool:
        data, fds, _, _ = socket.recv_fds(self._sock, 65536, 8)
        if not data:
            return False
        self._fds += fds
        self._buffer += data
        while b"\n" in self._buffer:
            line, self._buffer = self._buffer.split(b"\n", 1)
            request = json.loads(line)
            if request["op"] == "start":
                self._start(request, self._fds.pop(0))
            elif request["op"] == "kill":
                found = [pid for pid, trial in self._children.items() if trial == request["trial"]]
                for pid in found:
                    _kill_group(pid)
                if not found:  # ended, or never started: the other side may have been interrupted before it knew
                    self.say(ev="ended", trial=request["trial"], status=signal.SIGKILL)
        return True

    def _start(self, request: dict[str, Any], out: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._child(request, out)
        os.close(out)
        # Also done by the child: whoever comes first. It may have gone on to exec already, or be gone.
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)
        self._children[pid] = request["trial"]
        self.say(ev="started", trial=request["trial"], pid=pid)

    def _child(self, request: dict[str, Any], out: int) -> NoReturn:
        code = 70
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            self._sock.close()
            os.close(self._wake_read)
            os.environ.update(request["env"])
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.close(out)
            if request["how"] == "exec":
                arguments = [sys.executable, "-m", "harness.subject", request["spec"]]
                os.execv(sys.executable, arguments)
            entry = importlib.import_module("harness.subject.entry")
            code = entry.run_trial(Path(request["spec"]))
        except BaseException:  # noqa: BLE001  # the traceback goes to the trial's output; the code says that it failed
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        for pid in list(self._children):
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                continue
            _kill_group(pid)  # what the subject left behind; the pid is not reused before it is waited for
            _, status = os.waitpid(pid, 0)
            self.say(ev="ended", trial=self._children.pop(pid), status=status)


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue  # already gone, or the group is not made yet


def preload(kind: str) -> tuple[str, bool, str]:
    """Import what a fork may have; (torch's version, whether a fork is safe, why not). "auto": as the machine is."""
    if kind == "auto":
        kind = "cuda" if _may_have_cuda() else "cpu"
    for name in PRELOAD[kind]:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in OPTIONAL:
                raise
    torch = sys.modules.get("torch")
    version = "" if torch is None else str(torch.__version__)
    if kind == "none":
        return version, False, "nothing was preloaded"
    if running := _other_threads():
        return version, False, f"the preload left threads running: {', '.join(running)}"
    assert torch is not None
    if torch.cuda.is_initialized():
        return version, False, "the preload initialised CUDA"
    if kind == "cuda" and (why := _spoilt_for_cuda()):
        return version, False, why
    return version, True, ""


def _may_have_cuda() -> bool:
    """Whether a GPU's device file is there; in WSL 2 all GPUs share one, which may be of another maker's."""
    return any(DEVICE_FILES.glob("nvidia[0-9]*")) or (DEVICE_FILES / "dxg").exists()


def _other_threads() -> list[str]:
    """Names of the threads of this process but its main one, as the system knows them; [] where it does not say."""
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return []
    others = [task for task in tasks.iterdir() if task.name != str(os.getpid())]
    return [(task / "comm").read_text().strip() for task in others]


def _spoilt_for_cuda() -> str:
    """Why a fork of this process cannot use CUDA; "" when it can. Tried, because no flag of torch's tells."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            torch = importlib.import_module("torch")
            code = 0 if not torch.cuda.is_available() or torch.ones(1, device="cuda").item() == 1.0 else 2
        except BaseException:  # noqa: BLE001  # the traceback goes to the server's log; the code says that it failed
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return "" if status == 0 else "a fork after the preload could not use CUDA (its traceback is above)"


def main(arguments: list[str] | None = None) -> None:
    """Entry point; see the module's text."""
    parser = argparse.ArgumentParser(prog="harness.subject.server")
    parser.add_argument("fd", type=int)
    parser.add_argument("--preload", choices=["auto", *sorted(PRELOAD)], default="auto")
    parsed = parser.parse_args(arguments)
    sock = socket.socket(fileno=parsed.fd)
    os.set_inheritable(parsed.fd, False)
    server = Server(sock)
    began = time.perf_counter()
    version, fork, why = preload(parsed.preload)
    server.say(ev="ready", torch=version, fork=fork, why=why, import_s=time.perf_counter() - began)
    server.serve()
    os._exit(0)  # to take torch's modules down one by one would be the longest wait at the end of a run


if __name__ == "__main__":
    main()
