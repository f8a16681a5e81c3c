"""Torch versions and conditions on them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.errors import UserError
from harness.core.versions import parse_specifier, parse_version


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.11.0+cu130", (2, 11, 0)),
        ("2.13.0+cpu", (2, 13, 0)),
        ("2.12.0a0+gitabc", (2, 12, 0)),
        ("2.14.0.dev20260101+cu130", (2, 14, 0)),
        ("v2.9", (2, 9)),
        ("2", (2,)),
    ],
)
def test_only_release_numbers_are_read(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_version(text) == numbers


@pytest.mark.parametrize("text", ["", "torch", "x2.11", "."])
def test_no_version_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="not a version"):
        parse_version(text)


@pytest.mark.parametrize(
    ("condition", "inside", "outside"),
    [
        ("<2.12", ["2.11.0+cu130", "2.9", "1.13"], ["2.12", "2.12.0", "2.12.0.dev1", "2.100", "3.0"]),
        ("<=2.12", ["2.12.0", "2.11"], ["2.12.1"]),
        (">2.11", ["2.11.1", "2.12"], ["2.11", "2.11.0"]),
        (">=2.12,<2.14", ["2.12.0", "2.13.1+cpu"], ["2.14.1", "2.11.9"]),
        ("==2.11.*", ["2.11", "2.11.3+cu130"], ["2.110", "2.12", "2.1"]),
        ("==3.0.*", ["3", "3.0.1"], ["3.1", "2.0"]),
        ("!=2.11.*", ["2.12", "2.1"], ["2.11.5"]),
        ("==2.11", ["2.11.0", "2.11"], ["2.11.1"]),
        ("!=2.11.0", ["2.11.1"], ["2.11"]),
        (" >= 2.9 , < 2.10 ", ["2.9.1"], ["2.10"]),
        ("", ["0.1", "99"], []),
    ],
)
def test_conditions(condition: str, inside: list[str], outside: list[str]) -> None:
    specifier = parse_specifier(condition)
    assert [version for version in inside if not specifier.contains(version)] == []
    assert [version for version in outside if specifier.contains(version)] == []


@pytest.mark.parametrize("condition", ["2.12", "<2.12.*", "~=2.1", "<2.12,", "=>2.12", "<two", "== 2.11.* extra"])
def test_a_condition_that_cannot_be_read_is_refused_with_an_example(condition: str) -> None:
    with pytest.raises(UserError, match="version condition") as caught:
        parse_specifier(condition)
    assert '">=2.12,<2.14"' in str(caught.value)


releases = st.lists(st.integers(0, 30), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))


@given(releases, releases)
def test_exactly_one_of_less_equal_and_greater_holds(version: str, bound: str) -> None:
    assert sum(parse_specifier(sign + bound).contains(version) for sign in ("<", "==", ">")) == 1
