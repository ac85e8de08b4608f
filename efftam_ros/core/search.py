"""Finding a missed target again: a belief orders the search, hypotheses accumulate the evidence.

The belief is a probability density of the target's position. It orders the search and weighs what is found,
but excludes no position. It is the sum of two normal distributions that spread with time, and a uniform one.
The first stays with the ground (the target moves on over it, slower and slower), the second with the image (a
pilot or a gimbal follows the target).

Hypotheses are possible positions, each tracked over several looks until one is certain. A look is a candidate
found in a window, with the log-odds that it is the target. Consecutive looks at one place are not
independent, and an occluder may be seen there before the target: evidence therefore decays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.camera_motion import LEAST_DEPTH, Matrix, linearised, relative_depth, zoom
from efftam_ros.core.geometry import Box, View, iou, least_tile_px
from efftam_ros.core.motion import MotionFilter

GROUND_WEIGHT, IMAGE_WEIGHT, FLAT_WEIGHT = 0.6, 0.2, 0.2
# Standard deviation in target sizes, at the start and its growth per second: the errors of the motion
# filter's predictions 1 and 2 s ahead on aerial clips, with the ground's motion and without it.
START_SPREAD, GROUND_SPREAD_PER_S, IMAGE_SPREAD_PER_S = 0.7, 1.2, 2.0
# Time constant of the speed over the ground: at constant speed the prediction would leave the scene.
FADING_S = 3.0


@dataclass(frozen=True)
class Sighting:
    """Where the target was seen: box px, velocity over the ground px/s, at a stamp."""

    stamp_ns: int
    box: Box
    velocity: tuple[float, float]


class Belief:
    """Starts from the target's last position and a stamp in ns; `follow_camera` and `advance` move it."""

    def __init__(self, stamp_ns: int, box: Box, velocity: tuple[float, float]) -> None:
        self.stamp_ns = self._start_ns = stamp_ns
        self.size = max(box.size, 1.0)
        self._image: NDArray[np.float64] = np.array([box.cx, box.cy])
        self._ground: NDArray[np.float64] = self._image.copy()
        self._is_behind = False  # the position on the ground is behind the camera: its pixels are mirrored
        self._velocity: NDArray[np.float64] = np.array(velocity, np.float64)

    def follow_camera(self, matrix: Matrix) -> None:
        """Move the distribution that stays with the ground."""
        x, y = self._ground
        self._is_behind ^= relative_depth(matrix, x, y) < 0
        self._ground, derivative = linearised(matrix, x, y)
        self._velocity = derivative @ self._velocity
        self.size *= zoom(matrix, x, y)

    def recognise_place(self, matrix: Matrix, stamp_ns: int, seen: Sighting) -> None:
        """Replace the distribution that stays with the ground, and thereby the errors of `follow_camera`
        since a sighting: ``matrix`` is the camera's motion from its image to that of ``stamp_ns``."""
        x, y = seen.box.cx, seen.box.cy
        self._is_behind = relative_depth(matrix, x, y) < 0
        kept = math.exp(-max(0.0, (stamp_ns - seen.stamp_ns) * 1e-9) / FADING_S)
        place, derivative = linearised(matrix, x, y)
        velocity = derivative @ np.array(seen.velocity)
        self.size = max(seen.box.size, 1.0) * zoom(matrix, x, y)
        self._ground = place + velocity * FADING_S * (1 - kept)
        self._velocity = velocity * kept
        self.stamp_ns = stamp_ns

    def advance(self, stamp_ns: int) -> None:
        """Move to a later stamp."""
        dt = max(0.0, (stamp_ns - self.stamp_ns) * 1e-9)
        kept = math.exp(-dt / FADING_S)
        self._ground = self._ground + self._velocity * FADING_S * (1 - kept)
        self._velocity = self._velocity * kept
        self.stamp_ns = stamp_ns

    @property
    def ground(self) -> tuple[float, float] | None:
        """Centre of the distribution that stays with the ground, px; None: it is behind the camera."""
        return None if self._is_behind else (float(self._ground[0]), float(self._ground[1]))

    @property
    def image(self) -> tuple[float, float]:
        """Centre of the distribution that stays with the image, px."""
        return float(self._image[0]), float(self._image[1])

    @property
    def spread_px(self) -> float:
        """Standard deviation of the distribution that stays with the ground, px."""
        return self.size * (START_SPREAD + GROUND_SPREAD_PER_S * self._missed_s)

    @property
    def _missed_s(self) -> float:
        return (self.stamp_ns - self._start_ns) * 1e-9

    def relative_log_density(
        self, points: NDArray[np.float64], image_size: tuple[int, int]
    ) -> NDArray[np.float64]:
        """Logarithm of the density at points [n, 2] px, relative to the highest density; at most 0."""
        flat = FLAT_WEIGHT / float(image_size[0] * image_size[1])
        normals = [
            (IMAGE_WEIGHT, self._image, self.size * (START_SPREAD + IMAGE_SPREAD_PER_S * self._missed_s))
        ]
        if not self._is_behind:
            normals.append((GROUND_WEIGHT, self._ground, self.spread_px))

        def density(at: NDArray[np.float64]) -> NDArray[np.float64]:
            total = np.full(len(at), flat)
            for weight, centre, spread in normals:
                square = ((at - centre) ** 2).sum(axis=1) / spread**2
                total += weight / (2 * math.pi * spread**2) * np.exp(-square / 2)
            return total

        peak = density(np.array([centre for _, centre, _ in normals])).max()
        return np.asarray(np.minimum(np.log(density(points) / peak), 0.0), np.float64)


