"""Each form in which stacks and exceptions come, read by `harness.analysis.dumps`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dump_texts import FOLDER, functions, read

from harness.analysis.dumps import Frame, parse

FAULTHANDLER = '''Fatal Python error: Segmentation fault

Thread 0x00007ff8437fe6c0 (most recent call first):
  File "/home/u/train.py", line 11 in take
  File "/usr/lib/python3.11/threading.py", line 982 in run
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007ff849aa0b80 [drafter-1] (most recent call first):
  File "/home/u/train.py", line 14 in step
  File "/home/u/train.py", line 20 in <module>
'''
PYSPY = '''Process 27392: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 27392 (idle): "MainThread"
    clock_nanosleep (libc.so.6)
    <module> (train.py:16)
    0x7ff84924524a (libc.so.6)
Thread 27394 (active+gil): "odd: name (x)"
    torch::autograd::Engine::thread_init(int, std::shared_ptr<ReadyQueue> const&) (torch/lib/libtorch_cpu.so)
    Condition.wait (threading.py:327)
        Arguments:
            self: <Condition at 0x7ff8490c26d0>
            text: "Thread 1 (idle): "no thread""
    take (C:\\Program Files (x86)\\train.py:4)
'''
GDB = '''Thread 2 (Thread 0x7f1122334455 (LWP 4711) "drafter-1"):
Traceback (most recent call first):
  <built-in method acquire of _thread.lock object at remote 0x7f3>
  File "/home/u/train.py", line 7, in take
    lock.acquire()
  File "/usr/lib/python3.11/threading.py", line 1002, in _bootstrap
    self._bootstrap_inner()
'''
PYTEST_TIMEOUT = '''~~~~~~~~~~~~~~~~~~~~~ Stack of drafter-0 (140704261072576) ~~~~~~~~~~~~~~~~~~~~~
  File "/usr/lib/python3.11/threading.py", line 1002, in _bootstrap
    self._bootstrap_inner()
  File "/home/u/test_slow.py", line 3, in take
    time.sleep(5)
'''


def test_faulthandler_outermost_first_and_the_fatal_error_on_its_thread() -> None:
    dump = parse(FAULTHANDLER)
    first, current = dump.threads
    assert functions(first) == ["_bootstrap", "run", "take"]
    assert first.ident == 0x7FF8437FE6C0
    assert not first.cut_outer
    assert (current.name, current.state) == ("drafter-1", "current")
    assert current.frames[-1] == Frame("step", "/home/u/train.py", 14)
    (fatal,) = dump.exceptions
    assert fatal.texts == ("Fatal Python error: Segmentation fault",)
    assert fatal.frames == current.frames


def test_faulthandlers_cut_after_a_hundred_frames() -> None:
    frames = "".join(f'  File "a.py", line {n} in f{n}\n' for n in range(100))
    (thread,) = parse(f"Thread 0x01 (most recent call first):\n{frames}  ...\n").threads
    assert len(thread.frames) == 100
    assert thread.cut_outer
    assert not thread.cut_inner


def test_faulthandler_of_python_3_14_has_names_and_a_stack_of_c() -> None:
    text = (
        "Fatal Python error: Segmentation fault\n\n"
        "Thread 0x00007f79a8dee6c0 [drafter [1]] (most recent call first):\n"
        '  File "/home/u/train.py", line 3 in f\n\n'
        "Current thread 0x00007f79a93f4400 [python] (most recent call first):\n"
        "  Garbage-collecting\n"
        '  File "/home/u/train.py", line 9 in <module>\n\n'
        "Current thread's C stack trace (most recent call first):\n"
        '  Binary file "/usr/bin/python3.14", at _Py_DumpStack+0x4a [0x49b2f9]\n'
        '  Binary file "/lib/x86_64-linux-gnu/libc.so.6", at +0x406b0 [0x7f79a94356b0]\n\n'
        "Extension modules: numpy._core._multiarray_umath (total: 1)\n"
    )
    dump = parse(text)
    assert [(thread.name, thread.state, functions(thread)) for thread in dump.threads] == [
        ("drafter [1]", "", ["f"]),
        ("python", "current", ["<module>"]),
    ]
    (fatal,) = dump.exceptions
    assert fatal.frames == dump.threads[1].frames


def test_pyspy_with_native_frames_and_locals() -> None:
    main, other = parse(PYSPY).threads
    assert (main.native_id, main.name, main.state) == (27392, "MainThread", "idle")
    assert functions(main) == ["0x7ff84924524a", "<module>", "clock_nanosleep"]
    assert (other.name, other.state) == ("odd: name (x)", "active+gil")
    assert other.frames[0] == Frame("take", "C:/Program Files (x86)/train.py", 4)
    assert functions(other)[1:] == [
        "Condition.wait",
        "torch::autograd::Engine::thread_init(int, std::shared_ptr<ReadyQueue> const&)",
    ]


def test_pyspy_json_says_the_same_as_its_text() -> None:
    document = [
        {
            "pid": 1, "thread_id": 99, "thread_name": "t", "os_thread_id": 7, "active": True, "owns_gil": True,
            "frames": [{"name": "inner", "filename": "a.py", "line": 3}, {"name": "<module>", "filename": "b.py", "line": 1}],
        }
    ]  # fmt: skip
    (thread,) = parse(json.dumps(document)).threads
    assert (thread.native_id, thread.ident, thread.name, thread.state) == (7, 99, "t", "active+gil")
    assert thread.frames == (Frame("<module>", "b.py", 1), Frame("inner", "a.py", 3))
    assert parse(read(FOLDER / "healthy" / "json.txt")).threads[0].frames[-1].line


def test_gdb_and_pytest_timeout() -> None:
    (thread,) = parse(GDB).threads
    assert (thread.name, thread.native_id, thread.ident) == ("drafter-1", 4711, 0x7F1122334455)
    assert functions(thread) == ["_bootstrap", "take"]
    (stack,) = parse(PYTEST_TIMEOUT).threads
    assert (stack.name, stack.ident) == ("drafter-0", 140704261072576)
    assert functions(stack) == ["_bootstrap", "take"]


def test_two_looks_at_one_process_are_two_dumps() -> None:
    once = [thread.dump for thread in parse(FAULTHANDLER).threads]
    twice = [thread.dump for thread in parse(FAULTHANDLER + "\n" + FAULTHANDLER).threads]
    assert once == [0, 0]
    assert twice == [0, 0, 1, 1]
    assert [thread.dump for thread in parse(f"=== hang\n{FAULTHANDLER}\n=== py-spy dump\n{PYSPY}").threads] == [0, 0, 1, 1]


CHAINED = '''Exception in thread Thread-1 (work):
Traceback (most recent call last):
  File "/home/u/train.py", line 6, in step
    try: f(6)
         ^^^^
  File "/home/u/train.py", line 4, in f
    f(n-1)
  [Previous line repeated 3 more times]
ValueError: deep
second line

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/home/u/train.py", line 13, in <module>
    main()
torch._dynamo.exc.BackendCompilerFailed: backend='x' raised:
RuntimeError: Detected something

from user code:
   File "/home/u/model.py", line 3, in forward
    return x

Set TORCHDYNAMO_VERBOSE=1 for the internal stack trace
'''


def test_a_chain_with_what_a_backend_raised_and_the_user_code() -> None:
    deep, failed, inner = parse(CHAINED).exceptions
    assert (deep.type, deep.message, deep.thread) == ("ValueError", "deep\nsecond line", "Thread-1 (work)")
    assert functions(deep) == ["step", "f"]
    assert failed.texts[1].startswith("BackendCompilerFailed: backend='x' raised:\nRuntimeError: Detected")
    assert "from user code" in failed.message
    assert (inner.type, functions(inner)) == ("RuntimeError", ["<module>"])


def test_an_exception_group_gives_all_of_its_members() -> None:
    found = parse(read(FOLDER / "healthy" / "group.txt")).exceptions
    assert [raised.type for raised in found] == ["ExceptionGroup", "ValueError", "FileNotFoundError"]


def test_a_remote_traceback_inside_a_message() -> None:
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\n'
        'RemoteError: \n"""\nTraceback (most recent call last):\n  File "b.py", line 2, in g\n    h()\nOSError: gone\n"""\n'
    )
    assert [raised.type for raised in parse(text).exceptions] == ["RemoteError", "OSError"]


def test_a_message_alone_and_a_traceback_that_was_cut() -> None:
    (alone,) = parse("torch.utils.checkpoint.CheckpointError: other metadata\n").exceptions
    assert (alone.texts[1], alone.frames) == ("CheckpointError: other metadata", ())
    (headless,) = parse('  File "a.py", line 3, in inner\n    g()\nNameError: module is gone\n').exceptions
    assert (headless.type, functions(headless), headless.cut_outer) == ("NameError", ["inner"], True)
    (tailless,) = parse('Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\n').exceptions
    assert (tailless.type, functions(tailless)) == ("", ["f"])


@pytest.mark.parametrize("style", ["auto", "long", "short", "native", "line"])
def test_what_pytest_prints(style: str, tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text(
        "def load(n):\n    raise ValueError(f'no shard {n}')\n\n\ndef test_shards():\n    load(3)\n", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--tb={style}", "test_x.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    (raised,) = parse(done.stdout).exceptions
    assert (raised.type, raised.message) == ("ValueError", "no shard 3")
    if style != "line":
        assert functions(raised)[-2:] == ["test_shards", "load"]


def test_a_log_whose_lines_are_json() -> None:
    line = json.dumps({"level": "error", "exc": CHAINED, "step": 3})
    assert parse(line).exceptions[0].type == "ValueError"


@pytest.mark.parametrize("text", ["", "\n\n", "all is well\nstep 3 loss 2.1\n", "Threads: 4\nFile not found\n", "\0" * 50])
def test_nothing_in_it(text: str) -> None:
    assert not parse(text)


def test_a_large_text_is_read_in_linear_time() -> None:
    stack = "".join(f'  File "a{n % 7}.py", line {n} in f{n}\n' for n in range(90))
    text = "".join(f"Thread 0x{n:016x} (most recent call first):\n{stack}\n" for n in range(300))
    assert len(parse(text).threads) == 300
    assert len(parse("step 3 loss 2.1 (Thread x)\n" * 20_000 + CHAINED).exceptions) == 3
