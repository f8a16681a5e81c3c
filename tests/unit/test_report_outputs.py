"""What `harness report` writes beside the page: Markdown, CSV, Parquet, a badge, one line."""

from __future__ import annotations

import csv
import importlib.util
import io
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from fake_folder import ENVIRONMENT, wide_folder, write_folder
from fake_runs import FX_ERROR, row
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import harness
from harness import cli
from harness.core.scenario import Scenario
from harness.report.markdown import block, plain, table

MATRIX = 'schema = 1\n[axes]\nlock = ["none"]\n'
EXPECTING = MATRIX + '[[expect]]\nwhere = "lock=none"\n{}\n'
HOSTILE = (
    "a|b `c` ``` <script>alert(1)</script> \\| [x](javascript:y) @user #12 \n\n"
    "# head\n| x | y |\n\x1b[2J \u202e www.evil.com"
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["report", *arguments])
    out, err = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, out, err


def tokens(text: str) -> list[Any]:
    """As an independent reader of GitHub's dialect has it."""
    found = []
    for token in MarkdownIt("gfm-like", {"linkify": False}).parse(text):
        found += [token, *(token.children or [])]
    return found


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab|`\\<>&*_[]()#@!~$:/\n\r\t \x1b-+=.1w"), max_size=40))
def test_any_text_stays_one_cell_and_makes_no_markup(text: str) -> None:
    found = tokens("\n".join(table(("h", "i"), [(plain(text), "last")])))
    cells = [found[n + 1].content for n, token in enumerate(found) if token.type == "td_open"]
    assert cells[1:] == ["last"], "it stays in its cell"
    assert {token.type for token in found} <= {
        *("table_open", "thead_open", "tr_open", "th_open", "inline", "text", "th_close", "tr_close", "thead_close"),
        *("tbody_open", "td_open", "td_close", "tbody_close", "table_close", "text_special"),
    }


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.sampled_from("a`~\n <>"), max_size=40))
def test_no_text_leaves_its_block(text: str) -> None:
    found = tokens(block(text) + "\n\nafter")
    assert [token.type for token in found if token.type in ("fence", "html_block", "html_inline")] == ["fence"]
    assert found[-2].content == "after"


def test_plain_text_stays_readable() -> None:
    assert plain("lock=first_step: 3/5 (≤ 92 %), torch 2.11.0+cpu at 19:41:08") == (
        "lock=first_step: 3/5 (≤ 92 %), torch 2.11.0+cpu at 19:41:08"
    )


def test_markdown_of_a_wide_run(capsys: pytest.CaptureFixture[str]) -> None:
    wide_folder(Path("run"))
    code, out, _ = report(capsys, "run", "--markdown", "-")
    assert code == 0
    assert out.startswith("## wide: 6 of 20 scenarios are unsafe: FX-tracing errors in 16 of 139 trials")
    assert "| ✗ unsafe | lock=every_step | 1/5 (0.5–72 %) | 1 × deadlock |" in out
    assert "| ↑ improved | lock=per_call |" in out
    assert "drafter-0 (thread Thread-1): was tracing:" in out
    assert len(out) < 65_536, "a comment on GitHub holds no more"
    assert not Path("run/report.html").exists()
    assert report(capsys, "run", "--markdown", "m.md") == (0, "m.md\n", "")
    assert Path("m.md").read_text("utf-8") == out


def test_hostile_text_of_a_run_is_text_in_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    error = {**FX_ERROR, "message": HOSTILE, "worker": HOSTILE, "traceback": HOSTILE * 50, "label": "error"}
    write_folder(Path("run"), [row(None, 0, "error", errors=[error], reason=HOSTILE)], matrix=MATRIX)
    _, out, _ = report(capsys, "run", "--markdown", "-")
    found = tokens(out)
    assert not [token for token in found if token.type in ("html_block", "html_inline", "link_open")]
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert [token.content for token in found if token.type == "inline" and "head" in token.content]
    assert all(token.markup in ("##", "###") for token in found if token.type == "heading_open")
    assert "@user" not in "".join(token.content for token in found if token.type == "text")


def test_two_torch_in_one_scenario_are_one_verdict_in_no_output(capsys: pytest.CaptureFixture[str]) -> None:
    """By 60 trials without a failure it would be safe, and by 30 it is not; so says each output."""
    torch = ["2.11.0"] * 30 + ["2.13.0+cpu"] * 30
    write_folder(Path("run"), [row(None, n, torch=one) for n, one in enumerate(torch)], matrix=MATRIX)
    _, line, _ = report(capsys, "run", "--summary")
    assert "on torch 2.11.0, 2.13.0+cpu: 1 undecided of 1 scenario" in line
    assert "safe" not in line
    speed = "start 1.5 s, 1000 tok/s"
    each = f"0/30 (≤ 9.5 %), {speed} under torch 2.11.0; 0/30 (≤ 9.5 %), {speed} under torch 2.13.0+cpu"
    _, markdown, _ = report(capsys, "run", "--markdown", "-")
    assert f"| ? undecided | default | {each} |" in markdown
    assert "Safe takes 59 trials of a scenario without a failure, under each torch." in markdown
    assert "--repeats 59" not in markdown, "which would add trials of one torch alone"
    _, svg, _ = report(capsys, "run", "--badge", "-")
    assert "1 undecided" in svg
    report(capsys, "run")
    page = Path("run/report.html").read_text("utf-8")
    assert each in page
    assert "0/60" not in page + markdown + line


