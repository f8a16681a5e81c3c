"""The memory that processes here may have, by machine and control group."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.control.host_memory import killed_for_memory, usable_memory_bytes

MIB = 1 << 20
UNLIMITED_V1 = "9223372036854771712"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")


@pytest.mark.parametrize(
    ("group", "files", "mebibytes"),
    [
        ("0::/", {}, 1500),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": "max"}, 1500),
        ("0::/a/b", {"a/b/memory.max": f"{300 * MIB}", "a/b/memory.swap.max": "0"}, 300),
        ("0::/a/b", {"a/b/memory.max": f"{300 * MIB}", "a/b/memory.swap.max": "max"}, 800),
        ("0::/a/b", {"a/b/memory.max": "max", "a/memory.max": f"{200 * MIB}"}, 700),
        ("0::/a/b", {"memory.max": f"{200 * MIB}"}, 700),  # only the container's own part is mounted
        ("0::/../b", {"memory.max": f"{200 * MIB}", "b/memory.max": "1"}, 700),
        ("7:cpu,memory:/a", {"memory/a/memory.limit_in_bytes": f"{100 * MIB}"}, 600),
        (
            "7:memory:/a",
            {
                "memory/a/memory.limit_in_bytes": f"{100 * MIB}",
                "memory/a/memory.memsw.limit_in_bytes": f"{150 * MIB}",
                "memory/memory.limit_in_bytes": UNLIMITED_V1,
            },
            150,
        ),
        ("7:memory:/a\n0::/", {"memory/memory.limit_in_bytes": UNLIMITED_V1}, 1500),
        ("7:cpu:/a", {"cpu/a/memory.limit_in_bytes": "1"}, 1500),
    ],
)
def test_machine_swap_and_groups(tmp_path: Path, group: str, files: dict[str, str], mebibytes: int) -> None:
    write(tmp_path, {"proc/meminfo": "MemTotal:  1024000 kB\nSwapTotal:  512000 kB", "proc/self/cgroup": group})
    write(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert usable_memory_bytes(tmp_path) == mebibytes * MIB


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    assert usable_memory_bytes(tmp_path) is None


EVENTS = "low 0\nhigh 0\nmax 7\noom 9\noom_kill {}\noom_group_kill 0"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}"


@pytest.mark.parametrize(
    ("group", "files", "killed"),
    [
        ("0::/", {}, 5),  # the machine's
        ("0::/a/b", {"a/b/memory.events": EVENTS.format(2), "a/memory.events": EVENTS.format(3)}, 2),
        ("0::/a/b", {"memory.events": EVENTS.format(3)}, 3),  # only the container's own part is mounted
        ("7:cpu,memory:/a", {"memory/a/memory.oom_control": CONTROL.format(1)}, 1),
        ("7:memory:/a\n0::/", {"memory/a/memory.oom_control": CONTROL.format(0)}, 0),
        ("7:memory:/a", {"memory/a/memory.oom_control": "oom_kill_disable 0\nunder_oom 0"}, 5),  # of an old kernel
    ],
)
def test_who_was_killed_for_memory(tmp_path: Path, group: str, files: dict[str, str], killed: int) -> None:
    write(tmp_path, {"proc/vmstat": "oom_kill_total 8\noom_kill 5", "proc/self/cgroup": group})
    write(tmp_path, {f"sys/fs/cgroup/{name}": text for name, text in files.items()})
    assert killed_for_memory(tmp_path) == killed


def test_a_system_that_does_not_say_who_was_killed(tmp_path: Path) -> None:
    assert killed_for_memory(tmp_path) is None
