"""How a command reads its arguments: what no command can mean is refused for all of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from harness.core.errors import UserError

_TIMES = ("S", "M")
"""What stands for seconds and for minutes in the help."""


class Command(TyperCommand):
    """Refuses an empty path or argument, such as a shell variable gives that is not set, and a time that is not finite.

    An empty path would be the folder in which one is, and an empty name of a matrix the default one.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # a Context of click's or, from typer 0.26 on, typer's own
        """As the parser's. Raises BadParameter or UserError, which name the option."""
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        rest = super().parse_args(ctx, args)
        param: Any  # likewise
        for param in self.params:
            value = ctx.params.get(param.name)
            named = isinstance(value, Path) or not param.opts[0].startswith("-")
            if named and given.get(param.name) == "":
                raise typer.BadParameter("it is empty", ctx=ctx, param=param)
            if param.metavar in _TIMES and isinstance(value, float) and not math.isfinite(value):
                raise UserError(f"{param.opts[0]} {value}: a time must be finite; see {ctx.command_path} --help")
        return rest
