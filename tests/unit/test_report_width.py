"""What `reproduce` and `dump` say fits 80 columns, however long the messages and names are."""

from __future__ import annotations

from collections import Counter

from rich.console import Console

from harness.analysis.explain import Match, Role
from harness.control.dump import ProcessDump
from harness.control.processes import Process
from harness.control.reproduce import Reproduction
from harness.core.case import Case
from harness.core.endings import Ending
from harness.core.stuck.views import Diagnosis, Finding, ThreadView, Wait
from harness.hazards import HAZARDS
from harness.report.names import fit
from harness.report.process_dump import process_text
from harness.report.reproduction import print_reproduction

LONG = "B [compiled_call.checked true] cannot come: drafter-1 waits for the gate lock, held by drafter-0; " * 2


def shown(ending: Ending, case: Case = HAZARDS[0].program, **row: object) -> str:
    console = Console(width=80, no_color=True)
    found = Reproduction(case, 1, Counter({ending.name: 1}), ending, "trials/001-plan", 1, {**row})
    with console.capture() as captured:
        print_reproduction(console, found)
    return captured.get()


def widest(text: str) -> int:
    return max(len(line.rstrip()) for line in text.splitlines())


def test_the_error_that_followed_is_one_line_that_says_it_was_cut() -> None:
    error = {"worker": "drafter-0", "type": "RuntimeError", "message": LONG + "\nmore"}
    text = shown(Ending("reproduced", "", {"witness": ()}), errors=[error])
    cut = [line for line in text.splitlines() if line.startswith("then ")]
    assert cut[0].startswith("then drafter-0: RuntimeError: B [compiled_call")
    assert [line[-2:] for line in cut] == [" …"]
    assert widest(text) <= 80


def test_who_waits_for_whom_is_whole() -> None:
    cycle = "attender waits for autograd's thread of some device, held by autograd-615 (trainer); autograd-615 (trainer) "
    cycle += "waits for torch's compile lock, held by attender"
    text = shown(Ending("reproduced", "", {"witness": ()}), reason=cycle)
    assert f"then {cycle}" in " ".join(text.split())
    assert widest(text) <= 80


def test_who_owns_the_lock_is_said_where_it_is_the_thread() -> None:
    case = next(hazard for hazard in HAZARDS if hazard.id == "user-lock-engine-deadlock").program
    ending = Ending("reproduced", "", {"witness": ()})
    assert f"lock {case.scenario.lock} (lock_owner=thread)" in shown(ending, case=case)
    assert "lock_owner" not in shown(ending)


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


def test_hazards_and_waits_of_a_dump_are_whole() -> None:
    hazard = next(hazard for hazard in HAZARDS if hazard.id == "compile-lock-engine-deadlock")
    role = Role("A", 'Thread "trainer"', "compiles", "torch/autograd/graph.py:979 in _engine_run_backward", "train.py:9 in f")
    trainer, attender = ThreadView("trainer", 1, (), native=("sem_wait",)), ThreadView("attender", 2, ())
    wait = Wait(trainer, "lock", "lock `everything_that_compiles` (trainer.py:120)", {2: "took it at attender.py:4 " * 4})
    found = ProcessDump(
        Process(7, 1, "python train.py", "S", True),
        (trainer, attender),
        Diagnosis((wait,), ()),
        (Match(hazard, (role,), "why", True),),
        note="the stacks of some of them could not be read twice " * 3,
    )
    text = process_text(found)
    said = " ".join(text.split())
    for part in (hazard.title, hazard.remedy, str(role), wait.what, wait.helpers[2].strip(), found.note.strip()):
        assert part in said
    assert widest(text) <= 80
    assert "no hazard" not in text


def test_a_dump_without_native_frames_says_that_the_catalogue_needs_them() -> None:
    text = process_text(ProcessDump(Process(7, 1, "python train.py", "S", True), (ThreadView("main", 1, ()),)))
    assert "no hazard: the catalogue is held against native stacks" in " ".join(text.split())
    assert widest(text) <= 80


def test_a_name_keeps_both_ends() -> None:
    assert fit("short--r0", 9) == "short--r0"
    assert fit("lock=compile_gate,checkpoint=non_reentrant--r12", 30) == "lock=compile_gate,ch…rant--r12"
