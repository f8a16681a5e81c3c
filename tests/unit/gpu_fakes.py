"""Checks for the tests of `tests.soak.gpu`: small programs that need no GPU, and a session that runs them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.soak.gpu_checks.check import Check, Figure, Place
from tests.soak.gpu_checks.devices import Devices
from tests.soak.gpu_checks.ledger import Ledger
from tests.soak.gpu_checks.session import Session

TWO_GPUS = Devices(2, "2 × a GPU", "2.11.0+cu130")
LIMIT_S = 60.0

WRITES = "Path('figure.json').write_text(json.dumps({'value': 7}))"
"""Done at once."""

FOREVER = "Path('ready').touch()\nwhile True: time.sleep(0.01)"

GOES_ON = """
if Path('part').exists():
    Path('figure.json').write_text(json.dumps({'value': 2}))
    raise SystemExit
try:
    Path('ready').touch()
    while True: time.sleep(0.01)
except KeyboardInterrupt:
    Path('part').touch()
    Path('figure.json').write_text(json.dumps({'value': 1}))
    raise SystemExit(3)
"""
"""Ends for a SIGINT alone, and ends by itself the second time."""


def reads_value(folder: Path) -> Figure:
    """`figure.json`; the goal is 7."""
    value = json.loads((folder / "figure.json").read_text())["value"]
    return Figure(f"value {value}", {"value": value}, value == 7)


def check(name: str, code: str = WRITES, *, cost_s: float = 20.0, **fields: Any) -> Check:
    """A check that runs this code, in its folder."""
    text = f"import json, os, signal, subprocess, sys, time\nfrom pathlib import Path\nos.chdir(sys.argv[1])\n{code}"

    def command(place: Place) -> list[str]:
        return [sys.executable, "-S", "-c", text, str(place.folder), str(place.jobs)]

    return Check(name, f"what {name} does", command, reads_value, cost_s, **fields)


def run(
    base: Path,
    checks: Sequence[Check],
    *,
    devices: Devices = TWO_GPUS,
    minutes: float | None = None,
    jobs: int = 4,
    again: bool = False,
    grace_s: float = 20.0,
    stop_when: Callable[[], bool] | None = None,
) -> tuple[Ledger, dict[str, str]]:
    """The ledger after a session, and what was skipped. `stop_when`: stopped as soon as it says so."""
    ledger = Ledger(base, devices.machine)
    session = Session(ledger, base, devices, minutes=minutes, jobs=jobs, again=again, grace_s=grace_s)
    if stop_when is not None:
        looked = session._look

        def look() -> None:
            if stop_when():
                session.stop()
            looked()

        session._look = look  # type: ignore[method-assign]
    session.run(checks)
    return ledger, session.skipped


def until(true: Callable[[], bool]) -> None:
    """Wait for it. Raises AssertionError after `LIMIT_S`."""
    deadline = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)
