"""Finds a missed target again: decides which windows are searched, and when an object is accepted as the
target.

A prior, the probability density of the target's position, orders the search and weighs what is found. It
excludes no position: it is the sum of a uniform distribution and two normal ones that spread with time. One
normal distribution stays with the ground, on which the target moves on, slower and slower. The other stays
with the image, because a pilot or a gimbal may follow the target.

A detection is an object that the network sees in a window, with the log-likelihood ratio (LLR) that it is the
target rather than another object. A candidate track is an object that is followed over several detections,
until one track is certain to be the target. The LLR of a track decays, because consecutive detections at one
place are not independent, and because an occluder may be seen there before the target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.crop import OPENED, window_inside
from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.motion import (
    MIN_DEPTH,
    Matrix,
    MotionFilter,
    linearised,
    moved_box,
    relative_depth,
    zoom,
)
from efftam_ros.core.policies.constants import (
    ACCEPT_SCORE,
    FADING_S,
    FLAT_WEIGHT,
    FORGET_S,
    GROUND_SPREAD_PER_S,
    GROUND_WEIGHT,
    IMAGE_SPREAD_PER_S,
    IMAGE_WEIGHT,
    IN_SIGHT_S,
    INNER_SHARE,
    LLR_KEPT,
    MARGIN,
    MATCH_IOU,
    MATCH_SIZES,
    MAX_TILES,
    MAX_TRACKS,
    MIN_GOOD,
    MIN_LLR,
    MISS_LLR,
    RECOGNISED_NS,
    RECOGNITION_NS,
    RESIZED,
    RIVAL_WINDOWS,
    START_SPREAD,
    TILE,
    TILE_STEP,
    VIEW_LLR,
)


@dataclass(frozen=True)
class Sighting:
    """The last frame in which the target was seen and claimed.

    Attributes:
        stamp_ns: Stamp of the image, ns.
        box: The target's box, px.
        velocity: Velocity relative to the ground, px/s.
        image: The kept image, as `CameraMotionSource.keep` returned it; None if none was kept.
    """

    stamp_ns: int
    box: Box
    velocity: tuple[float, float]
    image: object = None


class PositionPrior:
    """Probability density of the position of a missed target. `follow_camera` applies the camera's motion,
    and `advance` lets time pass."""

    def __init__(self, stamp_ns: int, box: Box, velocity: tuple[float, float]) -> None:
        """Start at the target's last box, px, with its velocity relative to the ground, px/s."""
        self.stamp_ns = self._start_ns = stamp_ns
        self.size = max(box.size, 1.0)
        self._image: NDArray[np.float64] = np.array([box.cx, box.cy])
        self._ground: NDArray[np.float64] = self._image.copy()
        # Whether the position on the ground is behind the camera, so that its pixel coordinates are mirrored.
        self._is_behind = False
        self._velocity: NDArray[np.float64] = np.array(velocity, np.float64)

    def follow_camera(self, matrix: Matrix) -> None:
        """Move the distribution that stays with the ground by the camera's motion [3, 3] since the previous
        image."""
        x, y = self._ground
        self._is_behind ^= relative_depth(matrix, x, y) < 0
        self._ground, derivative = linearised(matrix, x, y)
        self._velocity = derivative @ self._velocity
        self.size *= zoom(matrix, x, y)

    def recognise_place(self, matrix: Matrix, seen: Sighting) -> None:
        """Compute the distribution that stays with the ground anew, from the camera's motion since the target
        was last seen. This removes the errors that `follow_camera` has accumulated.

        ``matrix``: motion [3, 3] from the image of ``seen`` to the present one.
        """
        x, y = seen.box.cx, seen.box.cy
        self._is_behind = relative_depth(matrix, x, y) < 0
        kept = math.exp(-max(0.0, (self.stamp_ns - seen.stamp_ns) * 1e-9) / FADING_S)
        place, derivative = linearised(matrix, x, y)
        velocity = derivative @ np.array(seen.velocity)
        self.size = max(seen.box.size, 1.0) * zoom(matrix, x, y)
        self._ground = place + velocity * FADING_S * (1 - kept)
        self._velocity = velocity * kept

    def advance(self, stamp_ns: int) -> None:
        """Move the distributions to a later stamp."""
        dt = max(0.0, (stamp_ns - self.stamp_ns) * 1e-9)
        kept = math.exp(-dt / FADING_S)
        self._ground = self._ground + self._velocity * FADING_S * (1 - kept)
        self._velocity = self._velocity * kept
        self.stamp_ns = stamp_ns

    @property
    def ground(self) -> tuple[float, float] | None:
        """Centre of the distribution that stays with the ground, px; None if it is behind the camera."""
        return None if self._is_behind else (float(self._ground[0]), float(self._ground[1]))

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
        """Return the logarithm of the density at points [n, 2], px, relative to the highest density: [n], at
        most 0. ``image_size``: width and height, px."""
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


