"""Checks whether the camera is rolled against the gimbal. When a gimbal turns right, the picture moves left;
in the picture of a rolled camera it moves in another direction.

The bearing z and the turn G of the optical axis are complex numbers (right + i up), rad. The bearing of a
target at rest is z = c - k G, with a constant c. The factor k is 1 if the camera is not rolled, and
exp(i roll) if it is rolled. A least-squares fit over one second gives k. The fit models the target's own
motion by a constant acceleration.
"""

from __future__ import annotations

import cmath
import math
from collections import deque

import numpy as np

from efftam_flight.angles import wrapped

NS = 1_000_000_000
# The fit uses the bearings of the last WINDOW_S seconds, and needs at least MIN_IMAGES of them.
WINDOW_S, MIN_IMAGES = 1.0, 12
# A camera with more roll than this makes steering oscillate, rad.
MAX_ROLL = math.radians(27.0)
# The factor k is the motion of the picture divided by the turn of the gimbal. If |k| is smaller than this,
# the target moves together with the gimbal, and no roll can be measured.
MIN_ANSWER = 0.7
# A roll is reported if this many images in a row show it. A target's own motion may look like a roll briefly.
MIN_DOUBTS = 4
# A measured roll is used if its standard deviation is at most KNOWN, rad. It counts as above or below
# MAX_ROLL if it differs from MAX_ROLL by SURE standard deviations.
KNOWN, SURE = 0.15, 3.0


class CameraGeometry:
    """Detects a camera that is rolled against its gimbal.

    ``roll``: the camera's roll, clockwise seen from behind, rad; None if it is at most `MAX_ROLL` or not
    known. ``fits``: whether images have shown that the roll is less than `MAX_ROLL`.
    """

    def __init__(self) -> None:
        # (stamp in s, bearing in rad, turn of the optical axis in rad), of the images in the window.
        self._seen: deque[tuple[float, complex, complex]] = deque()
        self._yaw = 0.0  # yaw of the optical axis at the last image, rad
        self.roll: float | None = None
        self.fits = False
        self._doubts = 0  # number of images in a row that show a roll

    @property
    def is_doubtful(self) -> bool:
        """Whether the newest image showed a roll above `MAX_ROLL`."""
        return self._doubts > 0

    def begin(self) -> None:
        """Discard all results: steering was enabled, and the camera may have been remounted since."""
        self.forget()
        self.roll, self.fits = None, False

    def forget(self) -> None:
        """Discard the stored bearings: the target, the calibration or the images' clock has changed."""
        self._seen.clear()
        self._doubts = 0

    def take(self, stamp_ns: int, azimuth: float, elevation: float, axis: tuple[float, float]) -> None:
        """Add a measured bearing, rad. ``axis``: yaw from north and pitch of the optical axis at the stamp of
        the image, rad."""
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
