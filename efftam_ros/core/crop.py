"""Chooses the image region given to the network: the whole image, or a square window around the target.

Sizing the window from each frame's box is unstable: a mask of only the salient part shrinks the window, which
then shows even less of the target. The size is therefore smoothed, grows faster than it shrinks, and is
bounded relative to the first box.
"""

from __future__ import annotations

import math

from efftam_ros.core.geometry import Box, View

OPENED = 1.4  # side, in window sides, of a window at a position that is less certain


def window_inside(image_size: tuple[int, int], x: float, y: float, extent: float, side: int) -> View:
    """Return `View.window`, shifted so that as little of it as possible lies outside the image."""
    width, height = image_size
    x = min(max(x, min(extent, width) / 2), width - min(extent, width) / 2)
    y = min(max(y, min(extent, height) / 2), height - min(extent, height) / 2)
    return View(x - extent / 2, y - extent / 2, side / extent, side / extent, side)


class WholeImage:
    """Always shows the whole image."""

    def __init__(self, side: int) -> None:
        """``side``: of the network's input, network px."""
        self._side = side

    def starts(self, image_size: tuple[int, int], box: Box | None, marked: Box) -> list[View]:
        """Return the views of a prompted frame to be tried, narrow ones first. ``box``: drawn, px, None for
        points; ``marked``: around all that the prompt marks, which each view contains."""
        return [View.full(*image_size, self._side)]

    def settle(self, box: Box) -> None:
        """Initialise the size from the prompted frame's measured box."""

    def view(self, image_size: tuple[int, int], predicted: Box, coasted_s: float) -> View:
        """Return the view of a tracked frame, unless the target is lost.

        Args:
            image_size: Width and height, px.
            predicted: Predicted box.
            coasted_s: Time from the last measured box to the previous frame, s.
        """
        return View.full(*image_size, self._side)

    def extent(self, image_size: tuple[int, int]) -> float | None:
        """Side of the window that follows the target, px; None where the whole image is shown."""
        return None

    def update(self, box: Box, dt_s: float) -> None:
        """Update the size by a measured box, not empty, ``dt_s`` seconds after the previous one."""

    def resize(self, factor: float) -> None:
        """Scale the size: the images' size changed by ``factor``."""


