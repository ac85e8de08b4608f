"""Frames of a video as labelling sees them, and the parts of it that are worth a look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from training.labelling.segmenter import Frame

FPS = 15  # about; of the frames that are followed
SIDE = 800  # px, longest side of a frame: an encoded image has 1024
SECONDS = 30  # of a video: more gives more of the same scene
LENGTH = 48  # frames of a segment, 3 s: most trackers lose what lasts longer, and then all is lost
MIN_LENGTH = 18  # frames, six labels at every third
STAYS = 12  # frames for which what moves on must stay in the picture: other things leave it unlabelled
PLACE = 480  # px, width at which motion is measured
CUT = 12.0  # grey levels of mean change, and ...
CUT_RATIO = 4.0  # ... times the change around, at which a cut begins a new scene
STANDING = 0.03  # grey levels of mean change: below, nothing moves; cars seen from the air make 0.05
MOVES = 4.0  # score of a place that moves on its own


@dataclass(frozen=True)
class Segment:
    """Part of a video: frames uint8 [H, W, 3] BGR, and their numbers in the file, from 0."""

    frames: list[Frame]
    numbers: list[int]


def read_frames(path: Path) -> Segment:
    """Frames of the first `SECONDS`, about `FPS` a second. Raises InputError when it has none."""
    video = cv2.VideoCapture(str(path))
    step = max(1, round((video.get(cv2.CAP_PROP_FPS) or 25.0) / FPS))
    frames: list[Frame] = []
    index = 0
    while len(frames) < SECONDS * FPS and video.grab():
        if index % step == 0:
            done, image = video.retrieve()
            if not done:
                break
            frames.append(shrunk(np.asarray(image, np.uint8)))
        index += 1
    if not frames:
        raise InputError(f"{path} is no video that OpenCV can read")
    return Segment(frames, [step * i for i in range(len(frames))])


def read_dense(path: Path, segment: Segment) -> Segment:
    """Every frame of the file from a segment's first on, as many as it has at most. For what moves fast: at
    `FPS` the trackers lose a car that comes along a motorway within eight frames."""
    numbers = list(range(segment.numbers[0], segment.numbers[-1] + 1))[: len(segment.numbers)]
    return Segment(read_numbers(path, numbers), numbers)


def read_numbers(path: Path, numbers: Sequence[int]) -> list[Frame]:
    """Frames with these numbers (ascending), as `read_frames` gives them. Raises InputError when one is
    missing."""
    video = cv2.VideoCapture(str(path))
    frames: list[Frame] = []
    index = -1
    for number in numbers:
        image = None
        while index < number and video.grab():
            index += 1
        if index == number:
            image = video.retrieve()[1]
        if image is None:
            raise InputError(f"{path} has no frame {number}")
        frames.append(shrunk(np.asarray(image, np.uint8)))
    return frames


def shrunk(image: Frame) -> Frame:
    """The image with a longest side of `SIDE` px, if it is larger."""
    scale = min(1.0, SIDE / max(image.shape[:2]))
    return np.asarray(cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), np.uint8)


def segments(frames: Sequence[Frame], most: int) -> Iterator[tuple[int, int]]:
    """Ranges of frames (start, stop) of one scene each, those with most change first; each begins where most
    moves. The n-th is the same whatever ``most`` is."""
    change = _change(frames)
    typical = np.array([np.median(change[max(0, i - 8) : i + 9]) for i in range(len(change))])
    cuts = np.flatnonzero((change > CUT) & (change > CUT_RATIO * typical))
    edges, longest = [0, *map(int, cuts), len(frames)], 3 * LENGTH // 2
    found = [
        (start, min(start + longest, stop))
        for first, stop in pairwise(edges)
        for start in range(first + 1, stop - MIN_LENGTH, longest)
    ]
    lively = sorted(((float(np.median(change[a:b])), a, b) for a, b in found), key=lambda one: -one[0])
    for _, a, b in [one for one in lively if one[0] > STANDING][:most]:
        places = range(a, b - MIN_LENGTH, LENGTH // 4)
        first = max(places, key=lambda i: (motion(frames[i], frames[i + 2])[0] > MOVES).sum())
        yield first, min(b, first + LENGTH)


def _change(frames: Sequence[Frame]) -> NDArray[np.float64]:
    """Mean grey levels by which each frame differs from the one before."""
    small = [
        cv2.resize(cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY), (48, 27), interpolation=cv2.INTER_AREA)
        for frame in frames
    ]
    return np.array([0.0] + [float(cv2.absdiff(a, b).mean()) for a, b in pairwise(small)])


def motion(first: Frame, second: Frame) -> tuple[NDArray[np.float32], float]:
    """How much each place moves otherwise than the camera and has structure to click at, [h, w], 0 where it
    will soon have left the picture; its scale to the frame's px. ``second``: two frames after the first."""
    own, ego, grey, scale = own_motion(first, second)
    speed = np.linalg.norm(own, axis=2)
    speed[speed < 0.8 + 0.15 * np.linalg.norm(ego, axis=2)] = 0  # px: parallax and the flow's errors
    edges = np.hypot(cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1)) / 4
    score = np.minimum(speed, 6) * np.minimum(edges, 30)  # nothing counts more for being still faster
    height, width = grey.shape
    x, y = (own + ego).transpose(2, 0, 1) * (STAYS / 2) + np.mgrid[:height, :width][::-1]
    score[(x < 0) | (y < 0) | (x > width) | (y > height)] = 0
    return np.asarray(cv2.GaussianBlur(score.astype(np.float32), (0, 0), 3), np.float32), scale


def own_motion(
    first: Frame, second: Frame
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.uint8], float]:
    """Optical flow otherwise than the camera's and the camera's, px, [h, w, 2], the first frame in grey, and
    their scale to the frame's px. The camera's motion is an affine fit to the flow."""
    scale = min(1.0, PLACE / first.shape[1])
    a, b = (
        cv2.resize(
            cv2.cvtColor(one, cv2.COLOR_BGR2GRAY), None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA
        )
        for one in (first, second)
    )
    flow = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_FAST).calc(a, b, None)  # type: ignore[call-overload]
    height, width = a.shape
    points = np.stack(np.meshgrid(np.arange(width), np.arange(height)), 2).astype(np.float32)
    grid, shift = points[4::8, 4::8].reshape(-1, 2), flow[4::8, 4::8].reshape(-1, 2)
    camera, _ = cv2.estimateAffine2D(grid, grid + shift, ransacReprojThreshold=1.0)
    still = np.zeros_like(points)
    ego = still if camera is None else points @ camera[:, :2].T + camera[:, 2] - points
    return (flow - ego).astype(np.float32), ego.astype(np.float32), np.asarray(a, np.uint8), scale