TILE = 1.2  # side of a window of the sweep, in sides of the window that follows the target
TILE_STEP = 0.8  # distance of neighbouring windows, in their sides: an object cut by one is whole in the next


class Sweep:
    """Windows that cover the image, most likely ones first; none is repeated before all others were used."""

    def __init__(self, image_size: tuple[int, int], extent_px: float, side: int) -> None:
        """``extent_px``: side of the window that follows the target; ``side``: of the network's input."""
        self.image_size, self._side = image_size, side
        self._extent = max(TILE * extent_px, least_tile_px(image_size, TILE_STEP))
        axes = []
        for length in image_size:
            count = max(1, math.ceil((length - self._extent) / (TILE_STEP * self._extent)) + 1)
            if count == 1:
                axes.append(np.array([length / 2]))
            else:
                axes.append(np.linspace(self._extent / 2, length - self._extent / 2, count))
        self._centres: NDArray[np.float64] = np.array([(x, y) for x in axes[0] for y in axes[1]])
        self._visits = np.zeros(len(self._centres), int)

    def __len__(self) -> int:
        return len(self._centres)

    def next(self, count: int, belief: Belief | None) -> list[View]:
        """The next windows, at most ``count``."""
        likely: NDArray[np.float64] = np.zeros(len(self))
        if belief is not None:
            likely = belief.relative_log_density(self._centres, self.image_size)
        order = np.lexsort((-likely, self._visits))[:count]
        self._visits[order] += 1
        return [View.window(x, y, self._extent, self._side) for x, y in self._centres[order]]


# A candidate belongs to a hypothesis when its IoU with the predicted box is above the first, or the distance
# of their centres, in sizes, below the second.
MATCH_IOU, MATCH_SIZES = 0.15, 0.8
INNER_SHARE = 0.8  # inner part of a window in which a hypothesis should be visible
MISS_LOG_ODDS = -1.5  # of a look in which a hypothesis that should be visible is not
# Factor on the evidence at each further look, because looks at one object are not independent. On looks
# recorded in 49 cases of the choosing half it accepts two wrong objects, 0.7 three, 1 four.
EVIDENCE_KEPT = 0.65
LEAST_EVIDENCE = -2.0  # lower bound, so that an earlier object at a place does not exclude the target there
FORGET_S = 1.5  # time without a look after which a hypothesis is dropped
# Time constant within which an object in sight comes to be weighed by the present belief in place of the one
# that held when it came into sight (docs/tracking.md).
IN_SIGHT_S = 6.0
MOST_HYPOTHESES = 12


