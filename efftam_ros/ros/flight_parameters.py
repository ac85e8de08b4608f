"""The parameter file of the flight nodes: every parameter with its default.

python -m efftam_ros.ros.flight_parameters > config/flight.yaml
"""

from __future__ import annotations

from efftam_ros.ros.gimbal.parameters import PARAMETERS as GIMBAL
from efftam_ros.ros.mavlink.parameters import PARAMETERS as MAVLINK


def as_yaml() -> str:
    """Both nodes' parameters, described."""
    head = (
        "# Every parameter of efftam_gimbal and efftam_mavlink, with its default. Written by:\n"
        "# python -m efftam_ros.ros.flight_parameters\n"
    )
    return head + GIMBAL.as_yaml("/**/efftam_gimbal") + "\n" + MAVLINK.as_yaml("/**/efftam_mavlink")


if __name__ == "__main__":
    print(as_yaml(), end="")
