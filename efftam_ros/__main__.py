"""Makes `python -m efftam_ros` run the command `efftam`."""

from efftam_ros.tools.cli import main

raise SystemExit(main())
