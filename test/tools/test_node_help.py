"""`--help` of each node, on a computer without ROS."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from efftam_flight.ros import parameters as flight
from efftam_operator.ros import parameters as operator
from efftam_ros.ros import camera_parameters as camera
from efftam_ros.ros.common.parameters import ParameterSet
from efftam_ros.ros.tracker import parameters as tracker

WITHOUT_ROS = """
import sys
for name in ("rclpy", "rcl_interfaces", "sensor_msgs", "diagnostic_msgs"):
    sys.modules[name] = None
from {package}.ros.main import main
sys.exit(main("{node}", ["{node}", "--help"]))
"""


@pytest.mark.parametrize(
    ("package", "node", "known"),
    [
        ("efftam_ros", "efftam_tracker", tracker.PARAMETERS),
        ("efftam_ros", "efftam_camera", camera.PARAMETERS),
        ("efftam_operator", "efftam_operator", operator.PARAMETERS),
        ("efftam_flight", "efftam_gimbal", flight.GIMBAL),
        ("efftam_flight", "efftam_mavlink", flight.MAVLINK),
    ],
)
def test_help_lists_each_parameter_with_default_range_and_meaning(
    package: str, node: str, known: ParameterSet
) -> None:
    code = WITHOUT_ROS.format(package=package, node=node)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    assert len(known.names()) >= 8
    for _, config_type in known.sections:
        for name, field in config_type.__dataclass_fields__.items():
            if not field.metadata:
                continue
            assert f"{name}:={json.dumps(field.default)}" in done.stdout
            assert " ".join(field.metadata["text"].split()) in words
            for value in field.metadata["within"] or field.metadata["choices"]:
                assert (value if isinstance(value, str) else f"{value:.12g}") in words
