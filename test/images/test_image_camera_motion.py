"""The camera's motion from images: what it finds, and that it stays silent where the images do not tell."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efftam_ros.core.geometry import Box
from efftam_ros.core.motion import moved_point
from efftam_ros.core.types import CameraMotion, Image
from efftam_ros.images.camera_motion import ImageCameraMotion, Landmarks, rejection
from efftam_ros.images.pixels import GREY

WIDTH, HEIGHT = 1280, 720


@pytest.fixture(scope="module")
def ground():
    """A textured plane larger than the image, uint8 [H, W, 3]."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 255, (130, 210, 3), np.uint8)
    return cv2.resize(coarse, (2100, 1300), interpolation=cv2.INTER_CUBIC)


def look(ground, x: float = 400, y: float = 250, zoom: float = 1.0) -> np.ndarray:
    matrix = np.array([[zoom, 0, -zoom * x], [0, zoom, -zoom * y]])
    return cv2.warpAffine(ground, matrix, (WIDTH, HEIGHT), flags=cv2.INTER_LINEAR)


def moving_target(ground, box: Box, shift: int) -> list[np.ndarray]:
    """Two looks at the resting ground; a textured target at ``box`` is ``shift`` px further in the second."""
    x0, y0, x1, y1 = map(int, box.edges())
    pictures = [look(ground), look(ground)]
    for picture, dx in zip(pictures, (0, shift), strict=True):
        picture[y0:y1, x0 + dx : x1 + dx] = look(ground, 0, 0)[y0:y1, x0:x1]
    return pictures


def told(*pictures, targets=()):
    """The motion to the last picture, in which the targets are told."""
    source = ImageCameraMotion()
    for index, picture in enumerate(pictures, 1):
        image = Image.from_array(np.ascontiguousarray(picture))
        motion = source.estimate(image, index, targets if index == len(pictures) else ())
    return motion


@pytest.mark.parametrize(
    ("dx", "dy", "zoom"), [(0, 0, 1.0), (35, 0, 1.0), (-20, 30, 1.0), (10, 5, 1.1), (260, -80, 1.0)]
)
def test_pans_and_zooms_are_found_to_a_pixel(ground, dx, dy, zoom):
    """The last one is beyond the range of the flow."""
    motion = told(look(ground), look(ground, 400 + dx, 250 + dy, zoom))
    for x, y in ((100, 100), (640, 360), (1200, 650)):
        expected = ((x + 400 - 400 - dx) * zoom, (y + 250 - 250 - dy) * zoom)
        assert moved_point(motion.matrix, x, y) == pytest.approx(expected, abs=1.0)


# Most of the image with its surroundings, which are left out, too; and at the image's corner.
@pytest.mark.parametrize("target", [Box(340, 160, 600, 400), Box(0, 0, 820, 480)])
@pytest.mark.parametrize("rests", [1, 3])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_target_does_not_count_as_ground(ground, target, rests, is_first):
    """It moves by itself, with all around it; a second target and the ground rest. ``rests``: images
    before, whose corners are followed on."""
    moving = Box.from_centre(target.cx, target.cy, 1.45 * target.width, 1.45 * target.height)
    before, moved = moving_target(ground, moving.clipped(1200, HEIGHT), 30)
    targets = [target, Box(1240, 20, 20, 20)][:: 1 if is_first else -1]
    motion = told(*[before] * rests, moved, targets=targets)
    assert moved_point(motion.matrix, 1260, 700) == pytest.approx((1260, 700), abs=1.0)


@pytest.mark.parametrize("share", [0.2, 0.5])
def test_what_moves_together_is_the_ground_only_where_it_is_three_tenths(ground, share):
    """In each of 40 parts of the image something else moves; in a share of them the same."""
    rng, moved = np.random.default_rng(2), look(ground)
    for part in range(40):
        dx, dy = (24, -12) if part % 10 < 10 * share else rng.integers(-40, 40, 2)
        x, y = part % 8 * 160, part // 8 * 144
        moved[y : y + 144, x : x + 160] = look(ground, 400 - dx, 250 - dy)[y : y + 144, x : x + 160]
    motion = told(look(ground), moved)
    assert (motion.matrix is not None) is (share > 0.3)
    assert motion.matrix is None or moved_point(motion.matrix, 640, 360) == pytest.approx((664, 348), abs=1.0)


# Also one of which no whole number of columns can be left out.
@pytest.mark.parametrize(("width", "height"), [(300, 168), (1930, 1086), (2560, 1440), (1366, 768)])
def test_images_of_any_size_do_as_well(ground, width, height):
    factor = width / WIDTH
    motion = told(*(cv2.resize(look(ground, x), (width, height)) for x in (400, 420)))
    for x, y in ((100, 100), (640, 360), (1200, 650)):
        moved = moved_point(motion.matrix, factor * x, factor * y)
        assert moved == pytest.approx((factor * (x - 20), factor * y), abs=max(0.7, 1.5 * factor))


