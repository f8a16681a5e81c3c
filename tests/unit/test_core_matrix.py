"""Matrix files: expansion, order, and a clear line for every kind of bad input."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from core_strategies import axis_values
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.axes import AXES, Value
from harness.core.errors import MatrixError, UserError, WhereError
from harness.core.matrix import Matrix, load_matrix, parse_matrix
from harness.core.scenario import Scenario

DESIGN = """
schema = 1
[defaults]
drafters = 3
repeats = 5
[axes]
lock = ["none", "per_call", "per_forward", "first_step", "compile_gate"]
checkpoint = ["none", "reentrant", "non_reentrant"]
[[exclude]]
where = "lock=per_call and checkpoint=reentrant"
[[include]]
lock = "span:mask..backward"
[[expect]]
where = "lock=none"
torch = "<2.12"
may = ["fx_error"]
"""


def read(body: str) -> Matrix:
    return parse_matrix("schema = 1\n" + body, file="m.toml")


def test_the_example_of_the_design() -> None:
    matrix = parse_matrix(DESIGN, file="m.toml")
    assert len(matrix.scenarios) == 5 * 3 - 1 + 1
    assert [s.id for s in matrix.scenarios][:4] == [
        "default",
        "checkpoint=reentrant",
        "checkpoint=non_reentrant",
        "lock=per_call",
    ]
    assert matrix.scenarios[-1] == Scenario(lock="span:mask..backward")
    assert matrix.axes_varying == ("lock", "checkpoint")
    assert (matrix.repeats, matrix.timeout_s, matrix.hang_timeout_s, matrix.schema) == (5, None, None, 1)
    assert (matrix.file, matrix.text, matrix.pipeline) == ("m.toml", DESIGN, {})
    (expectation,) = matrix.expectations
    assert expectation.applies(Scenario(), "2.11.0")


def test_the_axis_written_first_varies_slowest() -> None:
    matrix = read('[axes]\nseed = [2, 1]\nlock = ["first_step", "none"]')
    assert [(s.seed, s.lock) for s in matrix.scenarios] == [
        (2, "first_step"),
        (2, "none"),
        (1, "first_step"),
        (1, "none"),
    ]


def test_defaults_fill_the_axes_that_are_not_named() -> None:
    matrix = read('[defaults]\nlock = "first_step"\ndrafters = 2\n[axes]\nseed = [0, 1]\n[[include]]\nseed = 7')
    assert {(s.lock, s.drafters) for s in matrix.scenarios} == {("first_step", 2)}
    assert [s.seed for s in matrix.scenarios] == [0, 1, 7]


def test_an_include_may_hold_lists_and_is_not_subject_to_excludes() -> None:
    matrix = read(
        '[axes]\nlock = ["none", "per_call"]\n[[exclude]]\nwhere = "lock=none"\n'
        '[[include]]\nlock = "none"\ncheckpoint = ["none", "reentrant"]\n'
    )
    assert [s.id for s in matrix.scenarios] == ["lock=per_call", "default", "checkpoint=reentrant"]


def test_includes_alone_are_a_matrix() -> None:
    assert [s.id for s in read("[[include]]\nseed = 3\n").scenarios] == ["seed=3"]


def test_seconds_may_be_whole_or_not() -> None:
    matrix = read("[defaults]\ntimeout = 60\nhang_timeout = 1.5\n[axes]\nseed = [1]")
    assert (matrix.timeout_s, matrix.hang_timeout_s) == (60.0, 1.5)
    assert matrix.repeats == 1


def test_settings_are_kept_as_written() -> None:
    assert read("[pipeline]\nblock_size = 8\nclip = 2\n[axes]\nseed = [1]").pipeline == {
        "block_size": 8,
        "clip": 2,
    }


def test_a_workload_of_ones_own_may_have_settings_of_its_own() -> None:
    own = '[defaults]\nworkload = "mine:Train"\n[axes]\nseed = [1]\n[pipeline]\nflavour = "mild"\n'
    assert read(own).pipeline == {"flavour": "mild"}
    with pytest.raises(UserError, match="flavour"):
        read(own.replace("mine:Train", "dflash"))
    assert read(own + 'block_size = "large"\nquick = true\n').pipeline["block_size"] == "large", "another's key of that name"


AXES_OK = "[axes]\nseed = [1]\n"


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        # not TOML: the line is named (the body begins on line 2)
        ("[axes]\nlock = none\n", ["line 3", "not valid TOML"]),
        ("[axes\n", ["line 2", "not valid TOML"]),
        ('[axes]\nlock = ["none"', ["line 3", "not valid TOML"]),
        ("[axes]\nseed = [1]\nseed = [2]\n", ["line 4", "not valid TOML"]),
        ("[axes]\nx = " + "[" * 4000, ["not valid TOML"]),
        # unknown keys, axes, values
        ("[axis]\nseed = [1]\n", ["axis", '"axes"']),
        ("lock = 'none'\n" + AXES_OK, ['"lock"', "outside a table", "[axes]"]),
        ("repeats = 2\n" + AXES_OK, ['"repeats"', "outside a table", "[defaults]"]),
        ("[axes]\nchekpoint = ['none']\n", ["[axes]", "chekpoint", '"checkpoint"']),
        ("[axes]\ncheckpoint = ['renetrant']\n", ["[axes]", '"checkpoint"', "renetrant", '"reentrant"']),
        ("[axes]\nlock = ['per_cal']\n", ["[axes]", '"lock"', "per_cal", '"per_call"']),
        ("[axes]\nrepeats = [1]\n", ["[axes]", '"repeats"', "[defaults]"]),
        ("[defaults]\nrepeat = 2\n" + AXES_OK, ["[defaults]", "repeat", '"repeats"']),
        ("[defaults]\ncache = 'col'\n" + AXES_OK, ["[defaults]", '"cache"', '"cold"']),
        ("[pipeline]\nhiden_size = 8\n" + AXES_OK, ["[pipeline]", "hiden_size", '"hidden_size"']),
        (AXES_OK + "[[include]]\nlokc = 'none'\n", ["[[include]] number 1", "lokc", '"lock"']),
        (AXES_OK + "[[include]]\nlock = ['none', 'non']\n", ["[[include]] number 1", '"lock"', '"none"']),
        (AXES_OK + "[[include]]\ntimeout = 3\n", ["[[include]] number 1", '"timeout"', "[defaults]"]),
        (AXES_OK + "[[exclude]]\nwere = 'lock=none'\n", ["[[exclude]] number 1", "were", '"where"']),
        # wrong types
        ("[defaults]\nrepeats = 'five'\n" + AXES_OK, ['"repeats"', '"five"', "integer"]),
        ("[defaults]\nrepeats = 'five'\n", ['"repeats"', '"five"', "integer"]),
        ("[defaults]\nrepeats = true\n" + AXES_OK, ['"repeats"', "true", "integer"]),
        ("[defaults]\nrepeats = 0\n" + AXES_OK, ['"repeats"', "least is 1"]),
        ("[defaults]\nrepeats = 2.0\n" + AXES_OK, ['"repeats"', "2.0", "integer"]),
        ("[defaults]\ndrafters = true\n" + AXES_OK, ["[defaults]", '"drafters"', "true", "integer"]),
        ("[defaults]\ndrafters = [1, 2]\n" + AXES_OK, ["[defaults]", '"drafters"', "[axes]"]),
        ("[defaults]\ntimeout = '60'\n" + AXES_OK, ['"timeout"', '"60"', "seconds"]),
        ("[defaults]\ntimeout = 0\n" + AXES_OK, ['"timeout"', "above 0"]),
        ("[defaults]\nhang_timeout = inf\n" + AXES_OK, ['"hang_timeout"', "finite"]),
        ("[defaults]\nhang_timeout = true\n" + AXES_OK, ['"hang_timeout"', "true"]),
        ("[axes]\nlock = 'none'\n", ["[axes]", '"lock"', "brackets"]),
        ("[axes]\ndrafters = [1, true]\n", ["[axes]", '"drafters"', "true", "integer"]),
        ("[axes]\nlock = [['none']]\n", ["[axes]", '"lock"', "a list"]),
        ("[axes]\nlock = []\n", ["[axes]", '"lock"', "empty"]),
        ("[axes]\nseed = [1, 1]\n", ["[axes]", '"seed"', "twice"]),
        ("[axes]\nlock = ['each:mask+loss', 'each:loss+mask']\n", ["[axes]", '"lock"', "twice"]),
        ("axes = 3\n", ['"axes"', "table"]),
        ("[exclude]\nwhere = 'lock=none'\n" + AXES_OK, ['"exclude"', "[[exclude]]"]),
        ("expect = [1]\n" + AXES_OK, ['"expect"', "[[expect]]"]),
        ("[pipeline]\nwhen = 2020-01-01\n" + AXES_OK, ["[pipeline]", '"when"', "string"]),
        ("[pipeline]\nclip = nan\n" + AXES_OK, ["[pipeline]", '"clip"', "finite"]),
        (AXES_OK + "[[exclude]]\nwhere = 3\n", ["[[exclude]] number 1", '"where"', "not a string"]),
        (AXES_OK + "[[exclude]]\n", ["[[exclude]] number 1", '"where" is missing']),
        # where
        (
            AXES_OK + "[[exclude]]\nwhere = 'lock=none'\n[[exclude]]\nwhere = 'lokc=none'\n",
            ["[[exclude]] number 2", '"where"', "position 1", '"lock"'],
        ),
        (
            AXES_OK + "[[expect]]\nwhere = 'lock'\nmay = ['ok']\n",
            ["[[expect]] number 1", '"where"', "position"],
        ),
        (AXES_OK + "[[expect]]\nwhere = 'lock=none'\nmay = ['fx']\n", ["[[expect]] number 1", '"may"', "fx"]),
        # no scenario left, duplicates, too many
        ("", ["no scenario", "[axes]"]),
        ("[axes]\n", ["no scenario"]),
        ("[axes]\nseed = [1, 2]\n[[exclude]]\nwhere = 'seed=*'\n", ["excludes leave no scenario"]),
        (AXES_OK + "[[include]]\nseed = 1\n", ["[[include]] number 1", '"seed"', "seed=1", "from [axes]"]),
        (
            AXES_OK + "[[include]]\nseed = 2\n[[include]]\nseed = [3, 2]\n",
            ["[[include]] number 2", "seed=2", "from [[include]] number 1"],
        ),
        (AXES_OK + "[[include]]\n", ["[[include]] number 1", "no axis"]),
        (
            f"[axes]\nseed = {list(range(400))}\nsteps = {list(range(1, 400))}\n",
            ["[axes]", "159600 scenarios", "fewer"],
        ),
    ],
)
def test_bad_input_is_one_line_with_file_key_and_remedy(body: str, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        read(body)
    message = str(caught.value)
    assert message.startswith("m.toml: ")
    assert "\n" not in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("first_line", "part"),
    [
        ("", "is missing"),
        ("schema = 2", "reads schema 1, not 2"),
        ("schema = '1'", "not an integer"),
        ("schema = true", "not an integer"),
        ("shema = 1", '"schema"'),
    ],
)
def test_a_wrong_schema_is_refused(first_line: str, part: str) -> None:
    with pytest.raises(MatrixError) as caught:
        parse_matrix(f"{first_line}\n{AXES_OK}", file="m.toml")
    assert part in str(caught.value)
    assert "schema" in str(caught.value)


def test_load_reads_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "quick.toml"
    path.write_text("schema = 1\n" + AXES_OK, encoding="utf-8-sig")
    assert load_matrix(path).file == str(path)
    assert load_matrix(str(path)).scenarios == (Scenario(seed=1),)


def test_load_tells_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "quick.toml").write_text("schema = 1\n" + AXES_OK)
    (tmp_path / "latin.toml").write_bytes(b"# \xe4\n")
    with pytest.raises(MatrixError, match=r'quik\.toml: no such matrix file \(did you mean "quick\.toml"'):
        load_matrix(tmp_path / "quik.toml")
    with pytest.raises(MatrixError, match=r"latin\.toml: not UTF-8 text, at byte 2"):
        load_matrix(tmp_path / "latin.toml")
    with pytest.raises(MatrixError, match="cannot be read"):
        load_matrix(tmp_path)


def test_select_keeps_what_matches_and_refuses_to_keep_nothing() -> None:
    matrix = parse_matrix(DESIGN, file="m.toml")
    assert [s.id for s in matrix.select("lock=none and not checkpoint=none").scenarios] == [
        "checkpoint=reentrant",
        "checkpoint=non_reentrant",
    ]
    with pytest.raises(WhereError, match="no scenario of this matrix"):
        matrix.select("lock=process")


axes_tables = st.lists(
    st.sampled_from([axis.name for axis in AXES if axis.kind != "str"]), min_size=1, max_size=3, unique=True
).flatmap(
    lambda names: st.fixed_dictionaries(
        {name: st.lists(axis_values(name), min_size=1, max_size=3, unique=True) for name in names}
    )
)


@given(axes_tables)
@settings(max_examples=60)
def test_the_product_is_whole_ordered_and_without_repetition(axes: dict[str, list[Value]]) -> None:
    # JSON's lists of strings and integers are TOML's
    body = "[axes]\n" + "".join(f"{name} = {json.dumps(values)}\n" for name, values in axes.items())
    matrix = read(body)
    points = [tuple(scenario.value(name) for name in axes) for scenario in matrix.scenarios]
    assert points == list(itertools.product(*axes.values()))
    assert len({scenario.id for scenario in matrix.scenarios}) == len(points)
    assert set(matrix.axes_varying) == {name for name, values in axes.items() if len(values) > 1}
    assert read(body) == matrix


@given(axes_tables, st.data())
@settings(max_examples=60)
def test_an_exclude_and_its_negation_divide_the_product(axes: dict[str, list[Value]], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(axes)))
    value = data.draw(st.sampled_from(axes[name]))
    body = "[axes]\n" + "".join(f"{key} = {json.dumps(values)}\n" for key, values in axes.items())
    whole = read(body).scenarios
    kept = read(body + f"[[exclude]]\nwhere = 'not {name}={value}'\n").scenarios
    assert kept == tuple(scenario for scenario in whole if scenario.value(name) == value)
