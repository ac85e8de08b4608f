"""Report section on ROS 2."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from efftam_ros.interop.package_files import package_file
from efftam_ros.tools.doctor.finding import Finding
from efftam_ros.tools.doctor.packages import loads

# Fast DDS passes images through /dev/shm; a few publishers of 720p images need less than this.
ENOUGH_SHM_MB = 64


def ros_findings() -> Iterator[Finding]:
    """Findings on Python packages, messages and transport."""
    section = "ROS 2"
    rclpy = loads("rclpy")
    distro = os.environ.get("ROS_DISTRO", "")
    if rclpy is None:
        yield Finding(section, "rclpy", "ok", f"ROS_DISTRO {distro or 'not set'}")
    else:
        yield Finding(
            section,
            "rclpy",
            "absent",
            rclpy,
            "source /opt/ros/<distro>/setup.bash, or run ./scripts/demo for wheels",
        )
    messages = loads("efftam_ros.msg")
    if messages is None:
        yield Finding(section, "messages of efftam_ros", "ok", "built")
    else:
        yield Finding(
            section,
            "messages of efftam_ros",
            "absent",
            messages,
            "colcon build, then source install/setup.bash",
        )
    for module, purpose, remedy in (
        (
            "launch_ros",
            "launch files",
            "ros2 launch is not in the wheels: start scripts/efftam_tracker instead",
        ),
        ("vision_msgs", "topic detections", f"apt install ros-{distro or '<distro>'}-vision-msgs"),
    ):
        problem = loads(module)
        found = purpose if problem is None else f"{purpose}: {problem}"
        yield Finding(
            section, module, "ok" if problem is None else "absent", found, "" if problem is None else remedy
        )
    yield fastdds_profile()
    yield _shared_memory()


def fastdds_profile() -> Finding:
    """Whether the Fast DDS profile is set and exists; images get lost without it."""
    section = "ROS 2"
    names = ("FASTRTPS_DEFAULT_PROFILES_FILE", "FASTDDS_DEFAULT_PROFILES_FILE")
    values = {name: os.environ[name] for name in names if os.environ.get(name)}
    profile = package_file("config/fastdds_images.xml") or "<package>/config/fastdds_images.xml"
    remedy = f"export {names[0]}={profile} (for the camera driver too)"
    other = os.environ.get("RMW_IMPLEMENTATION", "")
    if other and "fastrtps" not in other:
        return Finding(section, "Fast DDS profile", "ok", f"not used: RMW_IMPLEMENTATION is {other}")
    if not values:
        found = "not set: images above 0.5 MB get lost on Fast DDS (the launch file sets it)"
        return Finding(section, "Fast DDS profile", "absent", found, remedy)
    missing = [f"{name}={value}" for name, value in values.items() if not Path(value).is_file()]
    if missing:
        return Finding(section, "Fast DDS profile", "wrong", f"{missing[0]} does not exist", remedy)
    return Finding(section, "Fast DDS profile", "ok", next(iter(values.values())))


def _shared_memory() -> Finding:
    section = "ROS 2"
    shm = Path("/dev/shm")
    if not shm.is_dir():
        return Finding(section, "/dev/shm", "absent", "missing; images are sent by UDP", "run on Linux")
    usage = shutil.disk_usage(shm)
    size_mb, free_mb = usage.total / 1e6, usage.free / 1e6
    enough = free_mb >= ENOUGH_SHM_MB
    return Finding(
        section,
        "/dev/shm",
        "ok" if enough else "wrong",
        f"{free_mb:.0f} of {size_mb:.0f} MB free",
        "" if enough else "fastdds shm clean removes files of killed nodes; in a container: --shm-size=512m",
    )
