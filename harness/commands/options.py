"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

MatrixArgument = Annotated[
    str | None,
    typer.Argument(metavar="MATRIX", help="A matrix file, or a name such as quick (the default).", show_default=False),
]
Only = Annotated[
    str | None,
    typer.Option(metavar="EXPR", help="Only these scenarios: axis=glob with and, or, not and parentheses."),
]
Python = Annotated[
    str | None, typer.Option(metavar="PY", help="The interpreter of the trials, with a torch of its own.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="A line for every trial, and whole tracebacks.")]
