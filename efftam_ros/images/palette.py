"""Colour and line style of each state, shared by the overlay and the operator page.

Colours are those of Okabe and Ito ("Color Universal Design", 2008), distinguishable with protanopia and
deuteranopia. No state relies on colour alone: each has its own line style, and lines have a dark edge for
bright images.
"""

from __future__ import annotations

from dataclasses import dataclass

from efftam_ros.core.types import TrackState

Rgb = tuple[int, int, int]


@dataclass(frozen=True)
class StateStyle:
    """How a state is drawn.

    Attributes:
        rgb: Colour, 0..255.
        line: ``solid``, ``corners``, ``dashed``, ``dotted`` or ``none``.
        frame: True if the border of the whole image is drawn as well.
    """

    rgb: Rgb
    line: str
    frame: bool = False

    @property
    def hex(self) -> str:
        """``#rrggbb``, as in CSS."""
        return "#{:02x}{:02x}{:02x}".format(*self.rgb)


STATE_STYLES: dict[TrackState, StateStyle] = {
    TrackState.IDLE: StateStyle((187, 187, 187), "none"),
    TrackState.ACQUIRING: StateStyle((0x56, 0xB4, 0xE9), "corners"),
    TrackState.TRACKING: StateStyle((0x00, 0x9E, 0x73), "solid"),
    TrackState.COASTING: StateStyle((0xF0, 0xE4, 0x42), "dashed"),
    TrackState.LOST: StateStyle((0xD5, 0x5E, 0x00), "dotted", frame=True),
}
TARGET_RGB: tuple[Rgb, ...] = (
    (0x56, 0xB4, 0xE9),
    (0xE6, 0x9F, 0x00),
    (0x00, 0x9E, 0x73),
    (0xCC, 0x79, 0xA7),
    (0xF0, 0xE4, 0x42),
    (0x00, 0x72, 0xB2),
    (0xD5, 0x5E, 0x00),
    (187, 187, 187),
)
"""Colours of several targets, by id; then the line style shows their state."""
EDGE_RGB: Rgb = (20, 20, 20)
