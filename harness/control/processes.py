"""Facts of a running process from /proc: whose it is, what it is, its children, its rank. Linux only."""

from __future__ import annotations

import os
import pwd
import re
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UserError

PROC = Path("/proc")
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_VERSION = re.compile(r"^__version__\s*=\s*['\"]([^'\"]+)", re.MULTILINE)


@dataclass(frozen=True)
class Process:
    """`state`: the kernel's letter. `rank`: of its environment, "" where there is none, or it may not be read."""

    pid: int
    parent: int
    command: str
    state: str
    python: bool
    rank: str = ""
    local_rank: str = ""
    torch: str = ""


def find(pid: int) -> Process:
    """The process. Raises UserError: no such PID, or it has ended, or belongs to somebody else."""
    if not PROC.joinpath("self").exists():
        raise UserError(
            "harness dump reads /proc, which this system does not have; "
            f"run py-spy dump --pid {pid} and give what it prints to harness explain -"
        )
    if pid < 1:
        raise UserError(f"{pid} is no process ID; give the number that ps shows, 1 or more")
    found = look(pid)
    if found is None:
        raise UserError(f"no process has the ID {pid}; see ps -ef, or pgrep -f train.py")
    if found.state in ("Z", "X"):
        raise UserError(f"process {pid} has ended already; only its exit status is left, for its parent {found.parent}")
    owner = (PROC / str(pid)).stat().st_uid
    if os.geteuid() not in (0, owner):
        raise UserError(f"process {pid} belongs to {_user(owner)}, not to you; run as that user, or with sudo")
    return found


def look(pid: int) -> Process | None:
    """What /proc says of a process; None when it is not there."""
    folder = PROC / str(pid)
    try:
        stat = (folder / "stat").read_text(errors="replace")
        command = (folder / "cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    maps = _read(folder / "maps")
    environment = dict(
        pair.split("=", 1) for pair in _read(folder / "environ").split("\0") if "=" in pair
    )
    return Process(
        pid,
        int(fields[1]),
        command or f"[{name}]",
        fields[0],
        python="libpython" in maps or "/python" in maps or name.startswith("python"),
        rank=next((environment[key] for key in RANKS if environment.get(key)), ""),
        local_rank=environment.get("LOCAL_RANK", ""),
        torch=_torch(pid, maps),
    )


def state_of(pid: int) -> str:
    """The kernel's letter for what the process does; "" when it is not there."""
    try:
        return (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def below(pid: int) -> list[Process]:
    """The process and all that come from it but this one, which looks; parents before children."""
    others = (each for each in descendants(pid) if each != os.getpid())
    return [one for one in map(look, (pid, *others)) if one is not None]


def python_below(pid: int) -> str:
    """`7 (python train.py), below it, is one: harness dump 7, or harness dump --tree 5`; "" where none is."""
    found = [one for one in below(pid)[1:] if one.python and one.state not in ("Z", "X")]
    if not found:
        return ""
    first, more = found[0], len(found) - 1
    which = f"{first.pid} ({first.command[:60]}), below it, is one" + (f", and {more} more" if more else "")
    return f"{which}: harness dump {first.pid}, or harness dump --tree {pid}"


def descendants(pid: int) -> list[int]:
    """All processes below `pid` (Linux; none elsewhere), parents before their children."""
    if not PROC.exists():
        return []
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            parent = _parent(entry)
            if parent is not None:
                children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        here = sorted(children.get(waiting.pop(0), ()))
        found += here
        waiting += here
    return found


def mapped(pid: int, name: str) -> Path | None:
    """A file of that name that the process has mapped into its memory."""
    for line in _read(PROC / str(pid) / "maps").splitlines():
        path = line.split(maxsplit=5)[-1]
        if path.endswith("/" + name) and Path(path).is_file():
            return Path(path)
    return None


def _parent(folder: Path) -> int | None:
    try:
        return int((folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None  # it ended while we looked


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # of another user, or gone; what follows from it is then not known


def _torch(pid: int, maps: str) -> str:
    """Version of the torch it has loaded; "" when it has none."""
    found = re.search(r"(/\S*/torch)/lib/libtorch_cpu\.so", maps)
    if found is None:
        return ""
    version = _VERSION.search(_read(Path(f"{PROC}/{pid}/root{found[1]}/version.py")))
    return version[1] if version else ""


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"
