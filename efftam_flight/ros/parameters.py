"""The parameters of the flight nodes. This command writes a file with all of them:

python -m efftam_flight.ros.parameters > config/flight.yaml
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from efftam_flight.angles import Vector
from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import ControlConfig
from efftam_flight.position.config import PositionConfig
from efftam_flight.position.geodesy import GeoPoint
from efftam_ros.core.config import setting
from efftam_ros.ros.common.parameters import ParameterSet


@dataclass(frozen=True)
class GimbalConfig(ControlConfig):
    """The parameters of the node efftam_gimbal."""

    autostart: bool = setting(True, "configure and activate when the node starts; steering stays off")


@dataclass(frozen=True)
class PositionNodeConfig(PositionConfig):
    """The parameters of the node efftam_position."""

    camera: str = setting(
        "gimbal",
        "source of the camera's pose: gimbal (topics gimbal_attitude, vehicle_position), fixed (a camera"
        " fixed to the vehicle: vehicle_heading, vehicle_position, and the angles mount_*), pose"
        " (camera_pose), tf",
        choices=("gimbal", "fixed", "pose", "tf"),
    )
    mount_roll: float = setting(
        0.0, "roll of a fixed camera, right side down positive, rad", within=(-math.pi, math.pi)
    )
    mount_pitch: float = setting(0.0, "pitch of a fixed camera, up positive, rad", within=(-math.pi, math.pi))
    mount_yaw: float = setting(
        0.0, "yaw of a fixed camera from the vehicle's nose, right positive, rad", within=(-math.pi, math.pi)
    )
    attitude_offset: float = setting(
        0.0,
        "added to the stamps of attitudes and poses, s. The same as in efftam_gimbal",
        within=(-1.0, 1.0),
    )
    pose_is_optical: bool = setting(
        True,
        "axes of camera_pose and of the images' TF frame: right, down, forward; false: forward, left, up",
    )
    ground_height: float = setting(
        0.0, "height of the ground in the local frame of pose or tf, m", within=(-10000.0, 10000.0)
    )
    origin_latitude: float = setting(
        0.0,
        "latitude of the origin of the local frame of pose or tf, degrees; 0 with longitude 0: not known",
        within=(-89.0, 89.0),
    )
    origin_longitude: float = setting(
        0.0, "longitude of the origin of the local frame, degrees", within=(-180.0, 180.0)
    )
    origin_altitude: float = setting(
        0.0, "altitude of the origin of the local frame, m above mean sea level", within=(-1000.0, 10000.0)
    )
    frame_id: str = setting("map", "name of the local frame: x east, y north, z up")

    @property
    def mount(self) -> Vector | None:
        """Roll, pitch, yaw of a camera that is fixed to the vehicle, rad; None if it is not fixed."""
        return (self.mount_roll, self.mount_pitch, self.mount_yaw) if self.camera == "fixed" else None

    @property
    def origin(self) -> GeoPoint | None:
        """The origin of the local frame; None if it is unknown. Only poses from the topic `pose` or from tf
        need it."""
        point = GeoPoint(self.origin_latitude, self.origin_longitude, self.origin_altitude)
        return point if point.is_place else None


# These parameters take effect when the node is configured, so that gains never change while a gimbal moves.
GIMBAL = ParameterSet(
    (("Steering", GimbalConfig),), ("autostart",), tuple(f.name for f in fields(ControlConfig))
)
POSITION = ParameterSet(
    (("Where on the ground", PositionNodeConfig),), tuple(f.name for f in fields(PositionNodeConfig))
)
# All parameters of the bridge are read when the node starts, so that links never change while a gimbal moves.
MAVLINK = ParameterSet((("The bridge", BridgeConfig),), tuple(f.name for f in fields(BridgeConfig)))


def as_yaml() -> str:
    head = (
        "# Every parameter of efftam_gimbal, efftam_mavlink and efftam_position, with its default.\n"
        "# Written by: python -m efftam_flight.ros.parameters\n"
    )
    nodes = {"efftam_gimbal": GIMBAL, "efftam_mavlink": MAVLINK, "efftam_position": POSITION}
    return head + "\n".join(each.as_yaml(f"/**/{name}") for name, each in nodes.items())


if __name__ == "__main__":
    print(as_yaml(), end="")