class Sweep:
    """Square tiles that cover the image, and the order in which they are searched: the most probable ones
    first, and none again before all others were searched."""

    def __init__(self, image_size: tuple[int, int], extent_px: float, side: int) -> None:
        """Divide the image into tiles.

        Args:
            image_size: Width and height, px.
            extent_px: Side of the window that follows the target, px.
            side: Side of the network's input, network px.
        """
        self.image_size, self._side, self._followed_px = image_size, side, extent_px
        self._extent = max(TILE * extent_px, max(image_size) / (TILE_STEP * MAX_TILES))
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

    def fits(self, image_size: tuple[int, int], extent_px: float) -> bool:
        """Return whether the tiles still suit images of this size, and a window whose side is
        ``extent_px``."""
        return self.image_size == image_size and abs(extent_px / self._followed_px - 1) <= RESIZED

    def next(self, count: int, prior: PositionPrior | None) -> list[View]:
        """Return the next ``count`` tiles as views, or all if there are fewer. ``prior``: density of the
        target's position; None: all tiles are equally probable."""
        likely: NDArray[np.float64] = np.zeros(len(self))
        if prior is not None:
            likely = prior.relative_log_density(self._centres, self.image_size)
        order = np.lexsort((-likely, self._visits))[:count]
        self._visits[order] += 1
        return [View.window(x, y, self._extent, self._side) for x, y in self._centres[order]]


@dataclass(frozen=True)
class Detection:
    """An object that the network sees in a window. ``box``: its box, px; ``quality``: predicted IoU; ``llr``:
    logarithm of the likelihood ratio that it is the target."""

    box: Box
    quality: float
    llr: float


