"""A file mapped into memory for the life of the process, out of the way of the program's descriptors and of a full disk.

`mmap.mmap` keeps a duplicate of the descriptor, at the lowest free number, and closes that number when the map goes. A
program that counts on low numbers would see the first; one that closes all it knows (a daemon does) and then opens files
of its own would lose one of them by the second. So the duplicate is made at a high number, and no map is ever let go.

A page of a sparse file that is written while the disk is full ends the process by SIGBUS. So space is asked for, chunk by
chunk, before a chunk is written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import sys
from pathlib import Path

HIGH_FD = 200  # out of the way of programs that count on low numbers
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})

_kept: list[mmap.mmap] = []


def map_new(path: Path, size: int) -> mmap.mmap:
    """A new file of `size` bytes, sparse and zero, mapped for good. Raises OSError. No other thread may run yet."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        os.ftruncate(fd, size)
        made = _mapped(fd, size)
    finally:
        os.close(fd)
    _kept.append(made)
    return made


def _mapped(fd: int, size: int) -> mmap.mmap:
    if sys.version_info >= (3, 13):
        return mmap.mmap(fd, size, trackfd=False)
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):  # a limit on open files below that: the number is as high as may be
            while not taken or taken[-1] < HIGH_FD - 1:
                taken.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 0))
        if taken and taken[-1] < HIGH_FD - 1:
            os.close(taken.pop())  # one for the map
        return mmap.mmap(fd, size)
    finally:
        for number in taken:
            os.close(number)


def reserve(path: str, begin: int, size: int) -> bool:
    """Whether `size` bytes from `begin` on may be written without fear of a full disk.

    The file is opened anew, since by now any number may be the program's. A system that does not let us ask (no such call
    for this file system, no more descriptors, other rights than at the start) leaves it as it was: sparse, and written.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(fd, begin, size)
        finally:
            os.close(fd)
    except OSError as error:
        return error.errno not in _NO_ROOM
    return True
