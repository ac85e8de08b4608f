"""The colour, line and word of each state: one palette for the overlay, the page and the annotations.

Colours are Okabe and Ito's ("Color Universal Design", 2008), told apart with protanopia and deuteranopia.
No state rests on colour alone: each has a line of its own, and every line is drawn with a dark edge for
bright footage.
"""

from __future__ import annotations

from dataclasses import dataclass

from efftam_ros.core.types import TrackState

Rgb = tuple[int, int, int]


@dataclass(frozen=True)
class StateStyle:
    """How a state is drawn. ``rgb`` 0..255; ``line`` is ``solid``, ``corners``, ``dashed``, ``dotted`` or
    ``none``; ``frame`` True where the border of the whole image is drawn as well."""

    rgb: Rgb
    line: str
    frame: bool = False

    @property
    def hex(self) -> str:
        """``#rrggbb``, as CSS has it."""
        return "#{:02x}{:02x}{:02x}".format(*self.rgb)


STATE_STYLES: dict[TrackState, StateStyle] = {
    TrackState.IDLE: StateStyle((187, 187, 187), "none"),
    TrackState.ACQUIRING: StateStyle((0x56, 0xB4, 0xE9), "corners"),
    TrackState.TRACKING: StateStyle((0x00, 0x9E, 0x73), "solid"),
    TrackState.COASTING: StateStyle((0xF0, 0xE4, 0x42), "dashed"),
    TrackState.LOST: StateStyle((0xD5, 0x5E, 0x00), "dotted", frame=True),
}
EDGE_RGB: Rgb = (20, 20, 20)
