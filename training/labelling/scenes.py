"""Reads a video's frames for labelling, and selects the segments in which objects move."""

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

FPS = 15  # approximate number of frames per second that are followed
SIDE = 800  # longest side of a frame, px; MobileSAM's input has 1024 px
SECONDS = 30  # seconds that are read of a video: more would show the same scene again
LENGTH = 48  # frames of a segment, 3 s: in longer segments most trackers lose the object
MIN_LENGTH = 18  # smallest number of frames of a segment, for six labels at every third frame
STAYS = 12  # a place is clicked at only if it stays in the picture for this many frames
PLACE = 480  # px; frames are reduced to this width to measure motion
CUT = 12.0  # smallest mean change of the picture at a cut between scenes, grey levels
CUT_RATIO = 4.0  # smallest change at a cut, as a multiple of the change of the frames around it
# A scene with a smaller mean change, grey levels, stands still. Cars seen from the air make 0.05.
STANDING = 0.03
MOVES = 4.0  # `motion` above this marks a place that moves on its own


@dataclass(frozen=True)
class Segment:
    """A part of a video: frames uint8 [H, W, 3] BGR, and their numbers in the file, from 0."""

    frames: list[Frame]
    numbers: list[int]


def read_frames(path: Path) -> Segment:
    """Read about `FPS` frames per second of the first `SECONDS`. Raises InputError if there is no frame."""
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
    """Read every frame of the file from the segment's first frame on, at most as many as the segment has.

    This is for fast objects: at `FPS` trackers lose a car on a motorway within eight frames. Raises
    InputError.
    """
    numbers = list(range(segment.numbers[0], segment.numbers[-1] + 1))[: len(segment.numbers)]
    return Segment(read_numbers(path, numbers), numbers)


def read_numbers(path: Path, numbers: Sequence[int]) -> list[Frame]:
    """Read the frames with these numbers, which must ascend, in the size of `read_frames`.

    Raises InputError if a frame is missing.
    """
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
    """Return the image, reduced to a longest side of `SIDE` px if it is larger."""
    scale = min(1.0, SIDE / max(image.shape[:2]))
    return np.asarray(cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA), np.uint8)


def segments(frames: Sequence[Frame], most: int) -> Iterator[tuple[int, int]]:
    """Yield segments (start, stop) of one scene each, those with most change first; ``most``: largest number.

    Each segment begins where most pixels move. The n-th segment does not depend on ``most``.
    """
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
    """Return the mean difference of each frame from the previous one, grey levels."""
    small = [
        cv2.resize(cv2.cvtColor(frame, cv2.COLOR_BGR2GRAY), (48, 27), interpolation=cv2.INTER_AREA)
        for frame in frames
    ]
    return np.array([0.0] + [float(cv2.absdiff(a, b).mean()) for a, b in pairwise(small)])


def motion(first: Frame, second: Frame) -> tuple[NDArray[np.float32], float]:
    """Score each place by its own motion and its structure.

    Returns the scores [h, w] and their scale to the frame's px. Own motion differs from the camera's.
    Structure makes a place suitable for a click. The score is 0 where the place soon leaves the picture.
    ``second``: two frames after ``first``.
    """
    own, ego, grey, scale = own_motion(first, second)
    speed = np.linalg.norm(own, axis=2)
    # Smaller differences (px) are parallax and errors of the optical flow.
    speed[speed < 0.8 + 0.15 * np.linalg.norm(ego, axis=2)] = 0
    edges = np.hypot(cv2.Sobel(grey, cv2.CV_32F, 1, 0), cv2.Sobel(grey, cv2.CV_32F, 0, 1)) / 4
    score = np.minimum(speed, 6) * np.minimum(edges, 30)  # faster motion than 6 px counts as 6
    height, width = grey.shape
    x, y = (own + ego).transpose(2, 0, 1) * (STAYS / 2) + np.mgrid[:height, :width][::-1]
    score[(x < 0) | (y < 0) | (x > width) | (y > height)] = 0
    return np.asarray(cv2.GaussianBlur(score.astype(np.float32), (0, 0), 3), np.float32), scale


def own_motion(
    first: Frame, second: Frame
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.uint8], float]:
    """Compute the optical flow between two frames, split into own motion and camera motion.

    Returns the own motion and the camera's, px, [h, w, 2] each; the first frame in grey; and their scale to
    the frame's px. The camera's motion is an affine fit to the flow.
    """
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
