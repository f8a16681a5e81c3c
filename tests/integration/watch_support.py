"""Runs programs under `harness watch`, as a user does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("watch_programs")
HANGS = Path(__file__).with_name("hang_programs")
LIMIT_S = 150.0


def environment(**more: str) -> dict[str, str]:
    """The tests' own, with the harness importable; what pytest adds for itself is left out."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HARNESS_"))}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def watching(out: Path, *words: str, options: tuple[str, ...] = ()) -> list[str]:
    """The command line of a watch."""
    return [sys.executable, "-m", "harness", "watch", "--out", str(out), *options, "--", *words]


@dataclass(frozen=True)
class Watched:
    """How a watch ended."""

    code: int
    out: str
    err: str
    run: Path

    @property
    def rows(self) -> list[dict[str, Any]]:
        """results.jsonl."""
        return [json.loads(line) for line in (self.run / "results.jsonl").read_text("utf-8").splitlines()]

    @property
    def row(self) -> dict[str, Any]:
        """Of the one process."""
        (row,) = self.rows
        return row


def watch(
    out: Path,
    *words: str,
    options: tuple[str, ...] = (),
    stdin: str = "",
    cwd: Path | None = None,
    more: Mapping[str, str] | None = None,
) -> Watched:
    """Run to the end."""
    done = subprocess.run(
        watching(out, *words, options=options),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=cwd or out.parent,
        env=environment(**(more or {})),
    )
    return Watched(done.returncode, done.stdout, done.stderr, out)


def plainly(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The same program, unwatched."""
    return subprocess.run(
        list(words), capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=cwd, env=environment()
    )
