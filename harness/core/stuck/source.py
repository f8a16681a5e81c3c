"""Questions to the source of a function that is on a stack: what it waits for here, what it holds, what it calls.

Only the function's own block is parsed, so that a stack through large libraries costs little.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from harness.core.parsing import parse

from .acquired import passed_on, put_anew, surely_made
from .views import Frame
from .withs import Stands, calls_in, span_of, stands

Read = Callable[[str], str | None]
"""A file's text by its name on the stack; None when it is not there."""

_DEF = re.compile(r"(\s*)(?:async\s+)?def\s+(\w+)\s*\(")
_CLASS = re.compile(r"(\s*)class\s+(\w+)")
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_OTHERS = (*_FUNCTION, ast.ClassDef, ast.Lambda)  # their code runs in frames of its own, or not now
_COMPREHENSION = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_LOOPS = (ast.For, ast.AsyncFor, ast.While, *_COMPREHENSION)
_BINDS = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.NamedExpr)


@dataclass(frozen=True, eq=False)
class Block:
    """A function, or a whole module, as a tree with the file's line numbers. `indent`: columns cut off at the left."""

    tree: ast.Module
    body: list[ast.stmt]
    indent: int


@dataclass(frozen=True)
class Hold:
    """`expression` was taken on `line`: by a `with` around the present line, or by an `acquire` with no release since.

    may      it may not be taken: the line has the end of a `with` and its body, and does not tell which of them runs; or the
             `acquire` may not have been made, or have failed; or what the expression means may have changed since
    by_call  such a line made the call that runs; if to take the object runs no Python code, it is held
    acquired by an `acquire`
    """

    expression: ast.expr
    line: int
    sure: bool
    may: bool = False
    by_call: bool = False
    acquired: bool = False


@dataclass(frozen=True)
class Call:
    """`base.method(…)` at `line`; `base` None for a plain name. In a `with`: method "with"."""

    base: ast.expr | None
    method: str
    line: int
    node: ast.expr


@dataclass(frozen=True)
class Ahead:
    """A call that a frame still comes to. `own`: in its own function. `anew`: what its base means may change until then."""

    call: Call
    own: bool
    anew: bool


class Sources:
    """Blocks of files, each read and parsed once."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._lines: dict[str, list[str]] = {}
        self._blocks: dict[tuple[str, int], Block | None] = {}
        self._imports: dict[str, dict[str, tuple[str, str]]] = {}
        self._definitions: dict[str, dict[str, list[int]]] = {}
        self._starts: dict[tuple[str, str, int], int] = {}
        self.ahead: dict[Hashable, list[Ahead]] = {}  # what many threads at one place are asked for

    def lines(self, file: str) -> list[str]:
        """[] for a file that is not there."""
        if file not in self._lines:
            self._lines[file] = (self._read(file) or "").splitlines()
        return self._lines[file]

    def start(self, frame: Frame) -> int:
        """Index of the line with the frame's `def`; -1 for a module."""
        key = (frame.file, frame.function, frame.line)
        if key not in self._starts:
            self._starts[key] = _start(self.lines(frame.file), frame)
        return self._starts[key]

    def text(self, frame: Frame) -> str:
        """The block's text, to look for words before it is parsed."""
        lines = self.lines(frame.file)
        start = self.start(frame)
        return "\n".join(lines if start < 0 else lines[start : _end(lines, start)])

    def block(self, frame: Frame) -> Block | None:
        """The function of a frame; None when its source is not there or cannot be read."""
        return self.block_at(frame.file, self.start(frame))

    def block_at(self, file: str, start: int) -> Block | None:
        """The function whose `def` is on the line of that index; the module for -1."""
        key = (file, start)
        if key not in self._blocks:
            self._blocks[key] = _parse(self.lines(file), start)
        return self._blocks[key]

    def definitions(self, file: str, name: str) -> list[int]:
        """Indices of the lines of a file that define a function of that name."""
        if file not in self._definitions:
            by_name = self._definitions[file] = {}
            for index, line in enumerate(self.lines(file)):
                if "def " in line and (found := _DEF.match(line)):
                    by_name.setdefault(found[2], []).append(index)
        return self._definitions[file].get(name, [])

    def qualified(self, frame: Frame) -> str:
        """`Queue.get`: the frame's function with its class, also where the interpreter gives the bare name."""
        if "." in frame.function or frame.function.startswith("<"):
            return frame.function.replace(".<locals>", "")
        lines = self.lines(frame.file)
        start = self.start(frame)
        if start < 0:
            return frame.function
        indent = len(lines[start]) - len(lines[start].lstrip())
        for line in reversed(lines[:start]):
            found = _CLASS.match(line) or _DEF.match(line)
            if found and len(found[1]) < indent:
                return f"{found[2]}.{frame.function}" if _CLASS.match(line) else frame.function
        return frame.function

    def imported(self, file: str, name: str) -> tuple[str, str] | None:
        """(module, name) that `from module import name` bound somewhere in the file; (module, "") for `import`."""
        if file not in self._imports:
            self._imports[file] = _imports(self.lines(file))
        return self._imports[file].get(name)


