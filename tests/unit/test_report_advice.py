"""What `harness bisect` gives to paste: it is Python, it is short, and as it stands it locks what it says."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import locks
from harness.core.lockspec import NAMES
from harness.report.advice import _NO_KEY, advice

README = Path(__file__).resolve().parents[2] / "README.md"
LOOPS = [
    *(name for name in NAMES if name not in ("none", "thread_local_fx", "process")),
    "each:mask+forward",
    "span:mask..loss",
]
WORKERS = ["drafter-0", "drafter-1"]


class Model:
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, batch: object, mask: object) -> str:
        self.calls += 1
        return "hidden"


def run_pasted(lock: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[tuple[str, str]]]:
    """Run what is pasted with two workers and three batches each; the strategies made, and (region, worker) entered."""
    made: list[Any] = []
    entered: list[tuple[str, str]] = []
    make = locks.make_strategy

    def recording(name: str, *, workers: list[str]) -> Any:
        strategy = make(name, workers=workers, warn=False)  # per_call: attention is in the model, which is none here
        original = strategy.region

        def region(name: str, worker: str, key: Any = None) -> Any:
            entered.append((name, worker))
            return original(name, worker, key)

        strategy.region = region  # type: ignore[method-assign]
        made.append(strategy)
        return strategy

    monkeypatch.setattr(locks, "make_strategy", recording)
    batch = SimpleNamespace(device="cpu", dtype="float32", shape=(2, 3))
    names: dict[str, Any] = {
        "WORKERS": WORKERS,
        "torch": SimpleNamespace(is_grad_enabled=lambda: True),
        "build_mask": lambda batch: "mask",
        "loss_of": lambda hidden, batch: SimpleNamespace(backward=lambda: None),
    }
    exec(advice(lock), names)
    optimizer = SimpleNamespace(step=lambda: None)
    threads = [
        threading.Thread(target=names["train"], args=(worker, Model(), optimizer, [batch] * 3)) for worker in WORKERS
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return made, entered


@pytest.mark.parametrize("lock", LOOPS)
def test_a_loop_runs_as_it_is_pasted(lock: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, entered = run_pasted(lock, monkeypatch)
    (strategy,) = made
    assert strategy.name == lock
    assert all(not state.holders and not state.waiters for state in strategy.wait_graph())
    for region in ("step", "mask", "forward", "loss", "backward"):
        for worker in WORKERS:
            assert entered.count((region, worker)) == 3


@pytest.mark.parametrize("lock", [*NAMES, "each:mask+attention", "span:attention..backward"])
def test_it_is_short_python(lock: str) -> None:
    text = advice(lock)
    compile(text, lock, "exec")
    assert len(text.splitlines()) <= 24
    assert max(len(line) for line in text.splitlines()) <= 120


def test_only_what_was_tried_is_pasted() -> None:
    text = advice("compile_gate", ("step", "backward"), False)
    assert "key" not in text.replace(_NO_KEY, "")
    assert "every step was exclusive" in text
    assert [line.strip() for line in text.splitlines() if "region(" in line] == [
        'with strategy.region("step", worker):',
        'with strategy.region("backward", worker):',
    ]
    compile(text, "pasted", "exec")
    assert "key=key" in advice("warm_gate", ("step",), True)


def test_models_that_torch_compiled_have_keys_of_their_own() -> None:
    """`forward` of what `torch.compile(model)` returns is torch's own: of two models it is the same."""
    torch = pytest.importorskip("torch")
    first, second = (torch.compile(model, backend="eager") for model in (torch.nn.Linear(2, 2), torch.nn.ReLU()))
    (line,) = {line.strip() for line in advice("compile_gate").splitlines() if line.strip().startswith("key =")}
    (readme,) = {line.strip() for line in README.read_text().splitlines() if line.strip().startswith("key =")}
    assert readme == line
    batch = SimpleNamespace(device="cpu", dtype="float32", shape=(2, 3))
    keys = [eval(line.removeprefix("key = "), {"model": model, "batch": batch, "torch": torch}) for model in (first, second)]
    assert keys[0] != keys[1]


def test_what_needs_a_word_gets_it() -> None:
    assert "Nothing to change" in advice("none")
    assert '"attention"' in advice("per_call")
    assert "key=key" in advice("compile_gate")
    assert "deadlock" in advice("thread_local_fx")
    assert "spawn" in advice("process")
    assert "takes steps" in advice("warmup_barrier") or "take steps" in advice("warmup_barrier")


@pytest.mark.parametrize("lock", LOOPS)
def test_where_a_foreach_optimizer_belongs_is_said(lock: str) -> None:
    """Inside of `step` only where nobody compiles beside it: elsewhere whoever is warm passes freely."""
    (line,) = (line for line in advice(lock).splitlines() if "foreach=False" in line)
    assert "fused=True" in line
    assert ("inside of step" in line) == (lock in ("compile_gate", "warm_gate", "every_step"))


def test_a_worker_that_fails_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """`worker_done` stands in a finally: the barrier opens for the others."""
    names: dict[str, Any] = {
        "WORKERS": WORKERS,
        "build_mask": lambda batch: batch["mask"],
        "loss_of": lambda hidden, batch: SimpleNamespace(backward=lambda: None),
    }
    exec(advice("warmup_barrier"), names)
    optimizer = SimpleNamespace(step=lambda: None)

    def fails() -> None:
        with contextlib.suppress(KeyError):
            names["train"]("drafter-0", Model(), optimizer, [{}])

    failing = threading.Thread(target=fails)
    good = threading.Thread(target=names["train"], args=("drafter-1", Model(), optimizer, [{"mask": 1}] * 2))
    good.start()
    failing.start()
    for thread in (failing, good):
        thread.join(30)
        assert not thread.is_alive()
