"""`python -m efftam_ros`: the same as the command `efftam`."""

from efftam_ros.tools.cli import main

raise SystemExit(main())
