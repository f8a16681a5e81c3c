"""Errors for the user are one line and name what is nearest."""

from __future__ import annotations

import pytest

from harness.core.errors import (
    MatrixError,
    RunFolderError,
    SettingError,
    UserError,
    WhereError,
    nearest,
    show,
)


@pytest.mark.parametrize("kind", [MatrixError, RunFolderError, SettingError, WhereError])
def test_each_kind_is_a_user_error_of_one_line(kind: type[UserError]) -> None:
    error = kind("first\nsecond\r\nthird")
    assert isinstance(error, UserError)
    assert str(error) == "first second third"


def test_nearest_names_the_closest_and_only_a_close_one() -> None:
    assert nearest("checkpont", ["lock", "checkpoint"]) == ' (did you mean "checkpoint"?)'
    assert nearest("LOCK", ["lock", "checkpoint"]) == ' (did you mean "lock"?)'
    assert nearest("zebra", ["lock", "checkpoint"]) == ""
    assert nearest("x", []) == ""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true (a boolean)"),
        ("five", '"five"'),
        ("a\nb", r"'a\nb'"),
        ([1], "a list"),
        ({}, "a table"),
        (1.5, "1.5"),
    ],
)
def test_show_says_a_value_as_toml_does(value: object, shown: str) -> None:
    assert show(value) == shown
