"""JSON that an accident may have touched."""

from __future__ import annotations

import json
from typing import Any


def json_line(text: bytes) -> Any:
    """The value; None where the text is not JSON, or nested without end."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
