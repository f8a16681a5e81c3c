"""One training step of a drafter of the size of Qwen3-8B's, on one CUDA device: how long, how near to the limit, where it goes.

    python -m tests.benchmarks.drafter_step [--steps 10] [--anchors 256] [--json FILE]

1.05 B parameters in bfloat16, batch 2, S = 768, N = 256 anchors a sequence, B = 16, V = 151,936. Weights are random and
the target's features are drawn, so nothing is downloaded. In one process, one after another and again, interleaved:

    fused       inductor compiles a layer, flex_attention included; the loss's gradient is made in the forward
    recompute   likewise, the loss under a checkpoint for each chunk, as the public recipes have it
    attention   only the attention call is compiled
    dense       nothing is compiled, so flex_attention runs dense: what a silent fallback costs

    graph       as fused, the whole step captured as one CUDA graph

Loss and gradients of each are held against the same weights in float32, uncompiled: relative errors (Euclidean, over all
parameters), beside that of the uncompiled bfloat16 step, which is what rounding alone does.

The limit: the rate of a bfloat16 matrix product measured beside them, and the step's model FLOPs (counted from shapes).
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from harness.core.workload import NullContext
from harness.pipeline.anchors import draw_anchors
from harness.pipeline.attention import Compilation
from harness.pipeline.config import DFlashConfig
from harness.pipeline.drafter import Drafter
from harness.pipeline.drafter_worker import DrafterWorker, Recipe, Regions
from harness.pipeline.items import Item
from harness.pipeline.mask import make_mask_builder
from harness.pipeline.optimizer import DrafterOptimizer
from harness.pipeline.queues import OrderedQueue

D, F, HEADS, KV, HEAD = 4096, 12288, 32, 8, 128
LAYERS, TAPS, VOCABULARY, BLOCK = 5, 5, 151_936, 16
RUN = 10
VARIANTS: dict[str, tuple[str, str]] = {
    "fused": ("layer", "in_forward"),
    "recompute": ("layer", "recompute"),
    "attention": ("attention", "in_forward"),
    "dense": ("none", "in_forward"),
}


@dataclass
class Shape:
    """Of one item."""

    batch: int = 2
    length: int = 768
    anchors: int = 256


def config() -> DFlashConfig:
    """The public drafter for Qwen3-8B."""
    return DFlashConfig(
        hidden_size=D,
        intermediate_size=F,
        num_attention_heads=HEADS,
        num_key_value_heads=KV,
        head_dim=HEAD,
        num_hidden_layers=LAYERS,
        vocab_size=VOCABULARY,
        block_size=BLOCK,
        mask_token_id=151_669,
        target_layer_ids=(1, 9, 17, 25, 33),
        num_target_layers=36,
        dtype=torch.bfloat16,
    )


def model_flops(shape: Shape) -> float:
    """Of forward and backward without any recompute: two for each weight and token forward, four backward; frozen
    `lm_head` two backward; attention as the mask has it, on average half of the context a block."""
    block_tokens = shape.batch * shape.anchors * BLOCK
    context = shape.batch * shape.length
    per_block = LAYERS * (2 * D * HEADS * HEAD + 2 * D * KV * HEAD + 3 * D * F)
    per_context = LAYERS * 2 * D * KV * HEAD + TAPS * D * D
    head = D * VOCABULARY * shape.batch * shape.anchors * (BLOCK - 1)
    seen = shape.length / 2 + BLOCK
    attention = LAYERS * 2 * HEADS * HEAD * block_tokens * seen
    return 6.0 * (per_block * block_tokens + per_context * context) + 4.0 * head + 6.0 * attention


def item(shape: Shape, device: torch.device) -> Item:
    """Drawn features and tokens, in pinned memory."""
    g = torch.Generator(device).manual_seed(0)
    size = (shape.batch, shape.length)
    values: dict[str, Tensor] = {
        "features": torch.randn(*size, TAPS * D, device=device, dtype=torch.bfloat16, generator=g),
        "last_hidden": torch.randn(*size, D, device=device, dtype=torch.bfloat16, generator=g),
        "ids": torch.randint(0, VOCABULARY, size, device=device, generator=g),
        "loss_mask": torch.ones(size, dtype=torch.bool, device=device),
        "document_ids": torch.zeros(size, dtype=torch.int64, device=device),
        "positions": torch.arange(shape.length, device=device).expand(size).contiguous(),
    }
    made = Item(index=0, lengths=((shape.length,),) * shape.batch, tokens=shape.batch * shape.length, **values)
    return made.to_host()


class Bench:
    """One drafter, run in several ways: the weights are shared, so that memory holds one of it."""

    def __init__(self, shape: Shape, device: torch.device, chunk: int) -> None:
        self.shape, self.device, self.chunk = shape, device, chunk
        self.item = item(shape, device)
        g = torch.Generator(device).manual_seed(1)
        with device:
            self.embedding = nn.Embedding(VOCABULARY, D, dtype=torch.bfloat16).requires_grad_(False)
            self.lm_head = nn.Linear(D, VOCABULARY, bias=False, dtype=torch.bfloat16).requires_grad_(False)
            self.lm_head.weight.normal_(0.0, D**-0.5, generator=g)
            self.drafter = Drafter(config()).to(device)
        self.drafter.init_weights(torch.Generator(device).manual_seed(2))
        self.parameters = list(self.drafter.parameters())
        self.optimizer = DrafterOptimizer(
            self.parameters, learning_rate=1e-6, weight_decay=0.0, clip=1.0, total_steps=1000, warmup_steps=1
        )

    def worker(self, unit: str, gradient: str, *, graphed: bool = False) -> DrafterWorker:
        """A worker over the shared weights, compiled as said."""
        with torch.device("meta"):
            drafter = Drafter(config(), compilation=Compilation(unit, "inductor", False))  # type: ignore[arg-type]
        own, shared = dict(drafter.named_parameters()), dict(self.drafter.named_parameters())
        for name in own:
            module = drafter.get_submodule(name.rpartition(".")[0])
            setattr(module, name.rpartition(".")[2], shared[name])
        ctx = NullContext()
        return DrafterWorker(
            "drafter-0",
            self.device,
            drafter=drafter,
            embedding=self.embedding,
            lm_head=self.lm_head,
            build_mask=make_mask_builder(compile=unit != "none", dynamic=False),
            optimizer=self.optimizer,
            recipe=Recipe(
                block_size=BLOCK,
                anchors=self.shape.anchors,
                mask_token_id=151_669,
                gamma=None,
                loss_chunk=self.chunk,
                skip_errors=False,
                loss_gradient=gradient,  # type: ignore[arg-type]
                capture_error_mode="thread_local" if graphed else "",
            ),
            queue=OrderedQueue(2),
            producers=tuple,
            drafters=1,
            averager=None,
            seed=3,
            code="shared",
            regions=Regions(ctx, "drafter-0"),
            ctx=ctx,
        )

    def step(self, worker: DrafterWorker) -> float:
        """One whole step, transfer and optimizer included; its loss."""
        counts = worker.queue.counts
        for index in range(counts.offered, counts.taken + 2 - (worker._ahead is not None)):
            worker.queue.put(index, self.item)  # a deep queue: the next item is always there
        item = worker._next()
        assert isinstance(item, Item)
        loss, ok = worker.compute(item)
        if not ok or loss is None:
            raise RuntimeError(f"the step failed: {worker._ctx.failures}")  # type: ignore[attr-defined]
        worker.apply(item, loss, None)
        return loss.item()


    def gradients(self, worker: DrafterWorker) -> tuple[float, list[Tensor]]:
        """Loss and gradients of one fixed set of anchors, no weight changed."""
        anchors, keep = draw_anchors(
            self.item.loss_mask, self.item.document_ids, self.shape.anchors, torch.Generator().manual_seed(9)
        )
        on_device = self.item.to(self.device)
        on_device = replace(on_device, features=on_device.features.to(worker.drafter.config.dtype))
        loss = worker._gradients(on_device, anchors.to(self.device), keep.to(self.device))
        found = [p.grad for p in worker.drafter.parameters() if p.grad is not None]
        worker._optimizer.zero_grad()
        for parameter in worker.drafter.parameters():
            parameter.grad = None
        return loss.item(), found

    def in_float32(self) -> tuple[float, list[Tensor]]:
        """The reference: the same weights and features, without a compiler and without bfloat16."""
        worker = self.worker("none", "recompute")
        worker.drafter = Drafter(replace(config(), dtype=torch.float32)).to(self.device)
        with torch.no_grad():
            for mine, theirs in zip(worker.drafter.parameters(), self.parameters, strict=True):
                mine.copy_(theirs)
        worker._embedding = copy.deepcopy(self.embedding).float()
        worker._lm_head = copy.deepcopy(self.lm_head).float()
        return self.gradients(worker)


def errors(bench: Bench, workers: dict[str, DrafterWorker]) -> dict[str, dict[str, float]]:
    """Of loss and gradients, against float32."""
    exact_loss, exact = bench.in_float32()
    size = torch.stack([g.norm() for g in exact]).norm()
    found: dict[str, dict[str, float]] = {}
    for name in ("fused", "recompute", "attention", "dense"):
        if name in workers:
            loss, gradients = bench.gradients(workers[name])
            apart = torch.stack([(g.float() - e).norm() for g, e in zip(gradients, exact, strict=True)]).norm()
            found[name] = {"loss": abs(loss - exact_loss) / exact_loss, "gradients": (apart / size).item()}
    return found


def seconds(function: Callable[[], object]) -> float:
    """Wall time with the device idle before and after."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def matrix_rate(device: torch.device) -> float:
    """FLOP/s of bfloat16 products, the best of the step's largest shapes; each a median of five runs of `RUN` products.

    One product takes a few milliseconds: alone it would be timed with its launch and the wait for the device.
    """
    best = 0.0
    for rows, inner, columns in ((8192, D, F), (8192, F, D), (4096, D, VOCABULARY)):
        a = torch.randn(rows, inner, device=device, dtype=torch.bfloat16)
        b = torch.randn(inner, columns, device=device, dtype=torch.bfloat16) * inner**-0.5
        out = a @ b
        times = [seconds(lambda a=a, b=b, out=out: products(a, b, out)) for _ in range(6)][1:]  # type: ignore[misc]
        best = max(best, RUN * 2.0 * rows * inner * columns / statistics.median(times))
    return best


