"""`harness.report.markdown`: underscores that would be emphasis, and names of code in a sentence."""

from __future__ import annotations

import re

import pytest

from harness.report.markdown import plain, prose


@pytest.mark.parametrize("text", ["nn.Module.__call__ stays", "__init__", "a__b__", "_x_", "__"])
def test_no_pair_of_underscores_is_left_to_be_emphasis(text: str) -> None:
    shown = plain(text)
    assert re.sub(r"\\(.)", r"\1", shown) == text
    assert not re.search(r"(?<!\\)_(?![^\W_])|(?<![^\W_])(?<!\\)_", shown), shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("nn.Module.__call__ stays patched", "`nn.Module.__call__` stays patched"),
        ("ask torch.compiler.is_compiling() twice", "ask `torch.compiler.is_compiling()` twice"),
        ("out of torch/_inductor/cudagraph_trees.py in B", "out of `torch/_inductor/cudagraph_trees.py` in B"),
        ("make_fx, and e.g. 2.14 or 3/4.", "`make_fx`, and e.g. 2.14 or 3/4."),
        ("A compiles; *B* waits | <b>", "A compiles; \\*B\\* waits &#124; &lt;b&gt;"),
        ("`make_fx`", "\\``make_fx`\\`"),
    ],
)
def test_names_of_code_are_code_and_all_else_is_escaped(text: str, shown: str) -> None:
    assert prose(text) == shown


def test_it_is_cut_and_one_line() -> None:
    assert "\n" not in prose("a_b\nc_d")
    assert len(prose("word " * 200, 50)) < 100
