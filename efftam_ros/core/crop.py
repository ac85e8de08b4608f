"""What the network looks at: the whole image, or a square window that follows the target.

A window sized from each frame's own box spirals: a mask that keeps only the salient part shrinks the window,
which shows even less of the target. So the size is smoothed, may grow readily and shrink hardly, and is
bounded by the first box.
"""

from __future__ import annotations

import math
from typing import Protocol

from efftam_ros.core.geometry import Box, View


class CropPolicy(Protocol):
    """Chooses the view of each frame."""

    def start(self, image_size: tuple[int, int], box: Box | None, point: tuple[float, float] | None) -> View:
        """The view of a prompted frame, around the prompt's box or, without one, around a point."""
        ...

    def settle(self, box: Box) -> None:
        """The prompted frame's measured box: the first size."""
        ...

    def view(
        self, image_size: tuple[int, int], predicted: Box | None, coasted_s: float, lost: bool = False
    ) -> View:
        """The view of a tracked frame. ``predicted`` None: nothing is known about where it is. ``coasted_s``:
        seconds from the last measured box to the frame before this one. ``lost``: search."""
        ...

    def extent(self, image_size: tuple[int, int]) -> float | None:
        """Side in px of the window that follows the target; None for a view that always shows all."""
        ...

    def update(self, box: Box, dt_s: float) -> None:
        """A measured box, ``dt_s`` seconds after the last one."""
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


class FollowingCrop:
    """A square of ``factor`` target sizes around the predicted centre. It opens once coasting.

    The longer the target is gone, the further from the prediction it may return, and a network sees nothing
    that its window cuts, and little that a much wider one shows small. When lost, wide windows around the
    prediction take turns with a sweep over the whole image, piece by piece.
    """

    GROW_PER_S = 1.5  # most change of the size's logarithm per second
    SHRINK_PER_S = 0.1
    SMOOTH_S = 0.3  # time constant of the measured size
    # Of a change of size, in its logarithm: below 1, so that a mask that bleeds does not feed back.
    FOLLOW = 0.5
    LARGE_FACTOR = 2.2  # window side in sizes of a target for which ``factor`` would exceed the short side
    LOWEST, HIGHEST = 0.8, 8.0  # bounds of the size, in first sizes
    OPEN_AFTER_S, OPENED = 0.3, 1.4  # of coasting, and the window's side then, in window sides
    LOST_TURNS = (
        1.4,
        1.8,
        None,
    )  # windows around the prediction, in window sides; None: a piece of the sweep
    SEARCH_TILE = 1.2  # of the sweep over the image; wider ones show a small target too small
    MOST_TILES = 64  # along a side of the image: a tiny target in a huge image must not make millions
    WIDEST = 1.5  # most extent of any window, in longer sides of the image
    POINT_SHARE = 0.4  # window around a single point, share of the image's shorter side

    def __init__(self, side: int, factor: float) -> None:
        self._side, self._factor = side, factor
        self._first = self._size = 1.0
        self._longest = 1.0
        self._turn = self._swept = 0  # windows and pieces of the sweep since the target was last seen

    def extent(self, image_size: tuple[int, int]) -> float:
        # Wider than the image's short side shows little more, but the target smaller: only as wide as a large
        # target needs, and never wider than the image. A long thin target must fit with a margin.
        most = max(min(image_size), min(self.LARGE_FACTOR * self._size, max(image_size)))
        wanted = max(min(self._factor * self._size, most), 1.5 * self._longest)
        return min(wanted, self.WIDEST * max(image_size))

    def start(self, image_size: tuple[int, int], box: Box | None, point: tuple[float, float] | None) -> View:
        if box is not None:
            self.settle(box)
            return self._inside(image_size, box.cx, box.cy, self.extent(image_size))
        x, y = point if point is not None else (image_size[0] / 2, image_size[1] / 2)
        return self._inside(image_size, x, y, self.POINT_SHARE * min(image_size))

    def settle(self, box: Box) -> None:
        self._first = self._size = max(box.size, 1.0)
        self._longest = max(box.width, box.height)

    def view(
        self, image_size: tuple[int, int], predicted: Box | None, coasted_s: float, lost: bool = False
    ) -> View:
        width, height = image_size
        if predicted is None:
            predicted = Box.from_centre(width / 2, height / 2, self._size, self._size)
        cx, cy = min(max(predicted.cx, 0.0), width), min(max(predicted.cy, 0.0), height)
        extent = self.extent(image_size)
        if not lost:
            wider = self.OPENED if coasted_s >= self.OPEN_AFTER_S else 1.0
            return self._inside(image_size, cx, cy, extent * wider)
        turn = self.LOST_TURNS[self._turn % len(self.LOST_TURNS)]
        self._turn += 1
        if turn is not None:
            return self._inside(image_size, cx, cy, extent * turn)
        self._swept += 1
        return self._tile(image_size, (cx, cy), self.SEARCH_TILE * extent, self._swept - 1)

    def _inside(self, image_size: tuple[int, int], x: float, y: float, extent: float) -> View:
        """The window, moved so that no more of it than needed lies outside the image."""
        width, height = image_size
        x = min(max(x, min(extent, width) / 2), width - min(extent, width) / 2)
        y = min(max(y, min(extent, height) / 2), height - min(extent, height) / 2)
        return View.window(x, y, extent, self._side)

    def _tile(
        self, image_size: tuple[int, int], start: tuple[float, float], extent: float, index: int
    ) -> View:
        """One of the windows that cover the image with some overlap, nearest to ``start`` first."""
        axes = []
        extent = max(extent, max(image_size) / (0.8 * self.MOST_TILES))
        for length in image_size:
            count = max(1, math.ceil(length / (0.8 * extent)))
            axes.append([(i + 0.5) * length / count for i in range(count)])
        tiles = sorted(((x, y) for x in axes[0] for y in axes[1]), key=lambda p: math.dist(p, start))
        x, y = tiles[index % len(tiles)]
        return self._inside(image_size, x, y, extent)

    def update(self, box: Box, dt_s: float) -> None:
        self._turn = self._swept = 0
        wanted = self._first * (max(box.size, 1.0) / self._first) ** self.FOLLOW
        wanted = min(max(wanted, self.LOWEST * self._first), self.HIGHEST * self._first)
        share = 1 - math.exp(-dt_s / self.SMOOTH_S)
        self._longest += (max(box.width, box.height) - self._longest) * share
        step = math.log(wanted / self._size) * share
        step = min(max(step, -self.SHRINK_PER_S * dt_s), self.GROW_PER_S * dt_s)
        self._size *= math.exp(step)


def make_crop_policy(kind: str, side: int, factor: float) -> CropPolicy:
    """``kind``: "full" or "window"."""
    return FullImageCrop(side) if kind == "full" else FollowingCrop(side, factor)
