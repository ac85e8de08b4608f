"""Builds prompts from command line options: box, points or mask."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Prompt
from efftam_ros.interop.video import read_bgr


def add_prompt_arguments(parser: argparse.ArgumentParser, *, mask: bool = True) -> None:
    """Add --box, --point (repeatable) and, with ``mask``, --mask."""
    group = parser.add_argument_group("target (box, points, or both" + ("; or a mask)" if mask else ")"))
    add_target_arguments(group, "the video" if mask else None)


def add_target_arguments(group: argparse._ActionsContainer, masked: str | None) -> None:
    """Add --box, --point and, for masks of the size of what ``masked`` names, --mask."""
    group.add_argument("--box", metavar="X,Y,W,H", help="box around the target: left, top, width, height, px")
    group.add_argument(
        "--point",
        action="append",
        default=[],
        metavar="X,Y[,0]",
        help="a point on the target, px; with ,0 off the target; repeatable",
    )
    if masked:
        group.add_argument(
            "--mask",
            type=Path,
            metavar="FILE",
            help=f"image of {masked}'s size, brighter than 127 on the target",
        )


def read_prompt(
    box: str | None, points: list[str], mask: Path | None, width: int, height: int
) -> Prompt | None:
    """Build the Prompt for an image of ``width`` x ``height`` px; None if no option was given.

    Raises InputError: not numbers, no area, outside the image, a mask of another size or combined with a box
    or point.
    """
    if box is None and not points and mask is None:
        return None
    if mask is not None:
        if box is not None or points:
            raise InputError("--mask can't be combined with --box or --point; leave them out")
        image = read_bgr(mask)
        if image.shape[:2] != (height, width):
            raise InputError(
                f"{mask} is {image.shape[1]}x{image.shape[0]}, the video {width}x{height};"
                " use a mask of the video's size"
            )
        on = image.max(axis=2) > 127
        if not on.any():
            raise InputError(f"{mask} has no pixel on the target; it must be brighter than 127 of 255")
        return Prompt(mask=on)
    parsed = [numbers("--point", text, "X,Y or X,Y,0", (2, 3)) for text in points]
    for text, values in zip(points, parsed, strict=True):
        if len(values) == 3 and values[2] not in (0.0, 1.0):
            raise InputError(f"--point {text}: the third number must be 1 (on the target) or 0 (off it)")
        if not (0 <= values[0] <= width and 0 <= values[1] <= height):
            raise InputError(f"--point {text} is outside the image of {width}x{height}")
    labels = tuple(int(values[2]) if len(values) == 3 else 1 for values in parsed)
    if box is None and 1 not in labels:
        raise InputError("every --point is off the target; give one on it or a --box")
    return Prompt(
        box=None if box is None else read_box(box, width, height),
        points=tuple((values[0], values[1]) for values in parsed),
        labels=labels,
    )


def read_box(text: str, width: int, height: int) -> Box:
    """Parse a box from ``X,Y,W,H``. Raises InputError: not four numbers, no area, outside the image."""
    box = Box(*numbers("--box", text, "X,Y,W,H", (4,)))
    if box.is_empty:
        raise InputError(f"--box {text} has no area; width and height must be positive")
    if box.clipped(width, height).is_empty:
        raise InputError(f"--box {text} is outside the image of {width}x{height}")
    return box


def numbers(option: str, text: str, shape: str, counts: tuple[int, ...]) -> list[float]:
    """Parse comma-separated numbers. Raises InputError naming the option and the expected ``shape``."""
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        values = []
    if len(values) not in counts or not all(math.isfinite(v) for v in values):
        raise InputError(f"{option} {text!r} is not {shape} (finite numbers, px)")
    return values
