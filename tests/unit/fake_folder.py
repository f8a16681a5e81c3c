"""Run folders without runs, for what reads them: one that holds every sort of outcome, and the means to make others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fake_runs import FX_ERROR, row

from harness.control.rundir import dump_environment
from harness.core.matrix import parse_matrix
from harness.core.scenario import Scenario

ENVIRONMENT: dict[str, Any] = {
    "harness": "0.1.0",
    "created": "2026-11-29T19:41:08Z",
    "command": ["harness", "run", "scenarios/wide.toml", "--only", "not devices=cuda:1", "--jobs", "2"],
    "python": "3.11.7",
    "executable": "/opt/venv/bin/python",
    "implementation": "CPython",
    "packages": {"transformers": "5.24.0", "numpy": "2.4.6"},
    "torch": "2.11.0+cpu",
    "cuda": None,
    "platform": "Linux-6.1-x86_64",
    "machine": "x86_64",
    "cpu": "AMD EPYC",
    "cores": 8,
    "cores_usable": 2,
    "memory_bytes": 25276502016,
    "gpus": [],
    "variables": {"OMP_NUM_THREADS": "1"},
    "options": {"matrix": "scenarios/wide.toml", "repeats": 5, "only": None, "executor": "local", "jobs": 2},
}

MATRIX = """\
schema = 1
[defaults]
repeats = 5
steps = 12
[axes]
lock = ["none", "per_call", "first_step", "compile_gate", "every_step"]
checkpoint = ["none", "reentrant", "non_reentrant"]
[[include]]
lock = ["none", "span:mask..backward", "compile_gate"]
shapes = "per_drafter"
checkpoint = "non_reentrant"
[[include]]
lock = ["none", "first_step"]
devices = "cuda:0+cuda:1"
[[expect]]
where = "lock=none"
torch = "<2.12"
must = ["fx_error"]
[[expect]]
where = "lock=compile_gate or lock=every_step"
only = ["ok"]
reason = "compiles happen one at a time"
[[expect]]
where = "lock=per_call"
must = ["fx_error"]
reason = "backward is lowered outside the lock"
"""

PACKAGES = "/opt/venv/lib/python3.11/site-packages"
FAILING = f"""\
Traceback (most recent call last):
  File "/home/me/harness/pipeline/drafter_worker.py", line 142, in compute
    loss.backward()  # type: ignore[no-untyped-call]
    ^^^^^^^^^^^^^^^
  File "{PACKAGES}/torch/_tensor.py", line 623, in backward
    torch.autograd.backward(
  File "{PACKAGES}/torch/utils/checkpoint.py", line 1183, in unpack_hook
    _run_fn_with_dynamo_disabled(frame.recompute_fn, *args)
  File "/home/me/harness/pipeline/attention.py", line 124, in call
    return function(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^
  File "{PACKAGES}/torch/_dynamo/eval_frame.py", line 1120, in compile_wrapper
    raise RuntimeError(
RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized function.
"""
TRACING = f"""\
  File "/home/me/harness/pipeline/drafter_worker.py", line 98, in run
    if not self._train(item):
  File "{PACKAGES}/torch/_higher_order_ops/flex_attention.py", line 742, in create_fw_bw_graph
    joint_graph = make_fx(joint_f)(
  File "{PACKAGES}/torch/fx/_symbolic_trace.py", line 890, in trace
    with _new_patcher() as patcher:
"""
DENSE = f"""\
  File "/home/me/harness/pipeline/drafter.py", line 84, in forward
    x = x + self.self_attn(self.input_layernorm(x), C, cos, sin, block_mask)
  File "{PACKAGES}/torch/nn/attention/flex_attention.py", line 2508, in flex_attention
    out, lse, max_scores = flex_fn(
"""
TRACER = {"thread": "Thread-1", "worker": "drafter-0", "region": "mask", "stack": TRACING}
TRACED = {**FX_ERROR, "traceback": FAILING, "tracers": [TRACER]}
ASSERTION = {
    **FX_ERROR,
    "label": "error",
    "type": "AssertionError",
    "message": "CURRENT_PATCHER is None in finally block",
    "fingerprint": "b1b95818510f AssertionError fx/_symbolic_trace.py:_new_patcher",
    "traceback": TRACING + "AssertionError: CURRENT_PATCHER is None in finally block\n",
    "tracers": [],
}
WAITS = "drafter-0 waits for compile_lock, held by drafter-1; drafter-1 waits for autograd:0, held by drafter-0"
EVENTS = [
    {"t": 26416768618, "th": "drafter-0", "id": 1, "w": "drafter-0", "k": "compile_lock.wait"},
    {"t": 26520288381, "th": "drafter-1", "id": 2, "w": "drafter-1", "k": "region.enter", "r": "backward"},
    {"t": 31520288381, "th": "harness-watchdog", "id": 3, "w": "", "k": "deadlock", "why": WAITS},
]
STACKS = f"""\
=== deadlock: {WAITS}
Thread 0x00007f2a (most recent call first):
  File "{PACKAGES}/torch/_dynamo/convert_frame.py", line 1402 in __call__
  File "/home/me/harness/pipeline/drafter_worker.py", line 142 in compute
"""


def write_folder(
    path: Path,
    rows: Iterable[Mapping[str, Any]],
    *,
    matrix: str | None = MATRIX,
    environment: Mapping[str, Any] | None = ENVIRONMENT,
) -> Path:
    """A run folder with these rows; what is None is missing."""
    path.mkdir(parents=True, exist_ok=True)
    if matrix is not None:
        (path / "matrix.toml").write_text(matrix)
    if environment is not None:
        (path / "environment.json").write_bytes(dump_environment(environment).encode("utf-8", "backslashreplace"))
    with open(path / "results.jsonl", "w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(json.dumps(one, ensure_ascii=False) + "\n" for one in rows)
    return path


def wide_rows() -> list[dict[str, Any]]:
    """Rows of `MATRIX`: every verdict, every sort of evidence. `lock=every_step` was not reached by all trials."""
    rows: list[dict[str, Any]] = []
    for number, scenario in enumerate(parse_matrix(MATRIX, file="m").scenarios):
        if "cuda" in scenario.devices:
            reason = "devices=cuda:0+cuda:1 needs a CUDA build of torch; this is 2.11.0+cpu"
            rows.append(row(scenario, 0, "skipped", reason=reason, startup_s=None, tokens_per_s=None, compiles=0))
        elif scenario.lock == "every_step" and scenario.checkpoint == "non_reentrant":
            continue
        else:
            rows += _rows_of(scenario, number)
    return rows


def _rows_of(scenario: Scenario, number: int) -> Sequence[dict[str, Any]]:
    base = {"tokens_per_s": 900.0 - 11 * number, "probes": {"dense": "ok"}, "oracles": {"numerics": "ok"}}
    fine = [
        row(scenario, repeat, startup_s=5.0 + number + repeat / 3, **base)
        for repeat in range(59 if scenario.lock == "compile_gate" and scenario.checkpoint == "none" else 5)
    ]
    if scenario.lock == "none":
        for repeat in range(5 if scenario.checkpoint == "non_reentrant" else 3):
            errors = [TRACED, {**TRACED, "worker": "drafter-2", "thread": "Thread-3"}][: 1 + repeat % 2]
            fine[repeat].update(outcome="fx_error", outcomes=["fx_error"], errors=errors, fx_errors=len(errors))
            fine[repeat].update(startup_s=None, tokens_per_s=None)
        if scenario.shapes == "per_drafter":
            fine[0].update(outcomes=["fx_error", "error"], errors=[TRACED, ASSERTION])
    if scenario.lock == "first_step" and scenario.checkpoint == "non_reentrant":
        facts = {"first_dense_step": 6, "first_dense_stack": DENSE}
        worker = {"role": "drafter", "dense_calls": 4, "facts": facts, "losses": []}
        fine[4].update(outcome="dense", outcomes=["dense"], dense_calls=9, workers={"drafter-0": worker})
        fine[3].update(outcome="numerics", outcomes=["numerics"])
        fine[3]["oracles"] = {"numerics": "drafter-1, step 3: loss 5.1, reference 4.9 (off by 0.04, tolerance 0.0001)"}
        fine[2].update(outcome="no_grad", outcomes=["no_grad"])
        fine[2]["problems"] = [{"label": "no_grad", "text": "drafter-1, step 2: 3 parameters without a gradient"}]
    if scenario.lock == "every_step" and scenario.checkpoint == "none":
        stuck = {"outcome": "deadlock", "outcomes": ["deadlock"], "reason": WAITS, "last_events": EVENTS}
        fine[0].update(**stuck, exit={"status": None, "signal": "SIGKILL", "how": "hang"}, startup_s=None)
    if scenario.lock == "every_step" and scenario.checkpoint == "reentrant":
        for one in fine:
            one.update(outcome="setup_error", outcomes=["setup_error"], reason="no module named transformers")
            one.update(startup_s=None, tokens_per_s=None, oracles={})
    if scenario.lock == "per_call":
        for one in fine:
            one["probes"] = {"dense": "unavailable: torch 2.11 has no counter of dense calls"}
            one["oracles"] = {"numerics": "unavailable: no reference was run"}
    return fine


def wide_folder(path: Path) -> Path:
    """The run folder of `wide_rows`, with the stacks of its deadlock."""
    write_folder(path, wide_rows())
    for one in wide_rows():
        if "deadlock" in one["outcomes"]:
            folder = path / "trials" / one["trial"]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "stacks.txt").write_text(STACKS)
            (folder / "stdout.txt").write_text("loading data\nterminate called without an active exception\n")
    return path
