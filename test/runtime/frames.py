"""Frames of the golden clip as a tracker asks for them: windows round the target, prompts, answers."""

from __future__ import annotations

import numpy as np
from golden.clip import BOX_EDGES, CENTRES, clip

from efftam_ros.core.contract import Look, Pipeline
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, Prompt
from efftam_ros.runtime.bundle import default_bundle

SIDE = default_bundle().spec.image_side
BOX = Box.from_edges(*BOX_EDGES)
DRAWN = np.zeros(clip()[0][0].shape[:2], bool)
LEFT, TOP, RIGHT, BOTTOM = map(round, BOX_EDGES)
DRAWN[TOP:BOTTOM, LEFT:RIGHT] = True
PROMPTS = {
    "box": Prompt(box=BOX),
    "click": Prompt(points=(CENTRES[0],), labels=(1,)),
    "box and clicks": Prompt(box=BOX, points=(CENTRES[0], (85.0, 110.0)), labels=(1, 0)),
    "mask": Prompt(mask=DRAWN),
}
"""Of the target in image 0."""


def clip_image(index: int) -> Image:
    return Image.from_array(clip()[0][index], "rgb8")


def window(index: int, side: int = SIDE, shift: float = 0.0) -> View:
    """Round the target in an image."""
    return View.window(180 + 14 * index + shift, 200 + 6 * index, 420, side)


def looked(
    pipeline: Pipeline,
    image: Image,
    view: View,
    plan: MemoryPlan = MemoryPlan(),  # noqa: B008
    prompt: Prompt | None = None,
    target: int = 0,
) -> Candidates:
    """The candidates of one look at one view."""
    look = Look(target, (view,), plan, prompt)
    (found,) = pipeline.look(image, [look]).candidates(target)
    return found


def same(one: Candidates, other: Candidates) -> bool:
    return (
        np.array_equal(one.boxes, other.boxes, equal_nan=True)
        and np.array_equal(one.ious, other.ious)
        and np.array_equal(one.areas, other.areas)
        and one.presence_logit == other.presence_logit
    )
