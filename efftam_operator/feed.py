"""The interface between the page's server and its source: pictures, boxes and motion in, commands out.

A *feed* is a camera with a tracker behind it (a ROS node, a command that tracks a file). The server calls its
methods on its event loop's thread; it gives its reports to the server's `Sink` from any thread.
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
    """One camera image. ``stamp_ns``: integer ns of the camera's clock. Give ``jpeg``, the camera's own JPEG,
    which is passed on as it is, or ``bgr``, which makes uint8 [H, W, 3] when somebody looks (on a thread of
    its own; it may raise InputError for an encoding it doesn't know). ``nbytes``: memory that it holds.
    ``still_s``: for how long not one pixel has changed, s. The pixels must stay unchanged."""

    stamp_ns: int
    jpeg: bytes | None = None
    bgr: Callable[[], NDArray[np.uint8]] | None = None
    nbytes: int = 0
    still_s: float = 0.0

    def __post_init__(self) -> None:
        if (self.jpeg is None) == (self.bgr is None):
            raise ValueError("a Picture has either jpeg or bgr")


@dataclass(frozen=True)
class Unreadable:
    """An image that can't be read, and why: the tracker will give no box for it."""

    reason: str


@dataclass(frozen=True)
class NoImages:
    """Why no image arrives: what was found, with the topic's name, and the remedy, in one line."""

    reason: str


@dataclass(frozen=True)
class Limits:
    """Of the tracker. ``buffer_s``: how old an image may be for a selection on it, None when any age will do;
    ``max_targets``: how many it follows at most."""

    buffer_s: float | None = None
    max_targets: int = 1


@dataclass(frozen=True)
class Trackers:
    """Names of the nodes that answer for the camera's images: more than one is a mistake.

    ``has_restarted``: one of them is another process than before, and has forgotten its targets.
    """

    names: tuple[str, ...]
    has_restarted: bool = False


class Lifecycle(Enum):
    """The lifecycle state of the tracker's node."""

    ACTIVE = "active"
    INACTIVE = "inactive"  # it runs and was not activated
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class CommandAnswer:
    """The tracker's answer to a command. ``message``: its text; ``selection``: the count of accepted
    selections (0 when refused)."""

    ok: bool
    message: str = ""
    selection: int = 0


@dataclass(frozen=True)
class Proposal:
    """A box, px, on the image of ``stamp_ns`` that nothing follows unless a person agrees.

    It is what the tracker finds at a point; without a box ``reason`` is why there is none. With ``is_lost``
    it is where the lost target ``target_id`` may be, and no point was given.
    """

    stamp_ns: int
    box: Box | None = None
    reason: str = ""
    target_id: int = 0
    is_lost: bool = False


class Controller(Enum):
    """Whether the gimbal's controller can be reached."""

    RUNNING = "running"
    INACTIVE = "inactive"  # it runs and was not activated
    SILENT = "silent"  # it should run, but sends nothing
    GONE = "gone"  # it has ended


class Link(Enum):
    """What stands between the gimbal's controller and the gimbal."""

    BRIDGE = "bridge"
    AUTOPILOT = "autopilot"
    GIMBAL = "gimbal"


class Stop(Enum):
    """What has become of the last STOP."""

    NONE = "none"  # there was none, or steering was enabled since
    WAITING = "waiting"  # it was asked for; the gimbal has not been seen to stand yet
    STOPPED = "stopped"  # the gimbal's attitude has shown since that it stands
    UNCONFIRMED = "unconfirmed"  # nothing has shown in time that it stands


@dataclass(frozen=True)
class GimbalAngles:
    """Where the gimbal points, in whole degrees. ``pitch``: up positive; ``yaw``: from the vehicle's nose,
    right positive, None where the nose is not known. The limits are its mechanical stops, least and most,
    None where there is none."""

    pitch: int
    yaw: int | None = None
    pitch_limits: tuple[int | None, int | None] = (None, None)
    yaw_limits: tuple[int | None, int | None] = (None, None)


@dataclass(frozen=True)
class SteeringState:
    """What is known of the gimbal's steering.

    ``enabled`` and ``phase`` (the controller's own name, such as "following") are those of the controller's
    last message; ``reason`` is one line.

    ``silent``: the link nearest to the controller from which no message arrives, None while all send;
    ``silent_s``: how long ago the last message of that link was, or of the controller where it is silent or
    gone; counted when this state was made.

    ``stop``: of the last STOP; ``stop_reason``: why it is not confirmed, and what to do, in one line.

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
    """Whether the target's position goes to the autopilot, which may follow it. ``available``: the bridge
    offers it; ``enabled``: it was allowed, and nothing has ended it since; ``sending``: positions go out;
    ``reason``: what it waits for, or what ended it, in one line."""

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
# The server's side: called from any thread, returns at once and never raises. Reports of one image may come
# in any order; steering is offered from the first SteeringState on.
Sink = Callable[[Report], None]


class Feed(Protocol):
    """A camera with a tracker behind it. ``reply`` is called once, from any thread; without a reply within
    the server's limit the page shows that the tracker doesn't answer."""

    def start(self, sink: Sink) -> None:
        """Called once before anything else."""

    def watch(self, watched: bool) -> None:
        """Note whether a page is open; images, boxes and motions are needed only then."""

    def hold(self, stamp_ns: int) -> None:
        """Keep the image of this stamp for a selection, up to `Limits.buffer_s`; 0: no longer. One that is
        gone is reported as a refused Result of this stamp."""

    def propose(self, selection: Selection) -> None:
        """Ask for the box that this selection would give; a `Proposal` answers, where one can be made."""

    def select(self, selection: Selection, reply: Reply) -> None: ...

    def clear(self, target_id: int, reply: Reply) -> None:
        """Follow this target no more; 0: the one that is steered by, 255: all."""

    def steer_by(self, target_id: int, reply: Reply) -> None:
        """Steer by another of the targets that are followed."""


class Follower(Protocol):
    """Lets the autopilot follow the target."""

    def start(self, sink: Sink) -> None:
        """Called once before anything else; positions and states go to the sink."""

    def enable(self, reply: Reply) -> None: ...

    def stop(self, reply: Reply) -> None: ...


class Steerer(Protocol):
    """Steers a gimbal by the target. ``stop`` must take the speed to zero in every situation. Its reply is
    "stopped" only once the gimbal has been seen to stand; else it is the reason why that is not confirmed.
    """

    def start(self, sink: Sink) -> None:
        """Called once before anything else."""

    def enable(self, reply: Reply) -> None: ...

    def stop(self, reply: Reply) -> None: ...
