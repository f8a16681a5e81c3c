"""The planted hangs of `hang_programs`: what an explanation has to name, and each as a program under `harness watch`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watch_support import HANGS, LIMIT_S, environment, watching

IN_TIME_S = 5.0
"""Beyond the hang timeout: by then it has to be named."""


@dataclass(frozen=True)
class Planted:
    """`says`: what an explanation has to name. `label`: of the trial.

    probed   what is said instead in a trial and under a watch, where probes tell of torch's own waits, and where every object
             is known: from outside it may be known by its name alone
    """

    name: str
    label: str
    kind: str
    says: tuple[str, ...]
    probed: tuple[str, ...] = ()

    @property
    def watched(self) -> tuple[str, ...]:
        """What has to be said by a process that the harness is in."""
        return self.probed or self.says


PLANTED = (
    Planted("lock_cycle_two", "deadlock", "cycle", ("left waits for lock `second`", "which right took at lock_cycle_two.py")),
    Planted(
        "lock_cycle_three",
        "deadlock",
        "cycle",
        (
            "philosopher-0 waits for lock `self.right` (lock_cycle_three.py:22), which philosopher-1 took",
            "philosopher-1 waits for lock `self.right` (lock_cycle_three.py:22), which philosopher-2 took",
            "philosopher-2 waits for lock `self.right` (lock_cycle_three.py:22), which philosopher-0 took",
        ),
    ),
    Planted(
        "queue_full",
        "deadlock",
        "cycle",
        ("back waits for room in queue `self.outbox`", "forth takes from it", "forth waits for room", "back takes from it"),
    ),
    Planted("barrier_short", "hang", "nobody", ("2 of 3 parties wait in it (rank-0, rank-1)",)),
    Planted("lost_notify", "hang", "nobody", ("condition `ready`", "lost_notify.py:15, in producer", "tests nothing first")),
    Planted("dead_holder", "hang", "nobody", ("reader waits for lock `table`", "dead_holder.py:14, in writer")),
    Planted("dead_owner", "hang", "nobody", ("reader waits for lock `self.lock`", "has ended without letting go", "in write")),
    Planted(
        "import_lock",
        "deadlock",
        "cycle",
        ("loader waits for module waits_while_imported", "importer imports it", "importer waits for loader to end"),
    ),
    Planted("native_read", "hang", "native", ("fetcher is in a native call", "`os.read(ends[0], 1)`", "user wait")),
    Planted("native_gil", "hang", "gil", ("caller holds the interpreter lock in a native call", "native_gil.py:16")),
    Planted("self_lock", "deadlock", "cycle", ("teller waits for lock `self.lock`", "it itself took at self_lock.py:16")),
    Planted(
        "body_on_line",
        "deadlock",
        "cycle",
        (
            "adder waits for lock `table` (body_on_line.py:19), which reader took at body_on_line.py:27",
            "reader waits for lock `stats.lock` (body_on_line.py:29), and adder may hold it (took `self.lock` at",
        ),
        (
            "adder waits for lock `table` (body_on_line.py:19), which reader took at body_on_line.py:27",
            "reader waits for lock `stats.lock` (body_on_line.py:29), which adder took at body_on_line.py:17",
        ),
    ),
    Planted("pool_of_one", "hang", "nobody", ("pool_0 waits for the result of a future", "never begun")),
    Planted(
        "replica_barrier",
        "deadlock",
        "cycle",
        ("replica", "waits for lock `step_lock`", "waits for barrier `replicas`", "would come to it"),
    ),
    Planted(
        "user_lock_inversion",
        "deadlock",
        "cycle",
        ("compiler waits for lock `cache_lock` (user_lock_inversion.py:20), which holder took", "holder waits for", "compile"),
    ),
    Planted(
        "compile_lock_engine",
        "deadlock",
        "cycle",
        ("waits for lock `compile_lock`", "attender waits for autograd's engine"),
        ("waits for torch's compile lock, held by attender", "attender waits for autograd's thread", "(trainer)"),
    ),
    Planted(
        "recompute_lock",
        "deadlock",
        "cycle",
        ("waits for lock `torch_lock` (recompute_lock.py:17), which drafter took", "drafter waits for autograd's engine"),
        ("waits for lock `torch_lock` (recompute_lock.py:17), which drafter took", "drafter waits for autograd's thread of"),
    ),
)


@dataclass(frozen=True)
class Named:
    """A planted hang under a watch. `trial`: its evidence.

    after_s  from the program's last event until the watch named all, in a line of standard error; None where it never did
    """

    row: dict[str, Any]
    after_s: float | None
    err: str
    trial: Path


def watch_planted(planted: Planted, folder: Path, timeout_s: float) -> Named:
    """Watch the program until it is ended for its hang. Raises TimeoutExpired where it never is."""
    command = watching(
        folder / "run",
        sys.executable,
        str(HANGS / f"{planted.name}.py"),
        options=("--hang-timeout", str(timeout_s), "--on-hang", "kill"),
    )
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment(), cwd=folder, text=True
    )
    lines: list[tuple[float, str]] = []

    def read() -> None:
        assert process.stderr is not None
        lines.extend((time.time(), line) for line in process.stderr)

    reading = threading.Thread(target=read)
    reading.start()
    try:
        process.wait(LIMIT_S)
    finally:
        process.kill()
        reading.join(LIMIT_S)
        assert process.stderr is not None
        process.stderr.close()
    (row,) = [json.loads(line) for line in (folder / "run" / "results.jsonl").read_text("utf-8").splitlines()]
    trial = folder / "run" / "trials" / row["trial"]
    began = float(json.loads((trial / "process.json").read_text("utf-8"))["began"])
    last_s = max(event["t"] / 1e9 for event in row["last_events"] if event["k"] not in ("hang", "deadlock"))
    said = [at for at, line in lines if all(part in line for part in planted.watched)]
    return Named(row, said[0] - began - last_s if said else None, "".join(line for _, line in lines), trial)
