"""`tests.soak.gpu`: its ledger, its budget, how it ends what runs, and how it goes on. The checks here need no GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gpu_fakes import FOREVER, GOES_ON, TWO_GPUS, check, run, until

from tests.soak.gpu_checks.check import CUT, DONE, FAILED, Figure
from tests.soak.gpu_checks.devices import Devices
from tests.soak.gpu_checks.ledger import BROKEN_OFF, NAME, Ledger
from tests.soak.gpu_checks.session import folder_of

pytestmark = pytest.mark.timeout(120)


def test_a_ledger_adds_up_the_parts_of_an_attempt_and_forgets_those_of_an_earlier_one(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "a machine")
    ledger.start("one", 1)
    ledger.end("one", CUT, "the time was up", Figure("half", {"n": 1}), 10.04)
    ledger.start("one", 1)
    ledger.end("one", DONE, "", Figure("whole", {"n": 2}, True), 5.0)
    for read in (ledger, Ledger(tmp_path)):
        standing = read.of("one")
        assert standing is not None
        assert (standing.attempt, standing.status, standing.finished, standing.machine) == (1, DONE, True, "a machine")
        assert standing.figure == Figure("whole", {"n": 2}, True)
        assert standing.seconds == pytest.approx(15.0)
    ledger.start("one", 2)
    ledger.end("one", FAILED, "exit 2", None, 1.0)
    again = Ledger(tmp_path).of("one")
    assert again is not None
    assert (again.attempt, again.seconds, again.figure, again.finished) == (2, 1.0, None, True)


def test_a_ledger_that_a_kill_has_cut_is_read_and_written_on(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.start("one", 1)
    ledger.end("one", DONE, "", None, 1.0)
    ledger.start("two", 1)
    with open(tmp_path / NAME, "ab") as file:
        file.write(b'{"check": "two", "att')
    after = Ledger(tmp_path)
    standing = after.of("two")
    assert standing is not None
    assert (standing.status, standing.why, standing.finished) == (CUT, BROKEN_OFF, False)
    after.end("two", DONE, "", None, 2.0)
    for name, seconds in (("one", 1.0), ("two", 2.0)):
        found = Ledger(tmp_path).of(name)
        assert found is not None
        assert (found.status, found.seconds) == (DONE, seconds)


def test_what_has_ended_is_not_run_again_unless_asked_for(tmp_path: Path) -> None:
    one = check("one", "Path('runs').open('a').write('x')\n" + "Path('figure.json').write_text('{\"value\": 7}')")
    run(tmp_path, [one])
    ledger, skipped = run(tmp_path, [one])
    first = folder_of(tmp_path, "one", 1)
    assert ((first / "runs").read_text(), skipped) == ("x", {})
    ledger, _ = run(tmp_path, [one], again=True)
    standing = ledger.of("one")
    assert standing is not None
    assert (standing.attempt, standing.status) == (2, DONE)
    assert (folder_of(tmp_path, "one", 2) / "runs").read_text() == "x"
    assert (first / "runs").read_text() == "x"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("raise SystemExit(2)", "exit 2; no figure: FileNotFoundError"),
        ("Path('figure.json').write_text('{\"value\": 7}'); raise SystemExit(2)", "exit 2"),
        ("Path('figure.json').write_text('{')", "no figure: JSONDecodeError"),
        ("Path('figure.json').write_text('{}')", "no figure: KeyError: 'value'"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "ended by signal 9; no figure"),
    ],
)
def test_a_command_that_breaks_or_says_nothing_has_failed(tmp_path: Path, code: str, why: str) -> None:
    ledger, _ = run(tmp_path, [check("one", code)])
    standing = ledger.of("one")
    assert standing is not None
    assert standing.status == FAILED
    assert standing.why.startswith(why)


def test_an_exit_code_can_be_an_answer(tmp_path: Path) -> None:
    code = "Path('figure.json').write_text('{\"value\": 7}'); raise SystemExit(3)"
    ledger, _ = run(tmp_path, [check("one", code, codes=(3,))])
    standing = ledger.of("one")
    assert standing is not None
    assert (standing.status, standing.why) == (DONE, "")


def test_nothing_is_begun_that_does_not_fit_into_what_is_left(tmp_path: Path) -> None:
    checks = [check("long", cost_s=100.0), check("goes_on", cost_s=100.0, slice_s=5.0), check("short", cost_s=5.0)]
    ledger, skipped = run(tmp_path, checks, minutes=0.5, grace_s=1.0)
    assert ledger.of("long") is None
    assert list(skipped) == ["long"]
    assert skipped["long"].startswith("about 100 s are needed, 2")
    for name in ("goes_on", "short"):
        standing = ledger.of(name)
        assert standing is not None
        assert standing.status == DONE


def test_devices_that_are_not_there_are_the_reason(tmp_path: Path) -> None:
    checks = [check("two", devices=2), check("one")]
    _, skipped = run(tmp_path, checks, devices=Devices(0, "no GPU", ""))
    assert skipped == {"two": "needs 2 CUDA devices; 0 here", "one": "needs a CUDA device; 0 here"}
    ledger, skipped = run(tmp_path, checks, devices=Devices(1, "a GPU", ""))
    assert (list(skipped), ledger.of("two")) == (["two"], None)
    ledger, skipped = run(tmp_path, checks, devices=TWO_GPUS)
    assert (skipped, ledger.of("two") is not None) == ({}, True)


def test_what_is_cut_is_interrupted_and_goes_on_in_its_folder(tmp_path: Path) -> None:
    one = check("one", GOES_ON, slice_s=1.0)
    folder = folder_of(tmp_path, "one", 1)
    ledger, skipped = run(tmp_path, [one, check("two")], stop_when=(folder / "ready").exists)
    standing = ledger.of("one")
    assert standing is not None
    assert (standing.status, standing.why, standing.figure) == (CUT, "stopped", Figure("value 1", {"value": 1}, False))
    assert skipped == {"two": "stopped"}  # it waited for its turn
    before = standing.seconds
    ledger, _ = run(tmp_path, [one])
    standing = ledger.of("one")
    assert standing is not None
    assert (standing.attempt, standing.status) == (1, DONE)
    assert standing.figure == Figure("value 2", {"value": 2}, False)
    assert standing.seconds > before


def test_what_cannot_go_on_begins_again_in_a_new_folder(tmp_path: Path) -> None:
    one = check("one", GOES_ON)
    run(tmp_path, [one], stop_when=(folder_of(tmp_path, "one", 1) / "ready").exists)
    second = folder_of(tmp_path, "one", 2)
    ledger, _ = run(tmp_path, [one], stop_when=(second / "ready").exists)
    standing = ledger.of("one")
    assert standing is not None
    assert (standing.attempt, standing.status) == (2, CUT)
    assert (second / "part").exists()


def test_at_the_limit_what_runs_is_cut(tmp_path: Path) -> None:
    ledger, _ = run(tmp_path, [check("one", FOREVER, slice_s=0.1)], minutes=3 / 60, grace_s=1.0)
    standing = ledger.of("one")
    assert standing is not None
    assert (standing.status, standing.why) == (CUT, "the time was up")
    assert standing.seconds < 30


def test_who_does_not_end_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    stubborn = (
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "sleep = 'import time; time.sleep(300)'\n"
        "own = [subprocess.Popen([sys.executable, '-S', '-c', sleep], start_new_session=new) for new in (True, False)]\n"
        "Path('pids').write_text(' '.join(str(each.pid) for each in own))\n"
    ) + FOREVER
    folder = folder_of(tmp_path, "one", 1)
    ledger, _ = run(tmp_path, [check("one", stubborn)], grace_s=0.2, stop_when=(folder / "ready").exists)
    standing = ledger.of("one")
    assert standing is not None
    assert (standing.status, standing.why) == (CUT, "stopped, killed")
    for pid in (folder / "pids").read_text().split():
        until(lambda pid=pid: _gone(int(pid)))  # type: ignore[misc]


def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    code = (
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(300)'])\n"
        "Path('pid').write_text(str(child.pid))\n"
        "Path('figure.json').write_text('{\"value\": 7}')"
    )
    ledger, _ = run(tmp_path, [check("one", code)])
    standing = ledger.of("one")
    assert standing is not None
    assert standing.status == DONE
    pid = int((folder_of(tmp_path, "one", 1) / "pid").read_text())
    until(lambda: _gone(pid))


def test_a_command_that_takes_three_times_its_cost_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.soak.gpu_checks.check.Check.limit_s", property(lambda self: self.cost_s))
    ledger, _ = run(tmp_path, [check("one", FOREVER, cost_s=0.5)])
    standing = ledger.of("one")
    assert standing is not None
    assert (standing.status, standing.why, standing.finished) == (FAILED, "no end after 0 s", True)


MEETS = """
Path('../../%s.here').touch()
deadline = time.monotonic() + 60
while not Path('../../%s.here').exists():
    assert time.monotonic() < deadline
    time.sleep(0.01)
