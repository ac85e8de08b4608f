"""What passes between the camera component and the tracker: requests, their results, and who carries them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from efftam_ros.core.geometry import Box
from efftam_ros.flight.mavlink.dialect import mav
from efftam_ros.interop.messages import Outcome


@dataclass(frozen=True)
class SelectionRequest:
    """The operator's command: a box or a point of the tracker's image, in 0..1 of it; neither clears the
    target. ``stamp_ns`` names the image it was drawn on, on the images' clock, and no two requests have the
    same."""

    stamp_ns: int
    box: Box | None = None
    point: tuple[float, float] | None = None


@dataclass(frozen=True)
class SelectionOutcome:
    """The tracker's decision on the request of this stamp; ``message`` says why not."""

    stamp_ns: int
    outcome: Outcome
    message: str = ""


class Severity(IntEnum):
    """MAV_SEVERITY of what is reported."""

    ERROR = mav.MAV_SEVERITY_ERROR
    WARNING = mav.MAV_SEVERITY_WARNING
    INFO = mav.MAV_SEVERITY_INFO


class TrackerPort(Protocol):
    """The way to the tracker. It must not block."""

    def select(self, request: SelectionRequest) -> str | None:
        """Hand a request on; its outcome comes later. A text says why that is impossible now."""
