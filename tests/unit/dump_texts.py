"""Texts for the tests of `harness explain`: the stored dumps, and what people and their tools do to such texts."""

from __future__ import annotations

import re
from pathlib import Path

from harness.analysis.dump_values import DumpThread, Raised

FOLDER = Path(__file__).with_name("dumps")
HAZARDOUS = sorted(FOLDER.glob("*.txt"))
"""`HAZARD.txt` or `HAZARD.VARIANT.txt`; the first line says where it is from when it begins with "#"."""

HEALTHY = sorted((FOLDER / "healthy").glob("*.txt"))


def hazard_of(path: Path) -> str:
    """The hazard that a dump of `HAZARDOUS` is of."""
    return path.name.split(".")[0]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def functions(stack: DumpThread | Raised) -> list[str]:
    return [frame.function for frame in stack.frames]


# what is done to texts; each gives a text in which a person would still see the same hazard


def as_log(text: str) -> str:
    """Each line behind a time and a level, as a log shipper leaves it."""
    lines = text.splitlines()
    return "\n".join(f"2026-03-0{n % 9 + 1}T11:22:{n % 60:02d}.{n:03d}Z ERROR {line}" for n, line in enumerate(lines))


def as_rank(text: str) -> str:
    """Behind torchrun's prefix, with the lines of a healthy rank between."""
    lines = []
    for number, line in enumerate(text.splitlines()):
        lines += [f"[rank1]: {line}", f"[rank0]: step {number} loss 3.2"]
    return "\n".join(lines)


def coloured(text: str) -> str:
    """With ANSI colours, as a terminal's scroll-back has them."""
    return "\n".join(f"\x1b[31;1m{line}\x1b[0m" for line in text.splitlines())


def windows(text: str) -> str:
    """Paths as on Windows, and its line ends."""
    text = text.replace("/opt/venv/lib/python3.11/site-packages", "C:/Program Files (x86)/venv/Lib/site-packages")
    text = re.sub(r'(?<=File ")[^"\n]+', lambda found: found[0].replace("/", "\\"), text)
    text = re.sub(r"(?<=\()[^()\n]*(?:\(x86\))?[^()\n]*\.py(?=:\d+\))", lambda found: found[0].replace("/", "\\"), text)
    return text.replace("\n", "\r\n")


def moved(text: str) -> str:
    """Installed elsewhere, through a shim of the harness, and the user's files renamed."""
    text = text.replace("/opt/venv/lib/python3.11/site-packages", "/tmp/harness-k3j2/site-packages")
    text = text.replace("/home/user/train", "/mnt/jobs/0042/src/trainer")
    return text.replace("harness/subject/programs", "my_package/workers").replace("drafter-", "Thread-1")


def renumbered(text: str) -> str:
    """Other line numbers, as another release of torch has them."""
    text = re.sub(r"line (\d+)", lambda found: f"line {int(found[1]) + 17}", text)
    return re.sub(r"(\.py):(\d+)\)", lambda found: f"{found[1]}:{int(found[2]) + 17})", text)


def without_source(text: str) -> str:
    """Only the frames, as some loggers print tracebacks."""
    return re.sub(r'(  File "[^"\n]+", line \d+, in [^\n]*\n)(?:    .*\n)+', r"\1", text)


CHANGES = (as_log, as_rank, coloured, windows, moved, renumbered, without_source)
