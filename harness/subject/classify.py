"""An exception of the subject → its outcome label and its fingerprint. Pure functions of types and texts."""

from __future__ import annotations

import hashlib
import re
import traceback
from dataclasses import dataclass
from pathlib import PurePath

FX_ERROR = "Detected that you are using FX to symbolically trace"
NOT_A_SUBMODULE = "module is not installed as a submodule"

_MESSAGES: tuple[tuple[str, str], ...] = (
    # (a piece of the message, label); the first that is found decides. Sources: torch 2.11 - 2.14.
    (FX_ERROR, "fx_error"),
    (NOT_A_SUBMODULE, "graph_corrupt"),
    ("CURRENT_PATCHER is None", "graph_corrupt"),
    ("not allocated in pool", "cudagraph_pool"),
    # What the account of the pool's memory says when another thread has changed it: of trees, and of torch's allocator.
    ("in the cudagraph pool not tracked as outputs", "cudagraph_pool"),
    ("observed an input tensor deallocate during graph", "cudagraph_pool"),
    ("Not expecting deleter function", "cudagraph_pool"),
    ("recording to mempool_id", "cudagraph_pool"),  # already, or not currently
    ("pool id for capture", "cudagraph_pool"),
    ("overwritten by a subsequent run", "cudagraph_overwritten"),
    ("when stream is capturing", "capture_invalidated"),
    ("capture was invalidated", "capture_invalidated"),
    ("cudaErrorStreamCapture", "capture_invalidated"),
    # What the driver says of error 900 to 908, for those who do not name the error: Triton, and torch's calls of the driver.
    ("due to a previous error during capture", "capture_invalidated"),
    ("merge of separate capture sequences", "capture_invalidated"),
    ("capture was not ended in the same stream", "capture_invalidated"),
    ("capturing stream has unjoined work", "capture_invalidated"),
    ("dependency created on uncaptured work", "capture_invalidated"),
    ("depend on a capturing blocking stream", "capture_invalidated"),
    ("last recorded in a capturing stream", "capture_invalidated"),
    ("terminate a thread-local capture sequence", "capture_invalidated"),
    ("cudaErrorIllegalState", "capture_invalidated"),  # error 401: a capture's end or its graph, of which another disposed
    ("cannot be performed in the present state", "capture_invalidated"),
    ("CUDA out of memory", "out_of_memory"),
    ("CUDA error: out of memory", "out_of_memory"),  # not of torch's allocator: a graph, pinned memory, a module
    ("CUDA driver error: out of memory", "out_of_memory"),
    ("Triton Error [CUDA]: out of memory", "out_of_memory"),  # a module or its local memory; not "out of resource"
    ("CUDA_ERROR_OUT_OF_MEMORY", "out_of_memory"),
    ("'out of memory'", "out_of_memory"),  # NCCL: Cuda failure 2 'out of memory'
    ("_ALLOC_FAILED", "out_of_memory"),  # CUBLAS_STATUS_, CUDNN_STATUS_, CUSOLVER_STATUS_, CUSPARSE_STATUS_, CUFFT_
    ("CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", "out_of_memory"),
    ("CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED", "out_of_memory"),
    ("not enough memory", "out_of_memory"),
    ("DefaultCPUAllocator: can't allocate memory", "out_of_memory"),
    ("illegal memory access", "cuda_fault"),
    ("device-side assert", "cuda_fault"),
    ("CUDA error", "cuda_fault"),
    ("unspecified launch failure", "cuda_fault"),
    ("Triton Error [CUDA]", "cuda_fault"),
    ("CUDA driver error", "cuda_fault"),
)


_AFTER_OUT_OF_MEMORY = ("capture_invalidated", "cuda_fault")
"""What CUDA says of a capture that an exception broke off; raised while that exception is handled."""


@dataclass(frozen=True)
class Fault:
    """What an exception is: `label` of the closed list, `fingerprint` equal for equal causes."""

    label: str
    type: str
    message: str
    fingerprint: str


def words_of(error: BaseException) -> str:
    """What it says; of one whose own text raises, that."""
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - the trial's error is the one whose text this was to be
        return f"<no text: {type(error).__name__}.__str__ raised {type(broken).__name__}>"


def chain(error: BaseException) -> list[BaseException]:
    """The exception and its causes, outermost first; torch wraps what a backend or a compile raised."""
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found:
        found.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return found


def normalise(message: str) -> str:
    """The message with addresses, numbers and folders replaced, so that two runs say the same."""
    message = re.sub(r"0x[0-9a-fA-F]+", "0x…", message)
    message = re.sub(r"(?:/[^\s'\":,]+)+/", "…/", message)
    message = re.sub(r"\d+", "N", message)
    return " ".join(message.split())[:300]


def torch_frame(error: BaseException) -> str:
    """`_dynamo/eval_frame.py:compile_wrapper`, the innermost frame inside torch; "" when there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        parts = PurePath(frame.filename).parts
        if "torch" in parts:
            inside = parts[len(parts) - parts[::-1].index("torch") :]
            return f"{'/'.join(inside)}:{frame.name}"
    return ""


def classify(error: BaseException) -> Fault:
    """Label and fingerprint of an exception that left a step, a warm-up or a worker."""
    kind = type(error).__name__
    message = words_of(error)
    found = [label for link in chain(error) if (label := _label_of(link)) != "error"]
    label = found[0] if found else "error"
    if label in _AFTER_OUT_OF_MEMORY and "out_of_memory" in found:
        label = "out_of_memory"
    frame = torch_frame(error)
    digest = hashlib.sha256(f"{kind}|{normalise(message)}|{frame}".encode()).hexdigest()[:12]
    return Fault(label, kind, message, f"{digest} {kind} {frame}".strip())


def _label_of(error: BaseException) -> str:
    if type(error).__name__ == "OutOfMemoryError" or isinstance(error, MemoryError):
        return "out_of_memory"
    message = words_of(error)
    for piece, label in _MESSAGES:
        if piece in message:
            return label
    frame = torch_frame(error)
    if isinstance(error, KeyError) and frame == "fx/traceback.py:annotate":
        return "graph_corrupt"  # two threads annotate nodes through one process-wide dictionary
    if isinstance(error, AssertionError) and "cudagraph_trees" in frame:
        return "cudagraph_tls"  # the tree manager's thread-local containers were never set up in this thread
    return "error"
