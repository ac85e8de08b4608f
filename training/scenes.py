"""Held-out synthetic drone scenes in which the target disappears and returns, with exact ground truth.

The ground is a photograph, seen by a camera that moves, turns, zooms and shakes; the target and other objects
are cut-outs. The target is hidden once or twice, for 0.3 to 3 s: behind a piece of another photograph on the
ground, by the image's border, or by an object that passes in front. It returns within two box sizes of the
constant-velocity prediction from its last visible half second. In half of the scenes one of the other objects
is a look-alike: the same cut-out, on a separate path.

Deterministic for a seed. Ground truth is computed from outlines, not from pixels.
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
    """Generate the scene of a seed: 6 to 10 s of ``size`` (width, height) px at ``fps``.

    The same arguments give the same pixels. Raises ValueError when the image is too small for its targets or
    there are too few cut-outs, and RuntimeError when no attempt fulfils the constraints stated above.
    """
    if min(size) < 240:
        raise ValueError(
            f"scenes of {size[0]}x{size[1]} px; targets of up to 80 px need at least 240 px a side"
        )
    if len(backdrops) < 2 or not any(map(is_solid, sprites)):
        raise ValueError(
            f"{len(backdrops)} backdrops, {len(sprites)} cut-outs; needs two and a solid cut-out"
        )
    for attempt in range(ATTEMPTS):
        # Size, speed and absences of the target are drawn once, the rest anew in each attempt and with a
        # calmer camera: if everything were redrawn until it fits, long absences would be under-represented.
        draft = Draft(sprites, backdrops, [seed, 0], [seed, 2, attempt], 0.95**attempt, size, fps)
        try:
            return draft.scene(seed)
        except UnusableSceneError as broken:
            reason = str(broken)
    raise RuntimeError(
        f"seed {seed}: no scene in {ATTEMPTS} attempts, the last one: {reason}; report the seed"
    )