@dataclass(frozen=True)
class Look:
    """A candidate in one window. ``quality``: predicted IoU; ``log_odds``: that it is the target."""

    box: Box
    quality: float
    log_odds: float


@dataclass
class Hypothesis:
    """An object that may be the target. ``evidence``: log-odds of its looks; ``good_looks``: number of
    consecutive looks with positive log-odds; ``prior``: log-odds of its position by the belief, see `weigh`;
    ``seen_ns``: when it was last seen; ``missed_ns``: when it last should have been seen and was not."""

    motion: MotionFilter
    seen_ns: int
    missed_ns: int = 0
    evidence: float = 0.0
    good_looks: int = 0
    prior: float = 0.0
    _before: tuple[float, int] = (0.0, 0)  # evidence and good looks before this image
    _log_odds: float = 0.0  # of this image's look
    _in_sight: tuple[float, int] | None = None  # log-odds of its position, and stamp, when it came into sight

    @property
    def box(self) -> Box:
        return self.motion.box

    @property
    def score(self) -> float:
        """Logarithm of the odds that this is the target."""
        return self.prior + self.evidence

    def look(self, stamp_ns: int, look: Look) -> None:
        """Add a look. Of several windows of one image only the best look counts."""
        if self.seen_ns != stamp_ns:
            self._before = self.evidence, self.good_looks
        elif look.log_odds <= self._log_odds:
            return
        evidence, good_looks = self._before
        is_good = look.log_odds > 0
        if is_good and good_looks == 0:
            self.motion = MotionFilter(stamp_ns, look.box)  # another object was seen here before
        elif self.seen_ns != stamp_ns:
            self.motion.update(look.box, look.quality)
        self._log_odds, self.seen_ns = look.log_odds, stamp_ns
        self.evidence = max(EVIDENCE_KEPT * evidence + look.log_odds, LEAST_EVIDENCE)
        self.good_looks = good_looks + 1 if is_good else 0

    def miss(self, stamp_ns: int) -> None:
        """Record that it should have been visible in this image and was not."""
        self.missed_ns = stamp_ns
        self.evidence = max(EVIDENCE_KEPT * self.evidence + MISS_LOG_ODDS, LEAST_EVIDENCE)
        self.good_looks = 0
        self.motion.coast()

    def weigh(self, stamp_ns: int, log_odds: float, carried: bool) -> None:
        """Set the prior. ``log_odds``: of its position by the belief at this stamp; ``carried``: see
        `Reacquisition`.

        What has been in sight since the belief was narrow, outside of where the target could then be, is not
        the target merely because the belief has spread to it: the prior approaches the present log-odds
        slowly from those of its first look. Once it was not seen where it should have been, another object
        may be there."""
        if not carried:
            self._in_sight, self.prior = None, log_odds
            return
        if self._in_sight is None or self.missed_ns == stamp_ns:
            self._in_sight = log_odds, stamp_ns
        first, since_ns = self._in_sight
        held = math.exp(-(stamp_ns - since_ns) * 1e-9 / IN_SIGHT_S)
        self.prior = log_odds - held * max(log_odds - first, 0.0)

    def forget_sight(self) -> None:
        """Forget since when it has been in sight: the belief of then was wrong."""
        self._in_sight = None


