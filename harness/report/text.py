"""Text that nobody vouches for (messages, thread names, stacks, paths), made fit to be shown.

Escaping is the template's business; this module sees to it that every character can be written and seen, that a stack
reads well, and that nothing grows without a limit. What is cut says how much was cut.
"""

from __future__ import annotations

import re

from harness.analysis.paths import shorten
from harness.report.whole_frames import whole_frames

_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, but for tab and line feed
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"  # invisible, or turning the direction of what follows
    "\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"  # no text, or not to be encoded
)
_MARKERS = re.compile(r"^[ \t]*[\^~][\^~ \t]*\n?", re.MULTILINE)
_FRAME = re.compile(r'File "([^"\n]*)", line (\d+),? in ([^\n]*)')
_OBSERVER = re.compile(r"(?:^|/)harness/(?:subject|torch_internals)/")
_MEANS_NOTHING = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")

LONGEST_LINE = 400
MOST_PARTS = 100


def visible(text: str) -> str:
    """The text with a visible sign for each character that has none: ␛ for escape, `\\u202e` for an override.

    Line feeds and tabs stay; what comes out can be encoded as UTF-8.
    """
    return _ODD.sub(_sign, text.replace("\r\n", "\n"))


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def clip(text: str, longest: int, *, tail: float = 0.0) -> str:
    """At most about `longest` characters, with a note of how many are missing.

    `tail` is the share of them that is taken from the end.
    """
    if len(text) <= longest:
        return text
    last = int(longest * tail)
    left_out = f"[… {len(text) - longest:,} characters left out …]"
    if not last:
        return f"{text[:longest]} {left_out}"
    return f"{text[: longest - last]}\n{left_out}\n{text[len(text) - last :]}"


def one_line(text: str, longest: int) -> str:
    """The text on one line, blanks squeezed, cut as `clip` does."""
    return clip(" ".join(text.split()), longest)


def stack(text: str, longest: int) -> str:
    """A stack as people read it: no lines of `^^^^`, paths from the package on; too long, it is cut as `whole_frames` does."""
    text = shorten(_MARKERS.sub("", text))
    lines = (line if len(line) <= LONGEST_LINE else clip(line, LONGEST_LINE) for line in text.rstrip().split("\n"))
    return whole_frames("\n".join(lines), longest)


def innermost(text: str) -> str:
    """`torch/_dynamo/eval_frame.py:1120 in compile_wrapper`, the last frame of a stack; "" when it has none.

    Frames of the harness' own probes are passed over: they were watching.
    """
    frames = _FRAME.findall(text)
    others = [frame for frame in frames if not _OBSERVER.search(frame[0])] or frames
    if not others:
        return ""
    file, line, function = others[-1]
    return f"{file}:{line} in {function.strip()}"


def without_numbers(text: str) -> str:
    """The text with addresses and numbers replaced, so that what two trials say of the same thing is equal."""
    return _MEANS_NOTHING.sub("N", text)


def plain(value: object) -> str:
    """A JSON value in few words: a string as it is, of what is nested one level."""
    if isinstance(value, list):
        return ", ".join("…" if isinstance(part, list | dict) else plain(part) for part in value[:MOST_PARTS])
    if isinstance(value, dict):
        parts = list(value.items())[:MOST_PARTS]
        return ", ".join(f"{key} {'…' if isinstance(part, list | dict) else plain(part)}" for key, part in parts)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return str(value)
