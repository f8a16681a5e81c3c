"""The axes: names, order, defaults, and the check of one value."""

from __future__ import annotations

import pytest

from harness.core.axes import AXES, BY_NAME, axis_named, coerce
from harness.core.errors import MatrixError


def test_axes_stand_in_the_order_of_the_design() -> None:
    assert [axis.name for axis in AXES] == [
        "lock",
        "lock_owner",
        "warmup",
        "checkpoint",
        "cudagraphs",
        "shapes",
        "mask",
        "compile",
        "code",
        "dynamo",
        "cache",
        "replicas",
        "drafters",
        "targets",
        "devices",
        "backend",
        "schedule",
        "on_error",
        "workload",
        "seed",
        "steps",
    ]


def test_every_default_is_a_value_of_its_axis_and_the_first_choice() -> None:
    for axis in AXES:
        assert coerce(axis.name, axis.default) == axis.default
        assert axis.kind != "choice" or axis.default == axis.choices[0]
        assert axis.doc


def test_every_choice_is_taken_as_it_is() -> None:
    for axis in AXES:
        for choice in axis.choices:
            assert coerce(axis.name, choice) == choice


@pytest.mark.parametrize(
    ("name", "value", "parts"),
    [
        ("chekpoint", "none", ["chekpoint", '"checkpoint"']),
        ("checkpoint", "renetrant", ['axis "checkpoint"', "renetrant", '"reentrant"']),
        ("checkpoint", False, ['axis "checkpoint"', "false (a boolean)", "string"]),
        ("drafters", True, ['axis "drafters"', "true (a boolean)", "integer"]),
        ("drafters", "3", ['axis "drafters"', '"3"', "integer"]),
        ("drafters", 3.0, ['axis "drafters"', "3.0", "integer"]),
        ("drafters", 0, ['axis "drafters"', "0", "least is 1"]),
        ("seed", -1, ['axis "seed"', "-1", "least is 0"]),
        ("lock", "per_cal", ['axis "lock"', "per_cal", '"per_call"']),
        ("lock", "each:mask+forwrd", ['axis "lock"', "forwrd", '"forward"']),
        ("devices", "cuda", ['axis "devices"', '"cuda"', "cuda:0+cuda:1"]),
        ("devices", "cuda:0+cuda:0", ['axis "devices"', "twice"]),
        ("devices", "cuda:0/cuda:1+cuda:1", ['axis "devices"', "twice"]),
        ("devices", "cpu/cuda:0", ['axis "devices"', "apart"]),
        ("devices", "cuda:01", ['axis "devices"', '"cuda:01"']),
        ("backend", "my backend", ['axis "backend"', "my backend"]),
        ("workload", "", ['axis "workload"', "empty"]),
        ("workload", "a\nb", ['axis "workload"', "control"]),
        ("schedule", " none", ['axis "schedule"', "blanks"]),
    ],
)
def test_a_bad_value_is_refused_with_axis_value_and_remedy(name: str, value: object, parts: list[str]) -> None:
    with pytest.raises(MatrixError) as caught:
        coerce(name, value)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_backends_and_many_devices_are_taken() -> None:
    assert coerce("backend", "openxla") == "openxla"
    assert coerce("devices", "cuda:0+cuda:10") == "cuda:0+cuda:10"
    assert coerce("devices", "cuda:0/cuda:1+cuda:2") == "cuda:0/cuda:1+cuda:2"


def test_a_lock_becomes_canonical() -> None:
    assert coerce("lock", "each:forward+mask") == "each:mask+forward"


def test_axis_named_returns_the_axis() -> None:
    assert axis_named("steps") is BY_NAME["steps"]


def test_an_unknown_axis_has_the_nearest_or_else_all() -> None:
    with pytest.raises(MatrixError) as caught:
        axis_named("chekpoint")
    assert str(caught.value) == 'no axis is called "chekpoint" (did you mean "checkpoint"?)'
    with pytest.raises(MatrixError) as caught:
        axis_named("foo")
    assert str(caught.value) == f'no axis is called "foo"; axes are {", ".join(axis.name for axis in AXES)}'