def products(a: Tensor, b: Tensor, out: Tensor) -> None:
    """`RUN` of them, one right after another."""
    for _ in range(RUN):
        torch.mm(a, b, out=out)


def parts(bench: Bench, worker: DrafterWorker) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds of kernels by kind, and of the longest ones by name, from torch's profiler over one step."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        bench.step(worker)
        torch.cuda.synchronize()
    kinds: dict[str, float] = {}
    for event in seen.key_averages():
        name, spent = event.key.lower(), getattr(event, "self_device_time_total", 0.0) / 1000
        kind = next((kind for words, kind in KINDS if any(word in name for word in words)), "other kernels")
        kinds[kind] = kinds.get(kind, 0.0) + spent
    by_name = {e.key[:110]: round(e.self_device_time_total / 1000, 2) for e in seen.key_averages()}
    longest = dict(sorted(by_name.items(), key=lambda pair: -pair[1])[:24])
    return {kind: round(spent, 2) for kind, spent in sorted(kinds.items(), key=lambda pair: -pair[1])}, longest


KINDS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("flex_attention", "tem_fused"), "flex attention"),
    (("nvjet", "gemm", "cutlass", "xmma", "cublas"), "matrix products"),
    (("adam",), "AdamW"),
    (("softmax", "scatter", "gather"), "softmax of the loss"),
    (("memcpy", "memset"), "copies"),
    (("multi_tensor", "foreach", "norm"), "clip and norms"),
    (("triton",), "compiled pointwise"),
    (("elementwise", "reduce"), "eager pointwise and sums"),
)


