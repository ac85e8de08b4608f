#!/bin/bash
# Enters ROS 2, the package and its Python packages, then runs the command.
set -e
source "/opt/ros/$ROS_DISTRO/setup.bash"
source /opt/efftam/setup.bash
site=$(/opt/venv/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
export PATH="/opt/venv/bin:$PATH" PYTHONPATH="$site:$PYTHONPATH"
exec "$@"
