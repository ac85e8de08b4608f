"""The interface between the page's server and its source.

A *feed* is a camera with a tracker (a ROS node, or a command that tracks a file). It reports images, boxes
and motions to the server's `Sink`, from any thread. The server sends commands by calling the feed's methods
on the thread of the server's event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.geometry import Box
from efftam_ros.messages.positions import PositionReport
from efftam_ros.messages.reports import BoxReport, MotionReport, ResultReport, Selection, VideoProgress


@dataclass(frozen=True)
class Picture:
    """One camera image. Its pixels must stay unchanged.

    ``stamp_ns``: time by the camera's clock, ns. Exactly one of ``jpeg`` and ``bgr`` is given:
    ``jpeg`` is the camera's own JPEG; ``bgr`` returns the pixels, uint8 [H, W, 3]. ``bgr`` is called only
    when a page needs the image, on the encoder's thread; it may raise InputError for an unknown encoding.
    ``nbytes``: memory that this picture occupies. ``still_s``: for how long no pixel has changed before this
    picture, s.
    """

    stamp_ns: int
    jpeg: bytes | None = None
    bgr: Callable[[], NDArray[np.uint8]] | None = None
    nbytes: int = 0
    still_s: float = 0.0

    def __post_init__(self) -> None:
        if (self.jpeg is None) == (self.bgr is None):
            raise ValueError("a Picture needs exactly one of jpeg and bgr")


@dataclass(frozen=True)
class Unreadable:
    """An image that can't be read. ``reason``: why. The tracker will report no box for this image."""

    reason: str


@dataclass(frozen=True)
class NoImages:
    """No image arrives. ``reason``: why, with the topic's name and the remedy, in one line."""

    reason: str


@dataclass(frozen=True)
class Limits:
    """Limits of the tracker.

    ``buffer_s``: largest age of an image on which a target can be selected, s; None: any age.
    ``max_targets``: largest number of targets that are followed at once.
    """

    buffer_s: float | None = None
    max_targets: int = 1


@dataclass(frozen=True)
class Trackers:
    """Names of the nodes that publish boxes for the camera's images; more than one is a mistake.

    ``has_restarted``: one of these nodes was started again, and has forgotten its targets.
    """

    names: tuple[str, ...]
    has_restarted: bool = False


class Lifecycle(Enum):
    """The lifecycle state of the tracker's node."""

    ACTIVE = "active"
    INACTIVE = "inactive"  # the node runs, but was not activated
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class CommandAnswer:
    """The answer to a command. ``ok``: whether it was accepted; ``message``: the answer's text.

    ``selection``: number of the accepted selection; 0 for a refusal and for other commands.
    """

    ok: bool
    message: str = ""
    selection: int = 0


@dataclass(frozen=True)
class Proposal:
    """A box, px, on the image of ``stamp_ns`` that is followed only if a person confirms it.

    The box contains the object that the tracker finds at a given point. It is None if there is no such
    object, and ``reason`` states why. If ``is_lost``, no point was given, and the box is where the lost
    target ``target_id`` may be.
    """

    stamp_ns: int
    box: Box | None = None
    reason: str = ""
    target_id: int = 0
    is_lost: bool = False


class Controller(Enum):
    """Whether the gimbal's controller can be reached."""

    RUNNING = "running"
    INACTIVE = "inactive"  # the controller runs, but was not activated
    SILENT = "silent"  # the controller's services are offered, but it sends no status
    GONE = "gone"  # the controller has ended


class Link(Enum):
    """The members of the chain from the gimbal's controller to the gimbal, in order."""

    BRIDGE = "bridge"
    AUTOPILOT = "autopilot"
    GIMBAL = "gimbal"


class Stop(Enum):
    """Whether the gimbal has carried out the last STOP command."""

    NONE = "none"  # no STOP was commanded, or steering was enabled again after it
    WAITING = "waiting"  # STOP was commanded; the gimbal's attitude does not show yet that it is at rest
    STOPPED = "stopped"  # the gimbal's attitude has shown after the STOP that it is at rest
    UNCONFIRMED = "unconfirmed"  # after the time limit the gimbal's attitude does not show that it is at rest


