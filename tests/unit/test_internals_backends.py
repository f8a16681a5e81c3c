"""`harness.torch_internals.backends`: a backend that says when it is given a graph, and torch's own callback."""

from __future__ import annotations

import threading

import torch

from harness.torch_internals.backends import on_compile_start, register_watched_backend
from harness.torch_internals.device_guard import ensure_device_guard


def test_a_watched_backend_says_on_which_thread_it_gets_each_graph_and_compiles_as_the_other_does() -> None:
    ensure_device_guard()
    given: list[str] = []
    register_watched_backend("watched_for_a_test", "aot_eager", lambda: given.append(threading.current_thread().name))
    compiled = torch.compile(lambda x: x.sin() * 3, backend="watched_for_a_test", dynamic=False)

    def work() -> None:
        x = torch.ones(3, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad is not None
        torch.testing.assert_close(x.grad, 3 * torch.ones(3).cos())

    thread = threading.Thread(target=work, name="compiler")
    thread.start()
    thread.join(60)
    compiled(torch.ones(3, requires_grad=True))  # warm
    assert given == ["compiler"]
    compiled(torch.ones(4))
    assert given == ["compiler", threading.current_thread().name]


def test_the_callback_tells_the_kind_of_each_compile() -> None:
    told: list[str] = []
    on_compile_start(told.append)
    y = torch.compile(lambda x: x.cos() * 5, backend="aot_eager")(torch.ones(3, requires_grad=True))
    y.sum().backward()
    assert told == ["DYNAMO", "LAZY_BACKWARD"]
