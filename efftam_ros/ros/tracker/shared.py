"""What the executor's thread and the loop's share while the node is active; all of it is thread-safe."""

from __future__ import annotations

from typing import NamedTuple

from efftam_ros.ros.common.throttle import ThrottledLog
from efftam_ros.ros.tracker.diagnostics import Statistics
from efftam_ros.ros.tracker.frame_buffer import FrameBuffer
from efftam_ros.ros.tracker.publishing import Outputs


class Shared(NamedTuple):
    """``buffer``: images and commands for the loop; ``outputs``: publishers and its latest answer."""

    buffer: FrameBuffer
    outputs: Outputs
    statistics: Statistics
    log: ThrottledLog