@dataclass(frozen=True)
class GimbalAngles:
    """The direction in which the gimbal points, in whole degrees.

    ``pitch``: up positive. ``yaw``: from the vehicle's nose, right positive; None if the direction of the
    nose is unknown. ``pitch_limits``, ``yaw_limits``: the mechanical stops (lowest, highest); None: no stop.
    """

    pitch: int
    yaw: int | None = None
    pitch_limits: tuple[int | None, int | None] = (None, None)
    yaw_limits: tuple[int | None, int | None] = (None, None)


@dataclass(frozen=True)
class SteeringState:
    """The state of the gimbal's steering.

    ``enabled``, ``phase`` (a name such as "following") and ``reason`` (one line) come from the controller's
    last status.

    ``silent``: the first member of the chain after the controller from which no message arrives; None while
    all send. ``silent_s``: time since the last message of that member, or since the controller's last status
    if the controller is silent or gone, s; as of the moment at which this state was made.

    ``stop``: whether the last STOP was carried out. ``stop_reason``: why that is not confirmed and what to
    do, in one line; empty unless ``stop`` is UNCONFIRMED.

    ``angles``: None while no attitude of the gimbal arrives.
    """

    controller: Controller
    enabled: bool = False
    phase: str = ""
    reason: str = ""
    silent: Link | None = None
    silent_s: float = 0.0
    stop: Stop = Stop.NONE
    stop_reason: str = ""
    angles: GimbalAngles | None = None


@dataclass(frozen=True)
class FollowState:
    """Whether the autopilot receives the target's position, by which it can follow the target.

    ``available``: the bridge can send positions. ``enabled``: the operator has allowed sending, and nothing
    has ended it since. ``sending``: positions are being sent. ``reason``: what sending waits for, or what
    ended it, in one line.
    """

    available: bool
    enabled: bool = False
    sending: bool = False
    reason: str = ""


Reply = Callable[[CommandAnswer], None]


Report = (
    Picture
    | Unreadable
    | NoImages
    | BoxReport
    | MotionReport
    | ResultReport
    | Proposal
    | Limits
    | Trackers
    | VideoProgress
    | Lifecycle
    | SteeringState
    | FollowState
    | PositionReport
)
# The server's function that receives reports. It may be called from any thread, returns at once and never
# raises. Reports on one image may come in any order. The page shows the controls for steering only after the
# first SteeringState.
Sink = Callable[[Report], None]


class Feed(Protocol):
    """A camera with a tracker.

    The feed calls each ``reply`` once, from any thread. Without a call within the server's time limit the
    page shows that the tracker doesn't answer.
    """

    def start(self, sink: Sink) -> None:
        """Report to ``sink`` from now on. The server calls this once, before any other method."""

    def watch(self, watched: bool) -> None:
        """Report images, boxes and motions while ``watched`` is true: somebody sees a page."""

    def hold(self, stamp_ns: int) -> None:
        """Keep the image of this stamp for a selection until its age is `Limits.buffer_s`; 0: keep none.

        If the tracker no longer has the image, a `ResultReport` of this stamp reports the refusal.
        """

    def propose(self, selection: Selection) -> None:
        """Request the box that this selection would give. A `Proposal` answers, if one can be made."""

    def select(self, selection: Selection, reply: Reply) -> None: ...

    def clear(self, target_id: int, reply: Reply) -> None:
        """Stop following this target; 0: the steered target, 255: all targets."""

    def steer_by(self, target_id: int, reply: Reply) -> None:
        """Make this followed target the steered one."""


class Follower(Protocol):
    """Switches whether the autopilot receives the target's position, by which it can follow the target."""

    def start(self, sink: Sink) -> None:
        """Report positions and states to ``sink`` from now on. Called once, before any other method."""

    def enable(self, reply: Reply) -> None: ...

    def stop(self, reply: Reply) -> None: ...


class Steerer(Protocol):
    """Switches whether the gimbal is steered by the target."""

    def start(self, sink: Sink) -> None:
        """Report states to ``sink`` from now on. The server calls this once, before any other method."""

    def enable(self, reply: Reply) -> None: ...

    def stop(self, reply: Reply) -> None:
        """Stop the gimbal. Must bring its speed to zero in every situation.

        ``reply`` receives ok only once the attitude shows that the gimbal is at rest. Otherwise ``reply``
        receives a refusal, with the reason why the STOP is not confirmed.
        """
