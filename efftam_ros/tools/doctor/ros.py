"""Report section on ROS 2: Python packages, messages and transport of images."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from efftam_ros.interop.package_files import package_file
from efftam_ros.tools.doctor.finding import Finding
from efftam_ros.tools.doctor.packages import loads

SECTION = "ROS 2"
PROFILE_VARIABLES = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
SHM, ENOUGH_SHM_MB = "/dev/shm", 64
"""Fast DDS passes images through /dev/shm; a few publishers of 720p images need less than this."""


def ros_findings() -> Iterator[Finding]:
    distro = os.environ.get("ROS_DISTRO", "<distro>")
    apt = f"sudo apt install ros-{distro}-"
    for module, found, remedy in (
        ("rclpy", f"ROS_DISTRO {distro}", f"source /opt/ros/{distro}/setup.bash"),
        ("efftam_ros.msg", "messages are built", "colcon build, then source install/setup.bash"),
        ("launch_ros", "launch files", f"{apt}launch-ros, or start efftam_tracker itself"),
        ("cv_bridge", "image encodings that only it knows", f"{apt}cv-bridge"),
        ("vision_msgs", "topic detections", f"{apt}vision-msgs"),
    ):
        problem = loads(module)
        ending = ("absent", problem, remedy) if problem else ("ok", found)
        yield Finding(SECTION, module, *ending)
    yield fastdds_profile()
    yield from _shared_memory()


def fastdds_profile() -> Finding:
    """Whether the Fast DDS profile is set and exists; images get lost without it."""
    name = "Fast DDS profile"
    values = [(variable, os.environ[variable]) for variable in PROFILE_VARIABLES if os.environ.get(variable)]
    profile = package_file("config/fastdds_images.xml") or "<package>/config/fastdds_images.xml"
    remedy = f"export {PROFILE_VARIABLES[0]}={profile} (for the camera driver too)"
    other = os.environ.get("RMW_IMPLEMENTATION", "")
    if other and "fastrtps" not in other:
        return Finding(SECTION, name, "ok", f"not used: RMW_IMPLEMENTATION is {other}")
    if not values:
        found = "not set: images above 0.5 MB get lost on Fast DDS (the launch file sets it)"
        return Finding(SECTION, name, "absent", found, remedy)
    for variable, value in values:
        if not Path(value).is_file():
            return Finding(SECTION, name, "wrong", f"{variable}={value} does not exist", remedy)
    return Finding(SECTION, name, "ok", values[0][1])


def _shared_memory() -> Iterator[Finding]:
    if Path(SHM).is_dir():
        usage = shutil.disk_usage(SHM)
        found = f"{usage.free / 1e6:.0f} of {usage.total / 1e6:.0f} MB free"
        remedy = "fastdds shm clean removes files of killed nodes; in a container: --shm-size=512m"
        ending = ("ok", found) if usage.free >= ENOUGH_SHM_MB * 1e6 else ("wrong", found, remedy)
        yield Finding(SECTION, SHM, *ending)
