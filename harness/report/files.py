"""Writing what a command was asked for: as a whole or not at all, and with one line when it cannot be."""

from __future__ import annotations

import os
from pathlib import Path

from harness.core.errors import RunFolderError


def write_whole(content: str | bytes, path: Path, option: str = "--out") -> Path:
    """Write a file and say where it is. Raises RunFolderError: it cannot be written; `option` names the way out."""
    if path.is_dir():
        raise RunFolderError(f"{path} is a folder; name a file with {option}")
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    try:
        try:
            fresh.write_bytes(data)
            os.replace(fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror}; choose another file with {option}") from error
    return path
