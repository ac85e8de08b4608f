"""Chooses the image region given to the network: the whole image, or a square window that follows the target.

Sizing the window from each frame's box is unstable: a mask of only the salient part shrinks the window, which
then shows even less of the target. The size is therefore smoothed, grows faster than it shrinks, and is
bounded relative to the first box.
"""

from __future__ import annotations

import math
from typing import Protocol

from efftam_ros.core.geometry import Box, View, least_tile_px


class CropPolicy(Protocol):
    """Chooses the view of each frame."""

    def start(self, image_size: tuple[int, int], box: Box | None, point: tuple[float, float] | None) -> View:
        """The view of a prompted frame, around the prompt's box or, without one, around a point."""
        ...

    def settle(self, box: Box) -> None:
        """Initialise the size from the prompted frame's measured box."""
        ...

    def view(
        self, image_size: tuple[int, int], predicted: Box | None, coasted_s: float, lost: bool = False
    ) -> View:
        """The view of a tracked frame.

        Args:
            image_size: Width and height, px.
            predicted: Predicted box; None if the position is unknown.
            coasted_s: Time from the last measured box to the previous frame, s.
            lost: Search for the target.
        """
        ...

    def extent(self, image_size: tuple[int, int]) -> float | None:
        """Side of the window that follows the target, px; None for a policy that always shows the whole
        image."""
        ...

    def update(self, box: Box, dt_s: float) -> None:
        """Update the size by a measured box, ``dt_s`` seconds after the previous one."""
        ...

    def resize(self, factor: float) -> None:
        """Scale the size: the images' size changed by ``factor``."""
        ...


class FullImageCrop:
    """Always the whole image."""

    def __init__(self, side: int) -> None:
        self._side = side

    def start(self, image_size: tuple[int, int], box: Box | None, point: tuple[float, float] | None) -> View:
        return View.full(*image_size, self._side)

    def settle(self, box: Box) -> None:
        return

    def view(
        self, image_size: tuple[int, int], predicted: Box | None, coasted_s: float, lost: bool = False
    ) -> View:
        return View.full(*image_size, self._side)

    def extent(self, image_size: tuple[int, int]) -> float | None:
        return None

    def update(self, box: Box, dt_s: float) -> None:
        return

    def resize(self, factor: float) -> None:
        return


class FollowingCrop:
    """A square window of ``factor`` target sizes around the predicted centre, wider while coasting.

    The longer the target is missed, the farther from the prediction it may reappear; but the network sees
    nothing outside its window, and in a much wider window the target is too small. When lost, wide windows
    around the prediction therefore alternate with a sweep over the whole image, tile by tile.
    """

    GROW_PER_S = 1.5  # largest rate of the size's logarithm, 1/s
    SHRINK_PER_S = 0.1
    SMOOTH_S = 0.3  # time constant of the measured size
    # Exponent applied to a change of size: below 1, so that a mask that grows beyond the target is not
    # amplified.
    FOLLOW = 0.5
    LARGE_FACTOR = 2.2  # window side in sizes of a target for which ``factor`` would exceed the short side
    LOWEST, HIGHEST = 0.8, 8.0  # bounds of the size, in first sizes
    OPEN_AFTER_S, OPENED = 0.3, 1.4  # time of coasting, and the side from then on, in window sides
    LOST_TURNS = (
        1.4,
        1.8,
        None,
    )  # windows around the prediction, in window sides; None: a tile of the sweep
    SEARCH_TILE = 1.2  # tile side of the sweep, in window sides; a small target is too small in wider tiles
    WIDEST = 1.5  # largest extent of any window, in longer sides of the image
    POINT_SHARE = 0.4  # window around a single point, share of the image's shorter side

    def __init__(self, side: int, factor: float) -> None:
        self._side, self._factor = side, factor
        self._first = self._size = 1.0
        self._longest = 1.0
        self._turn = self._swept = 0  # windows and tiles since the target was last seen

    def extent(self, image_size: tuple[int, int]) -> float:
        # A window wider than the image's short side shows little more and makes the target smaller, so it is
        # only as wide as a large target needs and never wider than the image. A long thin target must fit
        # with a margin.
        most = max(min(image_size), min(self.LARGE_FACTOR * self._size, max(image_size)))
        wanted = max(min(self._factor * self._size, most), 1.5 * self._longest)
        return min(wanted, self.WIDEST * max(image_size))

    def start(self, image_size: tuple[int, int], box: Box | None, point: tuple[float, float] | None) -> View:
        if box is not None:
            self.settle(box)
            return View.window_inside(image_size, box.cx, box.cy, self.extent(image_size), self._side)
        x, y = point if point is not None else (image_size[0] / 2, image_size[1] / 2)
        return View.window_inside(image_size, x, y, self.POINT_SHARE * min(image_size), self._side)

    def settle(self, box: Box) -> None:
        self._first = self._size = max(box.size, 1.0)
        self._longest = max(box.width, box.height)

    def view(
        self, image_size: tuple[int, int], predicted: Box | None, coasted_s: float, lost: bool = False
    ) -> View:
        width, height = image_size
        if predicted is None:
            predicted = Box.from_centre(width / 2, height / 2, self._size, self._size)
        extent = self.extent(image_size)
        cx, cy = min(max(predicted.cx, 0.0), width), min(max(predicted.cy, 0.0), height)
        if not lost:
            wider = self.OPENED if coasted_s >= self.OPEN_AFTER_S else 1.0
            return View.window_inside(image_size, cx, cy, extent * wider, self._side)
        turn = self.LOST_TURNS[self._turn % len(self.LOST_TURNS)]
        self._turn += 1
        if turn is not None:
            return View.window_inside(image_size, cx, cy, extent * turn, self._side)
        self._swept += 1
        return self._tile(image_size, (cx, cy), self.SEARCH_TILE * extent, self._swept - 1)

    def _tile(
        self, image_size: tuple[int, int], start: tuple[float, float], extent: float, index: int
    ) -> View:
        """Tile ``index`` of the overlapping tiles that cover the image, ordered by distance from
        ``start``."""
        axes = []
        extent = max(extent, least_tile_px(image_size, 0.8))
        for length in image_size:
            count = max(1, math.ceil(length / (0.8 * extent)))
            axes.append([(i + 0.5) * length / count for i in range(count)])
        tiles = sorted(((x, y) for x in axes[0] for y in axes[1]), key=lambda p: math.dist(p, start))
        x, y = tiles[index % len(tiles)]
        return View.window_inside(image_size, x, y, extent, self._side)

    def update(self, box: Box, dt_s: float) -> None:
        self._turn = self._swept = 0
        wanted = self._first * (max(box.size, 1.0) / self._first) ** self.FOLLOW
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


def make_crop_policy(kind: str, side: int, factor: float) -> CropPolicy:
    """Create the crop policy of ``kind`` "full" or "window"."""
    return FullImageCrop(side) if kind == "full" else FollowingCrop(side, factor)
