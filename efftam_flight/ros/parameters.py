"""The parameters of the flight nodes, and their file.

python -m efftam_flight.ros.parameters > config/flight.yaml
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import ControlConfig
from efftam_ros.core.config import setting
from efftam_ros.ros.common.parameters import ParameterSet


@dataclass(frozen=True)
class GimbalConfig(ControlConfig):
    """The gimbal node's settings."""

    autostart: bool = setting(True, "configure and activate when the node starts; steering stays off")


# A controller is made anew when the node is configured: gains don't change under a moving gimbal.
GIMBAL = ParameterSet(
    (("Steering", GimbalConfig),), ("autostart",), tuple(f.name for f in fields(ControlConfig))
)
# All are read when the node starts: links are not exchanged under a moving gimbal.
MAVLINK = ParameterSet((("The bridge", BridgeConfig),), tuple(f.name for f in fields(BridgeConfig)))


def as_yaml() -> str:
    head = (
        "# Every parameter of efftam_gimbal and efftam_mavlink, with its default. Written by:\n"
        "# python -m efftam_flight.ros.parameters\n"
    )
    return head + GIMBAL.as_yaml("/**/efftam_gimbal") + "\n" + MAVLINK.as_yaml("/**/efftam_mavlink")


if __name__ == "__main__":
    print(as_yaml(), end="")