def test_csv_is_the_frame_of_trials(capsys: pytest.CaptureFixture[str]) -> None:
    wide_folder(Path("run"))
    assert report(capsys, "run", "--csv", "t.csv")[:2] == (0, "t.csv\n")
    rows = list(csv.DictReader(io.StringIO(Path("t.csv").read_text("utf-8"))))
    frame = harness.load("run").trials
    assert list(rows[0]) == list(frame.columns)
    assert [one["trial"] for one in rows] == list(frame["trial"])
    for name in ("outcome", "fx_errors", "dense_calls", "lock", "drafters"):
        assert [one[name] for one in rows] == [str(value) for value in frame[name]]
    assert [float(one["startup_s"]) for one in rows if one["startup_s"]] == list(frame["startup_s"].dropna())


def test_a_dash_is_standard_output_and_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    wide_folder(Path("run"))
    for option in ("--csv", "--badge"):
        report(capsys, "run", option, "file")
        code, out, _ = report(capsys, "run", option, "-")
        assert (code, out) == (0, Path("file").read_bytes().decode())
    for arguments, words in (
        (("--parquet", "-"), "--parquet -: Parquet is binary and needs a file"),
        (("--csv", "-", "--markdown", "-"), "--markdown and --csv cannot all be written to standard output"),
        (("--summary", "-"), "- is no run folder; --summary and --json take no file"),
    ):
        code, out, err = report(capsys, *(() if "--summary" in arguments else ("run",)), *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert words in err
    assert not Path("-").exists()


def test_csv_keeps_what_the_trials_measured(capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(Path("run"), [row(None, 0, start_s=0.25, steps_ok=7, reason='a,"b"\nc')], matrix=MATRIX)
    report(capsys, "run", "--csv", "t.csv")
    [one] = csv.DictReader(io.StringIO(Path("t.csv").read_text("utf-8")))
    assert (one["start_s"], one["steps_ok"], one["reason"]) == ("0.25", "7", 'a,"b"\nc')


def test_parquet_without_pyarrow_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    write_folder(Path("run"), [row()], matrix=MATRIX)
    code, out, err = report(capsys, "run", "--parquet", "t.parquet")
    assert (code, out) == (2, "")
    assert err == (
        'error: --parquet needs pyarrow: python -m pip install "dflash-harness[parquet]", or pyarrow itself\n'
    )
    assert not Path("t.parquet").exists()


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed (extra: parquet)")
def test_parquet_has_types(capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow.parquet as parquet

    wide_folder(Path("run"))
    assert report(capsys, "run", "--parquet", "t.parquet")[:2] == (0, "t.parquet\n")
    found = parquet.read_table("t.parquet")
    frame = harness.load("run").trials
    assert found.column_names == list(frame.columns)
    assert found["fx_errors"].to_pylist() == list(frame["fx_errors"])
    assert str(found.schema.field("failed").type) == "bool"


@pytest.mark.parametrize(
    ("expect", "rows", "text"),
    [
        ('only = ["ok"]', [row(None, 0, "fx_error")], "1 broken"),
        ('may = ["dense"]', [row(None, 0, "fx_error")], "1 unexpected"),
        ('only = ["ok"]', [row(None, 0)], "as expected"),
        ('must = ["fx_error"]', [row(None, 0)], "1 improved"),
        ('only = ["ok"]', [], "nothing judged"),
    ],
)
def test_the_badge_says_how_the_run_stands(
    capsys: pytest.CaptureFixture[str], expect: str, rows: list[dict[str, Any]], text: str
) -> None:
    once = {**ENVIRONMENT, "options": {"matrix": "m.toml", "repeats": 1}}
    write_folder(Path("run"), rows, matrix=EXPECTING.format(expect), environment=once)
    assert report(capsys, "run", "--badge", "run/badge.svg")[:2] == (0, "run/badge.svg\n")
    svg = ElementTree.fromstring(Path("run/badge.svg").read_text("utf-8"))
    assert svg.attrib["aria-label"] == f"harness: {text}"
    assert text in "".join(svg.itertext())
    assert "http" not in Path("run/badge.svg").read_text("utf-8").replace("http://www.w3.org/2000/svg", "")


def test_the_badge_without_expectations_says_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(Path("run"), [row(None, 0, "dense"), row(Scenario(seed=1))], matrix=None)
    report(capsys, "run", "--badge", "b.svg")
    assert "harness: 1 unsafe" in Path("b.svg").read_text("utf-8")


def test_the_summary_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    wide_folder(Path("run"))
    code, out, _ = report(capsys, "run", "--summary")
    assert code == 0
    assert out == (
        "wide on torch 2.11.0+cpu: 9 undecided, 6 unsafe, 2 skipped, 1 not run, 1 safe, 1 incomplete of 20 scenarios; "
        "expectations: 1 broken, 2 unexpected, 3 improved, 3 missing, 2 flaky, 6 met\n"
    )


def test_the_summary_counts_a_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(Path("a"), [row(None, number) for number in range(20)], matrix=MATRIX)
    write_folder(Path("b"), [row(None, number, "error") for number in range(20)], matrix=MATRIX)
    _, out, _ = report(capsys, "b", "--summary", "--baseline", "a")
    assert out.endswith("; against the baseline: 1 worse\n")


def test_the_page_is_written_besides_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(Path("run"), [row()], matrix=MATRIX)
    code, out, _ = report(capsys, "run", "--summary", "--out", "x.html")
    assert (code, len(out.splitlines())) == (0, 2)
    assert Path("x.html").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--csv", "run"], "is a folder; name a file with --csv"),
        (["run", "--badge", "no/b.svg"], "cannot write no/b.svg"),
        (["run", "--markdown", "no/m.md"], "choose another file with --markdown"),
        (["run", "--summary", "--json"], "--json prints the facts of the HTML report"),
        (["nowhere", "--summary"], "no such run folder"),
    ],
)
def test_bad_input_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    write_folder(Path("run"), [row()], matrix=MATRIX)
    code, out, err = report(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert words in err