class CandidateTrack:
    """An object that may be the missed target, followed over several images."""

    def __init__(self, stamp_ns: int, box: Box) -> None:
        """Start at the box, px, of the first detection; `detect` then adds the detection."""
        self.motion = MotionFilter(stamp_ns, box)
        self.seen_ns: int | None = None
        """Stamp of the last detection, ns; None before the first."""
        self.missed_ns: int | None = None
        """Stamp of the last image in which the object should have been visible and was not detected, ns."""
        self.good = 0
        """Number of consecutive images, up to the last one, with a detection whose LLR is positive."""
        self.prior = 0.0
        """Log-odds, by the object's position, that it is the target; see `weigh`."""
        self._earlier = (0.0, 0)  # `llr` and `good` before the last image
        self._last_llr = 0.0  # LLR of the last image's best detection; `MISS_LLR` if there was none
        # Log-odds of the object's position when the object came into sight, and the stamp of that time, ns;
        # None: not known.
        self._in_sight: tuple[float, int] | None = None

    @property
    def box(self) -> Box:
        return self.motion.box

    @property
    def llr(self) -> float:
        """Log-likelihood ratio, from all detections, that the object is the target."""
        return max(LLR_KEPT * self._earlier[0] + self._last_llr, MIN_LLR)

    @property
    def score(self) -> float:
        """Log-odds that the object is the target, from its detections and its position."""
        return self.prior + self.llr

    def detect(self, stamp_ns: int, detection: Detection) -> None:
        """Add a detection. Of several detections in one image only the best one counts."""
        is_first = self.seen_ns != stamp_ns
        if is_first:
            self._earlier = self.llr, self.good
        elif detection.llr <= self._last_llr:
            return
        is_good, good_before = detection.llr > 0, self._earlier[1]
        if is_good and good_before == 0:
            self.motion = MotionFilter(stamp_ns, detection.box)  # another object was seen here before
        elif is_first:
            self.motion.update(detection.box, detection.quality)
        self._last_llr, self.seen_ns = detection.llr, stamp_ns
        self.good = good_before + 1 if is_good else 0

    def miss(self, stamp_ns: int) -> None:
        """Note that the object should have been visible in this image, and was not detected."""
        self.missed_ns = stamp_ns
        self._earlier, self._last_llr, self.good = (self.llr, 0), MISS_LLR, 0
        self.motion.coast()

    def weigh(self, stamp_ns: int, log_odds: float, is_motion_known: bool) -> None:
        """Compute `prior` for this stamp.

        An object may have been in sight already when the target could not yet be at its place. It does not
        become more likely the target merely because the target's possible positions spread with time.
        Therefore its prior approaches the present log-odds only slowly, from those at its first detection.
        The approach starts anew after an image in which the object was not seen, because then another object
        may be at this place.

        Args:
            stamp_ns: Stamp of the image, ns.
            log_odds: Log-odds of the object's position by `PositionPrior`.
            is_motion_known: Whether the camera's motion was known in all images since the target was seen. If
                not, the prior is ``log_odds``.
        """
        if not is_motion_known:
            self._in_sight, self.prior = None, log_odds
            return
        if self._in_sight is None or self.missed_ns == stamp_ns:
            self._in_sight = log_odds, stamp_ns
        first, since_ns = self._in_sight
        held = math.exp(-(stamp_ns - since_ns) * 1e-9 / IN_SIGHT_S)
        self.prior = log_odds - held * max(log_odds - first, 0.0)

    def is_forgotten(self, stamp_ns: int) -> bool:
        """Return whether the last detection is too old at this stamp, so that the track is dropped."""
        return self.seen_ns is None or (stamp_ns - self.seen_ns) * 1e-9 > FORGET_S

    def forget_sight(self) -> None:
        """Forget when the object came into sight, because the prior of that time was wrong."""
        self._in_sight = None

    def is_within(self, view: View) -> bool:
        """Return whether the object lies well inside a view, so that it should be detected there."""
        (width, height), box = view.extent, self.box
        x, y = (box.cx - view.x) / width, (box.cy - view.y) / height
        margin = (1 - INNER_SHARE) / 2
        return margin <= x <= 1 - margin and margin <= y <= 1 - margin


def _match(box: Box, tracks: Sequence[CandidateTrack]) -> CandidateTrack | None:
    """Return the nearest track to which a detection with this box, px, may belong; None if there is none."""
    best, least = None, math.inf
    for track in tracks:
        other = track.box
        away = math.hypot(box.cx - other.cx, box.cy - other.cy) / max(other.size, box.size, 1.0)
        if (away < MATCH_SIZES or iou(box, other) > MATCH_IOU) and away < least:
            best, least = track, away
    return best


