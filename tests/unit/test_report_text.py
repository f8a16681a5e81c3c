"""Text that nobody vouches for, made fit to be shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.report import text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\tand\nlines", "plain\tand\nlines"),
        ("a\r\nb", "a\nb"),
        ("a\rb", "a␍b"),
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("nul\0", "nul␀"),
        ("\x7f", "␡"),
        ("\x85", "\\x85"),
        ("\ud800", "\\ud800"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("\u2028", "\\u2028"),
        ("\ufffe", "\\ufffe"),
        ("\U000e0041", "\\U000e0041"),
        ("ünïcode ≤ 日本 😀", "ünïcode ≤ 日本 😀"),
    ],
)
def test_every_character_can_be_seen(raw: str, shown: str) -> None:
    assert text.visible(raw) == shown


@given(st.text(st.characters(codec=None)))
def test_what_is_visible_can_be_written_and_is_stable(raw: str) -> None:
    shown = text.visible(raw)
    assert shown.encode("utf-8").decode("utf-8") == shown
    assert text.visible(shown) == shown
    assert all(sign.isprintable() or sign in "\n\t" or ord(sign) > 0x9F for sign in shown)


def test_a_cut_says_how_much_is_missing() -> None:
    assert text.clip("x" * 10, 10) == "x" * 10
    assert text.clip("x" * 1_234_567, 5) == "xxxxx [… 1,234,562 characters left out …]"


def test_a_cut_in_the_middle_keeps_the_end() -> None:
    shown = text.clip("a" * 500 + "b" * 500, 100, tail=0.75)
    assert shown == "a" * 25 + "\n[… 900 characters left out …]\n" + "b" * 75


@given(st.text(), st.integers(1, 50), st.sampled_from([0.0, 0.5, 0.75]))
def test_a_cut_is_short(raw: str, longest: int, tail: float) -> None:
    assert len(text.clip(raw, longest, tail=tail)) <= longest + 60


def test_a_stack_is_shown_from_the_package_on_and_without_markers() -> None:
    raw = (
        "Traceback (most recent call last):\n"
        '  File "/home/me/harness/pipeline/drafter.py", line 84, in forward\n'
        "    x = x ^ y\n"
        "        ~~^~~\n"
        '  File "/opt/venv/lib/python3.11/site-packages/torch/_ops.py", line 543, in __call__\n'
        "    return self.dispatch()\n"
        "           ^^^^^^^^^^^^^^^\n"
        '  File "/usr/lib/python3.11/contextlib.py", line 144, in __exit__\n'
        '  File "/home/me/train.py", line 3, in main\n'
        '  File "/home/me/harness/locks.py", line 9, in region\n'
        "ValueError: ^^^ is no number\n"
    )
    assert text.stack(raw, 10_000) == (
        "Traceback (most recent call last):\n"
        '  File "harness/pipeline/drafter.py", line 84, in forward\n'
        "    x = x ^ y\n"
        '  File "torch/_ops.py", line 543, in __call__\n'
        "    return self.dispatch()\n"
        '  File "python3.11/contextlib.py", line 144, in __exit__\n'
        '  File "/home/me/train.py", line 3, in main\n'
        '  File "harness/locks.py", line 9, in region\n'
        "ValueError: ^^^ is no number"
    )


def test_a_long_line_and_a_long_stack_are_cut() -> None:
    assert text.stack("x" * 1_000, 10_000) == "x" * 400 + " [… 600 characters left out …]"
    shown = text.stack("first\n" + "line\n" * 10_000 + "last", 1_000)
    assert shown.startswith("first\n")
    assert shown.endswith("line\nlast")
    assert re.search(r"\[… [\d,]+ lines left out …\]", shown)
    assert len(shown) < 1_100


@pytest.mark.parametrize(
    ("raw", "frame"),
    [
        ('  File "torch/_ops.py", line 543, in __call__\n    x\n  File "a.py", line 2, in f\n', "a.py:2 in f"),
        ('  File "a.py", line 2, in f\n  File "harness/torch_internals/base.py", line 86, in call\n', "a.py:2 in f"),
        ('  File "/x/harness/subject/probes/dense.py", line 1, in g\n', "/x/harness/subject/probes/dense.py:1 in g"),
        ("no stack", ""),
        ("", ""),
    ],
)
def test_the_innermost_frame_is_named_but_not_a_probes(raw: str, frame: str) -> None:
    assert text.innermost(raw) == frame


def test_texts_that_differ_in_numbers_only_are_one() -> None:
    first = text.without_numbers("no event for 31 s; thread 0x7f2a waits for lock 3.5")
    assert first == text.without_numbers("no event for 4 s; thread 0xdead waits for lock 12.25")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a", "a"),
        (None, "none"),
        (True, "yes"),
        (3, "3"),
        ([1, "b"], "1, b"),
        ({"a": 1, "b": "c"}, "a 1, b c"),
        ({"a": {"deep": [[[]]]}}, "a …"),
        ([[1]], "…"),
    ],
)
def test_json_values_in_few_words(value: object, shown: str) -> None:
    assert text.plain(value) == shown
