"""The command that `harness watch` is given: which program it is, and whether an interpreter in it can be watched.

Nothing is run here: the words and the first line of a script say it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import harness
from harness.core.errors import UserError, nearest
from harness.core.interpreter_words import split

LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")
"""Programs whose work is done by processes that they start."""

_PYTHON = re.compile(r"(python|pypy)[0-9.]*t?(\.exe)?|python3?-config")
_WHY = {
    "I": "-I (isolated mode) ignores PYTHONPATH",
    "E": "-E ignores PYTHONPATH",
    "S": "-S leaves out the interpreter's start-up files",
}
_FLAGS = re.compile(r"-[bBdOPqRsuvx]+")
"""Options of the interpreter that take no value, and after which it runs the script and nothing else."""
_SECRET = re.compile(r"token(?!iz)|secret|passw|credential|api[-_]?key", re.IGNORECASE)


@dataclass(frozen=True)
class Command:
    """`words`: what is executed; the first is a path. `launcher`: its children do the work. `name`: for people."""

    words: tuple[str, ...]
    launcher: bool
    name: str

    def shown(self) -> list[str]:
        """The words without what smells of a secret."""
        shown: list[str] = []
        hide = False
        for word in self.words:
            flag, equals, _ = word.partition("=")
            if hide and not word.startswith("-"):
                shown.append("…")
            elif equals and _SECRET.search(flag):
                shown.append(f"{flag}=…")
            else:
                shown.append(word)
            hide = word.startswith("-") and not equals and _SECRET.search(word) is not None
        return shown


def read_command(given: Sequence[str]) -> Command:
    """The command of the words after the options. Raises UserError: none, no such program, one that cannot be watched."""
    words = list(given)
    if not words:
        raise UserError("no command to watch: harness watch -- python train.py …")
    script = words[0].endswith(".py") and Path(words[0]).is_file() and not os.access(words[0], os.X_OK)
    if words[0] == "-m" or script:
        words.insert(0, sys.executable)
    found = shutil.which(words[0])
    if found is None:
        raise UserError(_missing(words[0]))
    words[0] = os.path.abspath(found) if os.sep in words[0] else found
    options = _interpreter_options(words, found)
    for option in options:
        if option in _WHY:
            raise UserError(
                f"{shlex.join(words[:3])}: cannot be watched: {_WHY[option]}, by which a watch begins; run it without -{option}"
            )
    _refuse_missing_script(words)
    rest = _program_words(words)
    _refuse_other_harness(rest)
    name = rest[1] if rest[:1] == ["-m"] and len(rest) > 1 else Path(rest[0]).name if rest else Path(words[0]).name
    return Command(tuple(words), name in LAUNCHERS, name)


def _missing(word: str) -> str:
    path = Path(word)
    if path.is_dir():
        return f"{word} is a folder; give the command as at a prompt: harness watch -- python train.py …"
    if path.is_file():
        return f"{word} is not executable: harness watch -- python {word}, or chmod +x {word}"
    return f"{word}: no such command; give it as at a prompt: harness watch -- python train.py …"


def _is_python(program: str) -> bool:
    return _PYTHON.fullmatch(Path(program).name) is not None


def _interpreter_options(words: Sequence[str], program: str) -> set[str]:
    """The option letters of the interpreter: of the command line, or of a script's first line."""
    if _is_python(program):
        return _letters(words[1:])
    line = _first_line(program)
    parts = line.split() if line else []
    if parts and Path(parts[0]).name == "env":
        parts = [part for part in parts[1:] if part != "-S" and "=" not in part]
    return _letters(parts[1:]) if parts and _is_python(parts[0]) else set()


def _first_line(program: str) -> str:
    """What follows `#!`; "" where there is none."""
    try:
        with open(program, "rb") as file:
            line = file.readline(512)
    except OSError:  # to execute it may be permitted where to read it is not
        return ""
    return line[2:].decode("utf-8", "replace").strip() if line.startswith(b"#!") else ""


def _letters(words: Sequence[str]) -> set[str]:
    """The single-letter options before the script, `-c` or `-m`."""
    return set(split(words)[0])


def _program_words(words: Sequence[str]) -> list[str]:
    """From the script or `-m` on: without the interpreter and its options."""
    return split(words[1:])[1] if _is_python(words[0]) else list(words)


def _refuse_missing_script(words: Sequence[str]) -> None:
    """Where the interpreter would say so itself, for certain; whatever is in doubt is left to it."""
    if not _is_python(words[0]) or words[0].endswith("-config") or _first_line(words[0]):  # the last: a wrapper
        return
    if os.environ.get("PYTHONINSPECT"):  # a prompt follows, whatever became of the script
        return
    script = next((word for word in words[1:] if _FLAGS.fullmatch(word) is None), "")
    if not script or script.startswith("-"):
        return
    try:
        os.stat(script)
    except FileNotFoundError:
        path = Path(script)
        near = nearest(path.name, [each.name for each in path.parent.glob("*.py")])
        raise UserError(f"{script}: no such file{near}; give its path from the working folder") from None
    except (OSError, ValueError):
        return


def _refuse_other_harness(rest: Sequence[str]) -> None:
    """A program with a module `harness` of its own would get ours for it."""
    if not rest or rest[0] == "-c":
        return
    folder = Path.cwd() if rest[0] == "-m" else Path(rest[0]).resolve().parent
    ours = Path(harness.__file__).resolve().parent
    for other in (folder / "harness.py", folder / "harness" / "__init__.py"):
        if other.is_file() and other.resolve().parent != ours:
            raise UserError(
                f"{other}: the program has a module of its own called harness, which a watch would hide; rename it"
            )
