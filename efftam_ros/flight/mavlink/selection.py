"""What passes between the camera component and the tracker: requests, their results, and who carries them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Protocol

from efftam_ros.flight.mavlink.dialect import mav
from efftam_ros.interop.messages import Outcome


class RequestKind(Enum):
    """What the operator wants."""

    BOX = "box"
    POINT = "point"
    CLEAR = "clear"


@dataclass(frozen=True)
class SelectionRequest:
    """The operator's command. ``stamp_ns`` names the image it was drawn on, on the images' clock, and no two
    requests have the same; numbers are 0..1 of the tracker's image. A point has no width and height."""

    kind: RequestKind
    stamp_ns: int
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0


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
