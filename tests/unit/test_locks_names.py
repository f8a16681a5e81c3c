"""The names: the same grammar as the matrix files', clear errors, and a file that stands alone."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import locks
from harness.core import lockspec
from harness.core.errors import MatrixError

ELSEWHERE = ("thread_local_fx", "process")
"""Names of a matrix file's axis `lock` that are no locks."""

REGIONS = [*locks.REGIONS, "optimizer", "", " mask", "Mask"]
TABLE = [
    *lockspec.NAMES,
    *(f"each:{one}" for one in REGIONS),
    *(f"each:{one}+{two}" for one in REGIONS for two in REGIONS),
    *(f"span:{one}..{two}" for one in REGIONS for two in REGIONS),
    *["", "None", "per-call", " none", "none:", "none:mask", "each", "each:", "span", "span:", "span:mask"],
    *["each:mask,forward", "each:mask+", "each:+mask", "each:mask+forward+loss", "each:mask+loss+mask"],
    *["span:mask.forward", "span:mask...forward", "span:mask..forward..loss", "span:mask+forward", "span:.."],
    *["EACH:mask", "each :mask", "spans:mask..loss", "each:mask..loss", "span:mask..forward ", "each:all"],
]


def accepts(name: str) -> bool:
    try:
        locks.make_strategy(name, workers=["a"])
    except ValueError:
        return False
    return True


def matrix_accepts(name: str) -> bool:
    try:
        lockspec.parse_lock(name)
    except MatrixError:
        return False
    return name not in ELSEWHERE


def test_both_copies_of_the_grammar_agree() -> None:
    assert locks.REGIONS == lockspec.REGIONS
    assert {*locks.STRATEGIES, *ELSEWHERE} == set(lockspec.NAMES)
    assert {name for name in TABLE if accepts(name)} == {name for name in TABLE if matrix_accepts(name)}
    assert sum(map(accepts, TABLE)) > 50


@given(st.lists(st.sampled_from([*locks.REGIONS, "each", "span", ":", "+", ".", ".."]), max_size=6).map("".join))
def test_both_copies_agree_on_any_string_of_tokens(name: str) -> None:
    assert accepts(name) == matrix_accepts(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("first_stp", 'there is no lock strategy \'first_stp\' (did you mean "first_step"?)'),
        ("each:atention", "there is no region 'atention' (did you mean \"attention\"?)"),
        ("span:mask..bckward", "there is no region 'bckward' (did you mean \"backward\"?)"),
        ("span:backward..mask", "mask has ended before backward begins; swap the two"),
        ("each:mask+mask", "a region is listed twice"),
        ("thread_local_fx", "is no lock: put harness.torch_internals.fx_context.thread_local_fx() around"),
        ("process", "is no lock: start each worker in a process of its own"),
    ],
)
def test_a_wrong_name_is_explained_in_one_line(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        locks.make_strategy(name, workers=["a"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": ["a"], "owner": "process"}, "owner is 'process'; it is one of worker, thread"),
        ({"workers": ["a", "a"]}, "a list of names, each given once"),
        ({"workers": "drafter-0"}, "a list of names, each given once"),
    ],
)
def test_wrong_arguments_are_explained(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        locks.make_strategy("none", **arguments)


@pytest.mark.parametrize("name", [*locks.STRATEGIES, "each:mask", "span:mask..loss"])
def test_a_region_that_does_not_exist_is_refused_warm_or_cold(name: str) -> None:
    """A misspelt region would pass for one that the strategy leaves free."""
    strategy = locks.make_strategy(name, workers=["a"], warn=False)
    for _ in ("cold", "warm"):
        with pytest.raises(ValueError, match=re.escape("'atention' (did you mean \"attention\"?)")):
            strategy.region("atention", "a")
        for region in locks.REGIONS:
            with strategy.region(region, "a"):
                pass


def test_the_file_stands_alone() -> None:
    """It can be copied: it loads without this package, and pulls in nothing but the standard library."""
    path = Path(locks.__file__)
    script = f"""
        import sys, importlib.util
        spec = importlib.util.spec_from_file_location("copied", {str(path)!r})
        copied = importlib.util.module_from_spec(spec)
        sys.modules["copied"] = copied
        spec.loader.exec_module(copied)
        with copied.make_strategy("first_step", workers=["a"]).region("mask", "a"):
            pass
        own = {{name.partition(".")[0] for name in sys.modules}} - {{"copied", "__main__"}}
        print(sorted(name for name in own if name not in sys.stdlib_module_names))
    """
    python = [sys.executable, "-I", "-S", "-c", textwrap.dedent(script)]
    done = subprocess.run(python, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_example_in_the_docstring_runs() -> None:
    assert locks.__doc__ is not None
    example = re.search(r"\n(    strategy = .*?)\n\n\S", locks.__doc__, re.DOTALL)
    assert example is not None
    seen: list[str] = []

    class Model:
        def forward(self) -> None: ...

        def __call__(self, x: object, mask: object) -> None:
            seen.append(threading.current_thread().name)

    item = SimpleNamespace(device="cpu", dtype="float32", shape=(1,))
    names = {
        "make_strategy": locks.make_strategy,
        "torch": SimpleNamespace(is_grad_enabled=lambda: True),
        "build_mask": lambda x: None,
        "loss_of": lambda hidden, x: SimpleNamespace(backward=lambda: None),
    }
    exec(textwrap.dedent(example[1]), names)
    train: Any = names["train"]
    optimizer = SimpleNamespace(step=lambda: None)
    threads = [
        threading.Thread(target=train, args=(name, Model(), optimizer, [item, item]), name=name, daemon=True)
        for name in ("drafter-0", "drafter-1")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(seen) == ["drafter-0", "drafter-0", "drafter-1", "drafter-1"]
