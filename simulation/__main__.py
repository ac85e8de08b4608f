"""`python -m simulation COMMAND`: a simulated flight and its parts; ``--help`` lists the commands."""

import sys

from efftam_ros.tools.cli import Program

MODULES = {"flight": "flight", "vehicle": "vehicle", "autopilot": "autopilots.command", "clip": "clip"}
main = Program("python -m simulation", "A simulated flight and its parts.", "simulation", MODULES).main

if __name__ == "__main__":
    sys.exit(main())
