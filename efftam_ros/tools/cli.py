"""The command `efftam`: runs a sub-command and reports errors in one line.

Every command is a module of this package: the first line of its docstring is the help text,
``add_arguments(parser)`` declares its options and ``run(args) -> int`` executes it and returns the exit code.
Only the module of the command is imported, so that ``efftam --help`` is fast.

Exit codes: 0 success; 1 a check failed; 2 bad input or environment, with one line on stderr; 130 interrupted
(Ctrl-C, SIGTERM); 141 broken pipe. A traceback is a bug.
"""

from __future__ import annotations

import argparse
import ast
import errno
import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader
from typing import NoReturn

from efftam_ros import __version__
from efftam_ros.core.errors import BackendError, InputError, one_line
from efftam_ros.interop.packages import missing_package
from efftam_ros.tools.common.interruption import Interruptions

COMMANDS = {
    "track": "track",
    "select": "select",
    "replay": "replay",
    "bag": "bag",
    "eval": "eval.command",
    "calibrate": "calibrate",
    "bench": "bench.command",
    "export": "export",
    "build": "build",
    "verify": "verify",
    "fetch": "fetch",
    "demo": "demo",
    "doctor": "doctor.command",
}
"""Commands and their modules in this package."""

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {one_line(message)} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `efftam` with these arguments (default: the process's) and return its exit code."""
    try:
        with Interruptions() as interruptions:
            code = _guarded(list(sys.argv[1:] if argv is None else argv), interruptions)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Otherwise the interpreter would flush the buffer at exit and report the broken pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE


def _guarded(arguments: list[str], interruptions: Interruptions) -> int:
    """Run a command; expected errors become one line and an exit code."""
    name = arguments[0] if arguments and arguments[0] in COMMANDS else ""
    try:
        code = _run(name, arguments)
        return _interrupted(name, interruptions) if interruptions.pending else code
    except SystemExit as stop:  # argparse ends this way after --help and after a wrong option
        return stop.code if isinstance(stop.code, int) else EXIT_BAD_INPUT
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return _interrupted(name, interruptions)
    except Exception as error:
        line = explain(error)
        if line is None:
            if interruptions.pending:  # some libraries turn the interruption into an error of their own
                return _interrupted(name, interruptions)
            raise
        print(f"efftam {name}: {line}", file=sys.stderr)
        return EXIT_BAD_INPUT


def _interrupted(name: str, interruptions: Interruptions) -> int:
    interruptions.pending = False
    print(f"efftam {name}: interrupted", file=sys.stderr)
    return EXIT_INTERRUPTED


def _run(name: str, arguments: list[str]) -> int:
    if not name:
        top = _top_parser()
        top.parse_args(arguments or ["--help"])
        top.error(f"{arguments[0]!r} is not a command; choose one of {', '.join(COMMANDS)}")
    module = importlib.import_module(f"efftam_ros.tools.{COMMANDS[name]}")
    text = (module.__doc__ or "").strip().partition("\n")
    parser = Parser(
        prog=f"efftam {name}",
        description=text[0],
        epilog=text[2].strip() or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(parser)
    return int(module.run(parser.parse_args(arguments[1:])))


def explain(error: BaseException) -> str | None:
    """One line for an error that the user can fix, None for a bug."""
    if isinstance(error, InputError | BackendError):
        return one_line(error)
    if isinstance(error, ModuleNotFoundError) and (package := missing_package(error)):
        return f"the Python package {package.pip} is not installed; run: {package.install}"
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            where = f" while writing {error.filename}" if error.filename else ""
            return f"no space left on the device{where}; free space or write to another disk"
        if error.filename is not None:
            return f"{error.filename}: {(error.strerror or str(error)).lower()}"
    return None


def _top_parser() -> Parser:
    lines = [f"  {name:<10}{help_line(name)}" for name in COMMANDS]
    parser = Parser(
        prog="efftam",
        usage="efftam COMMAND [options]",
        description="Track targets in a video, a bag or a camera stream.",
        epilog="\n".join(["commands:", *lines, "", "efftam COMMAND --help shows its options."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"efftam {__version__}")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser


def help_line(name: str) -> str:
    """The first docstring line of a command's module, read without importing it."""
    spec = importlib.util.find_spec(f"efftam_ros.tools.{COMMANDS[name]}")
    source = spec.loader.get_source(spec.name) if spec and isinstance(spec.loader, InspectLoader) else None
    return (ast.get_docstring(ast.parse(source or "")) or "").partition("\n")[0]
