"""Whether a lock that a function takes by `acquire`, or whose name it uses, is still the one it holds, as its source tells."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def surely_made(call: ast.Call, body: Sequence[ast.stmt], line: int) -> bool:
    """Whether whoever is at `line` has made the call above it, and it was no attempt that may have failed.

    An attempt is sure as `if lock.acquire(timeout=1):` with the line in its body, or as `if not …: return` above the line.
    """
    statement = next((one for one in body if any(node is call for node in ast.walk(one))), None)
    attempt = bool(call.args or call.keywords)
    if isinstance(statement, (ast.If, ast.While)):
        test = statement.test
        if test is call:
            return _spans(statement.body, line)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and test.operand is call:
            left = isinstance(statement, ast.If) and isinstance(statement.body[-1], _LEAVES)
            return _spans(statement.orelse, line) or (left and line > (statement.end_lineno or 0))
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return surely_made(call, statement.body, line)
    if isinstance(statement, (ast.Try, ast.TryStar)):
        for always in (statement.body, statement.finalbody):
            if _has(always, call):
                return surely_made(call, always, line)
    for branch in _branches(statement):
        if _has(branch, call):
            return _spans(branch, line) and surely_made(call, branch, line)
    return isinstance(statement, ast.Expr) and statement.value is call and not attempt


def _branches(statement: ast.stmt | None) -> list[Sequence[ast.stmt]]:
    """What of a statement need not have run."""
    if isinstance(statement, (ast.If, ast.While, ast.For, ast.AsyncFor)):
        return [statement.body, statement.orelse]
    if isinstance(statement, (ast.Try, ast.TryStar)):
        return [*(handler.body for handler in statement.handlers), statement.orelse]
    if isinstance(statement, ast.Match):
        return [case.body for case in statement.cases]
    return []


def _has(body: Sequence[ast.stmt], call: ast.Call) -> bool:
    return any(node is call for statement in body for node in ast.walk(statement))


def _spans(body: Sequence[ast.stmt], line: int) -> bool:
    return bool(body) and body[0].lineno <= line <= (body[-1].end_lineno or 0)


def passed_on(call: ast.Call, texts: Iterable[str]) -> list[str]:
    """Those of these expressions that the call is given."""
    wanted = set(texts)
    if not wanted:
        return []
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return [text for text in map(ast.unparse, given) if text in wanted]


def put_anew(expression: ast.expr, nodes: Iterable[ast.AST]) -> bool:
    """Whether something in the expression is assigned in there, so that it now means another object than when it was taken."""
    parts = {ast.unparse(part) for part in ast.walk(expression) if isinstance(part, (ast.Name, ast.Attribute, ast.Subscript))}
    return any(
        isinstance(getattr(inner, "ctx", None), ast.Store) and isinstance(inner, ast.expr) and ast.unparse(inner) in parts
        for node in nodes
        for inner in ast.walk(node)
    )
