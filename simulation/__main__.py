"""`python -m simulation COMMAND`: a simulated flight and its parts; ``--help`` lists the commands."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from efftam_ros.core.errors import InputError
from efftam_ros.tools.cli import Parser
from efftam_ros.tools.common.interruption import Interruptions

COMMANDS = {
    "flight": "simulation.flight",
    "vehicle": "simulation.vehicle",
    "autopilot": "simulation.autopilots.command",
    "clip": "simulation.clip",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = Parser(prog="python -m simulation", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    name = parser.parse_args(given[:1]).command
    module = importlib.import_module(COMMANDS[name])
    command = Parser(
        prog=f"{parser.prog} {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(command)
    args = command.parse_args(given[1:])
    try:
        with Interruptions():
            return int(module.run(args))
    except InputError as refused:
        print(f"{command.prog}: {refused}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
