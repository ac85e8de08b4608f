"""What is usual of the target: predicted IoU, area and colours of its confirmed frames."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

import numpy as np
from numpy.typing import NDArray

Descriptor = NDArray[np.float64]

KEPT = 30  # number of descriptors of the last confirmed frames, besides the first
NEAREST = 3  # number of most similar descriptors that a new one is compared with
LEAST = 5  # number of descriptors from which a comparison is made
USUAL_FRAMES = 60  # of the last confirmed frames
REMEMBERED_FRAMES = 30
UNLIKELY_SIZE = 6.0  # how much more a change of area counts beyond `MAX_AREA_RATIO`
MAX_AREA_RATIO = 3.0
# Most by which the log-likelihood ratio of a target that returns may be below the usual one of confirmed
# frames; without this limit occluders that resemble the target are accepted. On 73 cases of the disappearance
# footage's choosing half 5 wrong objects are accepted and 106 absent frames claimed without it, 3 and 56 with
# it; 52 targets are regained in both.
RETURN_MARGIN = 1.2


class Appearance:
    """Descriptors of the target so far."""

    def __init__(self) -> None:
        self._first: Descriptor | None = None
        self._last: deque[Descriptor] = deque(maxlen=KEPT)
        self._known: NDArray[np.float64] = np.empty((0, 0))  # the first and the last, one per row
        self._usual: deque[float] = deque(maxlen=KEPT)  # likeness of confirmed frames to those before them

    def add(self, descriptor: Descriptor) -> None:
        """Add the descriptor of a confirmed frame."""
        if len(self._last) >= LEAST:
            self._usual.append(self._likeness(descriptor))
        if self._first is None:
            self._first = descriptor
        self._last.append(descriptor)
        self._known = np.array([self._first, *self._last])

    def change(self, descriptor: Descriptor | None) -> float:
        """How much less similar to the target a descriptor is than those of the target usually are, 0..1; 0
        while too few are known."""
        if descriptor is None or len(self._usual) < LEAST:
            return 0.0
        return max(0.0, median(self._usual) - self._likeness(descriptor))

    def _likeness(self, descriptor: Descriptor) -> float:
        return float(np.sort(self._known @ descriptor)[-NEAREST:].mean())


class TargetModel:
    """The usual scores of the target, in addition to the network's present ones."""

    def __init__(self) -> None:
        self.appearance = Appearance()
        self.usual_quality = -math.inf
        """Predicted IoU; -inf where the network has not seen the target yet."""
        self.usual_area: float | None = None
        """Image px^2."""
        self.least_llr = 0.0
        """The log-likelihood ratio that a candidate must exceed to be accepted as the returning target."""
        self._areas: deque[float] = deque(maxlen=REMEMBERED_FRAMES)  # of remembered frames, image px^2
        self._qualities: deque[float] = deque(maxlen=USUAL_FRAMES)
        self._confirmed_areas: deque[float] = deque(maxlen=USUAL_FRAMES)
        self._confirmed_llrs: deque[float] = deque(maxlen=USUAL_FRAMES)

    def add(self, area: float, quality: float, llr: float, remembered: bool) -> None:
        """Add a confirmed frame: area px^2, predicted IoU and log-likelihood ratio."""
        self._confirmed_llrs.append(llr)
        self._qualities.append(quality)
        self._confirmed_areas.append(area)
        if remembered:
            self._areas.append(area)
        self.usual_quality, self.usual_area = median(self._qualities), median(self._confirmed_areas)
        self.least_llr = max(0.0, median(self._confirmed_llrs) - RETURN_MARGIN)

    def resize(self, area_factor: float) -> None:
        """The images' area changed by this factor."""
        for areas in (self._areas, self._confirmed_areas):
            known = [area_factor * area for area in areas]
            areas.clear()
            areas.extend(known)
        self.usual_area = median(self._confirmed_areas) if self._confirmed_areas else None

    def llr(
        self, area: float | None, quality: float, presence_logit: float, descriptor: Descriptor | None
    ) -> float:
        """Log-likelihood ratio that a candidate is the target rather than something else.

        ``area``: px^2, None: not weighed; ``quality``: predicted IoU; ``descriptor``: of its colours, None:
        unknown.
        """
        usual = self.usual_quality if self._qualities else quality
        size = 0.0
        if area is not None:
            usual_area = median(self._areas) if self._areas else area
            size = abs(math.log(max(area, 1.0) / max(usual_area, 1.0)))
        size += UNLIKELY_SIZE * max(0.0, size - math.log(MAX_AREA_RATIO))
        change = self.appearance.change(descriptor)
        # The weights were chosen on detections recorded at losses of the target (docs/tracking.md), their
        # scale so that the sum over several detections weighs against the prior as it should.
        seen = 0.33 * min(max(presence_logit, -3.0), 4.0) + 1.6 * min(quality / max(usual, 0.1), 1.2)
        return seen - 0.33 * size - 8.0 * min(change, 0.3) - 1.0
