"""Runs a benchmark: ``python -m benchmarks COMMAND [options]``, in the checkout."""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from pathlib import Path

from efftam_ros.tools.cli import EXIT_BAD_INPUT, EXIT_INTERRUPTED, Parser, explain

COMMANDS = {
    "compare": "compare",
    "crossings": "crossings",
    "peers": "peers.command",
    "latency": "latency",
    "transport": "transport",
    "idle_gpu": "idle_gpu",
    "operator_page": "operator_page",
}
"""Commands and their modules in this package, made as those of `efftam_ros.tools.cli`."""


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    parser = Parser(
        prog="python -m benchmarks",
        usage="python -m benchmarks COMMAND [options]",
        description="Measurements for maintainers. COMMAND --help shows its options.",
        epilog="\n".join(["commands:", *(f"  {name:<15}{_documented(name)[0]}" for name in COMMANDS)]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    name = parser.parse_args(given[:1] or ["--help"]).command
    module = importlib.import_module(f"benchmarks.{COMMANDS[name]}")
    first, more = _documented(name)
    inner = Parser(
        prog=f"python -m benchmarks {name}",
        description=first,
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(inner)
    try:
        return int(module.run(inner.parse_args(given[1:])))
    except KeyboardInterrupt:
        print(f"{inner.prog}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except Exception as error:
        line = explain(error)
        if line is None:
            raise
        print(f"{inner.prog}: {line}", file=sys.stderr)
        return EXIT_BAD_INPUT


def _documented(name: str) -> tuple[str, str]:
    """First line and rest of a command's docstring, read without importing it."""
    source = Path(__file__).parent.joinpath(*COMMANDS[name].split(".")).with_suffix(".py")
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0], text.partition("\n")[2].strip()


if __name__ == "__main__":
    sys.exit(main())
