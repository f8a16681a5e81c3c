from __future__ import annotations

import pytest
import torch

from harness.core.errors import UserError
from harness.torch_internals.versions import TESTED, Features, features, release


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("2.11.0+cu130", (2, 11, 0)), ("2.14.1", (2, 14, 1)), ("2.15.0.dev20260101", (2, 15, 0))],
)
def test_a_version_is_its_release_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert release(text) == numbers


def test_no_version_is_refused() -> None:
    with pytest.raises(UserError, match="not a version"):
        release("nightly")


def test_without_an_argument_it_is_the_torch_that_runs() -> None:
    assert torch.__version__.startswith(".".join(map(str, release())))
    assert features() == features(torch.__version__)


def test_the_torch_that_runs_these_tests_is_among_the_tested() -> None:
    assert release()[:2] in TESTED


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.11.0", Features(True, False, False, False)),
        ("2.12.0", Features(True, False, True, False)),
        ("2.13.0", Features(True, True, True, True)),
        ("2.14.1", Features(False, True, True, True)),
    ],
)
def test_what_changed_when(version: str, expected: Features) -> None:
    assert features(version) == expected
