"""The console script `gem-core`.

Each command is a module with its help in ``COMMAND``, a function `add_arguments(parser)`, and a function
`run(args)`, which returns the exit code. An installed package registers its commands as entry points of the
group ``gem_core.commands``. Modules import their dependencies inside ``run``, so `gem-core --help` loads
neither torch nor any environment.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Sequence

import gem_core
from gem_core._util.messages import error_text
from gem_core.errors import GemError
from gem_lab._cli import _console
from gem_lab._cli._arguments import CommandParser, HelpFormatter
from gem_lab._cli._completion import SHELLS, PrintCompletion
from gem_lab._cli._signals import ends_like_ctrl_c
from gem_lab._discovery import installed

COMMANDS = (
    "envs", "play", "new", "check", "train", "eval", "report", "tiny", "data", "export", "path", "view",
    "bench", "consistency", "conform", "exam", "repro", "sandbox", "serve", "template", "harness",
    "doctor",
)  # fmt: skip
"""Commands of gem-core in the order of the help; those of other packages follow."""

GROUP = "gem_core.commands"

OK, FAILED, MISTAKE, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 130, 141
"""Exit codes; the last two are the codes that a shell reports for SIGINT and SIGPIPE. Other signals have such
codes as well: `SIGNALED` plus the number of the signal."""
SIGNALED = 128

NO_PROCESSES = " (this user may start no more processes or threads; see `ulimit -u`)"

EPILOG = """\
exit codes:
  0    success
  1    the command found a problem: a failed check, a trainer without its plugin
  2    wrong arguments, a missing file or package, a full disk: see the message
  130  interrupted with Ctrl-C
  141  the output pipe was closed
  143  ended with SIGTERM; a server that was told to stop exits with 0

to get started:
  gem-core play game:GuessTheNumber-v0-easy
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments without the name of the program; None for `sys.argv`.

    Returns:
        The exit code. User errors are reported in one line on standard error, without a traceback. Any
        exception other than `GemError` and `OSError` is a bug and propagates.
    """
    _console.open_standard_streams()
    _console.tolerate_unencodable_text()
    with ends_like_ctrl_c() as signals:
        return _report(argv, signals)


def _report(argv: Sequence[str] | None, signals: list[int]) -> int:
    """Run one command and report an error; return the exit code."""
    try:
        code = _run(argv)
        sys.stdout.flush()  # flush here, so that a full disk or a closed pipe can be reported
        return code
    except KeyboardInterrupt:
        _console.note("interrupted")
        return SIGNALED + signals[0] if signals else INTERRUPTED
    except BrokenPipeError:
        _abandon_stdout()
        return BROKEN_PIPE
    except (GemError, OSError) as error:
        _abandon_stdout()
        _console.note(f"error: {error_text(error)}{_hint(error)}")
        return MISTAKE
    except RuntimeError as error:
        from gem_lab._checker.subject import is_thread_limit

        if not is_thread_limit(error):
            raise
        _abandon_stdout()
        _console.note(f"error: {error_text(error)}{NO_PROCESSES}")
        return MISTAKE


def _hint(error: Exception) -> str:
    """Return what an error of the system does not say: that the working directory is gone, or of a limit."""
    if isinstance(error, BlockingIOError) and error.filename is None:
        return NO_PROCESSES
    try:
        os.getcwd()
    except FileNotFoundError:
        return " (the working directory no longer exists; change to another one)"
    except OSError:
        pass
    return ""


def _run(argv: Sequence[str] | None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    parser = build_parser(words[0] if words and words[0] in command_modules() else None)
    try:
        args = parser.parse_args(words)
    except SystemExit as stop:  # argparse: 0 after --help, 2 after a mistake
        return stop.code if isinstance(stop.code, int) else MISTAKE
    if args.command is None:
        _console.print_text(parser.format_help().rstrip("\n"))
        return OK
    code: int = args.run(args)
    return code


def command_modules() -> dict[str, str]:
    """Return the module of each command, in the order of the help."""
    others = {entry.name: entry.value for entry in installed(GROUP)}
    return {name: f"gem_lab._cli.{name}" for name in COMMANDS} | {
        name: module for name, module in sorted(others.items()) if name not in COMMANDS
    }


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands, or of `only` one without loading the modules of the others."""
    parser = CommandParser(
        prog="gem-core",
        description="Play, check, train on, and evaluate on environments for LLM agents.",
        epilog=EPILOG,
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gem-core {gem_core.__version__}")
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=SHELLS,
        help="print a script for completion with the Tab key, and exit",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    modules = command_modules()
    for name in modules if only is None else (only,):
        module = importlib.import_module(modules[name])
        command = module.COMMAND.add_parser(commands, name)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def _abandon_stdout() -> None:
    """Discard buffered output, which the interpreter would otherwise try to write again at exit."""
    with contextlib.suppress(OSError, ValueError):  # a captured stdout has no file descriptor: nothing to do
        sys.stdout.flush()
        return
    with contextlib.suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
        os.close(devnull)