@pytest.mark.parametrize("width", [WIDTH, 320])
def test_a_buffer_that_the_next_image_reuses_is_no_camera_at_rest(ground, width):
    """A capture loop writes image after image to the same bytes; of the small grey one none are converted."""
    source, rows = ImageCameraMotion(), np.zeros((width * 9 // 16, width), np.uint8)
    for index, x in enumerate((400, 480)):
        rows[:] = cv2.cvtColor(cv2.resize(look(ground, x), rows.shape[::-1]), cv2.COLOR_BGR2GRAY)
        motion = source.estimate(Image.from_array(rows, "mono8"), index, ())
    centre, shift = width / 2, 80 * width / WIDTH
    assert moved_point(motion.matrix, centre, 90)[0] == pytest.approx(centre - shift, abs=1.0)


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)


SILENT = {
    "no previous image": lambda ground: [look(ground)],
    "without texture": lambda ground: [np.full((HEIGHT, WIDTH, 3), 90, np.uint8)] * 2,
    "black": lambda ground: [look(ground), np.zeros((HEIGHT, WIDTH, 3), np.uint8)],
    "black before": lambda ground: [np.zeros((HEIGHT, WIDTH, 3), np.uint8), look(ground)],
    "blurred to nothing": lambda ground: [cv2.blur(look(ground), (401, 401))] * 2,
    "another scene": lambda ground: [noise(1), noise(2)],
    "another size": lambda ground: [look(ground), cv2.resize(look(ground), (640, 360))],
    "a strip of texture": lambda ground: [_strip(ground, 0), _strip(ground, 8)],
    "mirrored": lambda ground: [look(ground), look(ground)[:, ::-1]],
}


def _strip(ground, shift: int) -> np.ndarray:
    picture = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
    picture[300:340] = look(ground, 400 + shift)[300:340]
    return picture


@pytest.mark.parametrize("case", SILENT)
def test_what_does_not_tell_is_no_motion_with_a_reason(ground, case):
    motion = told(*SILENT[case](ground))
    assert motion.matrix is None
    assert motion.reason


def test_a_bad_image_is_no_motion_and_leaves_the_one_before(ground):
    source = ImageCameraMotion()
    source.estimate(Image.from_array(look(ground)), 0, ())
    bad = source.estimate(Image(np.zeros((2, 2), np.uint8), WIDTH, HEIGHT, "bgr8"), 1, None)
    assert bad.matrix is None
    good = source.estimate(Image.from_array(look(ground, 410)), 2, ())
    assert moved_point(good.matrix, 640, 360) == pytest.approx((630, 360), abs=1.0)


def test_after_a_reset_there_is_no_image_before(ground):
    source = ImageCameraMotion()
    source.estimate(Image.from_array(look(ground)), 0, ())
    source.reset()
    assert source.estimate(Image.from_array(look(ground)), 1, ()).matrix is None


def homography(zoom=1.0, dx=0.0, dy=0.0, g=0.0, h=0.0, a=None, i=1.0) -> np.ndarray:
    """About the image's middle; ``dx``, ``dy`` in widths, ``g`` over the width, ``h`` over the height."""
    x, y = WIDTH / 2, HEIGHT / 2
    first = zoom if a is None else a
    return np.array(
        [
            [first, 0, dx * WIDTH + (1 - first) * x],
            [0, zoom, dy * WIDTH + (1 - zoom) * y],
            [g / WIDTH, h / HEIGHT, i],
        ]
    )


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (homography(), ""),
        *((homography(zoom), "") for zoom in (1.55, 1 / 1.55)),
        *((homography(zoom), "the homography zooms by") for zoom in (1.65, 1 / 1.65)),
        *((homography(dx=dx, dy=dy), "") for dx, dy in ((0.58, 0), (-0.58, 0), (0, 0.58), (-0.4, 0.4))),
        *(
            (homography(dx=dx, dy=dy), "the homography shifts by")
            for dx, dy in ((0.62, 0), (0, -0.62), (-0.45, 0.45))
        ),
        (homography(a=-1.0), "the homography mirrors"),
        *((homography(g=g, h=h), "") for g, h in ((0.3, 0), (0, 0.3), (-0.2, 0), (0, -0.2))),
        *(
            (homography(g=g, h=h), "homography's perspective")
            for g, h in ((0.4, 0), (0, 0.4), (-0.27, 0), (0, -0.27))
        ),
        *((homography(g=g, h=h), "to infinity") for g, h in ((-1.2, 0), (0, -1.2), (-0.6, -0.6), (-1, 0))),
        (homography(i=0.0), "not a finite"),
        (homography(zoom=np.nan), "not a finite"),
        *((matrix, "not a finite") for matrix in (np.eye(2), np.zeros((3, 3)))),
    ],
)
def test_what_no_camera_does_between_two_images_is_refused(matrix, words):
    """At most a zoom of 1.6, a shift of 0.6 of the longer side, 1.5 between the zooms of two corners."""
    reason = rejection(matrix, WIDTH, HEIGHT)
    assert words in reason
    assert bool(words) == bool(reason)


