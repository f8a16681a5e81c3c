"""The deadlocks of autograd's device thread as programs: when `harness watch` names each, and how long a `harness dump` takes.

    python -m tests.soak.gpu_hangs [--timeout 3] [--json FILE]

On a CUDA device where there is one, else on the device in host memory. The programs are those of
`tests/integration/hang_programs`. Exit 1 where one was not named, or the watch took longer than the timeout + 5 s.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.benchmarks.machine import machine

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))  # its modules import each other by name
from planted_hangs import IN_TIME_S, PLANTED, Planted, watch_planted
from watch_support import HANGS, ROOT

HAZARDS = {"compile_lock_engine": "compile-lock-engine-deadlock", "recompute_lock": "user-lock-engine-deadlock"}
DUMP_LIMIT_S = 120.0


def watched(planted: Planted, timeout_s: float) -> dict[str, Any]:
    """`after_s`: from the program's last event until the watch named all; None where it never did."""
    with tempfile.TemporaryDirectory() as folder:
        found = watch_planted(planted, Path(folder), timeout_s)
    said = [problem["text"] for problem in found.row["problems"] if problem["label"] == "hazard"]
    return {"after_s": found.after_s, "label": found.row["outcome"], "reason": found.row["reason"], "hazard": said}


def dumped(planted: Planted) -> dict[str, Any]:
    """Of the program by itself. `seconds`: of the dump that named the hazard, as a command; None where none did."""
    program = subprocess.Popen(
        [sys.executable, str(HANGS / f"{planted.name}.py")],
        env={**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    command = [sys.executable, "-m", "harness", "dump", str(program.pid), "--json"]
    began, looks = time.monotonic(), 0
    last: dict[str, Any] = {}
    try:
        while time.monotonic() - began < DUMP_LIMIT_S and program.poll() is None:
            looked, looks = time.monotonic(), looks + 1
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DUMP_LIMIT_S, check=False)
            seconds = time.monotonic() - looked
            last = json.loads(done.stdout) if done.returncode in (0, 1) else {"note": done.stderr.strip()}
            named = [hazard["id"] for hazard in last.get("hazards", ())]
            if named == [HAZARDS[planted.name]]:
                texts = [finding["text"] for finding in last["findings"]]
                since = looked - began
                return {"seconds": seconds, "looks": looks, "program_ran_s": since, "findings": texts, "note": last["note"]}
    finally:
        program.kill()
        program.wait()
    return {"seconds": None, "looks": looks, "exit": program.returncode, "last": last}


def device() -> str:
    """What the programs run on, asked in a process of its own."""
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else 'hosted:0')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timeout", type=float, default=3.0)
    parser.add_argument("--json", default="", help="also write the figures to this file")
    options = parser.parse_args()
    chosen = [planted for planted in PLANTED if planted.name in HAZARDS]
    with ThreadPoolExecutor(len(chosen)) as pool:
        watches = list(pool.map(lambda planted: watched(planted, options.timeout), chosen))
        dumps = list(pool.map(dumped, chosen))
    pairs = zip(chosen, watches, dumps, strict=True)
    hangs = {planted.name: {"watch": watch, "dump": dump} for planted, watch, dump in pairs}
    found = {"machine": machine(), "device": device(), "timeout_s": options.timeout, "hangs": hangs}
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n", encoding="utf-8")
    late = [one["after_s"] is None or one["after_s"] > options.timeout + IN_TIME_S for one in watches]
    raise SystemExit(1 if any(late) or any(one["seconds"] is None for one in dumps) else 0)


if __name__ == "__main__":
    main()
