"""The folder of a session as one file to be carried off, without what can be made again."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from harness.control import caches, references
from harness.core.eventfile import RAW_NAME

from .session import LOCK

LEFT_OUT = frozenset({LOCK, RAW_NAME, "cache", caches.FOLDER, references.FOLDER, "__pycache__"})
"""Files and folders: raw events (there are `events.jsonl`), compiler caches, references; a resumed run makes its own again."""


def pack(folder: Path, target: Path) -> int:
    """A gzipped tar of `folder`, whole or not at all; its size in bytes. Raises OSError: it cannot be written."""
    partial = target.with_name(target.name + ".part")
    own = {target.resolve(), partial.resolve()}

    def chosen(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        path = Path(entry.name)
        inside = folder.joinpath(*path.parts[1:])
        if path.name in LEFT_OUT or inside.resolve() in own or not (entry.isfile() or entry.isdir() or entry.issym()):
            return None
        return entry

    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(partial, "w:gz") as archive:
            archive.add(folder, arcname=folder.resolve().name, filter=chosen)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target.stat().st_size