def moved_by(dx: float, dy: float) -> np.ndarray:
    return np.array([[1.0, 0, dx], [0, 1, dy], [0, 0, 1]])


@given(st.floats(-math.pi, math.pi))
def test_a_roll_shifts_what_is_not_in_its_centre(angle):
    """What counts is where the middle of the image goes."""
    c, s = math.cos(angle), math.sin(angle)
    roll = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    assert rejection(moved_by(640, 360) @ roll @ moved_by(-640, -360), WIDTH, HEIGHT) == ""
    moved = 2 * abs(math.sin(angle / 2)) * math.hypot(640, 360)
    around_the_corner = rejection(roll, WIDTH, HEIGHT, most_shift=0.4)
    assert ("shifts" in around_the_corner) == (moved / 1280 > 0.4)


@pytest.mark.parametrize("factor", [0.2, 5.0, -3.0])
def test_the_scale_of_a_homography_means_nothing(factor):
    for matrix in (moved_by(300, -200), moved_by(1200, 0), moved_by(0, 1200), homography(g=0.3, h=-0.2)):
        assert rejection(factor * matrix, WIDTH, HEIGHT) == rejection(matrix, WIDTH, HEIGHT)


# ---- corners that are followed on --------------------------------------------------------------------------


def test_a_long_pan_is_found_in_every_image_with_corners_looked_for_in_one_of_five(ground, monkeypatch):
    search, source, steps = Mock(wraps=cv2.goodFeaturesToTrack), ImageCameraMotion(), 24
    monkeypatch.setattr(cv2, "goodFeaturesToTrack", search)
    for index in range(steps + 1):
        motion = source.estimate(Image.from_array(look(ground, 20 + 30 * index, 250 + 5 * index)), index, ())
        if index:
            assert moved_point(motion.matrix, 640, 360) == pytest.approx((610, 355), abs=1.0), index
    assert steps / 6 <= search.call_count <= steps / 4


def test_where_too_few_corners_are_left_new_ones_are_looked_for(ground):
    """The upper half, where all corners were, is covered; the lower half has only just become visible."""
    source = ImageCameraMotion()
    upper, both = look(ground), look(ground)
    upper[360:] = 90
    for index, picture in enumerate((upper, upper, both)):
        source.estimate(Image.from_array(picture), index, ())
    lower = look(ground, 420)
    lower[:360] = 90
    motion = source.estimate(Image.from_array(lower), 3, ())
    assert moved_point(motion.matrix, 640, 600) == pytest.approx((620, 600), abs=1.5)


# ---- images that are announced -----------------------------------------------------------------------------


def film(ground) -> list[Image]:
    """A pan of 14 images whose sixth shows nothing, whose ninth is cut off, and whose last are smaller."""
    pictures = [look(ground, 20 + 25 * index) for index in range(14)]
    pictures[5] = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pictures += [cv2.resize(look(ground, 400 + 20 * index), (600, 338)) for index in range(8)]
    images = [Image.from_array(picture) for picture in pictures]
    images[8] = replace(images[8], rows=images[8].rows[:100])
    return images


def crossing(index: int) -> Box:
    """A target that moves over the corners of the images before."""
    return Box(100.0 + 40 * index, 200, 150, 130)


def answers(images, announce) -> list[tuple[bytes, str]]:
    """Bytes and reason of each motion. ``announce``: is called before and after each image's turn."""
    source, told = ImageCameraMotion(), []
    for index, image in enumerate(images):
        announce(source, index, "before")
        motion = source.estimate(image, index, [crossing(index)])
        told.append((b"" if motion.matrix is None else motion.matrix.tobytes(), motion.reason))
        announce(source, index, "after")
    return told


