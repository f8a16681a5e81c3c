"""Where in a `with` a frame stands, when its body may share a line with what it takes: `with lock: total += 1`."""

from __future__ import annotations

import ast
from enum import Enum

from .views import Frame

Span = tuple[int, int, int, int]


class Stands(Enum):
    """A frame, to a `with`. EITHER: its line has both the end of what is taken and the beginning of the body."""

    OUTSIDE = 0
    HEADER = 1
    BODY = 2
    EITHER = 3


def span_of(node: ast.expr | ast.stmt, indent: int) -> Span:
    """(line, end line, column, end column), as an instruction has them, of a tree whose text lost `indent` columns."""
    return node.lineno, node.end_lineno or 0, node.col_offset + indent, (node.end_col_offset or 0) + indent


def stands(node: ast.With | ast.AsyncWith, frame: Frame, indent: int) -> Stands:
    """By the instruction that runs where it is known, else by the line.

    To enter and to leave have the span of the whole statement up to Python 3.12, that of the item from 3.13 on.
    """
    taken_by = max(item.context_expr.end_lineno or 0 for item in node.items)
    first, last = node.body[0].lineno, node.body[-1].end_lineno or 0
    if not node.lineno <= frame.line <= last:
        return Stands.OUTSIDE
    if frame.line < first:
        return Stands.HEADER
    if frame.line > taken_by:
        return Stands.BODY
    if frame.span is None:
        return Stands.EITHER
    line, _, column, _ = frame.span
    return Stands.BODY if (line, column) >= (first, node.body[0].col_offset + indent) else Stands.HEADER


def calls_in(nodes: list[ast.stmt] | list[ast.expr], line: int | None = None) -> bool:
    """Whether they call anything, on that line."""
    return any(
        isinstance(inner, ast.Call) and (line is None or inner.lineno <= line <= (inner.end_lineno or 0))
        for node in nodes
        for inner in ast.walk(node)
    )
