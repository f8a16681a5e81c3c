"""All that is to be measured on rented GPUs, in the order of its worth, in one go and within a budget of time.

    python -m tests.soak.gpu --list
    python -m tests.soak.gpu --minutes 9.5 --out reports/gpu --pack gpu.tgz
    python -m tests.soak.gpu --only 'reproduce-*' drafter-step --again

Each check is a process of one of the project's own commands, in `DIR/checks/NAME/ATTEMPT`. What has ended is not run
again unless asked for (`--again`); what was cut begins again, or, where it can, goes on in its run folder. At the limit, or on
Ctrl-C or SIGTERM, what runs is interrupted, and killed if it does not end. The last words are a Markdown table; all of
it is in `DIR/summary.json` too.

Exit codes: 0 all is done, 1 a check failed or missed its goal, 2 bad input, 3 something was cut or could not be run.
"""

from __future__ import annotations

import argparse
import fcntl
import fnmatch
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from tests.soak.gpu_checks import table
from tests.soak.gpu_checks.check import Check
from tests.soak.gpu_checks.devices import Devices, here
from tests.soak.gpu_checks.ledger import Ledger
from tests.soak.gpu_checks.listed import CHECKS
from tests.soak.gpu_checks.pack import pack
from tests.soak.gpu_checks.session import GRACE_S, LOCK, Session, kept_s, tell


def main(
    arguments: Sequence[str] | None = None,
    *,
    checks: Sequence[Check] = CHECKS,
    devices: Devices | None = None,
    grace_s: float = GRACE_S,
) -> int:
    """The exit code. `checks` and `devices`: for tests; None: this machine's."""
    options = _parser().parse_args(arguments)
    try:
        chosen = choose(checks, options.only)
        base = Path(options.out)
        if options.minutes is not None and 60 * options.minutes <= kept_s(grace_s):
            raise ValueError(f"--minutes {options.minutes:g}: {kept_s(grace_s):.0f} s are kept for the end; give more")
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    devices = devices or here()
    if options.list:
        ledger = Ledger(base, devices.machine)
        print(f"{devices.machine}\n\n{table.listing(chosen, ledger, devices)}", end="")
        return 0

    try:
        locked = lock(base)
    except OSError as error:
        print(f"error: {base}: {error.strerror}; choose another --out", file=sys.stderr)
        return 2
    with locked:
        return _run(options, chosen, base, devices, grace_s)


def _run(options: argparse.Namespace, chosen: Sequence[Check], base: Path, devices: Devices, grace_s: float) -> int:
    ledger = Ledger(base, devices.machine)

    def summary() -> str:
        return table.write(base, table.standing_rows(chosen, ledger, session.skipped, base), devices)

    session = Session(
        ledger,
        base,
        devices,
        minutes=options.minutes,
        jobs=options.jobs,
        again=options.again,
        grace_s=grace_s,
        ended=summary,  # after each: this process may be killed with its machine
        say=tell,
    )
    # Handlers of our own also give the commands a SIGINT that works: behind a shell's "&" it is ignored.
    before = {number: signal.signal(number, lambda *_: session.stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        session.run(chosen)
        text = summary()
        if options.pack:
            tell(f"{options.pack}: {pack(base, Path(options.pack)) / 1e6:.1f} MB")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    print(text, end="")
    return table.exit_code(table.standing_rows(chosen, ledger, session.skipped, base))


def lock(base: Path) -> BinaryIO:
    """Keeps others out of the folder, which is made, until it is closed. Raises OSError: somebody is in there, or no disk."""
    base.mkdir(parents=True, exist_ok=True)
    file = open(base / LOCK, "ab")  # noqa: SIM115 - open as long as the lock is wanted
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise OSError(error.errno, "another session runs there") from error
    return file


def choose(checks: Sequence[Check], patterns: Sequence[str]) -> list[Check]:
    """Those that are named, in the order of the list. Raises ValueError: a pattern names none."""
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(check.name, pattern) for check in checks):
            raise ValueError(f"--only {pattern}: there is no such check; --list shows them")
    return [c for c in checks if not patterns or any(fnmatch.fnmatchcase(c.name, pattern) for pattern in patterns)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="show the checks and how they stand, and run none")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these checks; * and ? as in a shell")
    parser.add_argument("--minutes", type=float, metavar="M", help="end within this time")
    parser.add_argument("--out", default="reports/gpu", metavar="DIR", help="where all of it lands (reports/gpu)")
    parser.add_argument("--again", action="store_true", help="run what has ended once more, in new folders")
    jobs = max(1, (os.cpu_count() or 1) - 2)
    parser.add_argument("--jobs", type=_count, default=jobs, metavar="N", help=f"trials at the same time ({jobs})")
    parser.add_argument("--pack", default="", metavar="FILE.tgz", help="at the end, DIR as one file")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
