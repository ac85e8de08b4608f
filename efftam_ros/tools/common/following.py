"""Processes one image for all targets, and collects the tracks and masks that the commands write."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.targets import Step, TargetSet
from efftam_ros.core.types import Frame, Prompt, Track

Answers = dict[int, tuple[Track, NDArray[np.uint8] | None]]
"""The track of each target by id, and its mask (uint8 [H, W], 0 or 255) or None. The steered target is
first."""


def follow(
    targets: TargetSet,
    frame: Frame,
    prompts: Mapping[int, Prompt] | None = None,
    masked: bool = False,
    ids: Collection[int] | None = None,
) -> tuple[Answers, float]:
    """Process a frame for the targets. Return their tracks and masks, and the time spent on the masks, s.

    ``prompts``: selections on this frame, by target id; ``masked``: whether masks are computed; ``ids``: the
    targets that are processed besides the selected ones, None: all.
    """
    answers: Answers = {}
    masks_s = 0.0

    def keep(step: Step) -> None:
        nonlocal masks_s
        reached = time.perf_counter()
        answers[step.target_id] = step.track, step.tracker.mask() if masked else None
        masks_s += time.perf_counter() - reached

    targets.step(frame, prompts or {}, ids=ids, publish=keep)
    return answers, masks_s