class Reacquisition:
    """The search for a missed target: from the first frame without the target (`begin`) to the frame that
    finds it (`stop`).

    An object that has long been in sight is less likely the target (`CandidateTrack.weigh`). This is used
    only if the camera's motion was known in every image since the target was seen. After a jerk of the camera
    that was not measured, the target itself appears at another place, as if it had been there all the time.
    """

    def __init__(self) -> None:
        self.last_seen: Sighting | None = None
        """The last frame in which the target was seen and claimed; None before the first."""
        self.is_camera_known = False
        """Whether the camera's motion from the previous image to the present one is known."""
        self._compared_ns: int | None = None  # stamp of the last image compared with the kept one, ns
        self.stop()

    def stop(self) -> None:
        """End the search, and forget its results."""
        self.prior: PositionPrior | None = None
        """Density of the target's position; None: all positions are equally probable."""
        self.tracks: list[CandidateTrack] = []
        """Objects that may be the target, the most probable one first."""
        self.windows_searched = 0
        self.is_running = False
        self._image_size = (0, 0)
        self._is_motion_known = False
        self._sweep: Sweep | None = None
        self._recognised_ns: int | None = None

    def begin(self, image_size: tuple[int, int], motion: MotionFilter | None) -> None:
        """Start the search, or continue it.

        ``image_size``: width and height, px; ``motion``: the motion filter of the target; None if its
        position is unknown. The prior is created by the first call with a filter.
        """
        if not self.is_running:
            self.is_running, self._image_size = True, image_size
            self._is_motion_known = self.is_camera_known
        if self.prior is None and motion is not None:
            now = motion.ground
            self.prior = PositionPrior(now.stamp_ns, now.box, now.velocity)

    def resize(self, matrix: Matrix) -> None:
        """End the search, and scale the last sighting, because the images' size has changed. ``matrix`` [3,
        3] maps old pixels to new ones."""
        self.stop()
        if self.last_seen is not None:
            vx, vy = (matrix[:2, :2] @ self.last_seen.velocity).tolist()
            box = moved_box(matrix, self.last_seen.box)
            self.last_seen = replace(self.last_seen, box=box, velocity=(vx, vy))

    def follow_camera(self, matrix: Matrix | None) -> None:
        """Apply the camera's motion [3, 3] from the previous image to the present one; None: it is
        unknown."""
        if matrix is None:
            self._is_motion_known = False
            return
        if self.prior is not None:
            self.prior.follow_camera(matrix)
        # Objects that are behind the camera now are dropped.
        self.tracks = [
            track for track in self.tracks if relative_depth(matrix, track.box.cx, track.box.cy) >= MIN_DEPTH
        ]
        for track in self.tracks:
            track.motion.follow_camera(matrix)

    def compares(self, stamp_ns: int) -> bool:
        """Return whether to compare the image of this stamp with the kept one, which takes time. If so, the
        stamp is noted."""
        if self._compared_ns is not None and 0 <= stamp_ns - self._compared_ns < RECOGNITION_NS:
            return False
        self._compared_ns = stamp_ns
        return True

    def recognise_place(self, matrix: Matrix, stamp_ns: int) -> None:
        """Correct the search, because the place of the last sighting was recognised in the present image.

        ``matrix``: the camera's motion [3, 3] from the image of `last_seen` to the present one; ``stamp_ns``:
        stamp of the present image.
        """
        if self.last_seen is None:
            return
        self._is_motion_known = True
        if self.prior is None:
            return
        self.prior.advance(stamp_ns)
        before, spread = self.prior.ground, self.prior.spread_px
        self.prior.recognise_place(matrix, self.last_seen)
        self._recognised_ns = stamp_ns
        now = self.prior.ground
        if before is None or now is None or math.dist(before, now) > spread:
            for track in self.tracks:
                track.forget_sight()

    def expected(self, stamp_ns: int) -> tuple[float, float] | None:
        """Return the target's most probable position on the ground, (x, y) px, if the place was recognised in
        this image or shortly before; else None."""
        if self.prior is None or self._recognised_ns is None:
            return None
        if not 0 <= stamp_ns - self._recognised_ns <= RECOGNISED_NS:
            return None
        self.prior.advance(stamp_ns)
        return self.prior.ground

    def windows(
        self, stamp_ns: int, image_size: tuple[int, int], extent_px: float, side: int, budget: int
    ) -> list[View]:
        """Return the windows to search in this image: one at the most probable position, one at the
        second-best track, and the next ones of the sweep.

        Args:
            stamp_ns: Stamp of the image, ns.
            image_size: Width and height of the image, px.
            extent_px: Side of the window in which the target would be followed, px.
            side: Side of the network's input, network px.
            budget: Largest number of windows, of all three kinds together.
        """
        sweep, views = self._swept(image_size, extent_px, side), []
        if self.prior is not None:
            self.prior.advance(stamp_ns)
            if self.prior.ground is not None:
                x, y = self.prior.ground
                views.append(window_inside(image_size, x, y, OPENED * extent_px, side))
        for track in self._promising[1 : 1 + RIVAL_WINDOWS]:
            box = track.motion.at(stamp_ns).box
            views.append(window_inside(image_size, box.cx, box.cy, extent_px, side))
        views = views[: max(1, budget - 1)]
        views += sweep.next(budget - len(views), self.prior)
        self.windows_searched += len(views)
        return views

    def view(self, image_size: tuple[int, int], extent_px: float, side: int) -> View:
        """Return the view for a look at one place: the place of the best track if a track is promising, else
        the next window of the sweep. For the arguments see `windows`."""
        promising = self._promising
        if promising:
            box = promising[0].box
            return window_inside(image_size, box.cx, box.cy, extent_px, side)
        self.windows_searched += 1
        return self._swept(image_size, extent_px, side).next(1, self.prior)[0]

    def _swept(self, image_size: tuple[int, int], extent_px: float, side: int) -> Sweep:
        """Return the present sweep, or a new one if the sizes have changed."""
        if self._sweep is None or not self._sweep.fits(image_size, extent_px):
            self._sweep = Sweep(image_size, extent_px, side)
        return self._sweep

    def observe(self, stamp_ns: int, shown: Sequence[tuple[View, Sequence[Detection]]]) -> None:
        """Update the tracks by the detections in views of one image. It may be called several times per
        image.

        ``shown``: each view with the objects that the network sees in it.
        """
        if self.prior is not None:
            self.prior.advance(stamp_ns)
        # After a long pause, as when the clock was set, the motion of a track can't be predicted.
        self.tracks = [track for track in self.tracks if not track.is_forgotten(stamp_ns)]
        for track in self.tracks:
            track.motion.predict(stamp_ns)
        fresh: list[CandidateTrack] = []
        for one in sorted((one for _, found in shown for one in found), key=lambda one: -one.llr):
            match = _match(one.box, self.tracks)
            if match is None and _match(one.box, fresh) is None:
                match = CandidateTrack(stamp_ns, one.box)
                fresh.append(match)
            if match is not None:
                match.detect(stamp_ns, one)
        for track in self.tracks:
            is_updated = stamp_ns in (track.seen_ns, track.missed_ns)
            if not is_updated and any(track.is_within(view) for view, _ in shown):
                track.miss(stamp_ns)
        kept = [track for track in self.tracks + fresh if not track.is_forgotten(stamp_ns)]
        for track, log_odds in zip(kept, self._position_log_odds(kept), strict=True):
            track.weigh(stamp_ns, log_odds, self._is_motion_known)
        self.tracks = sorted(kept, key=lambda track: -track.score)[:MAX_TRACKS]

    def _position_log_odds(self, tracks: Sequence[CandidateTrack]) -> list[float]:
        """Return, for each track, the log-odds of its position by the prior; 0 without a prior."""
        if self.prior is None or not tracks:
            return [0.0] * len(tracks)
        boxes = [track.box for track in tracks]
        centres = np.array([[box.cx, box.cy] for box in boxes])
        return [float(v) for v in self.prior.relative_log_density(centres, self._image_size)]

    @property
    def accepted(self) -> CandidateTrack | None:
        """The track that is certain enough to be the target; None if there is none."""
        if not self.tracks:
            return None
        best, *others = self.tracks
        if best.good < MIN_GOOD or best.score < ACCEPT_SCORE:
            return None
        return best if not others or best.score >= max(other.score for other in others) + MARGIN else None

    @property
    def summary(self) -> str:
        """The progress of the search, in one line for the user."""
        return f"windows searched: {self.windows_searched}, possible places: {len(self.tracks)}"

    @property
    def _promising(self) -> list[CandidateTrack]:
        """The tracks that are probable enough to be looked at again, best first."""
        return [track for track in self.tracks if track.llr >= VIEW_LLR]
