"""The stacks of another process, by py-spy, as `harness.core.stuck` sees them. Nothing is asked of the process."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.control.evidence import pyspy
from harness.control.process_memory import Memory
from harness.control.processes import state_of
from harness.core.stuck.cpu import asleep, cpu_ns
from harness.core.stuck.source import Sources
from harness.core.stuck.views import Frame, ThreadView, Value
from harness.core.stuck.waits import machinery

BETWEEN_LOOKS_S = 0.3
GONE = "the process has gone"
NO_PYTHON = "it is no Python process"
Raw = list[dict[str, Any]]
Run = Callable[[Sequence[str], float], "tuple[int, str, str]"]
"""Runs a command within so many seconds: (exit status, standard output, standard error)."""


class NoStacks(Exception):
    """py-spy gave none; the message says why and what to do."""


@dataclass(frozen=True)
class Stacks:
    """All threads, seen twice. `raw`: py-spy's account, with native frames if they may be read. `note`: what is missing
    and why; "" when nothing is."""

    threads: tuple[ThreadView, ...]
    raw: Raw
    note: str = ""


@dataclass(frozen=True)
class Remote:
    """An object of another process: its address, or the path of names to it, and what py-spy printed of it."""

    at: Hashable
    printed: str = ""
    memory: Memory | None = None

    @property
    def key(self) -> Hashable:
        """Its address (an int), or the path."""
        return self.at

    @property
    def kind(self) -> str:
        """`_thread.lock` of `<_thread.lock at 0x7f…>`; "" of what is known by a path alone."""
        if self.printed.startswith("<") and " at " in self.printed:
            return self.printed[1:].split(" at ")[0]
        if self.printed.lstrip("-")[:1].isdigit():
            return "int" if self.printed.lstrip("-").isdigit() else "float"
        return {"N": "NoneType", '"': "str", "'": "str", "T": "bool", "F": "bool"}.get(self.printed[:1], "")

    def attribute(self, name: str) -> Remote | None:
        """The object itself where memory tells; else by the path."""
        if isinstance(self.at, tuple) and self.at[0] == "module":
            return Remote(("global", self.at[1], name), memory=self.memory)
        found = self.memory.attribute(self.at, name) if self.memory is not None and isinstance(self.at, int) else None
        return Remote(("attribute", self.at, name), memory=self.memory) if found is None else self._object(found)

    def item(self, index: Value) -> Remote | None:
        """Likewise, for an index that was printed or is a constant."""
        text = index.fact("text")
        if text is None:
            return None
        if self.memory is not None and isinstance(self.at, int) and str(text).isdigit():
            found = self.memory.list_item(self.at, int(text))
            if found is not None:
                return self._object(found)
        return Remote(("item", self.at, text), memory=self.memory)

    def _object(self, address: int) -> Remote:
        assert self.memory is not None
        kind = self.memory.type_name(address)
        return Remote(address, f"<{kind} at {address:#x}>" if kind else "", self.memory)

    def fact(self, name: str) -> Any:
        """`text`: as printed, of what is no object with an address. The others where memory tells."""
        if name == "text":
            return self.printed if self.printed and not self.printed.startswith("<") else None
        if self.memory is None or not isinstance(self.at, int):
            return None
        if name == "owner":
            lock = self.memory.attribute(self.at, "_lock") if self.kind == "Condition" else self.at
            return self.memory.owner(lock) if lock is not None else None
        inside = {"parties": "_parties", "ident": "_ident", "name": "name"}.get(name)
        found = self.memory.attribute(self.at, inside) if inside is not None else None
        if found is None:
            return None
        return self.memory.text(found) if name == "name" else self.memory.number(found)


def take(
    pid: int, *, native: bool, timeout_s: float, stopped: bool = False, memory: Memory | None = None, run: Run | None = None
) -> Stacks:
    """Two looks at a process, `BETWEEN_LOOKS_S` apart. One that is stopped cannot be paused, and need not. NoStacks."""
    run = run or _run
    flags = ["--locals", *(["--nonblocking"] if stopped else [])]
    first = _dump(pid, flags, timeout_s, run)
    native_ids = [raw.get("os_thread_id") for raw in first]
    began, used = time.monotonic(), cpu_ns(pid, native_ids)
    time.sleep(BETWEEN_LOOKS_S)
    using, seconds = cpu_ns(pid, native_ids), time.monotonic() - began
    second = _dump(pid, flags, timeout_s, run)
    notes = []
    above: dict[int, tuple[str, ...]] = {}
    whole = second
    if native and not stopped:
        try:
            whole = _dump(pid, ["--native"], timeout_s, run)
            above = {int(raw["thread_id"]): _native_frames(raw) for raw in whole}
        except NoStacks as error:
            notes.append(f"no native frames: {error}")
    before = {int(raw["thread_id"]): _place(raw) for raw in first}
    sources = Sources(reader(pid))
    memory = memory if memory is not None and fits(memory, second) else None
    threads = [
        replace(
            view(raw, sources, memory, native_name(pid, raw.get("os_thread_id"))),
            native=above.get(int(raw["thread_id"]), ()),
            still=before.get(int(raw["thread_id"])) == _place(raw),
            asleep=asleep(used, using, raw.get("os_thread_id"), seconds),
        )
        for raw in second
    ]
    return Stacks(tuple(_names_told_apart(threads)), whole, "; ".join(notes))


def fits(memory: Memory, raw: Raw) -> bool:
    """Whether memory is laid out as supposed: every object that py-spy printed has the type that it says."""
    for thread in raw:
        for frame in thread["frames"]:
            for local in frame.get("locals") or ():
                printed = Remote(int(local["addr"]), str(local.get("repr") or ""))
                if printed.printed.startswith("<") and memory.type_name(int(local["addr"])) != printed.kind.rsplit(".")[-1]:
                    return False
    return True


def native_name(pid: int, native_id: int | None) -> str:
    """What a thread that Python gave no name is called by the library that began it (`pt_autograd_0`); "" where that is only
    the program's own name."""
    try:
        own = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
        name = Path(f"/proc/{pid}/task/{native_id}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # it has ended, or is another user's
        return ""
    return "" if name == own else name


def view(
    raw: Mapping[str, Any], sources: Sources, memory: Memory | None = None, named: str = ""
) -> ThreadView:
    """A thread of py-spy's JSON. `named`: what to call it where Python has no name for it."""
    ident = int(raw["thread_id"])
    return ThreadView(
        raw.get("thread_name") or named or f"thread {raw.get('os_thread_id') or ident}",
        ident,
        [_frame(frame, sources, memory) for frame in raw["frames"] if not frame.get("module")],
        owns_gil=raw.get("owns_gil"),
    )


def reader(pid: int) -> Callable[[str], str | None]:
    """Source files as the process names them, also where it has another root or a relative path."""

    def read(file: str) -> str | None:
        for path in (Path(f"/proc/{pid}/root{file}"), Path(f"/proc/{pid}/cwd") / file, Path(file)):
            try:
                return path.read_text(encoding="utf-8", errors="replace")
            except (OSError, ValueError):
                continue
        return None

    return read


def _frame(raw: Mapping[str, Any], sources: Sources, memory: Memory | None) -> Frame:
    file = str(raw["filename"])
    shown = {
        str(local["name"]): Remote(int(local["addr"]), str(local.get("repr") or ""), memory)
        for local in raw["locals"] or ()
    }

    def look(name: str) -> Value | None:
        imported = sources.imported(file, name)
        local = shown.get(name)
        if imported is not None and (local is None or local.kind != "NoneType"):
            module, original = imported
            stem = module.rsplit(".", 1)[-1]
            return Remote(("global", stem, original) if original else ("module", stem), memory=memory)
        if local is not None and not local.printed.startswith("<cell"):
            return local
        return Remote(("global", _stem(file), name), memory=memory)

    return Frame(str(raw["name"]), file, int(raw["line"]), look)


def _stem(file: str) -> str:
    path = Path(file)
    return path.parent.name if path.stem == "__init__" else path.stem


def _names_told_apart(threads: Sequence[ThreadView]) -> list[ThreadView]:
    names = [thread.name for thread in threads]
    return [
        replace(thread, name=f"{thread.name} ({thread.ident})") if names.count(thread.name) > 1 else thread
        for thread in threads
    ]


def _place(raw: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Where a thread is in code other than that of locks and queues, which a wait that polls leaves and enters."""
    frames = [frame for frame in raw["frames"] if not frame.get("module")]
    while frames and machinery(str(frames[0]["filename"])):
        frames.pop(0)
    return tuple((str(frame["name"]), int(frame["line"])) for frame in frames)


def _native_frames(raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of native frames above the innermost Python frame, without bare addresses."""
    found = []
    for frame in raw["frames"]:
        if not frame.get("module"):
            break
        if not str(frame["name"]).startswith("0x"):
            found.append(str(frame["name"]))
    return tuple(found)


def _dump(pid: int, flags: Sequence[str], timeout_s: float, run: Run) -> Raw:
    program = pyspy()
    if program is None:
        raise NoStacks("py-spy is not installed; python -m pip install py-spy")
    status, out, err = run([program, "dump", "--pid", str(pid), "--json", *flags], timeout_s)
    if status == 0:
        found: Raw = json.loads(out)
        return found
    why = reason(err or out)
    if why == GONE and state_of(pid) not in ("", "Z", "X"):  # without a file that it executes: a thread of the kernel, say
        why = NO_PYTHON
    raise NoStacks(why)


def _run(command: Sequence[str], timeout_s: float) -> tuple[int, str, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return 1, "", f"no answer within {timeout_s:g} s"
    return done.returncode, done.stdout, done.stderr


def reason(said: str) -> str:
    """What py-spy's complaint means, in one line."""
    low = said.lower()
    if "permission denied" in low or "operation not permitted" in low or "eperm" in low:
        return "not permitted to read the process; run as its user, or with sudo (in a container: --cap-add SYS_PTRACE)"
    if "no such process" in low or "no such file or directory (os error 2)" in low or "esrch" in low:
        return GONE
    if "python version from target process" in low or "libpython" in low:
        return NO_PYTHON
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[0].removeprefix("Error: ") if lines else "py-spy said nothing"
