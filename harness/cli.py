"""The command line.

What a command needs beyond typer is imported when it runs: `--help` has to answer at once.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from harness.commands.bisect import bisect
from harness.commands.claims import claims
from harness.commands.compare import compare
from harness.commands.doctor import doctor
from harness.commands.dump import dump
from harness.commands.explain import explain
from harness.commands.hazards import hazards
from harness.commands.list import list_scenarios
from harness.commands.minimise import minimise
from harness.commands.parser import Command
from harness.commands.replay import replay
from harness.commands.report import report
from harness.commands.reproduce import reproduce
from harness.commands.run import run
from harness.commands.trace import trace
from harness.commands.upstream import upstream
from harness.commands.watch import watch
from harness.core.errors import UserError, nearest

COMMANDS: dict[str, Callable[..., None]] = {
    "run": run,
    "list": list_scenarios,
    "report": report,
    "compare": compare,
    "trace": trace,
    "upstream": upstream,
    "hazards": hazards,
    "reproduce": reproduce,
    "explain": explain,
    "claims": claims,
    "replay": replay,
    "minimise": minimise,
    "bisect": bisect,
    "watch": watch,
    "dump": dump,
    "doctor": doctor,
}

EXIT_USAGE, EXIT_INTERRUPTED = 2, 3
LONGEST_NAME = 80  # characters that a message shows of a name that no file can have
TYPER_INTERRUPTED = 130  # what typer makes of a KeyboardInterrupt that leaves a command; no command of ours exits so

# click's base class of usage errors, which typer names nowhere; from 0.26 on typer brings a click of its own
_ClickError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="harness",
    help="Find out why multi-threaded torch.compile training breaks, and which lock strategy is safe.",
    epilog="Begin with: harness doctor, then harness run.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for _name, _command in COMMANDS.items():
    # What stands behind the program's name is the program's, with or without `--`.
    _settings = {"allow_interspersed_args": False} if _name == "watch" else None
    app.command(_name, cls=Command, context_settings=_settings)(_command)


def _version(asked: bool) -> None:
    if asked:
        import harness

        typer.echo(f"dflash-harness {harness.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit.

    Bad input and usage: one line, exit 2; a bug of ours keeps its traceback.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a name that this terminal cannot show is no reason to fail
    try:
        code = app(args=arguments, prog_name="harness", standalone_mode=False)
        sys.stdout.flush()
        if code == TYPER_INTERRUPTED:
            raise KeyboardInterrupt
        if arguments is None:
            # All is done and said: a Ctrl-C while the interpreter winds down must not turn the exit code into a signal.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except UserError as error:
        _fail(str(error))
    except _ClickError as error:
        _fail(_usage(error, sys.argv[1:] if arguments is None else arguments))
    except BrokenPipeError:
        # The reader has gone; what is left in the buffer would raise once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG and error.filename:
            _fail(f"{_shortened(os.fsdecode(error.filename))}: no such file, for the name is too long")
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _fail(_full(error))
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        code = EXIT_INTERRUPTED
        if arguments is None:
            # After a KeyboardInterrupt in the midst of an import, python -m ends by SIGINT whatever the exit code.
            sys.stdout.flush()
            os._exit(code)
    sys.exit(code if isinstance(code, int) else 0)


def _usage(error: Exception, arguments: list[str]) -> str:
    message = " ".join(str(error.format_message()).split()) if hasattr(error, "format_message") else str(error)
    message = message.replace(": Value error, ", ": ")
    message = re.sub(r"\. Did you mean (.+)\?$", r" (did you mean \1?)", message)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "harness"
    if command == "harness" and arguments[:1] and arguments[0] in COMMANDS:
        command += f" {arguments[0]}"  # what the parser itself refuses has the context of no command
    if message.startswith("No such command '") and "did you mean" not in message:
        message = message.rstrip(".") + nearest(message.split("'")[1], COMMANDS)
    return f"{message.rstrip('.')}; see {command} --help"


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}… ({len(name)} characters)"


def _full(error: OSError) -> str:
    where = f" for {error.filename}" if error.filename else ""
    return f"no room on the disk{where}: {error.strerror}; make room and try again, a run with --resume"


def _fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(EXIT_USAGE)


if __name__ == "__main__":
    main()