def _start(lines: list[str], frame: Frame) -> int:
    name = frame.function.rsplit(".", 1)[-1]
    if name == "<module>" or not 0 < frame.line <= len(lines):
        return -1
    inner = name.startswith("<")  # a lambda or comprehension: in the function around it
    limit = _indent(lines[frame.line - 1])
    for index in range(frame.line - 1, -1, -1):
        line = lines[index]
        found = _DEF.match(line)
        if found and (found[2] == name or inner) and (len(found[1]) < limit or index == frame.line - 1):
            return index
    return -1


def _end(lines: list[str], start: int) -> int:
    indent = _indent(lines[start])
    for index in range(start + 1, len(lines)):
        line = lines[index]
        if line.strip() and _indent(line) <= indent and not line.lstrip().startswith((")", "#", "]", "}")):
            return index
    return len(lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _parse(lines: list[str], start: int) -> Block | None:
    if not lines:
        return None
    try:
        if start < 0:
            tree = parse("\n".join(lines))
            return Block(tree, tree.body, 0)
        tree = parse(textwrap.dedent("\n".join(lines[start : _end(lines, start)])))
        ast.increment_lineno(tree, start)
        indent = _indent(lines[start])
    except (SyntaxError, ValueError):
        # Text at the left margin inside a string, or another Python's syntax: the whole file, where it can be read.
        try:
            tree = parse("\n".join(lines))
        except (SyntaxError, ValueError):
            return None
        indent = 0
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTION) and node.lineno == start + 1:
            return Block(tree, node.body, indent)
    return Block(tree, tree.body, indent) if start < 0 else None


def _imports(lines: list[str]) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for line in lines:
        text = line.strip()
        if not text.startswith(("from ", "import ")):
            continue
        try:
            (statement,) = parse(text).body
        except (SyntaxError, ValueError):
            continue  # an import over several lines; what it binds is then known by its address at most
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                found[alias.asname or alias.name] = (statement.module or "", alias.name)
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                found[alias.asname or alias.name.split(".")[0]] = (alias.name, "")
    return found


