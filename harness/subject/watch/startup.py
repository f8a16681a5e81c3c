"""How a watch begins: called by the interpreter's start-up (`sitecustomize`), before the program's first line.

Nothing of torch is imported here; what must wait for torch waits for its import (`imports`).
"""

from __future__ import annotations

import atexit
import faulthandler
import fcntl
import os
import sys
from pathlib import Path

import harness

from ..mapped import HIGH_FD
from . import endings
from .imports import AfterImport
from .process import Watched
from .regions import Regions
from .settings import Settings, clean_environment, read_settings
from .watchdog import WatchDog

_HELPERS = ("multiprocessing.resource_tracker", "torch._inductor.compile_worker", "harness.subject")
"""Processes that libraries start for themselves, and trials, which have probes of their own."""


def begin(file: str) -> None:
    """Watch this process as the settings in `file` say."""
    settings = read_settings(Path(file))
    if not settings.follow:
        clean_environment(settings)
    if any(helper in word for helper in _HELPERS for word in sys.orig_argv):
        return
    _Start(settings)


class _Start:
    """The watch of this process and, with `follow`, of the children that it forks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._watched = Watched(settings, new_folder(settings.run))
        self._dog = WatchDog(self._watched)
        self._stacks = -1
        self._catch_crashes()
        self._wait_for_imports()
        watched = self._watched
        watched.status["threads' exceptions"] = endings.see_threads(watched.caught)
        endings.see_ends(watched.threads.thread_ended)
        endings.see_sudden_ends(watched.ending)
        harness.watch_regions(Regions(watched))
        os.register_at_fork(
            before=self._dog.pause, after_in_parent=self._after_fork_in_parent, after_in_child=self._after_fork_in_child
        )
        # Registered first, so it runs last: after the program's own, and after all threads that Python waits for.
        atexit.register(self._end)
        watched.log.emit("subject.start")
        watched.write()
        self._dog.start()

    def _wait_for_imports(self) -> None:
        hooks = AfterImport()
        hooks.at("torch", self._torch_imported)
        hooks.at("torch._dynamo", self._dynamo_imported)
        hooks.at("torch.nn.attention.flex_attention", self._flex_imported)
        hooks.at("concurrent.futures._base", lambda: endings.see_futures(self._watched.caught))
        hooks.at("multiprocessing.process", self._multiprocessing_imported)
        hooks.at("multiprocessing.popen_fork", lambda: endings.see_signals(self._signalled))
        hooks.install()

    def _multiprocessing_imported(self) -> None:
        self._watched.status["children's exceptions"] = endings.see_children(self._watched.caught)

    def _torch_imported(self) -> None:
        try:
            from .probes import WatchProbes

            self._watched.probes = probes = WatchProbes(self._watched)
        except Exception as error:  # noqa: BLE001  # an odd torch is the program's affair: it runs, unwatched, and the report says so
            self._watched.status["torch"] = f"unavailable: {type(error).__name__}: {error}"
            return
        probes.torch_imported()
        self._watched.changed = True

    def _dynamo_imported(self) -> None:
        if self._watched.probes is not None:
            self._watched.probes.dynamo_imported()

    def _flex_imported(self) -> None:
        if self._watched.probes is not None:
            self._watched.probes.flex_imported()

    def _catch_crashes(self) -> None:
        """Stacks on a fatal signal, unless the program was started with its own faulthandler."""
        if faulthandler.is_enabled():
            self._watched.status["stacks of a crash"] = "off"
            return
        with open(self._watched.folder / "stacks.txt", "a", encoding="utf-8") as file:
            try:
                self._stacks = fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
            except OSError:  # a limit on open files below that
                self._stacks = fcntl.fcntl(file.fileno(), fcntl.F_DUPFD_CLOEXEC, 0)
        # A bare descriptor, open to the very end: a file object would be one that nobody closed, and be warned of.
        faulthandler.enable(file=self._stacks, all_threads=True)

    def _end(self) -> None:
        watched = self._watched
        if os.getpid() != watched.pid:
            return
        self._dog.stop()
        error = endings.last_error()
        if error is not None:
            watched.caught(error, "main")
        watched.ending("exited")
        watched.log.stop()

    def _signalled(self, pid: int, name: str) -> None:
        self._watched.signalled[pid] = name
        self._watched.changed = True

    def _after_fork_in_parent(self) -> None:
        forking = sys._getframe(1)
        if not endings.starts_another(forking):
            self._watched.forked_child()
        self._dog.resume(forking)

    def _after_fork_in_child(self) -> None:
        if self._watched.pid < 0:
            return  # the child of a child that nobody follows
        if self._stacks >= 0:
            faulthandler.disable()
            self._stacks = -1  # not closed: a program that closes all it knows may have put another file there
        if self._settings.follow and not endings.starts_another(sys._getframe(1)):  # else the other program watches itself
            self._watched.signalled.clear()
            self._watched.reborn(new_folder(self._settings.run))
            self._catch_crashes()
            self._dog.reborn()
        else:
            self._watched.stop()
            self._dog.forget()


def new_folder(run: Path) -> Path:
    """A folder for this process below `trials/`, named by its rank and number."""
    rank = os.environ.get("RANK", "")
    base = (f"rank{rank}-" if rank.isdigit() else "") + f"process-{os.getpid()}"
    for number in range(1, 1000):
        folder = run / "trials" / (base if number == 1 else f"{base}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:  # a program that replaced itself by exec, or a number used again
            continue
        return folder
    raise RuntimeError(f"{run}/trials has no room for process {os.getpid()}")


