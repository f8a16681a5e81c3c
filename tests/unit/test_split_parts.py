"""`lock = "process"`: what each process builds, and that a drafter built alone is the one that is built among all."""

from __future__ import annotations

import json
import socket
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

from harness.core.scenario import Scenario
from harness.core.settings import PipelineSettings
from harness.core.workload import NullContext
from harness.pipeline import Pipeline, assembly
from harness.pipeline.drafter_worker import DrafterWorker
from harness.pipeline.items import Item, LostItem
from harness.pipeline.queues import OrderedQueue
from harness.pipeline.training import lone_drafter
from harness.pipeline.weights import save_drafter
from harness.subject import split
from harness.subject.context import TrialContext
from harness.subject.record import Trial
from harness.subject.result import outcomes

SIZES = {"tokens": 48, "anchors": 4, "target_layers": 5, "drafter_layers": 2, "hidden_size": 32, "vocab_size": 264}
ALL = Scenario(drafters=3, targets=2, steps=2, seed=5)


def settings(**changes: Any) -> dict[str, Any]:
    return {**PipelineSettings().to_dict(), **SIZES, **changes}


def tensors(worker: DrafterWorker) -> dict[str, torch.Tensor]:
    """All numbers that a drafter's training begins with."""
    found = {f"drafter.{name}": value for name, value in worker.drafter.state_dict().items()}
    found |= {f"master.{i}": value for i, value in enumerate(worker._optimizer._masters)}
    found |= {"embedding": worker._embedding.weight, "lm_head": worker._lm_head.weight}
    return found | {"anchors": worker._anchor_generator.get_state()}


def assert_alone_as_among_all(given: dict[str, Any]) -> None:
    whole = Pipeline()
    whole.setup(ALL, NullContext(settings=given))
    for number, among in enumerate(whole.drafters):
        state = torch.get_rng_state()
        alone = lone_drafter(ALL, NullContext(settings=given), number, among.queue)
        assert torch.equal(torch.get_rng_state(), state)
        assert (alone.name, alone.device, alone._recipe, alone._drafters, alone._code) == (
            among.name, among.device, among._recipe, among._drafters, among._code,
        )  # fmt: skip
        assert alone.drafter.config == among.drafter.config
        expected = tensors(among)
        for name, value in tensors(alone).items():
            other = expected.pop(name)
            assert value.dtype == other.dtype, name
            assert torch.equal(value, other), name
            assert value.requires_grad == other.requires_grad, name
        assert not expected


