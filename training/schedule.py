"""Training schedule: clip length and batch size by stage, learning rates, and trained layers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from efftam_ros.core.errors import InputError


@dataclass(frozen=True)
class Stage:
    """One stage of the schedule.

    ``start``: when it begins, as a share of the run's steps or time. ``frames``: per clip. ``clips``: per
    step. ``first_learning``: index of the trunk's first stage that is trained.
    """

    start: float
    frames: int
    clips: int
    first_learning: int


TRUNK = {"frozen": 7, "top": 4, "trunk": 3, "all": 0}
"""Index of the trunk's first trained stage; 0 also trains the stem.

By default EfficientNet-Lite0's stages 0 to 2, up to stride 8, stay frozen: their ImageNet features for edges
and textures suffice, and a step takes half of the time.
"""

DEFAULT_STAGES = "0:2:16:frozen,0.06:4:8:frozen,0.15:4:8:trunk,0.3:4:8:top,0.65:7:5:top"


def parse_stages(text: str) -> tuple[Stage, ...]:
    """Parse stages ``start:frames:clips:frozen|top|trunk|all``, separated by commas.

    Raises InputError that names the invalid stage.
    """
    stages = []
    for part in text.split(","):
        fields = part.strip().split(":")
        try:
            start, frames, clips = float(fields[0]), int(fields[1]), int(fields[2])
            (first_learning,) = (TRUNK[field] for field in fields[3:])
        except (IndexError, ValueError, KeyError):
            raise InputError(
                f"stage {part!r} can't be read;"
                f" write start:frames:clips:{'|'.join(TRUNK)}, as in 0.25:4:8:trunk"
            ) from None
        if not 0 <= start < 1 or frames < 1 or clips < 1:
            raise InputError(f"stage {part!r}: start must lie in [0, 1), frames and clips be at least 1")
        stages.append(Stage(start, frames, clips, first_learning))
    if stages[0].start != 0 or [s.start for s in stages] != sorted(s.start for s in stages):
        raise InputError(f"stages {text!r} must begin at 0 and follow each other in time")
    return tuple(stages)


def stage_at(stages: tuple[Stage, ...], progress: float) -> int:
    """Return the index of the stage at ``progress`` 0..1."""
    return max(i for i, stage in enumerate(stages) if progress >= stage.start)


def learning_rate(highest: float, step: int, progress: float, warm_up: int = 150) -> float:
    """Return the learning rate: linear warm-up over steps, then cosine decay to a fiftieth at the end.

    ``progress``: finished share of the run, 0..1.
    """
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return highest * min(1.0, (step + 1) / warm_up) * (0.02 + 0.98 * cosine)
