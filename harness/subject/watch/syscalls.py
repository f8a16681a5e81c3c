"""Whether the kernel has a thread in a call that a clock, a peer, another process or a person ends.

By `/proc/self/task/TID/syscall`, which names the call and its arguments; where that is not there, nothing is known. The
numbers are those of the kernel's tables; tried on x86_64.
"""

from __future__ import annotations

import os
import platform

_NUMBERS: dict[str, dict[str, frozenset[int]]] = {
    "x86_64": {
        # nanosleep clock_nanosleep pause rt_sigsuspend rt_sigtimedwait wait4 waitid poll ppoll select pselect6 epoll_wait
        # epoll_pwait epoll_pwait2 accept accept4 connect recvfrom recvmsg recvmmsg flock msgrcv semtimedop mq_timedreceive
        "outside": frozenset({35, 230, 34, 130, 128, 61, 247, 7, 271, 23, 270, 232, 281, 441, 43, 288, 42, 45, 47, 299, 73, 70,
                              220, 243}),
        "lock": frozenset({72}),  # fcntl
        "file": frozenset({0, 19, 1, 20, 44, 46}),  # read readv write writev sendto sendmsg
    },
    "aarch64": {
        "outside": frozenset({101, 115, 133, 137, 260, 95, 73, 72, 22, 441, 202, 242, 203, 207, 212, 243, 32, 188, 192, 183}),
        "lock": frozenset({25}),
        "file": frozenset({63, 65, 64, 66, 206, 211}),
    },
}  # fmt: skip
_SETLKW = frozenset({7, 38})  # commands of fcntl that wait for a lock of another process or open file
_WRITES = 0o3


def outside(native_id: int) -> bool | None:
    """None where the kernel does not say, or the thread runs."""
    numbers = _NUMBERS.get(platform.machine())
    try:
        with open(f"/proc/self/task/{native_id}/syscall", encoding="ascii") as file:
            words = file.read().split()
    except OSError:
        return None
    if numbers is None or len(words) < 3 or not words[0].isdigit():
        return None
    number = int(words[0])
    if number in numbers["lock"]:
        return int(words[2], 16) in _SETLKW
    if number in numbers["file"]:
        return _others_end(int(words[1], 16))
    return number in numbers["outside"]


def _others_end(fd: int) -> bool:
    """Whether the other end of what a thread reads or writes is not this process's: a terminal, a socket, another's pipe."""
    target = _target(fd)
    if not target.startswith("pipe:"):
        return target.startswith(("socket:", "/dev/tty", "/dev/pts/"))
    ends = {_mode(int(name)) for name in os.listdir("/proc/self/fd") if _target(int(name)) == target}
    return len(ends) == 1


def _target(fd: int) -> str:
    """"" for one that is closed, as that of the listing itself is."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def _mode(fd: int) -> int:
    """Read-only, write-only, or both, as `open` has them; -1 where that cannot be told."""
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
            flags = next((line.split()[1] for line in file if line.startswith("flags:")), "")
    except OSError:
        return -1
    return int(flags, 8) & _WRITES if flags else -1