def own_nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes of a block but those of functions and classes defined in it, in order."""
    waiting: list[ast.AST] = [node for node in reversed(body) if not isinstance(node, _OTHERS)]
    while waiting:
        node = waiting.pop()
        yield node
        children = [child for child in ast.iter_child_nodes(node) if not isinstance(child, _OTHERS)]
        waiting += reversed(children)


def awaited(block: Block, frame: Frame) -> list[Call]:
    """What the innermost frame may be waiting in: calls, and locks of a `with`, on its line, outermost first.

    With the span of the running instruction there is one at most.
    """
    found: list[Call] = []
    entered: list[Call] = []
    for node in own_nodes(block.body):
        if isinstance(node, (ast.With, ast.AsyncWith)):
            place = stands(node, frame, block.indent)
            # To enter has the line of the whole statement up to Python 3.12, wherever its items are.
            whole = place is Stands.HEADER and frame.line == node.lineno
            for item in node.items:
                expression = item.context_expr
                here = whole or expression.lineno <= frame.line <= (expression.end_lineno or 0)
                if here and place is not Stands.BODY:
                    found.append(Call(expression, "with", expression.lineno, expression))
                    entered += found[-1:] if frame.span == span_of(node, block.indent) else []
        elif isinstance(node, ast.Call) and node.lineno <= frame.line <= (node.end_lineno or node.lineno):
            if isinstance(node.func, ast.Attribute):
                found.append(Call(node.func.value, node.func.attr, frame.line, node))
            elif isinstance(node.func, ast.Name):
                found.append(Call(None, node.func.id, frame.line, node))
    if frame.span is not None:
        exact = [call for call in found if span_of(call.node, block.indent) == frame.span]
        found = exact or entered or found
    return found


def held(
    block: Block, frame: Frame, awaiting: ast.expr | None = None, others: Sequence[ast.expr] = (), inner: str | None = None
) -> list[Hold]:
    """What the frame holds at its line, as far as its source tells.

    awaiting  the lock that it waits for itself; those before it in the same `with` are held
    others    it may be waiting for one of these instead
    inner     the bare name of the function that it called, and is in; None when it is the innermost
    """
    found: list[Hold] = []
    takes: dict[str, Hold] = {}
    nodes = list(own_nodes(block.body))
    for node in nodes:
        if isinstance(node, ast.With):
            here = _held_by(node, stands(node, frame, block.indent), frame.line, awaiting, others, inner)
            found += [replace(hold, may=True) if put_anew(hold.expression, node.body) else hold for hold in here]
        elif isinstance(node, ast.Call) and node.lineno < frame.line:
            base, method = (node.func.value, node.func.attr) if isinstance(node.func, ast.Attribute) else (None, "")
            text = ast.unparse(base) if base is not None else ""
            if method == "acquire" and base is not None:
                may = not surely_made(node, block.body, frame.line)
                takes[text] = Hold(base, node.lineno, False, may=may, acquired=True)
            elif method == "release":
                takes.pop(text, None)
            for own in passed_on(node, takes):  # to who may let go of it
                takes[own] = replace(takes[own], may=True)
    stores = [node for node in nodes if _stored(node)]
    for text, hold in takes.items():
        since = [node for node in stores if node.lineno > hold.line]
        takes[text] = replace(hold, may=hold.may or put_anew(hold.expression, since))
    return found + list(takes.values())


def _held_by(
    node: ast.With, place: Stands, line: int, awaiting: ast.expr | None, others: Sequence[ast.expr], inner: str | None
) -> list[Hold]:
    """What of the items of a `with` is held; see `held`."""
    items = [item.context_expr for item in node.items]
    if place is Stands.BODY:
        return [Hold(item, item.lineno, True) for item in items]
    if place is Stands.OUTSIDE:
        return []
    before = items.index(awaiting) if awaiting in items else 0
    sure = [Hold(item, item.lineno, True) for item in items[:before]]
    if awaiting is None and place is Stands.HEADER:
        return []
    if awaiting in items:
        # Of those that it is not sure to have, the ones before something else that it may be waiting for instead.
        further = [items.index(other) if other in items else len(items) for other in others]
        if place is Stands.EITHER and calls_in(node.body, line):
            further.append(len(items))
        return sure + [Hold(item, item.lineno, False, may=True) for item in items[before : max(further, default=before)]]
    if place is Stands.HEADER:
        return []
    if awaiting is not None:
        return [Hold(item, item.lineno, True) for item in items]  # the body waits for it
    if inner is not None and inner.strip("_") in ("enter", "aenter"):
        return [Hold(item, item.lineno, False, may=True) for item in items[:-1]]
    by_call = inner is not None and inner.strip("_") not in ("exit", "aexit") and not calls_in(items)
    return [Hold(item, item.lineno, False, may=True, by_call=by_call) for item in items]


def calls(block: Block, methods: frozenset[str], after: int = 0) -> list[Call]:
    """Calls of these methods that the block still comes to from line `after`; functions defined in it are not its code."""
    return [
        Call(node.func.value, node.func.attr, node.lineno, node)
        for node in _ahead(block, after)
        if isinstance(node.func, ast.Attribute) and node.func.attr in methods
    ]


def called(block: Block, after: int = 0) -> list[str]:
    """Names of what the block still calls from line `after`, by a plain name or as a method of `self`."""
    found: dict[str, None] = {}
    for node in _ahead(block, after):
        if isinstance(node.func, ast.Name):
            found[node.func.id] = None
        elif isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) in ("self", "cls"):
            found[node.func.attr] = None
    return list(found)


def assigned(block: Block, after: int = 0) -> list[ast.expr]:
    """Names, attributes and items that the block assigns from line `after` on, or in a loop that goes round it."""
    nodes = list(own_nodes(block.body))
    loops = _loops(nodes, after)
    found: list[ast.expr] = []
    for node in nodes:
        if isinstance(node, _BINDS) and node.lineno <= after <= (node.end_lineno or 0):
            found += [inner for inner in ast.walk(node) if _stored(inner)]  # the line may be that of a call on its right side
        elif _stored(node) and (node.lineno >= after or _inside(loops, node.lineno)):
            found.append(node)
    return found


def _stored(node: ast.AST) -> TypeGuard[ast.expr]:
    return isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", None), ast.Store)


def _ahead(block: Block, after: int) -> Iterator[ast.Call]:
    """Calls below a line, and those of a loop that goes round it; all of them for line 0."""
    nodes = list(own_nodes(block.body))
    loops = _loops(nodes, after)
    for node in nodes:
        if isinstance(node, ast.Call) and (node.lineno > after or _inside(loops, node.lineno)):
            yield node


def _loops(nodes: Iterable[ast.AST], line: int) -> list[tuple[int, int]]:
    """(first line, last line) of the loops that the line is in."""
    return [
        (node.lineno, node.end_lineno or node.lineno)
        for node in nodes
        if isinstance(node, _LOOPS) and node.lineno <= line <= (node.end_lineno or 0)
    ]


def _inside(loops: Iterable[tuple[int, int]], line: int) -> bool:
    return any(first <= line <= last for first, last in loops)


def loops_around(block: Block, line: int) -> bool:
    """Whether the line is in the body of a `while`, which tests again after a wait."""
    return any(
        isinstance(node, ast.While) and node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
        for node in own_nodes(block.body)
    )