@dataclass
class Hypotheses:
    """All hypotheses, best first after `observe`."""

    prior: Callable[[Sequence[Box]], Sequence[float]]
    items: list[Hypothesis] = field(default_factory=list)

    def follow_camera(self, matrix: Matrix) -> None:
        """Move all by the camera's motion; those that are now behind the camera are dropped."""
        self.items = [i for i in self.items if relative_depth(matrix, i.box.cx, i.box.cy) >= LEAST_DEPTH]
        for item in self.items:
            item.motion.follow_camera(matrix)

    def observe(
        self, stamp_ns: int, shown: Sequence[tuple[View, Sequence[Look]]], carried: bool = False
    ) -> None:
        """Update by the candidates in the windows of one image. ``carried``: see `Reacquisition`."""
        for known in self.items:
            known.motion.predict(stamp_ns)
        ranked = sorted((look for _, looks in shown for look in looks), key=lambda look: -look.log_odds)
        fresh: list[Hypothesis] = []
        for look in ranked:
            item = self._match(look.box, self.items)
            if item is None and self._match(look.box, fresh) is None:
                item = Hypothesis(MotionFilter(stamp_ns, look.box), seen_ns=-1)
                fresh.append(item)
            if item is not None:
                item.look(stamp_ns, look)
        for known in self.items:
            is_updated = stamp_ns in (known.seen_ns, known.missed_ns)
            if not is_updated and any(_shows(view, known.box) for view, _ in shown):
                known.miss(stamp_ns)
        kept = [i for i in self.items + fresh if (stamp_ns - i.seen_ns) * 1e-9 <= FORGET_S]
        for known, log_odds in zip(kept, self.prior([i.box for i in kept]), strict=True):
            known.weigh(stamp_ns, log_odds, carried)
        self.items = sorted(kept, key=lambda i: -i.score)[:MOST_HYPOTHESES]

    def _match(self, box: Box, items: Sequence[Hypothesis]) -> Hypothesis | None:
        best, least = None, math.inf
        for item in items:
            away = math.hypot(box.cx - item.box.cx, box.cy - item.box.cy) / max(item.box.size, box.size, 1.0)
            if (away < MATCH_SIZES or iou(box, item.box) > MATCH_IOU) and away < least:
                best, least = item, away
        return best


def _shows(view: View, box: Box) -> bool:
    """Whether a box lies well inside a window."""
    width, height = view.extent
    x, y = (box.cx - view.x) / width, (box.cy - view.y) / height
    margin = (1 - INNER_SHARE) / 2
    return margin <= x <= 1 - margin and margin <= y <= 1 - margin


# A hypothesis is accepted as the target when its score is at least ACCEPT_SCORE and by LEAD above that of
# every other one, and its last LEAST_LOOKS looks were good. On looks recorded in 120 cases of the judge's
# choosing half, 8 wrong objects are accepted and 71 targets found again within 1 s of their return; with a
# lead of 1 it is 16 and 70. With a score of 2.5 it is 7 and 72, but every return takes one image more; with
# 3.5 it is 4 and 68.
ACCEPT_SCORE = 1.5
LEAST_LOOKS = 2
LEAD = 3.0
LOOK_EVIDENCE = -1.0  # least evidence of a hypothesis that gets another look, wherever it is
RIVAL_WINDOWS = 1  # windows for the hypotheses after the best one, which the frame's own view shows
RECOGNISED_NS = 150_000_000  # how long a recognised place counts; comparisons are at least 90 ms apart
OPENED = 1.4  # side of the window at the expected position, in sides of the window that follows the target


