"""What `reproduce` and `dump` say fits 80 columns, however long the messages and names are."""

from __future__ import annotations

from collections import Counter

from rich.console import Console

from harness.control.dump import ProcessDump
from harness.control.processes import Process
from harness.control.reproduce import Reproduction
from harness.core.endings import Ending
from harness.core.stuck.views import Diagnosis, Finding
from harness.hazards import HAZARDS
from harness.report.names import fit
from harness.report.process_dump import process_text
from harness.report.reproduction import print_reproduction

LONG = "B [compiled_call.checked true] cannot come: drafter-1 waits for the gate lock, held by drafter-0; " * 2


def shown(ending: Ending, **row: object) -> str:
    console = Console(width=80, no_color=True)
    found = Reproduction(HAZARDS[0].program, 1, Counter({ending.name: 1}), ending, "trials/001-plan", 1, {**row})
    with console.capture() as captured:
        print_reproduction(console, found)
    return captured.get()


def widest(text: str) -> int:
    return max(len(line.rstrip()) for line in text.splitlines())


def test_the_error_that_followed_is_one_line_that_says_it_was_cut() -> None:
    error = {"worker": "drafter-0", "type": "RuntimeError", "message": LONG + "\nmore"}
    text = shown(Ending("reproduced", "", {"witness": ()}), errors=[error], reason=LONG)
    cut = [line for line in text.splitlines() if line.startswith("then ")]
    assert cut[0].startswith("then drafter-0: RuntimeError: B [compiled_call")
    assert [line[-2:] for line in cut] == [" …", " …"]
    assert widest(text) <= 80


def test_why_it_was_excluded_is_whole() -> None:
    text = shown(Ending("excluded", LONG, {"lock": "compile_gate", "holder": "drafter-0"}))
    assert LONG.strip() in " ".join(text.split())
    assert widest(text) <= 80


def test_a_finding_of_a_dump_is_whole() -> None:
    said = "drafter-0 waits for the lock that drafter-1 took at /srv/jobs/train/loop.py:120, and " * 3
    stuck = Diagnosis((), (Finding("cycle", said, ()),))
    text = process_text(ProcessDump(Process(7, 1, "python train.py", "S", True), diagnosis=stuck))
    assert f"deadlock: {said.strip()}" in " ".join(text.split())
    assert widest(text) <= 80


def test_a_name_keeps_both_ends() -> None:
    assert fit("short--r0", 9) == "short--r0"
    assert fit("lock=compile_gate,checkpoint=non_reentrant--r12", 30) == "lock=compile_gate,ch…rant--r12"
