"""A long stack is cut by whole frames: in the text of an issue and in a summary as Markdown."""

from __future__ import annotations

import re

import pytest

from harness.report.markdown import stack_block
from harness.report.text import stack
from harness.report.upstream import _named_threads
from harness.report.whole_frames import INNERMOST, MOST_TIMES, OUTERMOST, whole_frames

TELLING = (
    "torch/fx/_symbolic_trace.py", "torch/_dynamo/eval_frame.py", "torch/_higher_order_ops/cond.py",
    "torch/nn/attention/flex_attention.py", "torch/utils/checkpoint.py",
)  # fmt: skip
FILES = [TELLING[n // 11] if n % 11 == 10 else f"lib/other{n}.py" for n in range(55)]
FRAMES = [f'  File "{file}", line {n}, in f{n}\n    source_of_{n}()' for n, file in enumerate(FILES)]
HEAD, LAST = "Traceback (most recent call last):", "RuntimeError: refused"
TRACEBACK = "\n".join([HEAD, *FRAMES, LAST])


def kept(text: str) -> list[int]:
    """The frames that are in it; each of them is whole."""
    numbers = [int(number) for number in re.findall(r'^  File "[^"\n]+", line (\d+), in f\1$', text, re.MULTILINE)]
    assert [int(number) for number in re.findall(r"^    source_of_(\d+)\(\)$", text, re.MULTILINE)] == numbers
    return numbers


def missing(text: str) -> int:
    return sum(int(number) for number in re.findall(r"^  \[… (\d+) frames? left out …\]$", text, re.MULTILINE))


@pytest.mark.parametrize("longest", [1_000, 2_000, 2_500])
def test_both_ends_and_what_tells_stay_and_the_rest_is_counted(longest: int) -> None:
    shown = stack(TRACEBACK, longest)
    numbers = kept(shown)
    must = {*range(OUTERMOST), *range(55 - INNERMOST, 55), 10, 21, 32, 43, 54}
    assert must <= set(numbers)
    assert len(numbers) + missing(shown) == 55
    assert numbers == sorted(numbers)
    assert shown.startswith(HEAD)
    assert shown.endswith(LAST)
    assert "characters left out" not in shown
    if longest == 1_000:
        assert set(numbers) == must, "nothing else stays where there is no room"
    else:
        assert len(shown) <= longest + 200


def test_what_fits_is_not_cut() -> None:
    assert whole_frames(TRACEBACK, len(TRACEBACK)) == TRACEBACK


def test_a_dump_keeps_the_inner_end_wherever_it_stands() -> None:
    dump = "Thread 0x01 (most recent call first):\n" + "\n".join(f'  File "a{n}.py", line {n} in f{n}' for n in range(60))
    shown = whole_frames(dump, 600)
    numbers = [int(number) for number in re.findall(r" in f(\d+)$", shown, re.MULTILINE)]
    assert numbers[:INNERMOST] == list(range(INNERMOST))
    assert numbers[-OUTERMOST:] == list(range(60 - OUTERMOST, 60))


def test_a_recursion_through_what_tells_ends_somewhere() -> None:
    deep = "\n".join([HEAD, *(f'  File "torch/fx/interpreter.py", line {n}, in f{n}' for n in range(5_000)), LAST])
    shown = whole_frames(deep, 2_000)
    assert len(shown) <= MOST_TIMES * 2_000 + 100
    assert shown.endswith(LAST)
    assert missing(shown) > 4_000


def test_markdown_cuts_in_the_same_way() -> None:
    shown = stack_block(stack(TRACEBACK, 100_000), 1_000)
    assert {10, 21, 32, 43, 54} <= set(kept(shown))
    assert missing(shown)
    assert "characters left out" not in shown


def test_a_shortened_stack_is_read_whole_again() -> None:
    from harness.analysis.dumps import parse

    (raised,) = parse(stack(TRACEBACK, 1_000)).exceptions
    assert raised.message == "refused"
    assert [frame.function for frame in raised.frames][-1] == "f54"
    assert raised.frames[0].function == "f0"


def test_of_two_dumps_the_one_that_names_its_threads_is_told_whole() -> None:
    stacks = (
        "=== deadlock: a waits for b\nThread 0x1 (most recent call first):\n  File \"t.py\", line 1 in f\n\n"
        '=== py-spy dump --native (exit 0)\nProcess 7: python\n\nThread 7 (idle): "MainThread"\n    f (t.py:1)\n'
    )
    told = _named_threads(stacks)
    assert told.startswith("=== deadlock: a waits for b\n\nProcess 7: python")
    assert '"MainThread"' in told
    assert "0x1" not in told
    only = stacks.partition("=== py-spy")[0]
    assert _named_threads(only) == only
    assert _named_threads(only + "=== py-spy dump (exit 1)\nError: no such process\n").startswith("=== deadlock")
