"""JSON that an accident, or someone else, may have touched."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """The value. Raises ValueError for whatever is wrong with it, also where it is nested without end."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
