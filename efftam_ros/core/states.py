"""The state of a target, from the frames that accept or miss it."""

from __future__ import annotations

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.types import MISSED, TrackState


class TargetState:
    """The target's state.

    A selection starts ACQUIRING; enough accepted frames in a row lead to TRACKING. A missed frame leads to
    COASTING, and to LOST once the last confirmed box is ``lost_after`` old. An accepted frame while COASTING
    or LOST starts ACQUIRING again, so that a reappearance is not reported before it is confirmed.
    """

    def __init__(self, config: TrackerConfig) -> None:
        self.config = config
        self.clear()

    def clear(self) -> None:
        self.state = TrackState.IDLE
        self.measured_ns: int | None = None
        self.confirmed_ns: int | None = None
        self.confirmed = False
        """Whether the state claims the target: TRACKING, or ACQUIRING since its selection without a miss."""
        self._streak = 0
        self._returning = False

    def select(self, stamp_ns: int) -> None:
        """The operator selected the target on this frame."""
        self.clear()
        self.state = TrackState.ACQUIRING
        self.hit(stamp_ns)

    def hit(self, stamp_ns: int) -> bool:
        """The target's box was accepted on this frame. Returns `confirmed`."""
        if self.state in MISSED:
            self.state, self._returning, self._streak = TrackState.ACQUIRING, True, 0
        self._streak += 1
        needed = self.config.reacquire_frames if self._returning else self.config.acquire_frames
        if self._streak >= needed:
            self.state, self._returning = TrackState.TRACKING, False
        self.measured_ns = stamp_ns
        self.confirmed = not self._returning
        if self.confirmed:
            self.confirmed_ns = stamp_ns
        return self.confirmed

    def miss(self, stamp_ns: int) -> None:
        """No box was accepted on this frame."""
        self._streak, self.confirmed = 0, False
        if self.state is not TrackState.LOST:
            recent = (
                self.confirmed_ns is not None
                and (stamp_ns - self.confirmed_ns) * 1e-9 <= self.config.lost_after
            )
            self.state = TrackState.COASTING if recent else TrackState.LOST

    def lose(self, times_valid: bool = True) -> None:
        """The previous position no longer holds. ``times_valid`` False: the stamps jumped, so earlier times
        are invalid."""
        self.state, self._streak, self.confirmed = TrackState.LOST, 0, False
        if not times_valid:
            self.measured_ns = self.confirmed_ns = None

    def age_s(self, stamp_ns: int) -> float:
        """Time since the last accepted box, s; NaN if there is none."""
        return float("nan") if self.measured_ns is None else (stamp_ns - self.measured_ns) * 1e-9
