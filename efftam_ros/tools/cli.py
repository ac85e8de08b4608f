"""The command `efftam`: runs a sub-command, and reports each error in one line.

Each sub-command is a module. The first line of its docstring is the help text. ``add_arguments(parser)``
declares its options. ``run(args)`` executes it and returns the exit code. ``NEEDS``, if there is one, lists
the Python modules of the extra [workshop] that it needs. Only the module of the chosen sub-command is
imported, so that ``efftam --help`` is fast.

Exit codes: 0 success; 1 a check failed; 2 bad input or environment, with one line on stderr; 130 interrupted
(Ctrl-C, SIGTERM, SIGHUP); 141 broken pipe. A traceback is a bug.
"""

from __future__ import annotations

import argparse
import ast
import errno
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.abc import InspectLoader
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from efftam_ros.core.errors import BackendError, InputError, one_line
from efftam_ros.packages import missing_package
from efftam_ros.plugins import plugin_module
from efftam_ros.tools.common.interruption import interruptible
from efftam_ros.version import __version__

COMMANDS = {
    "track": "efftam_ros.tools.track",
    "select": "efftam_ros.tools.select",
    "replay": "efftam_ros.tools.replay",
    "verify": "efftam_ros.tools.verify",
    "demo": "efftam_ros.tools.demo",
    "doctor": "efftam_ros.tools.doctor.command",
}
"""The module of each sub-command of this package."""
WORKSHOP = ("bag", "eval", "bench", "export", "build", "fetch")
"""Sub-commands of the package ``efftam_workshop``. Its entry_points.txt lists their modules in the group
`GROUP`."""
GROUP = "efftam.commands"
INSTALL_WORKSHOP = "pip install '.[workshop]' in a checkout of efftam_ros"

CLOSED = "is closed; to print nothing, send the output to /dev/null"

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that reports an error in one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {one_line(message)} (see {self.prog} --help)\n")


