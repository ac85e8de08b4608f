"""Builds prompts from the command line options --box, --point and --mask."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.targets import NEXT_FREE
from efftam_ros.core.types import Prompt
from efftam_ros.images.stills.folder import read_bgr

MIN_SIDE_PX = 4.0
"""Least width and height of a box, px. The page has the same limit, because smaller boxes are drawn by
mistake."""


def add_prompt_arguments(parser: argparse.ArgumentParser, *, mask: bool = True) -> None:
    """Add --box and --point, both repeatable, and --mask if ``mask`` is True. `read_prompts` reads the
    values."""
    group = parser.add_argument_group("target (box, points, or both" + ("; or a mask)" if mask else ")"))
    add_target_arguments(group, "the video" if mask else None, several=True)


def add_target_arguments(
    group: argparse._ActionsContainer, masked: str | None, several: bool = False
) -> None:
    """Add --box and --point, and --mask if ``masked`` is not None.

    ``masked``: name of the image whose size a mask must have, for the help; ``several``: whether several
    targets can be selected, with their ids before a colon.
    """
    box, point = "box around the target: left, top, width, height, px", "a point on the target, px"
    if several:
        more = "; each further --box is another target, with the next id unless an id is given"
        group.add_argument("--box", action="append", default=[], metavar="[ID:]X,Y,W,H", help=box + more)
    else:
        group.add_argument("--box", metavar="X,Y,W,H", help=box)
    group.add_argument(
        "--point",
        action="append",
        default=[],
        metavar="[ID:]X,Y[,0]" if several else "X,Y[,0]",
        help=f"{point}{' (0 without an id)' if several else ''}; with ,0 off the target; repeatable",
    )
    if masked:
        group.add_argument(
            "--mask",
            type=Path,
            metavar="FILE",
            help=f"image of {masked}'s size, brighter than 127 on the target",
        )


def read_prompts(
    boxes: list[str], points: list[str], mask: Path | None, width: int, height: int
) -> dict[int, Prompt]:
    """Return the prompt of each target by id, for an image of ``width`` x ``height`` px.

    ``boxes``, ``points``, ``mask``: values of the options. The result is empty if none was given. Raises
    InputError for the same reasons as `read_prompt` and `by_target`.
    """
    given = by_target(boxes, points)
    if mask is not None:
        given.setdefault(0, ([], []))
    return {
        target_id: read_prompt(box[0] if box else None, on, mask, width, height)
        for target_id, (box, on) in given.items()
    }


def by_target(boxes: list[str], points: list[str]) -> dict[int, tuple[list[str], list[str]]]:
    """Sort the values of --box and --point by target id: for each id a list of at most one box, and the
    points.

    Raises InputError for an invalid id, and for two boxes of one target.
    """
    given: dict[int, tuple[list[str], list[str]]] = {}
    for text in boxes:
        target_id, numbers_of = _with_id("--box", text, len(given))
        if given.setdefault(target_id, ([], []))[0]:
            raise InputError(f"--box {text} is a second box of target {target_id}; give it another id")
        given[target_id][0].append(numbers_of)
    for text in points:
        target_id, numbers_of = _with_id("--point", text, 0)
        given.setdefault(target_id, ([], []))[1].append(numbers_of)
    return given


def _with_id(option: str, text: str, without: int) -> tuple[int, str]:
    """Split the value of an option into the target id before the colon and the numbers behind it.

    ``without``: the id if there is no colon. Raises InputError for an invalid id.
    """
    before, colon, after = text.rpartition(":")
    if not colon:
        return without, text
    if not (before.isdecimal() and int(before) < NEXT_FREE):
        raise InputError(f"{option} {text}: the id before the colon must be 0 to {NEXT_FREE - 1}")
    return int(before), after


def read_prompt(box: str | None, points: list[str], mask: Path | None, width: int, height: int) -> Prompt:
    """Return the prompt of one target, for an image of ``width`` x ``height`` px.

    ``box``, ``points``, ``mask``: values of the options. Raises InputError for an unreadable mask, and for
    the same reasons as `read_box`, `read_points` and `Prompt.checked`.
    """
    marked, labels = read_points(points)
    prompt = Prompt(
        box=None if box is None else read_box(box),
        points=tuple(marked),
        labels=tuple(labels),
        mask=None if mask is None else read_bgr(mask).max(axis=2) > 127,
    )
    return prompt.checked(width, height, is_typed=True)


def read_box(text: str) -> Box:
    """Parse the value X,Y,W,H of --box, px. Raises InputError: not four numbers, or a side is too short."""
    box = Box(*numbers("--box", text, "X,Y,W,H", (4,)))
    if 0 < min(box.width, box.height) < MIN_SIDE_PX:
        raise InputError(
            f"--box {text} is {box.width:g} x {box.height:g} px; draw it around the whole target, at least"
            f" {MIN_SIDE_PX:g} x {MIN_SIDE_PX:g} px, or give a --point on the target"
        )
    return box


def read_points(texts: list[str]) -> tuple[list[tuple[float, float]], list[int]]:
    """Parse the values X,Y or X,Y,LABEL of --point, and return the points, px, and the labels.

    A label is 1 for a point on the target (the default) and 0 for a point off the target. Raises InputError:
    not two or three numbers, or another label.
    """
    parsed = [numbers("--point", text, "X,Y or X,Y,0", (2, 3)) for text in texts]
    for text, values in zip(texts, parsed, strict=True):
        if values[2:] not in ([], [0.0], [1.0]):
            raise InputError(f"--point {text}: the third number must be 1 (on the target) or 0 (off it)")
    return [(x, y) for x, y, *_ in parsed], [int((*label, 1)[0]) for _, _, *label in parsed]


def numbers(option: str, text: str, shape: str, counts: tuple[int, ...]) -> list[float]:
    """Parse finite numbers that are separated by commas.

    ``option``: the option, for the error text; ``shape``: the expected form, such as "X,Y"; ``counts``: the
    allowed counts of numbers. Raises InputError.
    """
    try:
        values = [float(number) for number in text.split(",")]
    except ValueError:
        values = []
    if len(values) not in counts or not all(math.isfinite(v) for v in values):
        raise InputError(f"{option} {text!r} is not {shape} (finite numbers, px)")
    return values
