"""Held-out synthetic drone scenes in which the target disappears and returns, with exact truth.

A photograph is the ground, seen by a camera that moves, turns, zooms and shakes; the target and the others
are cut-outs. The target is hidden once or twice, for 0.3 to 3 s: behind a piece of another photograph that
lies on the ground, by the image's border, or by something that passes in front. It returns within two box
sizes of where its last visible half second would have it at constant velocity. In half of the scenes one of
the others is a look-alike: the same cut-out, on a way of its own.

Deterministic for a seed. Truth is computed from outlines, not from pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from training.scene_draft import Draft, UnusableSceneError
from training.scene_film import Scene, SceneFrame
from training.scene_textures import is_solid
from training.scene_truth import Disappearance, Truth, off_prediction, predicted_centre

if TYPE_CHECKING:
    from training.material import Backdrop, Sprite

__all__ = [
    "Disappearance",
    "Scene",
    "SceneFrame",
    "Truth",
    "off_prediction",
    "predicted_centre",
    "render_scene",
]

ATTEMPTS = 400


def render_scene(
    sprites: Sequence[Sprite],
    backdrops: Sequence[Backdrop],
    seed: int,
    size: tuple[int, int] = (640, 480),
    fps: float = 30.0,
) -> Scene:
    """The scene of a seed: 6 to 10 s of ``size`` (width, height) px at ``fps``. The same arguments give the
    same pixels. Raises ValueError when the image is too small for its targets or there is too little
    material, and RuntimeError when no attempt fulfils the constraints stated above."""
    if min(size) < 240:
        raise ValueError(
            f"scenes of {size[0]}x{size[1]} px; targets of up to 80 px need at least 240 px a side"
        )
    if len(backdrops) < 2 or not any(map(is_solid, sprites)):
        raise ValueError(
            f"{len(backdrops)} backdrops, {len(sprites)} cut-outs; needs two and a solid cut-out"
        )
    for attempt in range(ATTEMPTS):
        # The target's size and speed and its absences are drawn once, the rest anew in each attempt and with
        # a calmer camera: long absences would be drawn away if everything were drawn until it fits.
        draft = Draft(sprites, backdrops, [seed, 0], [seed, 2, attempt], 0.95**attempt, size, fps)
        try:
            return draft.scene(seed)
        except UnusableSceneError as broken:
            reason = str(broken)
    raise RuntimeError(
        f"seed {seed}: no scene in {ATTEMPTS} attempts, the last one: {reason}; report the seed"
    )
