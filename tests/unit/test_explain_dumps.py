"""`harness explain` on stored dumps: of every hazard that leaves a trace, of healthy programs, and what people do to both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from dump_texts import CHANGES, FOLDER, HAZARDOUS, HEALTHY, hazard_of, read

from harness.analysis.dumps import parse
from harness.analysis.explain import match
from harness.hazards import HAZARDS


def found(text: str) -> list[str]:
    return [each.hazard.id for each in match(parse(text))]


def name(path: Path) -> str:
    return str(path.relative_to(FOLDER).with_suffix(""))


def test_every_hazard_that_leaves_a_trace_has_a_dump() -> None:
    traced = {hazard.id for hazard in HAZARDS if not hazard.signature.silent}
    assert traced - {hazard_of(path) for path in HAZARDOUS} == set()


@pytest.mark.parametrize("path", HAZARDOUS, ids=name)
def test_the_hazard_is_named(path: Path) -> None:
    matches = {each.hazard.id: each for each in match(parse(read(path)))}
    assert hazard_of(path) in matches
    each = matches[hazard_of(path)]
    assert each.certain or each.hazard.signature.tracer, "only a stack that is in no traceback tells it from others"
    assert [role.role for role in each.roles] == [pattern.role for pattern in each.hazard.signature.threads] or each.exception
    assert len({role.thread for role in each.roles}) == len(each.roles)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("path", HAZARDOUS, ids=name)
def test_it_is_named_whatever_was_done_to_the_text(path: Path, change: Callable[[str], str]) -> None:
    before, after = found(read(path)), found(change(read(path)))
    assert hazard_of(path) in after
    assert after == before


@pytest.mark.parametrize("path", HAZARDOUS, ids=name)
def test_it_is_named_when_outer_frames_are_missing(path: Path) -> None:
    """The half of each stack that a scroll-back loses; the innermost frames are what people paste."""
    assert hazard_of(path) in found(shortened(read(path)))


def shortened(text: str) -> str:
    """Outer frames of each stack left out: the first of a traceback, the last of a dump."""
    lines: list[str] = []
    block: list[str] = []

    def flush() -> None:
        frames = [n for n, line in enumerate(block) if line.lstrip().startswith('File "') and ", in " in line]
        lines.extend(block[frames[len(frames) // 3] :] if frames else block[: max(1, len(block) - len(block) // 4)])
        block.clear()

    for line in text.splitlines():
        if line.startswith("  "):
            block.append(line)
        else:
            flush()
            lines.append(line)
    flush()
    return "\n".join(lines)


ON_THE_DEVICES_THREAD = {
    "compile-lock-engine-deadlock": ("compile_fx_backward", {"attender"}),
    "user-lock-engine-deadlock": ("recompute_fn", {"drafter", "drafter-0"}),
}
"""Hazard → (what B, a thread that Python did not start, is in; A's name, where a dump has names)."""

DEVICE = [path for path in HAZARDOUS if hazard_of(path) in ON_THE_DEVICES_THREAD]


def test_the_engines_deadlocks_have_dumps_of_each_torch_and_form() -> None:
    """All are of programs that hung, on a device in host memory. A plain lock shows only with native frames; those of the
    user's lock without them are of `harness.locks`."""
    forms = {f"{torch}.{form}" for torch in ("2.11", "2.13", "2.14") for form in ("native", "pyspy", "faulthandler")}
    for hazard in ON_THE_DEVICES_THREAD:
        assert {path.stem.partition(".")[2] for path in DEVICE if hazard_of(path) == hazard} == forms


@pytest.mark.parametrize("path", DEVICE, ids=name)
def test_of_the_engines_deadlocks_one_is_named_with_the_right_threads(path: Path) -> None:
    dump = parse(read(path))
    (each,) = match(dump)
    assert each.hazard.id == hazard_of(path)
    a, b = (next(thread for thread in dump.threads if str(thread) == role.thread) for role in each.roles)
    inside, names = ON_THE_DEVICES_THREAD[each.hazard.id]
    on_device = [thread for thread in dump.threads if any(frame.function.endswith(inside) for frame in thread.frames)]
    assert on_device == [b]
    assert not b.name
    assert a.name in names or path.stem.endswith(".faulthandler")
    assert any(frame.function.rpartition(".")[2] == "_bootstrap" for frame in a.frames), "Python started it"


LEAKS = [path for path in HAZARDOUS if hazard_of(path) == "compiling-leak"]


@pytest.mark.parametrize("path", LEAKS, ids=name)
def test_a_foreach_step_beside_a_compile_is_named_alone_and_for_certain(path: Path) -> None:
    """Each was raised beside a thread that compiled with aot_eager, by AdamW and Adamax of torch 2.13 and 2.14."""
    (each,) = match(parse(read(path)))
    assert (each.hazard.id, each.certain) == ("compiling-leak", True)
    assert each.roles[0].user.endswith("train/train.py:27 in train")


@pytest.mark.parametrize("path", LEAKS, ids=name)
def test_the_same_words_of_another_optimizer_are_not(path: Path) -> None:
    """A list with a float in it is a common mistake."""
    assert found(read(path).replace("site-packages/torch/optim/", "site-packages/other/")) == []


@pytest.mark.parametrize("path", HEALTHY, ids=name)
def test_nothing_is_said_of_a_healthy_program(path: Path) -> None:
    text = read(path)
    assert parse(text), "it was not read"
    assert found(text) == []
    assert found(shortened(text)) == []


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_nothing_is_said_of_any_of_them_changed(change: Callable[[str], str]) -> None:
    assert [name(path) for path in HEALTHY if found(change(read(path)))] == []


def test_there_are_twenty_of_them() -> None:
    assert len(HEALTHY) >= 20


def test_all_healthy_dumps_in_one_text() -> None:
    """A thread of one process and a thread of another make no deadlock."""
    assert found("\n\n".join(read(path) for path in HEALTHY)) == []
