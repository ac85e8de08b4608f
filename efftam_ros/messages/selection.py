"""What a TargetSelection asks for, as a prompt, and what a SelectionResult can say of it."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from efftam_ros.core.errors import InputError, shown
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Prompt
from efftam_ros.images.limits import MOST_PIXELS
from efftam_ros.images.message import image_from_message

MOST_NORMALIZED = 1.5
"""Largest side of a normalised box; above 1 so that a target may extend beyond the image."""


class Kind(IntEnum):
    """TargetSelection.kind."""

    BOX = 0
    POINTS = 1
    MASK = 2
    CLEAR = 3


class Outcome(IntEnum):
    """SelectionResult.outcome: what became of a command."""

    ACCEPTED = 0
    REFUSED = 1
    CLEARED = 2


class Units(IntEnum):
    """TargetSelection.units."""

    PIXELS = 0
    NORMALIZED = 1


def check_selection(msg: Any) -> Kind:
    """Return the kind of a TargetSelection. Raises InputError for an unknown kind or units."""
    for name, value, known in (("kind", msg.kind, Kind), ("units", msg.units, Units)):
        if value not in set(known):
            choices = ", ".join(f"{k.value} {k.name}" for k in known)
            raise InputError(f"selection {name} is {value}; use {choices}")
    return Kind(msg.kind)


def selection_prompt(msg: Any, width: int, height: int, most_pixels: int = MOST_PIXELS) -> Prompt:
    """Convert a TargetSelection of kind BOX, POINTS or MASK to a prompt for an image of this size, px.

    Raises:
        InputError: Values that are not finite, no area, outside the image, pixels where normalised
            coordinates are declared, different numbers of labels and points, too many points, or a mask that
            is empty, of another size or of too many pixels.
    """
    kind = check_selection(msg)
    sx, sy = (float(width), float(height)) if msg.units == Units.NORMALIZED else (1.0, 1.0)
    if kind is Kind.BOX:
        if msg.units == Units.NORMALIZED and max(msg.width, msg.height) > MOST_NORMALIZED:
            raise InputError(
                f"selection box is {msg.width:g} x {msg.height:g} in shares of the image; at most"
                f" {MOST_NORMALIZED:g} is taken: for pixels set units to PIXELS"
            )
        prompt = Prompt(box=Box(msg.x * sx, msg.y * sy, msg.width * sx, msg.height * sy))
    elif kind is Kind.POINTS:
        labels = tuple(int(label) for label in msg.labels)
        prompt = Prompt(points=tuple((p.x * sx, p.y * sy) for p in msg.points), labels=labels)
    elif kind is Kind.MASK:
        if msg.mask.encoding not in ("mono8", "8UC1"):
            raise InputError(f"selection mask has encoding {shown(msg.mask.encoding)}; give mono8")
        try:
            mask = image_from_message(msg.mask, most_pixels)
        except InputError as refusal:
            raise InputError(f"selection mask: {refusal}") from None
        prompt = Prompt(mask=mask.rows > 127)
    else:
        raise InputError("selection kind is CLEAR; it marks nothing")
    prompt.checked(width, height, is_typed=True)  # now, while the sender waits for the response
    # Numbers of 0 to 1 sent as pixels select a corner of the image.
    if prompt.box is not None and min(prompt.box.width, prompt.box.height) < 1.0:
        raise InputError(
            f"selection box is {prompt.box.width:g} x {prompt.box.height:g} px, less than a pixel;"
            " for numbers between 0 and 1 set units to NORMALIZED"
        )
    return prompt