@dataclass(frozen=True)
class Program:
    """A command with sub-commands.

    ``name``, ``purpose``: name and description of the command, as its help shows them; ``modules``: the
    module of each sub-command, as described at the top of this file; ``optional``: sub-commands of the
    package ``efftam_workshop``, which may not be installed.
    """

    name: str
    purpose: str
    modules: Mapping[str, str]
    optional: Sequence[str] = ()

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run a sub-command and return the exit code. ``argv``: the arguments (default: those of the
        process)."""
        closed = open_standard_files()
        try:
            with interruptible() as signals:
                code = self._guarded(list(sys.argv[1:] if argv is None else argv), signals)
        except BrokenPipeError:
            code = EXIT_BROKEN_PIPE
        if "stdout" in closed and code == 0:
            return self._say(f"standard output: {CLOSED}")
        try:
            sys.stdout.flush()
        except OSError as error:
            is_closed = isinstance(error, BrokenPipeError)
            code = EXIT_BROKEN_PIPE if is_closed else self._say(f"standard output: {explain(error) or error}")
            # Without this the interpreter would flush the buffer again at exit, and report the error a second
            # time.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return code

    def _say(self, line: str, code: int = EXIT_BAD_INPUT) -> int:
        with suppress(OSError):  # the terminal may be closed
            print(f"{self.name} {line}", file=sys.stderr)
        return code

    @property
    def commands(self) -> tuple[str, ...]:
        return *self.modules, *self.optional

    def module_of(self, command: str) -> str:
        """Return the name of the module that implements a sub-command. Raises InputError if its package is
        not installed."""
        if command in self.modules:
            return self.modules[command]
        module = plugin_module("efftam_workshop", GROUP, command)
        if module is None:
            raise InputError(f"the package efftam_workshop is not installed; run: {INSTALL_WORKSHOP}")
        return module

    def help_line(self, command: str) -> str:
        """Return the first line of the docstring of a sub-command's module, without importing the module."""
        try:
            spec = find_spec(self.module_of(command))
        except InputError as error:
            return f"({error})"
        source = (
            spec.loader.get_source(spec.name) if spec and isinstance(spec.loader, InspectLoader) else None
        )
        return (ast.get_docstring(ast.parse(source or "")) or "").partition("\n")[0]

    def _guarded(self, arguments: list[str], signals: SimpleNamespace) -> int:
        """Run a sub-command and return the exit code. Expected errors are reported in one line.

        ``signals``: see `interruptible`. Raises BrokenPipeError, and every unexpected error.
        """
        command = arguments[0] if arguments and arguments[0] in self.commands else ""
        try:
            code = self._run(command, arguments)
            return self._interrupted(command) if signals.pending else code
        except SystemExit as stop:  # argparse raises this after --help and after a wrong option
            return stop.code if isinstance(stop.code, int) else EXIT_BAD_INPUT
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:
            return self._interrupted(command)
        except Exception as error:
            line = explain(error)
            if line is None:
                if signals.pending:  # some libraries convert KeyboardInterrupt into an error of their own
                    return self._interrupted(command)
                raise
            if command in self.optional and isinstance(error, ModuleNotFoundError):
                line += f"; to install all packages of the workshop: {INSTALL_WORKSHOP}"
            return self._say(f"{command}: {line}")

    def _interrupted(self, command: str) -> int:
        # If KeyboardInterrupt interrupted code that a library ran by exec(), Python would end `python -m` by
        # SIGINT and ignore the exit code. Another exec() resets this.
        exec("")
        return self._say(f"{command}: interrupted", EXIT_INTERRUPTED)

    def _run(self, command: str, arguments: list[str]) -> int:
        if not command:
            top = self._top_parser()
            top.parse_args(arguments or ["--help"])
            top.error(f"{arguments[0]!r} is not a command; choose one of {', '.join(self.commands)}")
        module = importlib.import_module(self.module_of(command))
        args = described(f"{self.name} {command}", module).parse_args(arguments[1:])
        if missing := [name for name in getattr(module, "NEEDS", ()) if not find_spec(name)]:
            raise InputError(
                f"this command needs {', '.join(missing)}, not installed here; run: {INSTALL_WORKSHOP}, or"
                f" for this command alone: pip install {' '.join(missing)}"
            )
        return int(module.run(args))

    def _top_parser(self) -> Parser:
        width = 2 + max(map(len, self.commands))
        lines = [f"  {command:<{width}}{self.help_line(command)}" for command in self.commands]
        parser = Parser(
            prog=self.name,
            usage=f"{self.name} COMMAND [options]",
            description=self.purpose,
            epilog="\n".join(["commands:", *lines, "", f"{self.name} COMMAND --help shows its options."]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--version", action="version", version=f"{self.name} {__version__}")
        parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
        parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
        return parser


def open_standard_files() -> list[str]:
    """Open /dev/null for each closed standard file (stdin, stdout, stderr), and return the names of the
    closed files.

    Otherwise the next file that is opened would get the number of a standard file, and a library's output
    would be written into it.
    """
    closed = []
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the smallest free number, which is `number`
            closed.append(name)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115
    return closed


def described(name: str, module: Any) -> Parser:
    """Return the argument parser of a sub-command.

    ``name``: the command as users type it; ``module``: the sub-command's module, whose docstring is the help.
    """
    first, _, more = (module.__doc__ or "").strip().partition("\n")
    shown: Any = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog=name, description=first, epilog=more.strip() or None, formatter_class=shown)
    module.add_arguments(parser)
    return parser


def explain(error: BaseException) -> str | None:
    """Return one line with the remedy for an error that the user can correct. None for any other error: it is
    a bug."""
    if isinstance(error, InputError | BackendError):
        return one_line(error)
    if isinstance(error, ModuleNotFoundError) and (package := missing_package(error)):
        return f"the Python package {package.pip} is not installed; run: {package.install}"
    if isinstance(error, MemoryError) or "Insufficient memory" in str(error):
        return "the memory is not enough; end other programs, raise the memory limit, or use smaller images"
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            where = f" while writing {error.filename}" if error.filename else ""
            return f"no space left on the device{where}; free space or write to another disk"
        if error.filename is not None:
            return f"{error.filename}: {(error.strerror or str(error)).lower()}"
        if error.errno == errno.EBADF:
            return CLOSED
        if isinstance(error, FileNotFoundError) and not _has_working_folder():
            return "the working folder was removed; change to another one (cd)"
    return None


def _has_working_folder() -> bool:
    try:
        return bool(Path.cwd())
    except FileNotFoundError:
        return False


EFFTAM = Program("efftam", "Track targets in a video, a bag or a camera stream.", COMMANDS, WORKSHOP)
main = EFFTAM.main
