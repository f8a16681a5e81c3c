"""Where tables stand in a TOML text, whatever else stands there."""

from __future__ import annotations

import tomllib

import pytest

from harness.control.toml_layout import blocks

TEXT = '''\
schema = 1  # [[expect]]
note = """
[[expect]]
where = "no table"
"""
other = \'\'\'[[expect]]\'\'\'

[axes]
lock = [
  "none",  # ]
  "first_step",
]
[[expect]]
where = "lock=none"  # why
may = ["fx_error", # a comment
  "dense",
]
# of the next
[[ "expect" ]]
"where" = 'lock=first_step'
only = [ "ok" ]
inline = { a = [1, { b = "}" }], "c" = 2024-01-01 10:00:00, d.e = """x""" }
[defaults]
steps = 3
'''


def test_tables_and_the_spans_of_their_values() -> None:
    tomllib.loads(TEXT)  # it is TOML
    first, second = blocks(TEXT, "expect")
    assert TEXT[first.start : first.end].startswith("[[expect]]\nwhere")
    assert TEXT[first.start : first.end].endswith(",\n]\n")
    assert {key: TEXT[slice(*span)] for key, span in first.values.items()} == {
        "where": '"lock=none"',
        "may": '["fx_error", # a comment\n  "dense",\n]',
    }
    assert TEXT[second.start : second.end].startswith('[[ "expect" ]]')
    assert list(second.values) == ["where", "only", "inline"]
    assert TEXT[slice(*second.values["where"])] == "'lock=first_step'"
    assert TEXT[second.end :] == "[defaults]\nsteps = 3\n"


@pytest.mark.parametrize(
    ("ending", "left"), [("", ""), ("\n", ""), ("\n\n# the end", "\n# the end"), ("\r\n\r\n", "\r\n")]
)
def test_the_last_table_ends_with_its_last_value(ending: str, left: str) -> None:
    text = 'schema = 1\n[[expect]]\nwhere = "lock=none"\nmay = ["dense"]' + ending
    (block,) = blocks(text, "expect")
    assert text[block.end :] == left
    assert text[slice(*block.values["may"])] == '["dense"]'


@pytest.mark.parametrize(
    "value",
    [
        "1",
        "-1.5e3",
        "true",
        '""',
        '"\\""',
        "'\\'",
        '"""a""b"""',
        '"""a\\""""',
        '"""a"""""',
        "'''a'b'''",
        "[]",
        "[[], {}]",
        "{}",
    ],
)
def test_a_value_ends_where_it_ends(value: str) -> None:
    text = f"[t]\na = {value} # c\nb = 2\n"
    tomllib.loads(text)
    (block,) = blocks(text, "t")
    assert text[slice(*block.values["a"])] == value
    assert text[slice(*block.values["b"])] == "2"