def target_folder(folder: Path, *, tied: bool) -> str:
    config = Qwen3Config(
        vocab_size=264, hidden_size=32, intermediate_size=48, num_hidden_layers=5, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, tie_word_embeddings=tied,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(3)
        Qwen3ForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_random_weights_are_the_same(dtype: str) -> None:
    assert_alone_as_among_all(settings(dtype=dtype))


@pytest.mark.parametrize("tied", [False, True])
def test_a_targets_folder_gives_the_same(tmp_path: Path, tied: bool) -> None:
    target = target_folder(tmp_path / "target", tied=tied)
    assert_alone_as_among_all(settings(target_model=target, tokenizer="bytes", dtype="bfloat16"))


def test_a_drafters_folder_gives_the_same(tmp_path: Path) -> None:
    whole = Pipeline()
    whole.setup(ALL.replace(seed=9), NullContext(settings=settings()))
    save_drafter(whole.drafters[0].drafter, tmp_path)
    assert_alone_as_among_all(settings(drafter_model=str(tmp_path)))


class Built:
    """Counts of what is built: drafters, targets, and layers of a target that take memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: Counter[str] = Counter()
        self._patch = monkeypatch
        self._count(assembly.DrafterWorker, "drafters")
        self._count(assembly.Target, "targets")
        self._count(Qwen3DecoderLayer, "layers")

    def _count(self, kind: type, what: str) -> None:
        init = kind.__init__

        def counted(made: object, *args: Any, **options: Any) -> None:
            init(made, *args, **options)
            if not (isinstance(made, nn.Module) and next(made.parameters()).is_meta):
                self.counts[what] += 1

        self._patch.setattr(kind, "__init__", counted)


def trial_context(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As `setup` needs it: without a trial's folder and threads."""
    monkeypatch.setattr(TrialContext, "__init__", lambda self: None)
    ctx: Any = TrialContext()
    ctx.settings = settings()
    ctx.fact = lambda *_: None
    return ctx


def test_the_trials_process_builds_the_targets_and_no_drafter(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built = Built(monkeypatch)
    workload = split.SplitPipeline({"folder": str(tmp_path), "scenario": ALL.to_dict()})
    workload.setup(ALL, trial_context(monkeypatch))
    assert built.counts == {"targets": 1, "layers": 5}
    assert [(w.name, w.role) for w in workload.workers()] == [
        ("target-0", "target"), ("target-1", "target"),
        ("drafter-0", "drafter"), ("drafter-1", "drafter"), ("drafter-2", "drafter"),
    ]  # fmt: skip


@pytest.mark.parametrize("loaded", [False, True])
def test_a_drafters_process_builds_that_drafter_and_no_target(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loaded: bool
) -> None:
    ctx = trial_context(monkeypatch)
    if loaded:
        ctx.settings = settings(target_model=target_folder(tmp_path / "t", tied=False), tokenizer="bytes")
    built = Built(monkeypatch)
    ours, theirs = socket.socketpair()
    workload = split.OneDrafter({"extra": {"drafter": 1, "fd": theirs.detach()}})
    try:
        workload.setup(ALL, ctx)
        assert built.counts == {"drafters": 1}
        assert [w.name for w in workload.workers()] == ["drafter-1"]
    finally:
        workload._queue.close()
        ours.close()


@pytest.mark.parametrize("label", ["out_of_memory", "setup_error"])
def test_a_drafters_process_that_could_not_be_set_up_gives_the_trial_its_outcome(tmp_path: Path, label: str) -> None:
    trial = Trial()
    error = {
        "label": "error", "type": "E", "message": "m", "fingerprint": "f", "worker": "", "thread": "MainThread",
        "region": "", "step": 0, "traceback": "t", "tracers": [], "consequence": False, "stage": "set-up", "at_s": 1.0,
    }  # fmt: skip
    document = {
        "outcome": label, "reason": "too large", "errors": [error], "problems": [], "workers": {},
        "memory": {"cuda:0": {"peak_allocated": 5}}, "facts": {"clock_start_ns": 7},
    }  # fmt: skip
    (tmp_path / "result.json").write_text(json.dumps(document))
    workload = split.SplitPipeline({})
    workload._places = [("drafter-0", torch.device("cpu"))]
    workload._ctx = SimpleNamespace(trial=trial, log=SimpleNamespace(start_ns=3))  # type: ignore[assignment]
    workload._merge(0, tmp_path, 0)
    labels, reason = outcomes(trial, ALL, "")
    assert labels == [label]
    assert reason == "drafter-0: too large"
    assert [e.at_ns for e in trial.errors] == [10**9 + 4]
    assert trial.tally("drafter-0").peaks == {"cuda:0": {"peak_allocated": 5}}


@pytest.mark.parametrize(
    ("taken", "unused", "amiss"),
    [(3, 0, False), (4, 1, False), (5, 0, True)],
    ids=["all arrived", "one was on its way", "one is gone"],
)
def test_the_account_has_the_item_that_was_asked_for_ahead_and_no_other(
    tmp_path: Path, taken: int, unused: int, amiss: bool
) -> None:
    trial = Trial()
    told = trial.tally("drafter-0", "drafter").as_json() | {"counts": {"consumed": 2, "unused": 1}}
    document = {
        "outcome": "ok", "reason": "", "errors": [], "problems": [], "workers": {"drafter-0": told},
        "facts": {"clock_start_ns": 7, "steps": [], "arrived": 3},
    }  # fmt: skip
    (tmp_path / "result.json").write_text(json.dumps(document))
    queue: OrderedQueue[Item | LostItem] = OrderedQueue(8)
    for number in range(taken):
        queue.put(number, LostItem(number))
        queue.get()
    workload = split.SplitPipeline({})
    workload._places = [("drafter-0", torch.device("cpu"))]
    workload._inner._queues = [queue]
    count: Any = partial(TrialContext.count, SimpleNamespace(trial=trial))
    workload._ctx = SimpleNamespace(trial=trial, log=SimpleNamespace(start_ns=3), count=count)  # type: ignore[assignment]
    workload._merge(0, tmp_path, 0)
    assert trial.tally("drafter-0").counts.get("unused") == 1 + unused
    assert bool(workload.check()) == amiss
