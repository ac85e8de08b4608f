"""Images that make tracking hard, through the shipped network: what is followed, and what is said of it."""

from collections.abc import Callable

import cv2
import numpy as np
import pytest
from support.clip import clip
from support.scripted_target import OneTarget

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.core.types import Frame, Image, Prompt, Track, TrackState
from efftam_ros.runtime.backends import PipelineConfig
from efftam_ros.runtime.opening import open_pipeline, open_targets

SIZE = (640, 360)
SHOWN = clip(24, SIZE)
FIRST, BOX = SHOWN[0]


def follow(images, box: Box, fps: float = 30.0) -> list[Track]:
    tracker = OneTarget(open_targets(open_pipeline(PipelineConfig(threads=1)), TrackerConfig()))
    tracks = []
    for i, image in enumerate(images):
        frame = Frame(Image.from_array(np.ascontiguousarray(image)), round(i * 1e9 / fps))
        tracks.append(tracker.step(frame, None if i else Prompt(box=box)))
    return tracks


def assert_followed(tracks, boxes, least: float = 0.5) -> None:
    assert tracks[-1].state is TrackState.TRACKING
    assert [
        round(iou(t.box, b), 2) for t, b in zip(tracks, boxes, strict=True) if iou(t.box, b) < least
    ] == []


def changed(change: Callable[[np.ndarray, int], np.ndarray]) -> tuple[list[Track], list[Box]]:
    """The tracks of the clip with its images changed, and the true boxes."""
    images = [change(bgr, i) for i, (bgr, _) in enumerate(SHOWN)]
    return follow(images, BOX), [box for _, box in SHOWN]


def zoomed(factors):
    """The first image, enlarged around the target."""
    for factor in factors:
        matrix = np.array([[factor, 0, BOX.cx * (1 - factor)], [0, factor, BOX.cy * (1 - factor)]])
        box = Box.from_centre(BOX.cx, BOX.cy, factor * BOX.width, factor * BOX.height)
        yield cv2.warpAffine(FIRST, matrix, SIZE, borderMode=cv2.BORDER_REFLECT_101), box


@pytest.mark.parametrize("level", [0, 128, 255])
def test_a_selection_on_an_image_of_one_shade_is_weak(level):
    track = follow([np.full_like(FIRST, level)], BOX)[0]
    assert track.reason.code is ReasonCode.BLANK_BOX
    assert track.state is TrackState.ACQUIRING


def test_a_selection_on_a_blurred_image_is_followed_once_it_is_sharp():
    assert_followed(*changed(lambda bgr, i: cv2.GaussianBlur(bgr, (0, 0), 4) if i < 3 else bgr), least=0.4)


def test_of_a_target_that_is_mostly_covered_the_visible_part_is_selected_and_it_is_said():
    covered, edge = FIRST.copy(), int(BOX.cx + 0.2 * BOX.width)
    covered[:, :edge] = cv2.resize(FIRST[:40], (edge, SIZE[1]))
    track = follow([covered], BOX)[0]
    assert iou(track.box, Box.from_edges(edge, BOX.y, BOX.x1, BOX.y1)) > 0.5
    assert track.reason.code is ReasonCode.PART_OF_BOX


def test_a_target_that_leaves_the_image_is_selected_and_followed_by_its_visible_part():
    """Half of it is in view at first, a sixth in the last image."""
    x = int(BOX.cx)
    boxes = [box.moved(-x, 0).clipped(SIZE[0] - x, SIZE[1]) for _, box in SHOWN[:8]]
    tracks = follow([bgr[:, x:] for bgr, _ in SHOWN[:8]], BOX.moved(-x, 0))
    assert_followed(tracks, boxes)


@pytest.mark.parametrize(("start", "end"), [(0.6, 6.0), (1.0, 0.2)])
def test_a_target_may_grow_tenfold_or_shrink_to_8_px_within_two_seconds(start, end):
    images, boxes = zip(*zoomed(np.geomspace(start, end, 60)), strict=True)
    assert_followed(follow(images, boxes[0]), boxes)


def exposure(bgr, i):
    return bgr if i < 8 else cv2.convertScaleAbs(bgr, alpha=0.35 if i < 16 else 1.8)


def night(bgr, i):
    """A tenth of the light, and the sensor's noise."""
    noise = np.random.default_rng(i).normal(0, 4, bgr.shape)
    return np.clip(bgr * 0.12 + noise, 0, 255).astype(np.uint8)


def thermal(bgr, i):
    """One channel, soft, what is dark is bright."""
    return cv2.merge([255 - cv2.GaussianBlur(cv2.cvtColor(bgr, cv2.COLOR_BGR2GRAY), (0, 0), 1)] * 3)


@pytest.mark.parametrize("change", [exposure, night, thermal])
def test_it_is_followed_in_other_light(change):
    tracks, boxes = changed(change)
    assert_followed(tracks, boxes)
    assert tracks[0].reason == ""  # a clear selection is not called weak


def test_beside_its_twin_the_selected_one_is_followed():
    def beside(bgr, i):
        x, y, width, height = (int(v) for v in (BOX.x - 4, BOX.y - 4, BOX.width + 8, BOX.height + 8))
        left = int(SHOWN[i].box.x - 2.2 * BOX.width)
        image = bgr.copy()
        image[y : y + height, left : left + width] = FIRST[y : y + height, x : x + width]
        return image

    assert_followed(*changed(beside))
