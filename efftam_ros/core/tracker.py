"""Tracker: one frame in, one Track out; the state machine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Pipeline
from efftam_ros.core.types import Frame, Motion, Prompt, Track, TrackState


class Tracker:
    """Follows one target. Not thread-safe: one thread calls it."""

    def __init__(self, pipeline: Pipeline, config: TrackerConfig | None = None) -> None: ...

    @property
    def state(self) -> TrackState: ...

    def step(self, frame: Frame, prompt: Prompt | None = None) -> Track:
        """Process one image. With a prompt the image becomes the prompted frame and everything before is forgotten;
        raises InputRefused when the prompt can't be used (then nothing changed). Without a prompt it never raises on a
        bad frame: the Track says why it was not used."""
        ...

    def clear(self) -> None:
        """Forget the target: IDLE."""
        ...

    def mask(self) -> NDArray[np.uint8] | None:
        """The last frame's target mask, uint8 [H, W] 0 or 255; None when the last Track had no measured box."""
        ...

    def predict(self, stamp_ns: int) -> Motion | None:
        """The motion filter's belief at a later stamp; None when there is none. Changes nothing."""
        ...
