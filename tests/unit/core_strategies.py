"""Hypothesis strategies for values of ``harness.core``."""

from __future__ import annotations

from hypothesis import strategies as st

from harness.core.axes import AXES, Value
from harness.core.lockspec import NAMES, REGIONS
from harness.core.scenario import Scenario
from harness.core.schedulespec import PORTFOLIO

# Beside plain names: what a file name, an id or a glob could stumble over.
texts = st.text(alphabet=st.sampled_from("abAB01_.-+:,=/\\~ *?[]()\"'äß日%$&|"), min_size=1, max_size=60).filter(
    lambda text: text == text.strip() and text.isprintable()
)

locks = st.one_of(
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(REGIONS), min_size=1, unique=True).map(lambda found: "each:" + "+".join(found)),
    st.sampled_from(["span:mask..backward", "span:step..step", "span:forward..loss"]),
)
devices = st.one_of(
    st.just("cpu"),
    (several := st.lists(st.integers(0, 12), min_size=1, max_size=8, unique=True).map(
        lambda found: "+".join(f"cuda:{number}" for number in found)
    )),
    st.tuples(several, several).map("/".join),
)
schedules = st.one_of(
    st.sampled_from(["none", "directed", "replay"]),
    st.integers(0, 10**6).map(lambda seed: f"delays:{seed}"),
    st.tuples(st.integers(0, 10**6), st.sampled_from(list(PORTFOLIO))).map(lambda pair: f"delays:{pair[0]}:{pair[1]}"),
    st.tuples(st.integers(0, 10**6), st.integers(1, 9)).map(lambda pair: f"pct:{pair[0]}:{pair[1]}"),
)
_BY_AXIS: dict[str, st.SearchStrategy[Value]] = {
    "lock": locks,
    "devices": devices,
    "backend": st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,20}", fullmatch=True),
    "schedule": schedules,
    "workload": texts,
}


def axis_values(name: str) -> st.SearchStrategy[Value]:
    """Values that the axis of that name takes."""
    axis = next(axis for axis in AXES if axis.name == name)
    if axis.kind == "choice":
        return st.sampled_from(axis.choices)
    if axis.kind == "int":
        return st.integers(min_value=axis.minimum, max_value=10**9)
    return _BY_AXIS[name]


scenarios: st.SearchStrategy[Scenario] = st.fixed_dictionaries(
    {}, optional={axis.name: axis_values(axis.name) for axis in AXES}
).map(Scenario.from_dict)
