"""Subscribes to the camera's attitude, for the parameter camera_motion "topic"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from geometry_msgs.msg import QuaternionStamped

from efftam_ros.core.bearing import Intrinsics
from efftam_ros.core.contract import CameraMotionSource
from efftam_ros.core.errors import InputError
from efftam_ros.flight.attitude_motion import CameraAttitude, GuidedMotion
from efftam_ros.images.camera_motion import ImageCameraMotion
from efftam_ros.msg import VehicleHeading
from efftam_ros.ros.common.conversions import attitude_of, vehicle_of
from efftam_ros.ros.common.nodes import Subscriptions, sampled


class AttitudeInput:
    """Passes the attitudes of the topics to the tracker's source of camera motion, while the node is
    configured.

    ``source`` also uses the images, which show the camera's translation: see `GuidedMotion`. ``offset_s``:
    added to the stamps of the topics, s."""

    def __init__(self, offset_s: float) -> None:
        self._attitude = CameraAttitude(offset_s)
        self.source: CameraMotionSource = GuidedMotion(self._attitude, ImageCameraMotion())
        self._refused: Callable[[str], None] = lambda reason: None
        self.refusal = ""
        """Why the last message of either topic was not used; empty when it was."""

    def open(self, subscriptions: Subscriptions, refused: Callable[[str], None]) -> None:
        """Subscribe; ``refused`` takes one line for each message that can't be used."""
        self._refused = refused
        subscriptions.add(QuaternionStamped, "attitude", self._on_attitude, sampled(50))
        subscriptions.add(VehicleHeading, "vehicle_heading", self._on_heading, sampled(50))

    def set_camera(self, intrinsics: Intrinsics | None) -> None:
        """The images' calibration; None: there is none."""
        self._attitude.set_camera(intrinsics)

    def _on_attitude(self, message: Any) -> None:
        self._take("attitude", lambda: self._attitude.add_attitude(attitude_of(message, False, False)))

    def _on_heading(self, message: Any) -> None:
        self._take("vehicle_heading", lambda: self._attitude.add_vehicle(vehicle_of(message)))

    def _take(self, topic: str, add: Callable[[], None]) -> None:
        self.refusal = ""
        try:
            add()
        except InputError as refusal:
            self.refusal = f"{topic}: {refusal}"
            self._refused(self.refusal)
