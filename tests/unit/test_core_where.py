"""The ``where`` language: what it means, that it reads back what it writes, and its complaints."""

from __future__ import annotations

import pytest
from core_strategies import axis_values, scenarios
from hypothesis import example, given
from hypothesis import strategies as st

from harness.core.axes import AXES
from harness.core.errors import WhereError
from harness.core.scenario import Scenario
from harness.core.where import MAX_DEPTH, And, Match, Node, Not, Or, Where, parse_where

A = Scenario(lock="per_call", checkpoint="reentrant", drafters=2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lock=per_call", True),
        ("lock=per_*", True),
        ("lock=[pn]*", True),
        ("lock=none", False),
        ("drafters=2", True),
        ("drafters=?", True),
        ("drafters=22", False),
        ("lock=none or checkpoint=reentrant", True),
        ("lock=none and checkpoint=reentrant", False),
        ("not lock=none", True),
        ("not not lock=none", False),
        ("lock=none and lock=none or drafters=2", True),  # and binds tighter than or
        ("drafters=2 or lock=none and lock=none", True),
        ("(drafters=2 or lock=none) and lock=none", False),
        ("not (lock=none or drafters=3)", True),
        ("not lock=none and drafters=3", False),  # not binds tighter than and
        ('lock="per_call"', True),
        ("  lock = per_call  ", True),
        ("(lock=per_call)and(drafters=2)", True),
        ("lock=PER_*", False),
    ],
)
def test_meaning(text: str, expected: bool) -> None:
    assert parse_where(text).matches(A) is expected


def test_a_lock_is_compared_in_its_canonical_form() -> None:
    assert parse_where("lock=each:forward+mask").matches(Scenario(lock="each:mask+forward"))


def test_a_word_that_begins_like_a_keyword_is_a_value() -> None:
    assert parse_where("workload=or-so").matches(Scenario(workload="or-so"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ["position 1", "the end", "axis=value"]),
        ("lokc=none", ["position 1", "lokc", '"lock"']),
        ("lock=none and chekpoint=none", ["position 15", "chekpoint", '"checkpoint"']),
        ("foo=bar", ["position 1", '"foo"; axes are lock, lock_owner, warmup, ', ", steps"]),
        ("lock=none and", ["position 14", "the end"]),
        ("lock=none checkpoint=none", ["position 11", "checkpoint=none", '"and"']),
        ("(lock=none", ["position 11", '")"', "position 1"]),
        ("lock=none)", ["position 10", '"and", "or" or the end']),
        ("lock", ["position 1", "axis=value"]),
        ("lock=", ["position 1", "axis=value"]),
        ("lock!=none", ["position 5", "not lock=none"]),
        ("lock==none", ["position 5", "lock=none"]),
        ("or lock=none", ["position 1", "axis=value"]),
        ("checkpoint=renetrant", ["position 12", "renetrant", '"reentrant"']),
        ("checkpoint=re?", ["position 12", "non_reentrant"]),
        ("drafters=two", ["position 10", "integers"]),
        ("drafters=0", ["position 10", "least is 1"]),
        ("lock=per_cal", ["position 6", '"per_call"']),
        ('lock="none', ["position 1", "axis=value"]),
        ("lock=none & seed=1", ["position 11", '"and"']),
    ],
)
def test_a_complaint_says_where_and_what_is_nearest(text: str, parts: list[str]) -> None:
    with pytest.raises(WhereError) as caught:
        parse_where(text)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("text", ["(" * 5000 + "lock=none", "not " * 5000 + "lock=none"])
def test_deep_nesting_is_refused_before_the_stack_overflows(text: str) -> None:
    with pytest.raises(WhereError, match=f"more than {MAX_DEPTH} deep"):
        parse_where(text)


def _plain(name: str) -> st.SearchStrategy[Match]:
    """Matches with a glob that matches some value: the value itself, or with a star for its tail."""
    values = axis_values(name).map(str).filter(lambda text: '"' not in text and not set("*?[") & set(text))
    canonical = values.map(lambda text: str(Scenario.from_dict({name: _typed(name, text)}).value(name)))
    return st.builds(Match, st.just(name), st.one_of(canonical, canonical.map(lambda text: text[:3] + "*")))


def _typed(name: str, text: str) -> str | int:
    return int(text) if any(axis.name == name and axis.kind == "int" for axis in AXES) else text


matches = st.sampled_from([axis.name for axis in AXES]).flatmap(_plain)


def _deeper(inner: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    parts = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(st.builds(Not, inner), st.builds(And, parts), st.builds(Or, parts))


nodes: st.SearchStrategy[Node] = st.recursive(matches, _deeper, max_leaves=8)


@given(nodes)
@example(Match("workload", "=x"))
@example(Match("workload", "a (b)"))
def test_what_is_written_reads_back_equal(node: Node) -> None:
    text = str(Where("", node))
    assert parse_where(text).node == node
    assert str(parse_where(text)) == text


@given(nodes, scenarios)
def test_the_words_mean_what_logic_says(node: Node, scenario: Scenario) -> None:
    text, truth = str(node), node.matches(scenario)
    assert parse_where(f"not ({text})").matches(scenario) is not truth
    assert parse_where(f"({text}) and not ({text})").matches(scenario) is False
    assert parse_where(f"({text}) or not ({text})").matches(scenario) is True


@given(st.text(alphabet=st.sampled_from("lock=none andornt()\"'*[ \t\nä!"), max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    refused = ""
    try:
        where = parse_where(text)
    except WhereError as error:
        refused = str(error)
    if refused:
        assert "position" in refused
        assert len(refused.splitlines()) == 1
    else:
        assert parse_where(str(where)).node == where.node
