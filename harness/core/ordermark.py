"""A file that says that a plan's order came about, written the moment it did: its effect may be a dead process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "order.json"


def keep(folder: Path, told: Mapping[str, Any]) -> None:
    """What the schedule has to say so far; whole or not at all."""
    partial = folder / (NAME + ".part")
    partial.write_text(json.dumps(told, default=str) + "\n", encoding="utf-8")
    os.replace(partial, folder / NAME)


def kept(folder: Path) -> dict[str, Any] | None:
    """Back; None when no order came about."""
    try:
        found: dict[str, Any] = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found
