"""A value as a bar of a table: its text, and its length beside the longest. View models without markup."""

from __future__ import annotations

from dataclasses import dataclass

from harness.report.wording import number


@dataclass(frozen=True)
class Bar:
    """A value and its length in percent of the longest; "" where nothing is to be drawn."""

    text: str
    length: str


def bar(value: float, most: float) -> Bar:
    """Of `value` where the longest is `most`."""
    text = f"{value:.2f}" if 0 < value < 9.995 and value != int(value) else number(value).removesuffix(".0")
    return Bar(text, f"{100 * value / most:.1f}" if most and value else "")