Path('figure.json').write_text('{"value": 7}')
"""


def test_checks_run_beside_each_other_as_far_as_there_is_room(tmp_path: Path) -> None:
    checks = [check("one", MEETS % ("one", "two"), jobs=2), check("two", MEETS % ("two", "one"), jobs=2)]
    ledger, _ = run(tmp_path, checks, jobs=4)
    assert [standing and standing.status for standing in map(ledger.of, ("one", "two"))] == [DONE, DONE]


COUNTS = """
mark = Path('../../' + str(os.getpid()) + '.runs')
mark.touch()
together = len(list(Path('../..').glob('*.runs')))
time.sleep(0.3)
together = max(together, len(list(Path('../..').glob('*.runs'))))
mark.unlink()
Path('figure.json').write_text(json.dumps({'value': together}))
"""


@pytest.mark.parametrize("fields", [{"jobs": 0}, {"jobs": 3}])
def test_who_measures_time_and_who_finds_no_room_waits(tmp_path: Path, fields: dict[str, int]) -> None:
    checks = [check("one", COUNTS, jobs=2), check("two", COUNTS, **fields), check("three", COUNTS, jobs=2)]
    ledger, _ = run(tmp_path, checks, jobs=4)
    together = [standing.figure.values["value"] for name in ("one", "two", "three") if (standing := ledger.of(name))
                and standing.figure]  # fmt: skip
    assert together == [1, 1, 1]


def _gone(pid: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text() or not os.path.exists(f"/proc/{pid}")
    except OSError:
        return True
