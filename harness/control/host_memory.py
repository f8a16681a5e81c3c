"""How much memory the processes of a run may have, and whether the kernel killed one for it. Linux tells.

Both by the control groups that this process is in, which its subjects share, and else by the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def usable_memory_bytes(root: Path = Path("/")) -> int | None:
    """Memory and swap, in bytes, within every limit of this process's control groups; None: the system does not say.

    `root`: the folder that holds proc and sys.
    """
    said = dict(re.findall(r"^(\w+):\s+(\d+) kB$", _text(root / "proc/meminfo"), re.MULTILINE))
    if "MemTotal" not in said:
        return None
    memory, swap = int(said["MemTotal"]) << 10, int(said.get("SwapTotal", 0)) << 10
    return min([memory + swap, *_limits(root, swap)])


def killed_for_memory(root: Path = Path("/")) -> int | None:
    """How many processes the kernel has killed for lack of memory: of this control group, else of the machine.

    The kernel counts before it sends the signal. None: the system does not say.
    """
    for version, folder in _groups(root):
        for path in _upwards(*folder):
            if found := _KILLS.search(_text(path / ("memory.events" if version == 2 else "memory.oom_control"))):
                return int(found[1])
    found = _KILLS.search(_text(root / "proc/vmstat"))
    return int(found[1]) if found else None


_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def _groups(root: Path) -> Iterator[tuple[int, tuple[Path, str]]]:
    """(version of the groups' interface, (where they are mounted, path of the group))."""
    groups = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            yield 2, (groups, path)
        elif "memory" in controllers.split(","):
            yield 1, (groups / "memory", path)


def _limits(root: Path, swap: int) -> Iterator[int]:
    """Of memory and swap together: of the group this process is in and of all groups around it."""
    for version, group in _groups(root):
        for folder in _upwards(*group):
            if version == 2:
                memory, swapped = _number(folder / "memory.max"), _number(folder / "memory.swap.max")
                if memory is not None:
                    yield memory + (swap if swapped is None else min(swapped, swap))
            else:
                memory, both = (_number(folder / f"memory.{name}limit_in_bytes") for name in ("", "memsw."))
                if memory is not None:
                    yield memory + swap if both is None else both


def _upwards(mounted: Path, path: str) -> Iterator[Path]:
    """The folder of a group, and those around it. In a container only its own part of the tree may be mounted."""
    names = [name for name in PurePosixPath(path).parts if name != "/"]
    for length in range(len(names) if ".." not in names else 0, -1, -1):
        yield mounted.joinpath(*names[:length])


def _number(path: Path) -> int | None:
    """None: no such file, or no limit ("max")."""
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _text(path: Path) -> str:
    """"" where the system has no such file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
