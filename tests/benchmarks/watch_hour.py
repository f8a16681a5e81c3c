"""One simulated hour of a watched program, in this process: 360,000 steps on two threads, without torch, in seconds.

Prints as JSON what it added to this process's resident memory (KiB, the mapped file included) and how many events it
made; `python -m tests.benchmarks.watch_hour STEPS` in a process of its own, for `watch_cost` and the tests.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

from harness.subject.watch.process import Watched
from harness.subject.watch.regions import Regions
from harness.subject.watch.settings import Settings
from harness.subject.watch.threads import sums_now

A_COMPILE_EVERY = 5_000


def resident_kib() -> int:
    """Of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise RuntimeError("no VmRSS in /proc/self/status")


def steps(watched: Watched, regions: Regions, count: int) -> None:
    """What the probes do in warm steps, with a compile now and then."""
    for number in range(count):
        with regions("step", ""):
            with regions("forward", ""):
                pass
            with regions("backward", ""):
                watched.log.emit("engine.enter")
                watched.log.emit("engine.exit")
        thread = watched.threads.current()
        thread.step += 1
        sums_now(thread).steps += 1
        if number % A_COMPILE_EVERY == 0:
            watched.log.emit("compile.start", ',"what":"frame"')
            watched.log.emit("compile.end", ',"what":"frame","ok":true')
            watched.finding("state_leak", "the same again", key="leak")


def main(count: int) -> None:
    """Simulate and print."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(Path(folder), Path(folder), None, False, 30.0, False)
        before = resident_kib()
        watched = Watched(settings, Path(folder))
        regions = Regions(watched)
        began = time.perf_counter()
        threads = [threading.Thread(target=steps, args=(watched, regions, count // 2)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        watched.write()
        after = resident_kib()
        account = watched.log.account()
        file_bytes = sum(path.stat().st_blocks * 512 for path in Path(folder).iterdir())
        print(
            json.dumps(
                {
                    "steps": count,
                    "seconds": round(took, 2),
                    "added_kib": after - before,
                    "disk_kib": file_bytes // 1024,
                    "us_a_step": round(took / count * 1e6, 2),
                    **account,
                }
            )
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 360_000)
