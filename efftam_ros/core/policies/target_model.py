"""What is usual of the target: predicted IoU and area of its confirmed frames."""

from __future__ import annotations

import math
from collections import deque
from statistics import median

USUAL_FRAMES = 60  # of the last confirmed frames
REMEMBERED_FRAMES = 30
UNLIKELY_SIZE = 6.0  # how much more a change of area counts beyond `MAX_AREA_RATIO`
MAX_AREA_RATIO = 3.0
# Most by which the log-likelihood ratio of a target that returns may be below the usual one of confirmed
# frames; without this limit occluders that resemble the target are accepted. On 73 cases of the disappearance
# footage's choosing half 5 wrong objects are accepted and 106 absent frames claimed without it, 3 and 56 with
# it; 52 targets are regained in both.
RETURN_MARGIN = 1.2
UNLIKE = 5.0  # weight of the deficit of likeness


class TargetModel:
    """The usual scores of the target, in addition to the network's present ones."""

    def __init__(self) -> None:
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

    def add(self, area: float, quality: float, presence_logit: float, remembered: bool) -> None:
        """Add a confirmed frame; for the values see `llr`."""
        self._confirmed_llrs.append(self.llr(area, quality, presence_logit, 0.0))
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

    def llr(self, area: float | None, quality: float, presence_logit: float, deficit: float) -> float:
        """Log-likelihood ratio that a candidate is the target rather than something else.

        ``area``: px^2, None: not weighed; ``quality``: predicted IoU; ``deficit``: by how much it is less
        like the target than usual, at least 0.
        """
        usual = self.usual_quality if self._qualities else quality
        size = 0.0
        if area is not None:
            usual_area = median(self._areas) if self._areas else area
            size = abs(math.log(max(area, 1.0) / max(usual_area, 1.0)))
        size += UNLIKELY_SIZE * max(0.0, size - math.log(MAX_AREA_RATIO))
        # The weights were chosen on detections recorded at losses of the target (docs/tracking.md), their
        # scale so that the sum over several detections weighs against the prior as it should.
        seen = 0.33 * min(max(presence_logit, -3.0), 4.0) + 1.6 * min(quality / max(usual, 0.1), 1.2)
        return seen - 0.33 * size - UNLIKE * min(deficit, 0.5) - 1.0
