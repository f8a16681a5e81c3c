"""Exceptions → outcome labels and fingerprints."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from harness.subject.classify import FX_ERROR, classify, normalise

MESSAGES = [
    (RuntimeError(f"{FX_ERROR} a dynamo-optimized function. This is not supported at the moment."), "fx_error"),
    (NameError("module is not installed as a submodule"), "graph_corrupt"),
    (RuntimeError("These storage data ptrs are not allocated in pool (0, 1) but should be {1}"), "cudagraph_pool"),
    (
        RuntimeError("Detected 10 tensor(s) in the cudagraph pool not tracked as outputs. All live"),
        "cudagraph_pool",
    ),
    (
        RuntimeError("TODO: graph recording observed an input tensor deallocate during graph  recording that did not"),
        "cudagraph_pool",
    ),
    (RuntimeError(" Not expecting deleter function"), "cudagraph_pool"),
    (RuntimeError("beginAllocateToPool: already recording to mempool_id"), "cudagraph_pool"),
    (RuntimeError("endAllocatePool: not currently recording to mempool_id"), "cudagraph_pool"),
    (RuntimeError("Could not find memory pool id for capture."), "cudagraph_pool"),
    (RuntimeError("accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run."),
     "cudagraph_overwritten"),
    (RuntimeError("CUDA error: operation not permitted when stream is capturing"), "capture_invalidated"),
    (RuntimeError("CUDA error: an illegal memory access was encountered"), "cuda_fault"),
    (MemoryError(), "out_of_memory"),
    (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), "out_of_memory"),
    (RuntimeError("CUDA error: out of memory"), "out_of_memory"),
    (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "out_of_memory"),
    (RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"),
     "out_of_memory"),
    (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "out_of_memory"),
    (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), "out_of_memory"),
    (RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"), "out_of_memory"),
    (RuntimeError("CUDA driver error: out of memory"), "out_of_memory"),
    (RuntimeError("ncclUnhandledCudaError: Call to CUDA function failed. Cuda failure 2 'out of memory'"), "out_of_memory"),
    (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"), "cuda_fault"),
    (RuntimeError("CUDA error: the operation cannot be performed in the present state"), "capture_invalidated"),
    (RuntimeError("CUDA error: …\nSearch for `cudaErrorIllegalState' in …"), "capture_invalidated"),
    (RuntimeError("CUDA driver error: unknown error"), "cuda_fault"),
    (RuntimeError("out of resource: shared memory, Required: 300000, Hardware limit: 232448."), "error"),
    (ValueError("something else"), "error"),
    (AssertionError(), "error"),
]  # fmt: skip

TRITON = {
    "out of memory": "out_of_memory",
    "operation not permitted when stream is capturing": "capture_invalidated",
    "operation failed due to a previous error during capture": "capture_invalidated",
    "operation would result in a merge of separate capture sequences": "capture_invalidated",
    "capture was not ended in the same stream as it began": "capture_invalidated",
    "capturing stream has unjoined work": "capture_invalidated",
    "dependency created on uncaptured work in another stream": "capture_invalidated",
    "operation would make the legacy stream depend on a capturing blocking stream": "capture_invalidated",
    "operation not permitted on an event last recorded in a capturing stream": "capture_invalidated",
    "attempt to terminate a thread-local capture sequence from another thread": "capture_invalidated",
    "the operation cannot be performed in the present state": "capture_invalidated",
    "an illegal memory access was encountered": "cuda_fault",
    "misaligned address": "cuda_fault",
    "device kernel image is invalid": "cuda_fault",
}
"""What the driver says of an error → its label; Triton puts only its own name before it."""


@pytest.mark.parametrize(("error", "label"), MESSAGES, ids=[label for _, label in MESSAGES])
def test_labels(error: Exception, label: str) -> None:
    assert classify(error).label == label


@pytest.mark.parametrize("said", TRITON)
@pytest.mark.parametrize("who", ["Triton Error [CUDA]", "CUDA driver error"])
def test_the_drivers_words_have_a_label_whoever_passes_them_on(who: str, said: str) -> None:
    assert classify(RuntimeError(f"{who}: {said}")).label == TRITON[said]


def test_a_compile_that_ran_out_of_memory_is_no_fault_of_its_compiler() -> None:
    outer = RuntimeError("backend='inductor' raised: CUDA error")
    outer.__cause__ = RuntimeError("Triton Error [CUDA]: out of memory")
    assert classify(outer).label == "out_of_memory"


def test_the_label_of_a_cause_is_found_below_its_wrapper() -> None:
    outer = ValueError("backend failed")
    outer.__cause__ = RuntimeError(f"{FX_ERROR} …")
    assert classify(outer).label == "fx_error"
    assert classify(outer).type == "ValueError"


@pytest.mark.parametrize(
    ("inner", "label"),
    [("CUDA out of memory. Tried to allocate 2.00 GiB", "out_of_memory"), ("something else", "capture_invalidated")],
)
def test_a_capture_that_ran_out_of_memory_is_not_a_capture_that_was_disturbed(inner: str, label: str) -> None:
    """The end of the capture raises in turn, while the first error is on its way out."""
    with pytest.raises(RuntimeError) as raised:
        _capture(inner)
    assert classify(raised.value).label == label


def _capture(inner: str) -> None:
    try:
        raise RuntimeError(inner)
    finally:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture: cudaErrorStreamCapture…")


def test_a_bare_assertion_in_cudagraph_trees_is_the_thread_local_one(tmp_path: Path) -> None:
    folder = tmp_path / "torch" / "_inductor"
    folder.mkdir(parents=True)
    source = folder / "cudagraph_trees.py"
    source.write_text("def get_container():\n    assert False\n")
    spec = importlib.util.spec_from_file_location("planted_cudagraph_trees", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(AssertionError) as raised:
        module.get_container()
    fault = classify(raised.value)
    assert fault.label == "cudagraph_tls"
    assert "_inductor/cudagraph_trees.py:get_container" in fault.fingerprint


def test_a_fingerprint_forgets_numbers_addresses_and_folders() -> None:
    one = classify(ValueError("tensor 17 at 0x7f00aa in /home/a/x.py"))
    two = classify(ValueError("tensor 3 at 0x7f11bb in /srv/b/c/x.py"))
    other = classify(ValueError("tensor 17 at 0x7f00aa in /home/a/y.py"))
    assert one.fingerprint == two.fingerprint != other.fingerprint
    assert normalise("a  /tmp/x/y.py:12") == "a …/y.py:N"
