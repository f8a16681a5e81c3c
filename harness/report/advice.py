"""A lock strategy as the dozen lines that put it into a training loop."""

from __future__ import annotations

from collections.abc import Collection

from harness.core.lockspec import REGIONS, parse_lock

_BODY = {
    "mask": "mask = build_mask(batch)",
    "forward": "hidden = model(batch, mask)",
    "loss": "loss = loss_of(hidden, batch)",
    "backward": "loss.backward()",
}

_FOREACH = "# torch 2.13, 2.14: with fused=True or foreach=False{} (harness hazards compiling-leak)"
_INSIDE = ", else inside of step"
"""A foreach optimizer beside a compile of another thread raises, or takes what is meant for traced code."""

_NOTES = {
    "per_call": 'In the model, around the compiled call: with strategy.region("attention", worker): ...',
    "warmup_barrier": "WORKERS are those that take steps and no others: the barrier waits for each of them.",
    "warm_gate": "WORKERS are those that take steps. The key must hold whatever makes torch compile anew.",
    "compile_gate": "The key must hold whatever makes torch compile anew; add autocast's state if you use it.",
}


_NO_KEY = "The trials gave no key, so every step was exclusive; with one, steps of a known key are shared: that was not tried."


def advice(lock: str, regions: Collection[str] = REGIONS, keyed: bool = True) -> str:
    """What to paste, as Python, for this strategy. The file harness/locks.py can be copied into a project as it is.

    `regions`, `keyed`: which regions the trials entered, and whether they gave keys, because less was not tried.
    """
    spec = parse_lock(lock)
    if spec.kind == "none":
        return "# Nothing to change: no lock is needed.\n"
    if spec.kind == "thread_local_fx":
        return _THREAD_LOCAL_FX
    if spec.kind == "process":
        return _PROCESS
    attention = "attention" in (*spec.regions, spec.first, spec.last)
    note = _NOTES.get("per_call" if attention else spec.kind, "")
    gate = spec.kind in ("compile_gate", "warm_gate")
    if gate and not keyed:
        note = f"{_NO_KEY}\n# {note}" if spec.kind == "warm_gate" else _NO_KEY
    return _loop(lock, regions, keyed=gate and keyed, excludes=gate or spec.kind == "every_step", note=note)


def _loop(lock: str, regions: Collection[str], *, keyed: bool, excludes: bool, note: str) -> str:
    """`excludes`: nobody compiles while another is in its `step`, ever; else what is warm passes freely."""
    lines = [
        "from harness.locks import make_strategy  # one file of the standard library: it can be copied",
        "",
        f'strategy = make_strategy("{lock}", workers=WORKERS)  # names of the threads that take steps',
        "",
        "def train(worker, model, optimizer, batches):  # in a thread of its own",
        "    try:",
        "        for batch in batches:",
    ]
    step = 'with strategy.region("step", worker):'
    if keyed:
        lines += [
            "            key = (id(model), batch.device, batch.dtype, batch.shape, torch.is_grad_enabled())",
        ]
        step = 'with strategy.region("step", worker, key=key):'
    lines.append(f"            {step}")
    for region, body in _BODY.items():
        inner = " " * 16
        if region in regions:
            lines.append(f'{inner}with strategy.region("{region}", worker):')
            inner += " " * 4
        lines.append(inner + body)
    lines += [f"            {_FOREACH.format(_INSIDE if excludes else '')}", "            optimizer.step()"]
    lines += ["    finally:", "        strategy.worker_done(worker)"]
    if note:
        lines.insert(0, f"# {note}")
    return "\n".join(lines) + "\n"


_THREAD_LOCAL_FX = """\
# Makes the FX-tracing flag one per thread, as in torch 2.14; refuses on a torch it was not tested on.
# It leaves one deadlock open: a thread that compiles flex_attention with gradients, and the autograd thread of the
# same GPU that lowers another's backward (harness hazards: compile-lock-engine-deadlock).
from harness.torch_internals.fx_context import thread_local_fx

with thread_local_fx():  # in the main thread, before any worker starts and until all have ended
    threads = [threading.Thread(target=train, args=(worker,)) for worker in WORKERS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""

_PROCESS = """\
# Each worker in a process of its own: what torch keeps for a process is then its own as well.
import torch.multiprocessing as multiprocessing

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")  # a fork cannot use CUDA
    queue = context.Queue(2)  # what the workers get from the process that runs the target model
    processes = [context.Process(target=train, args=(worker, queue)) for worker in WORKERS]
    for process in processes:
        process.start()
    feed(queue)
    for process in processes:
        process.join()
"""
