"""The grammar of lock names, and that the copy in ``harness.locks`` is the same language."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import locks
from harness.core.errors import MatrixError
from harness.core.lockspec import NAMES, REGIONS, LockSpec, parse_lock

ELSEWHERE = ("thread_local_fx", "process")
"""Names of the axis `lock` that are no locks: `make_strategy` refuses them."""

EACH = ["each:" + "+".join(regions) for size in (1, 2, 3) for regions in itertools.product(REGIONS, repeat=size)]
SPANS = [f"span:{first}..{last}" for first in REGIONS for last in REGIONS]
ODD = [
    "",
    "None",
    "each",
    "each:",
    "each:mask+",
    "each:mask+forwrd",
    "each: mask",
    "span:",
    "span:mask",
    "span:mask..",
    "span:mask...backward",
    "span:mask..loss..backward",
    "spam:mask..backward",
    "none:mask",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_fixed_name_is_its_own_kind(name: str) -> None:
    assert parse_lock(name) == LockSpec(name)
    assert parse_lock(name).name == name


def test_each_keeps_its_regions_in_the_order_of_a_step() -> None:
    assert parse_lock("each:backward+mask").regions == ("mask", "backward")
    assert parse_lock("each:backward+mask").name == "each:mask+backward"


def test_a_span_has_its_two_ends() -> None:
    assert parse_lock("span:mask..backward") == LockSpec("span", first="mask", last="backward")


@pytest.mark.parametrize("name", ["span:backward..mask", "span:loss..forward", "span:forward..mask"])
def test_a_span_that_ends_before_it_begins_is_refused(name: str) -> None:
    with pytest.raises(MatrixError, match="swap the two"):
        parse_lock(name)


@pytest.mark.parametrize("name", ["span:attention..forward", "span:forward..attention", "span:mask..step"])
def test_a_span_may_run_between_a_region_and_what_contains_it(name: str) -> None:
    assert parse_lock(name).kind == "span"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("per_cal", '"per_call"'),
        ("each:mask+forwrd", '"forward"'),
        ("each:mask+mask", "twice"),
        ("span:mask..bakward", '"backward"'),
        ("span:mask", "span:FIRST..LAST"),
        ("zebra", "nearest: per_call, per_forward; all of them: harness run --help"),
    ],
)
def test_a_bad_name_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(MatrixError) as caught:
        parse_lock(name)
    assert hint in str(caught.value)
    assert name in str(caught.value)


def _core_takes(name: str) -> bool:
    try:
        parse_lock(name)
    except MatrixError:
        return False
    return name not in ELSEWHERE


def _locks_takes(name: str) -> bool:
    try:
        locks.make_strategy(name, workers=["w"])
    except ValueError:
        return False
    return True


def test_the_vendorable_copy_has_the_same_words() -> None:
    assert locks.REGIONS == REGIONS
    assert {*locks.STRATEGIES, *ELSEWHERE} == set(NAMES)


@pytest.mark.parametrize("names", [NAMES, EACH, SPANS, ODD], ids=["names", "each", "spans", "odd"])
def test_the_vendorable_copy_takes_the_same_names(names: tuple[str, ...]) -> None:
    assert [name for name in names if _core_takes(name) != _locks_takes(name)] == []


@given(st.lists(st.sampled_from([*NAMES, *REGIONS, "each", "span", ":", "..", "+", " "]), max_size=7))
def test_the_vendorable_copy_takes_the_same_mixtures(parts: list[str]) -> None:
    name = "".join(parts)
    assert _core_takes(name) == _locks_takes(name)


@given(st.sets(st.sampled_from(REGIONS), min_size=1), st.randoms())
def test_each_means_a_set(regions: set[str], random: object) -> None:
    listed = sorted(regions)
    random.shuffle(listed)  # type: ignore[attr-defined]
    spec = parse_lock("each:" + "+".join(listed))
    assert set(spec.regions) == regions
    assert parse_lock(spec.name) == spec


@pytest.mark.parametrize("name", [*(n for n in NAMES if n not in ELSEWHERE), "each:loss+forward", "span:forward..step"])
def test_what_a_strategy_looks_at_is_what_makes_it_hold(name: str) -> None:
    held: list[str] = []
    for region in REGIONS:
        events: list[tuple[str, str, str]] = []
        strategy = locks.make_strategy(name, workers=["a"], observer=lambda *said, to=events: to.append(said), warn=False)
        with strategy.region(region, "a"):
            held += [region] if any(event == "acquired" for event, _, _ in events) else []
    assert tuple(held) == parse_lock(name).looks_at
