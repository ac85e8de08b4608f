"""Colour and line style of each state, for the overlay and the operator page.

The colours are those of Okabe and Ito ("Color Universal Design", 2008). People with protanopia and
deuteranopia can distinguish them. Each state also has its own line style, and lines have a dark edge, which
makes them visible in bright images.
"""

from __future__ import annotations

from dataclasses import dataclass

from efftam_ros.core.types import TrackState

Rgb = tuple[int, int, int]


@dataclass(frozen=True)
class StateStyle:
    """How the box of a target in one state is drawn.

    Attributes:
        rgb: Red, green and blue, 0..255.
        line: Line style of the box: ``solid``, ``corners``, ``dashed``, ``dotted`` or ``none``.
        frame: Whether the border of the whole image is drawn as well.
    """

    rgb: Rgb
    line: str
    frame: bool = False

    @property
    def hex(self) -> str:
        """The colour as in CSS, ``#rrggbb``."""
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
"""Colours of several targets in one image, by target id. The state is then shown by the line style alone."""
EDGE_RGB: Rgb = (20, 20, 20)