class Reacquisition:
    """The search for a missed target, from the first frame that misses it to the frame that finds it.

    Places are *carried* from image to image while the camera's motion is known in each since the target was
    seen. Only then does it count since when an object has been in sight (`Hypothesis.weigh`): after a jerk of
    the camera that was not measured the target itself may seem to have been elsewhere all the time.
    """

    def __init__(self, image_size: tuple[int, int], carried: bool = False) -> None:
        """``carried``: whether the camera's motion to the first image is known."""
        self._image_size, self._carried = image_size, carried
        self.belief: Belief | None = None
        self.hypotheses = Hypotheses(self._priors)
        self.windows_searched = 0
        self._sweep: Sweep | None = None
        self._extent = 0.0
        self._recognised_ns: int | None = None

    def start(self, stamp_ns: int, box: Box, velocity: tuple[float, float]) -> None:
        """Start the belief: the target is missed since ``stamp_ns`` and was at this box then, px, with this
        velocity over the ground, px/s."""
        self.belief = Belief(stamp_ns, box, velocity)

    def follow_camera(self, matrix: Matrix | None) -> None:
        """Apply the camera's motion to the present image; None: it is not known."""
        if matrix is None:
            self._carried = False
            return
        if self.belief is not None:
            self.belief.follow_camera(matrix)
        self.hypotheses.follow_camera(matrix)

    def recognise_place(self, matrix: Matrix, stamp_ns: int, seen: Sighting) -> None:
        """See `Belief.recognise_place`."""
        self._carried = True
        if self.belief is not None:
            self.belief.advance(stamp_ns)
            before, spread = self.belief.ground, self.belief.spread_px
            self.belief.recognise_place(matrix, stamp_ns, seen)
            self._recognised_ns = stamp_ns
            now = self.belief.ground
            if before is None or now is None or math.dist(before, now) > spread:
                for item in self.hypotheses.items:
                    item.forget_sight()

    def expected(self, stamp_ns: int) -> tuple[float, float] | None:
        """`Belief.ground`, if the place was recognised in this image or shortly before; else None."""
        if self.belief is None or self._recognised_ns is None:
            return None
        if not 0 <= stamp_ns - self._recognised_ns <= RECOGNISED_NS:
            return None
        self.belief.advance(stamp_ns)
        return self.belief.ground

    def windows(
        self, stamp_ns: int, image_size: tuple[int, int], extent_px: float, side: int, budget: int
    ) -> list[View]:
        """The windows to search in this image: at the expected position, at the second-best hypothesis, and
        the next ones of the sweep; ``budget`` in all. ``extent_px``: side of the window that would follow the
        target."""
        if (
            self._sweep is None
            or self._sweep.image_size != image_size
            or abs(extent_px / self._extent - 1) > 0.3
        ):
            self._sweep, self._extent = Sweep(image_size, extent_px, side), extent_px
        self._image_size = image_size
        views = []
        if self.belief is not None:
            self.belief.advance(stamp_ns)
            if self.belief.ground is not None:
                x, y = self.belief.ground
                views.append(View.window_inside(image_size, x, y, OPENED * extent_px, side))
        for item in self._promising[1 : 1 + RIVAL_WINDOWS]:
            box = item.motion.at(stamp_ns).box
            views.append(View.window_inside(image_size, box.cx, box.cy, extent_px, side))
        views = views[: max(1, budget - 1)]
        views += self._sweep.next(budget - len(views), self.belief)
        self.windows_searched += len(views)
        return views

    def observe(self, stamp_ns: int, shown: Sequence[tuple[View, Sequence[Look]]]) -> Hypothesis | None:
        """Update the hypotheses by the candidates in the windows of one image; returns the best one."""
        if self.belief is not None:
            self.belief.advance(stamp_ns)
        self.hypotheses.observe(stamp_ns, shown, self._carried)
        return self.best

    def view(self, stamp_ns: int, extent_px: float, side: int) -> View:
        """The frame's own view: at the best hypothesis, else the next window of the sweep."""
        promising = self._promising
        if promising:
            box = promising[0].box
            return View.window_inside(self._image_size, box.cx, box.cy, extent_px, side)
        assert self._sweep is not None
        self.windows_searched += 1
        return self._sweep.next(1, self.belief)[0]

    @property
    def summary(self) -> str:
        """The state of the search, one line."""
        best = self.best
        found = f"best of {len(self.hypotheses.items)} places {best.score:.1f}" if best else "no place"
        return f"{self.windows_searched} windows searched, {found} ({ACCEPT_SCORE:g} needed)"

    @property
    def best(self) -> Hypothesis | None:
        return self.hypotheses.items[0] if self.hypotheses.items else None

    @property
    def _promising(self) -> list[Hypothesis]:
        return [item for item in self.hypotheses.items if item.evidence >= LOOK_EVIDENCE]

    def accepted(self, item: Hypothesis | None) -> bool:
        """Whether a hypothesis is accepted as the target."""
        if item is None or item.good_looks < LEAST_LOOKS or item.score < ACCEPT_SCORE:
            return False
        others = [other.score for other in self.hypotheses.items if other is not item]
        return not others or item.score >= max(others) + LEAD

    def _priors(self, boxes: Sequence[Box]) -> Sequence[float]:
        if self.belief is None or not boxes:
            return [0.0] * len(boxes)
        centres = np.array([[box.cx, box.cy] for box in boxes])
        return [float(v) for v in self.belief.relative_log_density(centres, self._image_size)]
