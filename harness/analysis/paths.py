"""Paths in tracebacks and stacks, short enough to be read and without what is nobody's business.

A subject under `--python` sees the harness through a link in a temporary folder that is gone by now.
"""

from __future__ import annotations

import re

_PARTS = r"(?:analysis|commands|control|core|hazards|pipeline|report|subject|torch_internals)/|cli\.py|locks\.py"
_PREFIXES = (
    r"(?:/[^\"\n():]*)?/(?:site|dist)-packages/",
    r"(?:/[^\"\n():]*)?/lib/(?=python3\.\d+t?/)",
    rf"(?:/[^\"\n():]*)?/(?=harness/(?:{_PARTS}))",
)
_LEAD = r"(?:(?<=File \")|(?<=\())"
"""Before a path: of Python's own stacks a quote, of py-spy's a bracket."""
_IN_TEXT = tuple(re.compile(_LEAD + prefix) for prefix in _PREFIXES)
_ALONE = tuple(re.compile("^" + prefix) for prefix in _PREFIXES)
_HOME = re.compile(r"(?<![\w~.-])/(?:home|Users)/[^/\s\"':;,)\]]+|(?<![\w~.-])/root(?=[/\s\"':;,)\]]|$)")


def shorten(text: str) -> str:
    """A stack with its paths from the package on: `harness/…`, `torch/…`, `python3.11/…`."""
    for prefix in _IN_TEXT:
        text = prefix.sub("", text)
    return text


def short_path(path: str) -> str:
    """One path, in the same way."""
    for prefix in _ALONE:
        path = prefix.sub("", path)
    return path


def without_home(text: str) -> str:
    """Home folders become `~`: whose they are is nobody's business."""
    return _HOME.sub("~", text)
