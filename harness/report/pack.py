"""Values of a report that its script reads: text that cannot end a script element, and deflated blocks."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from harness.report.text import visible

_LEVEL = 6
_UNSAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def as_json(value: object) -> str:
    """The value as JSON that can stand inside a script element whatever its texts hold."""
    return json.dumps(shown(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).translate(_UNSAFE)


def deflated(value: object) -> str:
    """The value as JSON, deflated (zlib), in base64."""
    raw = json.dumps(shown(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(zlib.compress(raw, _LEVEL)).decode()


def inflated(text: str) -> Any:
    """Back from `deflated`."""
    return json.loads(zlib.decompress(base64.b64decode(text)))


def shown(value: object) -> Any:
    """The value with every text made visible (`harness.report.text.visible`), tuples as lists."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(str(key)): shown(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [entry if type(entry) is int else shown(entry) for entry in value]
    return value
