"""The words of a Python command line: which are the interpreter's options, and where the program begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath


def split(words: Sequence[str]) -> tuple[str, list[str]]:
    """Of the words after the interpreter: (its option letters, the words from the script, `-c` or `-m` on)."""
    letters = ""
    position = 0
    while position < len(words):
        word = words[position]
        if word == "--check-hash-based-pycs":
            position += 2
            continue
        if not word.startswith("-") or word == "-":
            break
        if word.startswith("--"):
            position += 1
            continue
        for number, letter in enumerate(word[1:], 1):
            if letter in "cm":
                rest = word[number + 1 :]
                return letters, [f"-{letter}", *([rest] if rest else []), *words[position + 1 :]]
            if letter in "WX":
                position += number == len(word) - 1  # its value is the next word
                break
            letters += letter
        position += 1
    return letters, list(words[position:])


def program_name(words: Sequence[str]) -> str:
    """What a process with this command line is called: its script, its module, `-c`, or the interpreter itself."""
    rest = split(words[1:])[1]
    if rest[:1] == ["-m"] and len(rest) > 1:
        return rest[1]
    named = PurePath(rest[0]).name if rest and rest[0] != "-" else ""
    return named or PurePath(words[0]).name
