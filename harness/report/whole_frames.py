"""A stack that is too long, cut by whole frames: those that tell stay, those between them go, and how many is said."""

from __future__ import annotations

import re
from dataclasses import dataclass

OUTERMOST = 4
INNERMOST = 12
"""Frames of either end that always stay."""

MOST_TIMES = 4
"""How many times too long a text may stay for the sake of frames that tell."""

_FRAME = re.compile(r'\s*File "|\s{2,}\S.* \(\S[^()]*:\d+\)$')
_TELLING = re.compile(
    r"(?:^|[/\"(])torch/(?:fx/|_dynamo/eval_frame|_higher_order_ops/|nn/attention/flex_attention|utils/checkpoint)"
    r"|flex_attention"
)
_INNERMOST_FIRST = re.compile(r"most recent call first|^Thread \S+ \((?:idle|active)")


@dataclass(frozen=True)
class _Stack:
    """One stack within a text: `before` it stands what is no frame; each of `frames` has its lines of source."""

    before: str
    frames: list[str]


def whole_frames(text: str, longest: int) -> str:
    """About `longest` characters of a text with one or several stacks.

    It gets longer where more than that must stay: the outermost 4 and the innermost 12 frames of each stack, and every
    frame of torch.fx, of Dynamo's entry, of higher-order operators, of flex_attention and of checkpoints. Beyond four times
    that (a recursion, hundreds of threads) these go too, and at last whole lines. A text without frames is cut by lines.
    """
    if len(text) <= longest:
        return text
    stacks = _stacks(text)
    most = MOST_TIMES * longest if any(stack.frames for stack in stacks) else longest
    for everything, limit in ((False, longest), (True, most)):
        size = sum(len(_joined(stack)) + 1 for stack in stacks)
        if size > limit:
            surplus = size - limit
            stacks = [_without(one, surplus * len(_joined(one)) // size + 1, everything=everything) for one in stacks]
    return _whole_lines("\n".join(_joined(stack) for stack in stacks), most)


def _stacks(text: str) -> list[_Stack]:
    found: list[_Stack] = []
    before: list[str] = []
    frames: list[str] = []
    for line in text.split("\n"):
        if _FRAME.match(line):
            frames.append(line)
        elif frames and line.startswith("    "):
            frames[-1] += f"\n{line}"
        else:
            if frames:
                found.append(_Stack("\n".join(before), frames))
                before, frames = [], []
            before.append(line)
    return [*found, _Stack("\n".join(before), frames)]


def _joined(stack: _Stack) -> str:
    return "\n".join([*([stack.before] if stack.before else []), *stack.frames])


def _without(stack: _Stack, surplus: int, *, everything: bool) -> _Stack:
    """The frames next to the middle go first, until `surplus` characters are saved. `everything`: telling ones too."""
    frames = stack.frames
    first, last = (INNERMOST, OUTERMOST) if _INNERMOST_FIRST.search(stack.before) else (OUTERMOST, INNERMOST)
    middle = range(first, len(frames) - last)
    may_go = [number for number in middle if everything or not _TELLING.search(frames[number].split("\n")[0])]
    gone: set[int] = set()
    centre = (first + len(frames) - last) / 2
    for number in sorted(may_go, key=lambda number: abs(number - centre)):
        if surplus <= 0:
            break
        gone.add(number)
        surplus -= len(frames[number]) + 1
    kept: list[str] = []
    number = 0
    while number < len(frames):
        end = number
        while end in gone:
            end += 1
        if end > number:
            kept.append(f"  [… {end - number} frame{'s' if end - number > 1 else ''} left out …]")
        else:
            kept.append(frames[number])
            end += 1
        number = end
    return _Stack(stack.before, kept)


def _whole_lines(text: str, longest: int) -> str:
    """The first lines and, three times as much of it, the last."""
    if len(text) <= longest:
        return text
    lines = text.split("\n")
    head, size = 0, 0
    while head < len(lines) and (size := size + len(lines[head]) + 1) <= longest // 4:
        head += 1
    tail, size = len(lines), 0
    while tail > head and (size := size + len(lines[tail - 1]) + 1) <= longest - longest // 4:
        tail -= 1
    return "\n".join([*lines[:head], f"[… {tail - head:,} lines left out …]", *lines[tail:]])
