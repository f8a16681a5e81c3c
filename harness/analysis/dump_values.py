"""What a dump is made of: frames, threads, exceptions. All stacks are outermost first, whatever the text had."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass

_OBSERVER = re.compile(r"(?:^|/)harness/(?:torch_internals/|subject/(?!programs/))")


@dataclass(frozen=True)
class Frame:
    """One call. `file` as the text had it, with "/" for "\\"; `line` None where it had none (native code)."""

    function: str
    file: str
    line: int | None = None

    @property
    def is_python(self) -> bool:
        """It is no native code, as py-spy and gdb show too."""
        return self.line is not None and self.file.endswith((".py", ">", ".pyc"))

    @property
    def is_observer(self) -> bool:
        """It is one of the harness' own probes, which stand between the program and torch."""
        return _OBSERVER.search(self.file) is not None

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where} in {self.function}" if self.function else where


@dataclass(frozen=True)
class DumpThread:
    """One thread of a process, as it stood.

    name       "" where the text has none (faulthandler before Python 3.14)
    ident      as Python's threading gives it; native_id: the system's; None where the text has none
    state      py-spy's: "idle", "active", "active+gil"; "current" for faulthandler's current thread; else ""
    frames     outermost first
    cut_outer  the text says, or it can be seen, that outer frames are missing
    cut_inner  the text says that inner frames are missing
    dump       number of the dump in the text; threads of different dumps (two looks at one process, two processes)
               say nothing of each other
    """

    name: str = ""
    ident: int | None = None
    native_id: int | None = None
    state: str = ""
    frames: tuple[Frame, ...] = ()
    cut_outer: bool = False
    cut_inner: bool = False
    dump: int = 0

    def __str__(self) -> str:
        number = self.native_id if self.native_id is not None else self.ident
        shown = "" if number is None else f" {number}" if number < 1 << 32 else f" {number:#x}"
        return f"Thread{shown}" + (f' "{self.name}"' if self.name else "")


@dataclass(frozen=True)
class Raised:
    """One exception, or one fatal error of the interpreter.

    type     as printed, with its module: "torch._dynamo.exc.BackendCompilerFailed"; "" where only a message is there
    message  may have several lines
    frames   of its traceback, outermost first; () where there is none
    thread   name of the thread that raised, "" where the text does not say
    meanwhile  threads that were inside an FX trace at that moment, where a trial of the harness saw them
    """

    type: str
    message: str
    frames: tuple[Frame, ...] = ()
    thread: str = ""
    cut_outer: bool = False
    meanwhile: tuple[DumpThread, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """"Type: message" with and without the type's module; the type alone where there is no message."""
        names = dict.fromkeys((self.type, self.type.rsplit(".", 1)[-1]))
        if not self.type:
            return (self.message,)
        return tuple(f"{name}: {self.message}" if self.message else name for name in names)


@dataclass(frozen=True)
class Dump:
    """All that was found in a text, in its order."""

    threads: tuple[DumpThread, ...] = ()
    exceptions: tuple[Raised, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.threads or self.exceptions)


LOCK = "<lock>"
"""Function of a frame that stands for a native wait for a lock."""


def waiting_for_locks(threads: Sequence[DumpThread], idents: Container[int | None]) -> tuple[DumpThread, ...]:
    """The threads, those of `idents` with a wait for a lock as their innermost frame.

    For what a look at the process told: native frames of an interpreter without symbols do not tell it.
    """
    return tuple(
        dataclasses.replace(thread, frames=(*thread.frames, Frame(LOCK, ""))) if thread.ident in idents else thread
        for thread in threads
    )


ROOTS = ("_bootstrap", "<module>", "_run_module_as_main", "main_thread", "thread_run")
"""Functions that a whole stack of Python begins with."""
