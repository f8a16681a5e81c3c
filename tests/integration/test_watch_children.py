"""Children of a watched program: what ended them is told, and they end as they would."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from watch_support import PROGRAMS, plainly, watch

CHILDREN = str(PROGRAMS / "children.py")
FOLLOW = ("--follow",)


def _kind(row: Mapping[str, Any]) -> tuple[str, str, str]:
    (error,) = row["errors"] or ({"type": "", "seen": ""},)
    return row["outcome"], error["type"], error["seen"]


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_what_ended_a_child_is_told_and_it_ends_as_it_would(tmp_path: Path, start: str) -> None:
    words = (sys.executable, "-B", CHILDREN, start)
    plain, done = plainly(*words, cwd=tmp_path), watch(tmp_path / "run", *words, options=FOLLOW)
    codes = "refused 1\nfails 1\ncrashes -11\nleaves 3\nlen 1\nupper 0\n"
    assert (plain.stdout, done.out, done.code) == (codes, codes, 0), done.err
    said = done.err[: done.err.index("harness watch: children.py ended")]
    assert said == plain.stderr
    assert sorted(map(_kind, done.rows)) == sorted(
        [
            ("fx_error", "RuntimeError", "main"),
            ("error", "ValueError", "main"),
            ("error", "TypeError", "main"),
            ("crash", "", ""),
            *([("ok", "", "")] * (4 if start == "forkserver" else 3)),
        ]
    )
    told = " ".join(done.err[len(said) :].split())
    assert "1 compiled call refused with the FX-tracing error: first MainThread" in told
    assert "which ended MainThread" in told
    assert "MainThread ended by ValueError: of the child (children.py:17)." in told
    assert "crash: Fatal Python error: Segmentation fault." in told
    (crashed,) = [row for row in done.rows if row["outcome"] == "crash"]
    assert crashed["exit"] == {"status": None, "signal": "SIGSEGV", "how": "ended by SIGSEGV"}
    assert crashed["trial"] in told.partition("Next: ")[2]
    named = [json.loads((done.run / "trials" / row["trial"] / "process.json").read_text())["program"] for row in done.rows]
    assert set(named) == ({"children.py"} if start == "fork" else {"children.py", "-c"})


def test_errors_of_children_that_nobody_follows_are_their_own(tmp_path: Path) -> None:
    done = watch(tmp_path / "run", sys.executable, CHILDREN, "fork")
    assert (done.row["outcome"], done.row["errors"]) == ("ok", [])
    assert "it forked 6 children; --follow watches them, too" in " ".join(done.err.split())


def test_a_folder_called_like_an_option_can_be_pasted(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("raise ValueError('x')\n")
    words = [sys.executable, "-m", "harness", "watch", "--out=-odd", "--", sys.executable, "fails.py"]
    done = plainly(*words, cwd=tmp_path)
    following = done.stderr.splitlines()[-1].removeprefix("  Next: harness ").split()
    assert following[1].startswith("./-odd/trials/process-"), done.stderr
    explained = plainly(sys.executable, "-m", "harness", *following, cwd=tmp_path)
    assert "No such option" not in explained.stderr
    assert explained.returncode in (0, 1), explained.stderr
