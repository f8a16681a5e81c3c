"""`python -m tests.soak.gpu` as a command: its list, its table and summary, its pack, its exit codes."""

from __future__ import annotations

import json
import os
import signal
import tarfile
import threading
from pathlib import Path

import pytest
from gpu_fakes import FOREVER, TWO_GPUS, WRITES, check, until

from tests.soak import gpu
from tests.soak.gpu_checks.check import Check
from tests.soak.gpu_checks.devices import Devices
from tests.soak.gpu_checks.pack import pack

pytestmark = pytest.mark.timeout(120)
GOOD = check("good", goal="7")
MISSES = check("misses", "Path('figure.json').write_text('{\"value\": 5}')", goal="7")
BREAKS = check("breaks", "raise SystemExit(2)")
ABSENT = check("absent", devices=8)


def _run(base: Path, checks: list[Check], *words: str, devices: Devices = TWO_GPUS) -> int:
    return gpu.main(["--out", str(base), *words], checks=checks, devices=devices, grace_s=1.0)


def test_the_table_and_the_summary_say_how_all_stand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(tmp_path, [GOOD, MISSES, BREAKS, ABSENT]) == 1
    table = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| `")]
    assert [row[:1] + row[2:4] for row in rows] == [
        ["`good`", "value 7", "7: reached"],
        ["`misses`", "value 5", "7: missed"],
        ["`breaks`", "–", ""],
        ["`absent`", "–", ""],
    ]
    assert [row[1].split(";")[0] for row in rows] == ["done", "done", "failed: exit 2", "skipped: needs 8 CUDA devices"]
    assert rows[3][4] == "–"
    assert (tmp_path / "table.md").read_text() == table
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["machine"], summary["gpus"]) == ("2 × a GPU", 2)
    by_name = {row["check"]: row for row in summary["checks"]}
    assert (by_name["misses"]["values"], by_name["misses"]["reached"]) == ({"value": 5}, False)
    assert by_name["good"]["folder"] == "checks/good/1"
    assert (by_name["absent"]["attempt"], by_name["absent"]["figure"]) == (0, None)


@pytest.mark.parametrize(
    ("checks", "code"), [([GOOD], 0), ([GOOD, MISSES], 1), ([GOOD, BREAKS], 1), ([GOOD, ABSENT], 3), ([BREAKS, ABSENT], 1)]
)
def test_the_exit_code(tmp_path: Path, checks: list[Check], code: int) -> None:
    assert _run(tmp_path, checks) == code


def test_a_later_call_shows_what_an_earlier_one_has_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run(tmp_path, [GOOD, MISSES], "--only", "g*")
    assert "misses" not in capsys.readouterr().out
    _run(tmp_path, [GOOD, MISSES], devices=Devices(0, "no GPU", ""))
    table = capsys.readouterr().out
    assert "| `good` | done | value 7 |" in table
    assert "| `misses` | skipped: needs a CUDA device; 0 here |" in table


def test_the_list_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = tmp_path / "new"
    assert _run(base, [GOOD, ABSENT], "--list") == 0
    out = capsys.readouterr().out
    assert "| `good` | what good does | 7 | 1 | 20 | alone |  |" in out
    assert "needs 8 CUDA devices; 2 here" in out
    assert not base.exists()


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in ((["--only", "x"], "--only x: there is no such check"), (["--minutes", "0.01"], "--minutes 0.01")):
        assert _run(tmp_path, [GOOD], *words) == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1


def test_two_sessions_do_not_share_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gpu.lock(tmp_path):
        assert _run(tmp_path, [GOOD]) == 2
    assert "another session runs there" in capsys.readouterr().err
    assert _run(tmp_path, [GOOD]) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cuts_what_runs_and_the_table_and_the_pack_are_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    base = tmp_path / "out"

    def send() -> None:
        until((base / "checks" / "forever" / "1" / "ready").exists)
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    sender = threading.Thread(target=send)
    sender.start()
    code = _run(base, [check("forever", FOREVER), GOOD], "--pack", str(tmp_path / "out.tgz"))
    sender.join()
    assert (code, signal.getsignal(number)) == (3, before)
    table = capsys.readouterr().out
    assert "| `forever` | cut: stopped |" in table
    assert "| `good` | skipped: stopped |" in table
    with tarfile.open(tmp_path / "out.tgz") as archive:
        assert "out/summary.json" in archive.getnames()


def test_a_pack_leaves_out_what_can_be_made_again(tmp_path: Path) -> None:
    base = tmp_path / "gpu"
    for name in (
        "ledger.jsonl",
        ".lock",
        "checks/one/1/run/results.jsonl",
        "checks/one/1/run/trials/t/events.jsonl",
        "checks/one/1/run/trials/t/events.bin",
        "checks/one/1/run/trials/t/cache/inductor/x",
        "checks/one/1/run/caches/id/primed",
        "checks/one/1/run/references/key/result.json",
    ):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(name)
    target = base / "gpu.tgz"
    for _ in range(2):  # the second does not hold the first
        assert pack(base, target) == target.stat().st_size
        with tarfile.open(target) as archive:
            files = {entry.name for entry in archive if entry.isfile()}
        assert files == {
            "gpu/ledger.jsonl",
            "gpu/checks/one/1/run/results.jsonl",
            "gpu/checks/one/1/run/trials/t/events.jsonl",
        }
    assert not list(base.glob("*.part"))


def test_an_unpacked_folder_is_gone_on_with(tmp_path: Path) -> None:
    _run(tmp_path / "there" / "gpu", [GOOD], "--pack", str(tmp_path / "gpu.tgz"))
    with tarfile.open(tmp_path / "gpu.tgz") as archive:
        archive.extractall(tmp_path / "here", filter="data")
    here = tmp_path / "here" / "gpu"
    assert _run(here, [GOOD, check("next", WRITES)]) == 0
    assert not (here / "checks" / "good" / "2").exists()
    assert (here / "checks" / "next" / "1" / "figure.json").exists()
