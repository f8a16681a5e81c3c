"""What tests in a real browser share besides fixtures."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

Visit = Callable[..., "Page"]
"""Opens a file offline: (path, anchor, **options of the context) → page."""


def colour(page: Page, selector: str, what: str = "color") -> tuple[int, ...]:
    """A colour as computed: (red, green, blue)."""
    value = str(page.locator(selector).first.evaluate(f"(one) => getComputedStyle(one)['{what}']"))
    return tuple(int(part) for part in value.removeprefix("rgb(").removesuffix(")").split(","))


def contrast(first: tuple[int, ...], second: tuple[int, ...]) -> float:
    """Contrast ratio of two colours as WCAG 2.1 defines it."""

    def luminance(rgb: tuple[int, ...]) -> float:
        parts = [part / 255 for part in rgb]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def until(page: Page, expression: str, timeout_s: float = 10.0) -> None:
    """Wait until an expression is true. `wait_for_function` evaluates in the page, which the page's policy forbids."""
    end = time.monotonic() + timeout_s
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"not within {timeout_s} s: {expression}"
        page.wait_for_timeout(20)
