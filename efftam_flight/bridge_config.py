"""The bridge's settings. This module does not import pymavlink, so that programs can list the settings
without it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from efftam_ros.core.config import SHARE, CheckedSettings, setting
from efftam_ros.core.errors import InputError, shown

MAX_LINKS = 8
MAX_NAME_BYTES = 32
# MAVLink's component ids of gimbals: GIMBAL, GIMBAL2 to GIMBAL6. An autopilot numbers them 1 to 6.
GIMBAL_COMPONENTS = (154, 171, 172, 173, 174, 175)
# The accepted values of the setting gimbal_device_id. 0 means the first gimbal. 1 to 6 are the numbers that
# an autopilot gives to gimbals which have no MAVLink component of their own. The others are component ids.
GIMBAL_DEVICE_IDS = (0, 1, 2, 3, 4, 5, 6, *GIMBAL_COMPONENTS)


@dataclass(frozen=True)
class BridgeConfig(CheckedSettings):
    """The settings of the whole bridge: its links, its camera component and its gimbal client."""

    links: str = setting(
        "udpout:127.0.0.1:14550",
        "addresses of the MAVLink links, separated by spaces: udpin:HOST:PORT, udpout:HOST:PORT,"
        " tcp:HOST:PORT, tcpin:HOST:PORT, serial:DEVICE:BAUD",
    )
    system_id: int = setting(
        1,
        "MAVLink system id of the vehicle; ground stations ignore a camera of another system",
        within=(1, 255),
    )
    component_id: int = setting(
        100, "MAVLink component id of the camera; ground stations look for 100 to 105", within=(1, 255)
    )
    vendor: str = setting("efftam_ros", "the camera's maker as ground stations show it, 1 to 32 bytes")
    model: str = setting(
        "EfficientTAM tracker", "the camera's name as ground stations show it, 1 to 32 bytes"
    )
    gimbal_device_id: int = setting(
        0,
        "the gimbal that carries the camera and is steered: its number 1 to 6, or its component id (154, 171"
        " to 175); ground stations get this id; 0: the first gimbal is steered, and stations get no id",
        within=(0, 255),
    )
    video_latency: float = setting(
        0.2, "age of the picture on which the operator draws a box, s", within=(0.0, 10.0)
    )
    tracker_silence: float = setting(
        1.0,
        "time without an answer of the tracker after which the target is reported as lost, s",
        within=(0.1, 60.0),
    )
    lost_status: str = setting(
        "error",
        "how a lost target is reported to ground stations; idle hides its box",
        choices=("error", "idle"),
    )
    rendered: bool = setting(False, "the video contains the box already: stations need not draw it")
    view_left: float = setting(
        0.0, "left edge of the part of the image that the video shows, 0..1 of the image", within=SHARE
    )
    view_top: float = setting(
        0.0, "top edge of the part of the image that the video shows, 0..1 of the image", within=SHARE
    )
    view_width: float = setting(
        1.0, "width of the part of the image that the video shows, 0..1 of the image", within=(0.01, 1.0)
    )
    view_height: float = setting(
        1.0, "height of the part of the image that the video shows, 0..1 of the image", within=(0.01, 1.0)
    )
    view_quarter_turns: int = setting(
        0, "number of clockwise turns by 90 degrees of the part that the video shows", within=(0, 3)
    )
    manager_component: int = setting(
        1, "id of the component that manages the gimbal; 1: the autopilot", within=(1, 255)
    )
    yaw_lock: bool = setting(
        True, "yaw rates count from north; false: from the vehicle's nose. The same as in efftam_gimbal"
    )
    attitude_rate: float = setting(
        50.0,
        "rate at which the gimbal's attitude is requested of the autopilot, Hz; 0: not requested",
        within=(0.0, 200.0),
    )
    vehicle_rate: float = setting(
        50.0,
        "rate at which the vehicle's attitude is requested of the autopilot, Hz, at most 20 while"
        " yaw counts from north; 0: not requested",
        within=(0.0, 200.0),
    )
    rc_channels: str = setting(
        "",
        "RC channels, 1 to 18, by which the pilot moves the gimbal, separated by spaces: when one is moved,"
        " steering ends",
    )
    rc_dead_band: int = setting(
        100,
        "an RC channel counts as moved when it has changed by more than this since steering was enabled, us",
        within=(1, 1000),
    )
    position_rate: float = setting(
        5.0,
        "rate at which the vehicle's position is requested of the autopilot, Hz; 0: not requested",
        within=(0.0, 50.0),
    )
    range_orientation: int = setting(
        -1,
        "MAV_SENSOR_ORIENTATION of the range finder that measures along the camera's axis (25: down); -1:"
        " only a range finder in the gimbal is used",
        within=(-1, 100),
    )
    follow: bool = setting(
        False,
        "offer the service enable_follow, which starts sending the target's position to the autopilot",
    )
    follow_system_id: int = setting(
        200,
        "MAVLink system id with which FOLLOW_TARGET is sent; not the vehicle's, which ArduPilot ignores; set"
        " FOLL_SYSID to the same number",
        within=(1, 255),
    )
    follow_accuracy: float = setting(
        5.0, "largest uncertainty of a position that is sent to the autopilot, m", within=(0.1, 1000.0)
    )
    landing_target: bool = setting(False, "send LANDING_TARGET, for a camera that looks down")
    camera_roll: float = setting(
        0.0,
        "roll of the camera, clockwise seen from behind, rad; for a camera that looks down, how far the"
        " top of the image is turned to the right of the nose. The same as in efftam_gimbal",
        within=(-math.pi, math.pi),
    )
    signing_key: str = setting(
        "",
        "file of mode 600 that begins with the key of MAVLink 2 signing, 64 hexadecimal digits; then all"
        " messages are signed, and unsigned ones are refused; empty: no signing",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.addresses) <= MAX_LINKS:
            raise InputError(
                f"links names {len(self.addresses)} addresses; give 1 to {MAX_LINKS}, such as"
                " udpout:127.0.0.1:14550"
            )
        for name, text in (("vendor", self.vendor), ("model", self.model)):
            if not 0 < len(text.encode()) <= MAX_NAME_BYTES:
                raise InputError(
                    f"{name} is {shown(text)}; ground stations show it as the camera's name: give 1 to"
                    f" {MAX_NAME_BYTES} bytes"
                )
        if self.gimbal_device_id not in GIMBAL_DEVICE_IDS:
            raise InputError(
                f"gimbal_device_id is {self.gimbal_device_id}; give 0 (the first gimbal), the gimbal's number"
                " from 1 to 6, or its component: 154 or 171 to 175"
            )
        if self.follow and self.follow_system_id == self.system_id:
            raise InputError(
                f"follow_system_id is {self.follow_system_id}, the same as system_id: an autopilot ignores"
                " messages with its own id; give another number"
            )
        if not all(number.isdecimal() and 1 <= int(number) <= 18 for number in self.rc_channels.split()):
            raise InputError(f"rc_channels is {self.rc_channels!r}; give numbers from 1 to 18, such as 6 7")

    @property
    def ids(self) -> tuple[int, int]:
        """The bridge's own MAVLink system id and component id."""
        return self.system_id, self.component_id

    @property
    def channels(self) -> tuple[int, ...]:
        return tuple(map(int, self.rc_channels.split()))

    @property
    def addresses(self) -> list[str]:
        return self.links.split()
