"""A module's body waits for a thread that imports the module."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from running import Threads, run


def importer() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    importlib.import_module("waits_while_imported")


def threads() -> Threads:
    return [("importer", importer)]


if __name__ == "__main__":
    run(threads())
