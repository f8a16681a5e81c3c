"""A run as GitHub-flavoured Markdown: what goes into a pull request, a job summary or a message.

Text of a run is shown as text: nothing of it becomes markup, a link, a mention or a cell of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from harness.report import facts
from harness.report.evidence import Example
from harness.report.expectations import MARKS as STANDING_MARKS
from harness.report.page import Page
from harness.report.rundata import RunData
from harness.report.text import clip, one_line, visible
from harness.report.whole_frames import MOST_TIMES, whole_frames

MOST_ROWS = 100
MOST_EXAMPLES = 5
LONGEST_CELL = 300
LONGEST_STACK = 3_000
_MARKUP = re.compile(
    r"[\\`*\[\]~$|<>&@#]"  # wherever they stand
    r"|(?<![^\W_])_|_(?![^\W_])"  # within a word an underscore is one
    r"|(?<=^)[-+=]|(?<=^\d)[.)](?=\s|$)"  # at its beginning: a list, or a heading's line
    r"|:(?=//)|(?<=www)\.|:(?=[a-z+][\w+-]*:)"  # addresses, and names of emoji
)
_ENTITIES = {"|": "&#124;", "<": "&lt;", ">": "&gt;", "&": "&amp;"}
"""Mentions, references, addresses and emoji are made from the rendered text, where no backslash is left: so an empty space
breaks them (`_escaped`)."""


def plain(text: str, longest: int = LONGEST_CELL) -> str:
    """Any text as one line of Markdown, also within a table's cell."""
    return _MARKUP.sub(_escaped, visible(one_line(text, longest)))


_CODE = re.compile(r"(?<![\w./])(?=\w*(?:_|\w\.\w|\w/\w|\w\(\)))[A-Za-z_]\w+(?:[./]\w+)*(?:\(\))?")
"""What only code is called: nn.Module.__call__, make_fx, torch/_ops.py, torch.compiler.is_compiling()."""


def prose(text: str, longest: int = LONGEST_CELL) -> str:
    """As `plain`, with what looks like a name of code as code, of which nothing can be markup."""
    line, parts, begin = visible(one_line(text, longest)), [], 0
    for found in _CODE.finditer(line):
        parts += [_MARKUP.sub(_escaped, line[begin : found.start()]), f"`{found[0]}`"]
        begin = found.end()
    return "".join([*parts, _MARKUP.sub(_escaped, line[begin:])])


def _escaped(found: re.Match[str]) -> str:
    sign = found[0]
    if sign in _ENTITIES:
        return _ENTITIES[sign]
    broken = sign in "@#:" or (sign == "." and found.start() > 1)
    return f"\\{sign}\u200b" if broken else f"\\{sign}"


def block(text: str, longest: int = LONGEST_STACK, language: str = "") -> str:
    """Any text as a fenced block, which it cannot leave."""
    text = visible(clip(text.rstrip(), longest, tail=0.75))
    fence = fence_for(text)
    return f"{fence}{language}\n{text}\n{fence}"


def stack_block(text: str, longest: int) -> str:
    """A stack as a fenced block, cut by whole frames."""
    return block(whole_frames(text.rstrip(), longest), MOST_TIMES * longest + 200)


def fence_for(text: str) -> str:
    """Backticks, more of them than stand together anywhere in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    return "`" * max(3, longest + 1)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table; its cells are Markdown already."""
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def run_markdown(data: RunData, page: Page) -> str:
    """The whole summary of a run."""
    lines = [f"## {plain(page.title)}: {plain(page.answer.sentence)}", ""]
    lines += [plain(page.answer.rest), ""] if page.answer.rest else []
    lines += [plain(page.judgement, 1_000), ""] if page.judgement else []
    lines += [" · ".join(plain(fact) for fact in page.subtitle), ""]
    lines += _list("Left out, or to be minded", page.left_out)
    lines += _scenarios(page)
    lines += _expectations(page)
    lines += _comparison(page)
    lines += _examples("Errors", page.errors.examples)
    lines += _examples("Hangs and crashes", page.stuck.examples)
    lines += ["### Environment", ""]
    lines += table(("", ""), ((plain(name), plain(value)) for name, value in facts.environment_table(data.environment)))
    lines += ["", "### Commands", ""]
    for what, command in page.commands:
        lines += [f"{plain(what)}:", "", block(command, 4_000, "sh"), ""]
    return "\n".join(lines).rstrip() + "\n"


