"""Chooses the image region given to the network: the whole image, or a square window around the target.

Sizing the window from each frame's box is unstable: a mask of only the salient part shrinks the window, which
then shows even less of the target. The size is therefore smoothed, grows faster than it shrinks, and is
bounded relative to the first box.
"""

from __future__ import annotations

import math

from efftam_ros.core.geometry import Box, View

OPENED = 1.4  # factor on the side of a window whose position is uncertain


def window_inside(image_size: tuple[int, int], x: float, y: float, extent: float, side: int) -> View:
    """Return a square window around (x, y), shifted so that as little of it as possible lies outside the
    image.

    ``image_size``: width and height, px; ``extent``: side of the window, image px; ``side``: side of the
    network's input, network px.
    """
    width, height = image_size
    x = min(max(x, min(extent, width) / 2), width - min(extent, width) / 2)
    y = min(max(y, min(extent, height) / 2), height - min(extent, height) / 2)
    return View(x - extent / 2, y - extent / 2, side / extent, side / extent, side)


class WholeImage:
    """The simplest crop policy, and the interface of all: each view shows the whole image."""

    def __init__(self, side: int) -> None:
        """``side``: side of the network's input, network px."""
        self._side = side

    def starts(self, image_size: tuple[int, int], box: Box | None, marked: Box) -> list[View]:
        """Return the views to be tried on a prompted frame, narrow ones first. Each contains all that the
        prompt marks.

        ``image_size``: width and height, px; ``box``: the drawn box, px, None where points were given;
        ``marked``: the box around all that the prompt marks, px.
        """
        return [View.full(*image_size, self._side)]

    def settle(self, box: Box) -> None:
        """Initialise the target's size from its box on the prompted frame, px."""

    def view(self, image_size: tuple[int, int], predicted: Box, coasted_s: float) -> View:
        """Return the view of a tracked frame. Views of a search come from `policies.search` instead.

        Args:
            image_size: Width and height, px.
            predicted: The target's predicted box, px.
            coasted_s: Time from the last measured box to the previous frame, s; 0 while the target is
                followed.
        """
        return View.full(*image_size, self._side)

    def extent(self, image_size: tuple[int, int]) -> float | None:
        """Return the side of the window that follows the target, px; None where the whole image is shown."""
        return None

    def update(self, box: Box, dt_s: float) -> None:
        """Update the target's size by a measured box, px, that is not empty. ``dt_s``: time since the
        previous image, s."""

    def resize(self, factor: float) -> None:
        """Scale the target's size, because the images have become ``factor`` times as large."""


class FollowingCrop(WholeImage):
    """A square window of ``factor`` target sizes around the predicted centre, wider while coasting.

    The longer the target is missed, the farther from the prediction it may reappear. The network sees nothing
    outside its window, and in a much wider window the target would be too small. A lost target is therefore
    searched for in several windows (`policies.search`).
    """

    GROW_PER_S = 1.5  # fastest growth of the smoothed size: rate of its logarithm, 1/s
    SHRINK_PER_S = 0.1  # fastest shrinking of the smoothed size: rate of its logarithm, 1/s
    SMOOTH_S = 0.3  # time constant, s, by which the size follows the measured size
    # Exponent applied to a change of size. It is below 1, so that a mask that grows beyond the target does
    # not make the window, and thereby the mask, grow further.
    FOLLOW = 0.5
    # Side of the window around a large target, in target sizes. A target is large if ``factor`` target sizes
    # exceed the image's shorter side.
    LARGE_FACTOR = 2.2
    LOWEST, HIGHEST = 0.8, 8.0  # bounds of the smoothed size, as factors on the size at the selection
    OPEN_AFTER_S = 0.3  # time, s, after which the window of a coasting target is made wider, by `OPENED`
    WIDEST = 1.5  # largest side of any window, as a factor on the image's longer side
    # Sides of the windows that are tried around a selected point, as shares of the image's shorter side.
    POINT_SHARES = (0.2, 0.4, 0.8)
    # Smallest side of a window on the prompted frame, as a factor on the longer side of the box around all
    # that the prompt marks.
    MARKED = 1.2

    def __init__(self, side: int, factor: float) -> None:
        super().__init__(side)
        self._factor = factor
        self._first = self._size = 1.0
        self._longest = 1.0

    def extent(self, image_size: tuple[int, int]) -> float | None:
        return self._extent(image_size)

    def _extent(self, image_size: tuple[int, int]) -> float:
        # A window wider than the image's shorter side shows little more, and makes the target smaller.
        # Therefore it is only as wide as a large target needs, and never wider than the image. A long thin
        # target needs 1.5 times its longer side, to have a margin.
        most = max(min(image_size), min(self.LARGE_FACTOR * self._size, max(image_size)))
        wanted = max(min(self._factor * self._size, most), 1.5 * self._longest)
        return min(wanted, self.WIDEST * max(image_size))

    def starts(self, image_size: tuple[int, int], box: Box | None, marked: Box) -> list[View]:
        if box is not None:
            self.settle(box)
            extents = [self._extent(image_size)]
        else:
            # The size of the object at a selected point is unknown: several windows are tried.
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
    """Shows the whole image while the target is large enough in it, else a window around the target.

    The size at the selection decides. Later the view changes only if the target has become clearly smaller or
    larger.
    """

    # Smallest size, network px, of a selected target that is shown in the whole image: 3 cells of the feature
    # map.
    MIN_PX = 48.0
    # After the selection, the whole image replaces the window when the size exceeds `MIN_PX` times this
    # factor. The window replaces the whole image when the size falls below `MIN_PX` divided by this factor.
    CHANGE = 1.5

    _is_full = False

    def _shown_px(self, image_size: tuple[int, int], box: Box) -> float:
        """Return the size of a box in a view of the whole image, network px. ``box``: image px."""
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
    """Create a crop policy.

    ``kind``: "auto", "full" or "window"; ``side``: side of the network's input, network px; ``factor``: side
    of the window in target sizes.
    """
    if kind == "full":
        return WholeImage(side)
    return AutomaticCrop(side, factor) if kind == "auto" else FollowingCrop(side, factor)