def run(shape: Shape, steps: int, chunk: int) -> dict[str, Any]:
    """Everything; see the module's text."""
    device = torch.device("cuda:0")
    torch.manual_seed(0)
    bench = Bench(shape, device, chunk)
    workers = {name: bench.worker(*how) for name, how in VARIANTS.items()}
    workers["graph"] = bench.worker("layer", "in_forward", graphed=True)
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(device),
        "torch": torch.__version__,
        "shape": vars(shape),
        "parameters": sum(p.numel() for p in bench.parameters),
        "model_tflop": model_flops(shape) / 1e12,
    }
    first: dict[str, float] = {}
    memory: dict[str, float] = {}
    reserved: dict[str, float] = {}
    losses: dict[str, float] = {}
    for name, worker in list(workers.items()):
        torch.cuda.empty_cache()  # or the peak of what is reserved would be that of a variant before
        torch.cuda.reset_peak_memory_stats(device)
        try:
            began = time.perf_counter()
            losses[name] = bench.step(worker)
            first[name] = time.perf_counter() - began
            for _ in range(3):
                bench.step(worker)
        except Exception as error:  # noqa: BLE001 - e.g. dense attention that does not fit: reported, and left out
            found.setdefault("failed", {})[name] = f"{type(error).__name__}: {str(error)[:300]}"
            del workers[name]
            bench.optimizer.zero_grad()
            torch.cuda.empty_cache()
            continue
        memory[name] = torch.cuda.max_memory_allocated(device) / 1e9
        reserved[name] = torch.cuda.max_memory_reserved(device) / 1e9  # a graph's own pool counts here only
    times: dict[str, list[float]] = {name: [] for name in workers}
    rates = []
    for _ in range(steps):
        rates.append(matrix_rate(device))
        for name, worker in workers.items():
            times[name].append(seconds(lambda worker=worker: bench.step(worker)))  # type: ignore[misc]
    peak = statistics.median(rates)
    found["matrix_tflops"] = peak / 1e12
    found["variants"] = {
        name: {
            "step_ms": round(statistics.median(values) * 1e3, 2),
            "step_ms_range": [round(min(values) * 1e3, 2), round(max(values) * 1e3, 2)],
            "first_step_s": round(first[name], 2),
            "peak_memory_gb": round(memory[name], 2),
            "peak_reserved_gb": round(reserved[name], 2),
            "first_loss": losses[name],
            "model_tflops": round(model_flops(shape) / statistics.median(values) / 1e12, 1),
            "of_matrix_rate": round(model_flops(shape) / statistics.median(values) / peak, 3),
        }
        for name, values in times.items()
    }
    if "fused" in times and "dense" in times:
        ratios = [d / f for d, f in zip(times["dense"], times["fused"], strict=True)]
        found["dense_over_fused"] = {
            "time": round(statistics.median(ratios), 2),
            "memory": round(memory["dense"] / memory["fused"], 2),
        }
    found["relative_errors"] = errors(bench, workers)
    for name in ("fused", "dense"):
        if name in workers:
            kinds, longest = parts(bench, workers[name])
            found.setdefault("kernel_ms", {})[name] = kinds
            found.setdefault("longest_kernels_ms", {})[name] = longest
    return found


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--anchors", type=int, default=256)
    parser.add_argument("--chunk", type=int, default=128, help="anchors a chunk of the loss")
    parser.add_argument("--json", default="", help="also write the figures to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("needs a CUDA device")
    text = json.dumps(run(Shape(anchors=options.anchors), options.steps, options.chunk), indent=1)
    print(text)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