@pytest.mark.parametrize("when", ["after", "before", "another"])
def test_an_announced_image_gives_the_same_motion_to_the_last_bit(ground, when):
    """Announced while the image before it is in work, before that was compared, or never asked for."""

    def announce(source, index, now):
        if when == "another":
            source.prefetch(another)
        elif when == now and index + 1 < len(images):
            source.prefetch(images[index + 1])

    images, another = film(ground), Image.from_array(look(ground))
    expected = answers(images, lambda *_: None)
    assert len({found for found, _ in expected if found}) >= 15
    assert answers(images, announce) == expected


def test_every_announced_image_is_compared_in_the_other_thread(ground, monkeypatch):
    """But where corners are looked for anew, after five images."""
    source, flow, threads = ImageCameraMotion(), cv2.calcOpticalFlowPyrLK, []

    def noted(*given, **how):
        threads.append(threading.current_thread() is threading.main_thread())
        return flow(*given, **how)

    monkeypatch.setattr(cv2, "calcOpticalFlowPyrLK", noted)
    for index in range(11):
        image = Image.from_array(look(ground, 20 + 25 * index))
        source.prefetch(image)
        source.estimate(image, index, ())
    assert threads == [True, *[False] * 5, True, *[False] * 3]


def test_an_image_that_never_has_its_turn_keeps_no_grey_version(ground):
    """The node counts the bytes of the images that it keeps."""
    image, source = Image.from_array(cv2.resize(look(ground), (320, 180))), ImageCameraMotion()
    source.prefetch(image)
    source._worker.shutdown()  # it has looked at the image
    assert GREY not in image.derived


# ---- the kept image ----------------------------------------------------------------------------------------


def after(*pictures, kept: int = 0, target: Box | None = None) -> CameraMotion:
    """The motion from the picture that was kept to the last one; asked for at each, as a search does."""
    source, place = ImageCameraMotion(), None
    for index, picture in enumerate(pictures):
        source.estimate(Image.from_array(np.ascontiguousarray(picture)), index, ())
        if index == kept:
            place = source.keep([target] if target else [])
        motion = source.since(place)
    return motion


@pytest.mark.parametrize(("left", "top", "zoom"), [(520, 170, 1.1), (1180, 250, 1.0)])
def test_a_camera_that_turned_away_and_back_finds_the_kept_place_to_two_pixels(ground, left, top, zoom):
    """What it saw between shares nothing with the kept image, so that steps could not be added up. Two fifths
    of the image are enough, where two images in a row must share more."""
    motion = after(look(ground), noise(7), look(ground, left, top, zoom))
    for x, y in ((900, 200), (1000, 360), (1200, 500)):
        expected = ((x + 400 - left) * zoom, (y + 250 - top) * zoom)
        assert moved_point(motion.matrix, x, y) == pytest.approx(expected, abs=2.0)


@pytest.mark.parametrize(
    ("together", "apart", "height", "is_known"),
    [
        *((14, 0, 720, True), (13, 0, 720, False), (30, 60, 720, True), (20, 60, 720, False)),
        *((30, 0, 300, True), (30, 0, 200, False)),  # all in a strip of the image
    ],
)
def test_enough_features_must_agree_three_of_ten_and_not_in_a_strip(together, apart, height, is_known):
    rng, count = np.random.default_rng(1), together + apart
    before, after = rng.uniform((0, 0), (WIDTH, height), (2, count, 2)).astype(np.float32)
    after[:together] = before[:together] + (20, -10)
    size, descriptors = (WIDTH, HEIGHT), 100 * np.eye(count, 128, dtype=np.float32)
    found = Landmarks(size, before, descriptors).motion_to(Landmarks(size, after, descriptors))
    assert isinstance(found, str) is not is_known
    assert not is_known or moved_point(found, 640, 360) == pytest.approx((660, 350), abs=0.1)


def test_a_target_that_moves_on_does_not_move_the_kept_place(ground):
    """It goes its own way with most of the image; where it was kept, and around it, is left out."""
    motion = after(*moving_target(ground, Box(60, 60, 900, 600), 60), target=Box(210, 160, 600, 400))
    assert moved_point(motion.matrix, 640, 30) == pytest.approx((640, 30), abs=1.5)


@pytest.mark.parametrize("case", ["never kept", "another scene", "another size", "no features"])
def test_without_a_kept_image_to_compare_there_is_a_reason(ground, case):
    source = ImageCameraMotion()
    first, last = look(ground), look(ground)
    if case == "another scene":
        last = noise(7)
    if case == "no features":
        last = np.full_like(last, 90)
    if case == "another size":
        last = cv2.resize(last, (640, 360))
    source.estimate(Image.from_array(first), 0, ())
    place = None if case == "never kept" else source.keep([])
    source.estimate(Image.from_array(last), 1, ())
    motion = source.since(place)
    assert motion.matrix is None
    assert motion.reason
