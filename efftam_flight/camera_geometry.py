"""Checks that the camera sees the gimbal's motion as it should: a camera that is rolled against the gimbal
answers a turn to the right by a motion of the picture that is not to the left.

With a bearing z (right + i up) and the turn G of the optical axis (right + i up) a target that keeps its
direction is seen at z = c - k G: k is 1 where camera and gimbal fit, and exp(i roll) where the camera is
rolled. The target's own motion is taken for one of constant acceleration over the second that is looked at.
"""

from __future__ import annotations

import cmath
import math
from collections import deque

import numpy as np

from efftam_flight.angles import wrapped

NS = 1_000_000_000
# The bearings of so long are looked at, at least so many, s.
WINDOW_S, MIN_IMAGES = 1.0, 12
# More roll than this is not followed calmly, rad; less is.
MAX_ROLL = math.radians(27.0)
# A smaller answer is that of a target which moves with the gimbal: then nothing is reported.
MIN_ANSWER = 0.7
# So many images in a row must show a roll: a target's own motion may look like one for a moment.
MIN_DOUBTS = 4
# Standard deviation of k below which a roll is reported, and how many of them it must be outside.
KNOWN, SURE = 0.15, 3.0


class CameraGeometry:
    """Detects a camera that is rolled against its gimbal. ``roll``: by how much, clockwise seen from behind,
    rad; None while it fits, or nothing is known. ``fits``: the images showed that it fits."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, complex, complex]] = deque()  # when, bearing, turn of the axis
        self._yaw = 0.0  # of the last image
        self.roll: float | None = None
        self.fits = False
        self._doubts = 0  # images in a row that show a roll

    @property
    def is_doubtful(self) -> bool:
        """Whether the last image showed a roll."""
        return self._doubts > 0

    def begin(self) -> None:
        """Start again when steering is enabled or the camera was corrected: nothing is known."""
        self.forget()
        self.roll, self.fits = None, False

    def forget(self) -> None:
        """Discard the earlier bearings: another target, another calibration, or a clock that was set."""
        self._seen.clear()
        self._doubts = 0

    def take(self, stamp_ns: int, azimuth: float, elevation: float, axis: tuple[float, float]) -> None:
        """Add a measured bearing, rad, and yaw and pitch of the optical axis when its image was taken,
        rad."""
        right = 0.0
        if self._seen:
            right = self._seen[-1][2].real + wrapped(axis[0] - self._yaw) * math.cos(axis[1])
        self._yaw, turn = axis[0], complex(right, axis[1])
        self._seen.append((stamp_ns / NS, complex(azimuth, -elevation), turn))
        while self._seen[-1][0] - self._seen[0][0] > WINDOW_S:
            self._seen.popleft()
        if len(self._seen) >= MIN_IMAGES:
            self._judge()

    def _judge(self) -> None:
        when = np.array([seen[0] for seen in self._seen])
        bearing = np.array([seen[1] for seen in self._seen])
        turn = np.array([seen[2] for seen in self._seen])
        t, turn = when - when[-1], turn - turn[-1]
        model = np.stack([np.ones_like(turn), t, t * t, -turn], axis=1)
        found, _, rank, _ = np.linalg.lstsq(model, bearing, rcond=None)
        if rank < model.shape[1]:
            return
        left = bearing - model @ found
        variance = float(np.sum(np.abs(left) ** 2)) / (len(bearing) - model.shape[1])
        inverse = np.linalg.inv(model.conj().T @ model)
        deviation = math.sqrt(max(variance * inverse[-1, -1].real, 0.0))
        answer = complex(found[-1])
        if deviation > KNOWN or abs(answer) < MIN_ANSWER:
            self._doubts = 0
            return
        roll = cmath.phase(answer)
        if abs(roll) > MAX_ROLL + SURE * deviation:
            self._doubts += 1
            if self._doubts >= MIN_DOUBTS:
                self.roll, self.fits = roll, False
            return
        self._doubts = 0
        if abs(roll) + SURE * deviation < MAX_ROLL:
            self.roll, self.fits = None, True
