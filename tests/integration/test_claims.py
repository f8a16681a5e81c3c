"""`harness claims`, with real trials: the answers are those of this run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch import __version__ as torch_version

from harness import cli
from harness.core.versions import parse_specifier

CLAIMS = ("cache-per-thread", "main-warm-up-useless", "no-grad-warm-up-enough", "first-step-lock-enough")


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """`claims.json` of four claims, tested once for all tests here."""
    folder = tmp_path_factory.mktemp("claims") / "out"
    with pytest.raises(SystemExit) as ended:
        cli.main(["claims", *CLAIMS, "--quiet", "--out", str(folder)])
    assert ended.value.code == 0
    found: dict[str, Any] = json.loads((folder / "claims.json").read_text("utf-8"))
    return found


def claim(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in document["claims"] if each["id"] == name)


@pytest.mark.slow
def test_each_is_answered_with_evidence_of_this_run(document: dict[str, Any]) -> None:
    assert [each["id"] for each in document["claims"]] == list(CLAIMS)
    for each in document["claims"]:
        assert each["as_expected"], each
        for test in each["tests"]:
            assert json.loads((Path(test["trial"]) / "result.json").read_text("utf-8"))["outcome"] == test["outcome"]


@pytest.mark.slow
def test_who_compiled_what(document: dict[str, Any]) -> None:
    shared, lengths = claim(document, "cache-per-thread")["tests"]
    assert shared["facts"]["graphs"] == {"first": 1}
    assert lengths["facts"]["graphs"]["first"] == 1
    assert lengths["facts"]["graphs"]["others"] > 1  # up to the recompile limit
    cold, warmed = claim(document, "main-warm-up-useless")["tests"]
    assert set(cold["facts"]["graphs"]) == {"workers"}
    assert warmed["facts"]["graphs"] == {"main": 1}
    (no_grad,) = claim(document, "no-grad-warm-up-enough")["tests"]
    assert no_grad["facts"]["graphs"]["workers"] >= 1


@pytest.mark.slow
def test_the_lock_around_first_steps_fails_by_plan_where_the_flag_is_shared(document: dict[str, Any]) -> None:
    found = claim(document, "first-step-lock-enough")
    if not parse_specifier("<2.14").contains(torch_version):
        assert found["verdict"] == "cannot be told here"
        return
    assert found["verdict"] == "does not hold here"
    locked = next(test for test in found["tests"] if test["name"] == "first_step")
    assert locked["ending"] == "reproduced"
    assert locked["witness"]
