"""Attributes of another process's objects, read from its memory: which lock `self.lock` is, who owns an RLock.

For CPython 3.11 to 3.14 with the interpreter lock, on 64-bit Linux; layouts from those versions' headers
(Include/cpython/object.h; pycore_dict.h and pycore_lock.h in Include/internal). Whatever is read is checked: types by their
names against what py-spy printed, attributes by the name in the key table. What does not fit is "not known", never a guess.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

SUPPORTED = ((3, 11), (3, 12), (3, 13), (3, 14))
_MANAGED_DICT, _INLINE_VALUES = 1 << 4, 1 << 2
_TYPE, _TP_NAME, _TP_BASICSIZE, _TP_FLAGS, _TP_DICTOFFSET = 8, 24, 32, 168, 288
_TYPE_END = 1200  # the cached key table is somewhere in a heap type, which is shorter
_MUTEX, _RLOCK_OWNER, _RLOCK_COUNT = 16, 24, 32
MOST_ENTRIES = 4096


class Memory:
    """Open it in a `with`. Every method gives None for what is not there or does not fit."""

    def __init__(self, pid: int, version: tuple[int, int]) -> None:
        self._file = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        self._version = version
        self._names: dict[int, str | None] = {}

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def type_name(self, address: int) -> str | None:
        """`Queue`, of the object at the address."""
        type_at = self._word(address + _TYPE)
        if not type_at:
            return None
        if type_at not in self._names:
            named_at = self._word(type_at + _TP_NAME)
            self._names[type_at] = self._c_string(named_at) if named_at else None
        name = self._names[type_at]
        return None if name is None else name.rsplit(".", 1)[-1]

    def attribute(self, address: int, name: str) -> int | None:
        """Address of an instance's attribute, out of its own dictionary."""
        type_at = self._word(address + _TYPE)
        flags = self._word(type_at + _TP_FLAGS) if type_at else None
        if not type_at or flags is None:
            return None
        values, table = self._where(address, type_at, flags)
        if values:
            return self._by_cached_keys(type_at, values, name)
        return self._in_dict(table, name) if table else None

    def list_item(self, address: int, index: int) -> int | None:
        """Address of an item of a list."""
        size, items = self._word(address + 16), self._word(address + 24)
        if self.type_name(address) != "list" or size is None or not items or not 0 <= index < size:
            return None
        return self._word(items + 8 * index) or None

    def number(self, address: int) -> int | None:
        """A small int, of up to one digit."""
        raw = self._read(address + 16, 12)
        if self.type_name(address) != "int" or raw is None:
            return None
        tag = int.from_bytes(raw[:8], "little", signed=True)
        digits, negative = (abs(tag), tag < 0) if self._version < (3, 12) else (tag >> 3, tag & 3 == 2)
        if digits > 1 or negative:
            return None
        zero = tag == 0 if self._version < (3, 12) else tag & 3 == 1
        return 0 if zero else int.from_bytes(raw[8:], "little")

    def text(self, address: int) -> str | None:
        """An ASCII string, of up to 200 characters."""
        length = self._word(address + 16)
        if self.type_name(address) != "str" or length is None or not 0 <= length <= 200:
            return None
        raw = self._read(address + (48 if self._version < (3, 12) else 40), length)
        return raw.decode("ascii", errors="replace") if raw is not None else None

    def owner(self, address: int) -> int | None:
        """Ident of the thread that holds an RLock; None when nobody does."""
        if self.type_name(address) != "RLock":
            return None
        mutex, count = self._word(address + _MUTEX), self._word(address + _RLOCK_COUNT)
        # From 3.14 on a mutex of one byte, whose lowest bit says that it is held; the count then begins at 0.
        held = count if self._version < (3, 14) else (mutex or 0) & 1
        return (self._word(address + _RLOCK_OWNER) or None) if held else None

    # where the attributes are

    def _where(self, address: int, type_at: int, flags: int) -> tuple[int, int]:
        """(array of values in the order of the type's cached keys, dictionary); one of them is 0."""
        if not flags & _MANAGED_DICT:
            offset = self._word(type_at + _TP_DICTOFFSET) or 0
            return 0, (self._word(address + offset) or 0) if 0 < offset < 1 << 16 else 0
        if self._version == (3, 11):
            values = self._word(address - 32) or 0
            return values, 0 if values else self._word(address - 24) or 0
        either = self._word(address - 24) or 0
        if self._version == (3, 12):
            return (either + 1, 0) if either & 1 else (0, either)
        if flags & _INLINE_VALUES:
            inline = address + (self._word(type_at + _TP_BASICSIZE) or 0)
            head = self._read(inline, 4)
            if head is not None and head[3]:  # valid: not moved into a dictionary of its own
                return inline + 8, 0
        return 0, either

    def _by_cached_keys(self, type_at: int, values: int, name: str) -> int | None:
        raw = self._read(type_at + 400, _TYPE_END - 400) or b""
        for at in range(0, len(raw) - 7, 8):
            keys = int.from_bytes(raw[at : at + 8], "little")
            index = self._index(keys, name) if keys > 1 << 16 and not keys % 8 else None
            if index is not None:
                return self._word(values + 8 * index) or None
        return None

    def _in_dict(self, table: int, name: str) -> int | None:
        if self.type_name(table) != "dict":
            return None
        keys, values = self._word(table + 32), self._word(table + 40)
        if not keys:
            return None
        if values:
            index = self._index(keys, name)
            first = values + (8 if self._version >= (3, 13) else 0)
            return None if index is None else self._word(first + 8 * index) or None
        entry = self._entry(keys, name)
        return None if entry is None else self._word(entry + 8) or None

    def _index(self, keys: int, name: str) -> int | None:
        found = self._find(keys, name)
        return None if found is None else found[0]

    def _entry(self, keys: int, name: str) -> int | None:
        found = self._find(keys, name)
        return None if found is None else found[1]

    def _find(self, keys: int, name: str) -> tuple[int, int] | None:
        """(number, address) of the entry whose key is that string, in a table of string keys."""
        head = self._read(keys, 32)
        if head is None:
            return None
        log2_size, log2_bytes, kind = head[8], head[9], head[10]
        count = int.from_bytes(head[24:32], "little")
        if not (0 < log2_size <= 16 and log2_size <= log2_bytes <= 20 and kind in (1, 2) and count <= MOST_ENTRIES):
            return None
        first = keys + 32 + (1 << log2_bytes)
        for number in range(count):
            key = self._word(first + 16 * number)
            if key and self.text(key) == name:
                return number, first + 16 * number
        return None

    # bytes

    def _word(self, address: int) -> int | None:
        raw = self._read(address, 8)
        return None if raw is None else int.from_bytes(raw, "little")

    def _read(self, address: int, size: int) -> bytes | None:
        if not 0 < address < 1 << 63:
            return None
        try:
            raw = os.pread(self._file, size, address)
        except OSError:
            return None
        return raw if len(raw) == size else None

    def _c_string(self, address: int) -> str | None:
        raw = self._read(address, 64) or self._read(address, 8) or b""
        text, end, _ = raw.partition(b"\0")
        return text.decode("ascii", errors="replace") if end else None


def python_version(pid: int) -> tuple[int, int] | None:
    """Of the interpreter that the process runs, by the files it has mapped; None: not known, or without the lock."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        program = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return None
    for text in (maps, program):
        found = re.search(r"(?:libpython|/python)(\d)\.(\d+)(t?)(?:[.\s]|$|-)", text)
        if found:
            return None if found[3] else (int(found[1]), int(found[2]))
    return None


def open_memory(pid: int) -> Memory | None:
    """None where it may not be read, or is laid out in a way that is not known."""
    version = python_version(pid)
    if version not in SUPPORTED or version is None:
        return None
    try:
        return Memory(pid, version)
    except OSError:
        return None
