"""Entry point of `python -m simulation COMMAND`: a simulated flight and its parts. ``--help`` lists the
commands."""

import sys

from efftam_ros.tools.cli import Program

MODULES = {
    "bag": "simulation.bag",
    "flight": "simulation.flight",
    "vehicle": "simulation.vehicle",
    "autopilot": "simulation.autopilots.command",
    "clip": "simulation.clip",
    "position": "simulation.position",
    "follow": "simulation.follow",
}
main = Program("python -m simulation", "A simulated flight and its parts.", MODULES).main

if __name__ == "__main__":
    sys.exit(main())