class FollowingCrop(WholeImage):
    """A square window of ``factor`` target sizes around the predicted centre, wider while coasting.

    The longer the target is missed, the farther from the prediction it may reappear; but the network sees
    nothing outside its window, and in a much wider window the target is too small: a lost target is searched
    for in several (`search`).
    """

    GROW_PER_S = 1.5  # largest rate of the size's logarithm, 1/s
    SHRINK_PER_S = 0.1
    SMOOTH_S = 0.3  # time constant of the measured size
    # Exponent applied to a change of size: below 1, so that a mask that grows beyond the target is not
    # amplified.
    FOLLOW = 0.5
    LARGE_FACTOR = 2.2  # window side in sizes of a target for which ``factor`` would exceed the short side
    LOWEST, HIGHEST = 0.8, 8.0  # bounds of the size, in first sizes
    OPEN_AFTER_S = 0.3  # time of coasting after which the window is `OPENED`
    WIDEST = 1.5  # largest extent of any window, in longer sides of the image
    POINT_SHARES = (0.2, 0.4, 0.8)  # windows around points, shares of the image's shorter side
    MARKED = 1.2  # least side of a prompted frame's window, in longer sides of what the prompt marks

    def __init__(self, side: int, factor: float) -> None:
        super().__init__(side)
        self._factor = factor
        self._first = self._size = 1.0
        self._longest = 1.0

    def extent(self, image_size: tuple[int, int]) -> float | None:
        return self._extent(image_size)

    def _extent(self, image_size: tuple[int, int]) -> float:
        # A window wider than the image's short side shows little more and makes the target smaller, so it is
        # only as wide as a large target needs and never wider than the image. A long thin target must fit
        # with a margin.
        most = max(min(image_size), min(self.LARGE_FACTOR * self._size, max(image_size)))
        wanted = max(min(self._factor * self._size, most), 1.5 * self._longest)
        return min(wanted, self.WIDEST * max(image_size))

    def starts(self, image_size: tuple[int, int], box: Box | None, marked: Box) -> list[View]:
        if box is not None:
            self.settle(box)
            extents = [self._extent(image_size)]
        else:
            # The size of what a point marks is unknown.
            extents = [*(share * min(image_size) for share in self.POINT_SHARES), float(max(image_size))]
        least = min(self.MARKED * max(marked.width, marked.height), self.WIDEST * max(image_size))
        return [
            window_inside(image_size, marked.cx, marked.cy, extent, self._side)
            for extent in sorted({max(extent, least) for extent in extents})
        ]

    def settle(self, box: Box) -> None:
        self._first = self._size = max(box.size, 1.0)
        self._longest = max(box.width, box.height)

    def view(self, image_size: tuple[int, int], predicted: Box, coasted_s: float) -> View:
        width, height = image_size
        x, y = predicted.x + predicted.width / 2, predicted.y + predicted.height / 2
        x, y = min(max(x, 0.0), width), min(max(y, 0.0), height)
        wider = OPENED if coasted_s >= self.OPEN_AFTER_S else 1.0
        return window_inside(image_size, x, y, self._extent(image_size) * wider, self._side)

    def update(self, box: Box, dt_s: float) -> None:
        size = math.sqrt(box.width * box.height)
        wanted = self._first * (max(size, 1.0) / self._first) ** self.FOLLOW
        wanted = min(max(wanted, self.LOWEST * self._first), self.HIGHEST * self._first)
        share = 1 - math.exp(-dt_s / self.SMOOTH_S)
        self._longest += (max(box.width, box.height) - self._longest) * share
        step = math.log(wanted / self._size) * share
        step = min(max(step, -self.SHRINK_PER_S * dt_s), self.GROW_PER_S * dt_s)
        self._size *= math.exp(step)

    def resize(self, factor: float) -> None:
        self._first, self._size, self._longest = (
            factor * v for v in (self._first, self._size, self._longest)
        )


class AutomaticCrop(FollowingCrop):
    """The whole image for a target that is large enough in it, else the window.

    The selection decides; later the view changes only for a target that has become clearly smaller or larger.
    """

    MIN_PX = 48.0  # size in the full view from which it is shown, network px: 3 cells of the features
    CHANGE = 1.5  # factor beyond it, either way, by which the view changes later

    _is_full = False

    def _shown_px(self, image_size: tuple[int, int], box: Box) -> float:
        """Size of a box in the full view, network px."""
        return box.size * self._side / math.sqrt(image_size[0] * image_size[1])

    def starts(self, image_size: tuple[int, int], box: Box | None, marked: Box) -> list[View]:
        self._is_full = box is not None and self._shown_px(image_size, box) >= self.MIN_PX
        views = super().starts(image_size, box, marked)
        return [View.full(*image_size, self._side)] if self._is_full else views

    def extent(self, image_size: tuple[int, int]) -> float | None:
        return None if self._is_full else super().extent(image_size)

    def view(self, image_size: tuple[int, int], predicted: Box, coasted_s: float) -> View:
        least = self.MIN_PX / self.CHANGE if self._is_full else self.MIN_PX * self.CHANGE
        if coasted_s == 0:
            self._is_full = self._shown_px(image_size, predicted) >= least
        if self._is_full:
            return View.full(*image_size, self._side)
        return super().view(image_size, predicted, coasted_s)


def make_crop_policy(kind: str, side: int, factor: float) -> WholeImage:
    """Create the crop policy of ``kind`` "auto", "full" or "window"."""
    if kind == "full":
        return WholeImage(side)
    return AutomaticCrop(side, factor) if kind == "auto" else FollowingCrop(side, factor)