def _scenarios(page: Page) -> list[str]:
    order = {"unsafe": 0, "incomplete": 1, "undecided": 2}
    shown = sorted(page.scenarios, key=lambda view: (view.as_expected, order.get(view.state, 3)))[:MOST_ROWS]
    rows = [
        (
            view.mark + " " + plain(view.word),
            plain(view.name),
            plain(view.count),
            plain(", ".join(f"{count} × {label}" for label, count in view.labels)),
            view.fx,
            view.dense,
            view.startup,
            view.rate,
        )
        for view in shown
    ]
    heads = ("verdict", "scenario", "failed", "seen", "FX errors", "dense calls", "start-up, s", "tokens/s")
    lines = ["### Verdicts", "", *table(heads, rows), ""] if rows else []
    more = len(page.scenarios) - len(shown)
    return lines + ([f"and {more:,} more, of which none is worse", ""] if more > 0 else [])


def _expectations(page: Page) -> list[str]:
    found = page.expectations
    if found.unjudged:
        return ["### Expectations", "", f"Nothing was held against expectations: {plain(found.unjudged)}", ""]
    rows = [
        (f"{STANDING_MARKS[group.kind]} {group.kind}", plain(item.name), plain(item.text))
        for group in found.groups
        if group.kind != "met"
        for item in group.items
    ]
    counts = ", ".join(f"{group.scenarios:,} {group.kind}" for group in found.groups)
    if not counts:
        return []
    lines = ["### Expectations", "", f"Scenarios: {counts}", ""]
    lines += [*table(("", "scenario", "what"), rows[:MOST_ROWS]), ""] if rows else []
    return lines + ([f"and {len(rows) - MOST_ROWS:,} more", ""] if len(rows) > MOST_ROWS else [])


def _comparison(page: Page) -> list[str]:
    found = page.comparison
    if found is None:
        return []
    lines = ["### Comparison", "", plain(found.sentence, 500), ""]
    lines += [f"before: {plain(found.before)}", "", f"after: {plain(found.after)}", ""]
    for title, notes in (
        ("Not comparable", found.refused),
        ("Not fair, so speed is shown and not counted", found.unfair),
        ("What differs", found.asked),
        ("To be read with it", found.notes),
    ):
        lines += _list(title, notes)
    rows = [
        (f"{row.mark} {row.word}", plain(row.name), measure, plain(change), plain(said), plain(why))
        for row in found.rows
        for measure, change, said, why in row.tests or (("", "", "", row.note),)
    ]
    heads = ("change", "scenario", "measure", "before → after", "said", "test")
    lines += [*table(heads, rows[:MOST_ROWS]), ""] if rows else []
    return [*lines, plain(found.method, 500), ""]


def _examples(title: str, examples: Sequence[Example]) -> list[str]:
    lines: list[str] = []
    for one in examples[:MOST_EXAMPLES]:
        lines += [f"**{plain(one.label)}**: {plain(one.head)}", ""]
        lines += [plain(one.message, 500), ""] if one.message else []
        lines += [plain(one.who, 500), ""] if one.who else []
        for stack in one.stacks:
            lines += [f"{plain(stack.title)}:", "", stack_block(stack.text, LONGEST_STACK), ""]
    if len(examples) > MOST_EXAMPLES:
        lines += [f"and {len(examples) - MOST_EXAMPLES:,} more kinds", ""]
    return [f"### {title}", "", *lines] if lines else []


def _list(title: str, notes: Sequence[str]) -> list[str]:
    return [f"{title}:", "", *(f"* {plain(note, 1_000)}" for note in notes), ""] if notes else []
