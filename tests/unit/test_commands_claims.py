"""`harness claims`: bad input, and exit codes that follow the answers. Real trials: tests/integration/test_claims.py."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import cli
from harness.control import claims as control
from harness.control.reproduce import Reproduction
from harness.core.endings import Ending
from harness.core.plan import EXCLUDED, HARMLESS, REPRODUCED

Ran = tuple[int, str, str]


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Ran]:
    """With `endings`: test → how its plan ends, instead of trials."""
    environment = {
        "torch": "2.13.0+cpu", "cuda": None, "gpus": [], "variables": {}, "executable": "/usr/bin/python3", "python": "3.11.7",
    }  # fmt: skip
    monkeypatch.setattr("harness.control.environment.describe_environment", lambda python: environment)
    monkeypatch.setattr("harness.control.executors.make_executor", lambda name, python: _Nothing())
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str, torch: str | None = "2.13.0+cpu", **endings: str) -> Ran:
        environment["torch"] = torch

        def stand_in(case: Any, *_: Any, **__: Any) -> Reproduction:
            ending = endings[case.name.replace("-", "_")]
            row = {"outcome": "ok", "torch": torch, "facts": {}, "errors": []}
            return Reproduction(case, 1, Counter({ending: 1}), Ending(ending, "why"), "/runs/a-trial", 1, row)

        monkeypatch.setattr(control, "reproduce", stand_in)
        folder = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        with pytest.raises(SystemExit) as ended:
            cli.main(["claims", "--quiet", "--out", str(folder), *arguments])
        return (int(str(ended.value.code)), *capsys.readouterr())

    return run


class _Nothing:
    def close(self) -> None:
        """There was none."""


def test_as_before_is_0_another_answer_1_and_no_answer_3(ran: Callable[..., Ran]) -> None:
    code, out, err = ran("attention-lock-enough", unlocked=REPRODUCED, per_call=REPRODUCED)
    assert (code, err) == (0, "")
    assert "does not hold here: the FX error came by plan" in out
    assert "unexpected" not in out
    code, out, _ = ran("attention-lock-enough", unlocked=REPRODUCED, per_call=EXCLUDED)
    assert code == 1
    assert "holds here: without a lock the error came by plan; with it: excluded: why" in " ".join(out.split())
    assert "unexpected: with this version it does not hold" in out
    code, out, _ = ran("attention-lock-enough", unlocked=HARMLESS, per_call=HARMLESS)
    assert code == 3
    assert "cannot be told here" in out


def test_json_has_the_evidence(ran: Callable[..., Ran]) -> None:
    code, out, _ = ran("attention-lock-enough", "--json", unlocked=REPRODUCED, per_call=EXCLUDED)
    (claim,) = json.loads(out)["claims"]
    assert code == 1
    assert (claim["verdict"], claim["expected"], claim["as_expected"]) == ("holds here", "does not hold here", False)
    assert [(test["name"], test["ending"]) for test in claim["tests"]] == [("unlocked", REPRODUCED), ("per_call", EXCLUDED)]


def test_it_fits_80_columns_without_colour(ran: Callable[..., Ran]) -> None:
    _, out, _ = ran("attention-lock-enough", unlocked=REPRODUCED, per_call=REPRODUCED)
    assert "\x1b" not in out
    assert max(len(line) for line in out.splitlines()) <= 80


def test_bad_input(ran: Callable[..., Ran]) -> None:
    for arguments, torch, words in (
        (("dense-is-lout",), "2.13.0", 'did you mean "dense-is-loud"?'),
        (("dense-is-loud",), None, "has no torch"),
        (("--frobnicate",), "2.13.0", "harness claims --help"),
    ):
        code, out, err = ran(*arguments, torch=torch)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert words in err
