"""Points on the target by optical flow: they go on with it, and end where something else takes its place."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from efftam_ros.core.geometry import Box
from efftam_ros.core.policies.default import have_ended
from efftam_ros.core.types import FoundPoints, Image
from efftam_ros.images.points import LONG_IMAGES, FlowPoints, is_blank

WIDTH, HEIGHT = 640, 360


def texture(seed: int, height: int, width: int, spot_px: int = 6) -> np.ndarray:
    """Smooth spots, uint8 [height, width, 3]."""
    shape = height // spot_px + 1, width // spot_px + 1, 3
    coarse = np.random.default_rng(seed).integers(0, 255, shape, np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)


GROUND = texture(0, HEIGHT, WIDTH)
TARGET, COVER = texture(1, 360, 640), texture(2, 360, 640, spot_px=40)


def scene(target: Box, cover: Box | None = None) -> np.ndarray:
    picture = GROUND.copy()
    for box, pixels in ((target, TARGET), (cover, COVER)):
        if box is not None:
            x0, y0, x1, y1 = (round(v) for v in box.clipped(WIDTH, HEIGHT).edges())
            left, top = x0 - round(box.x), y0 - round(box.y)
            picture[y0:y1, x0:x1] = pixels[top : top + y1 - y0, left : left + x1 - x0]
    return picture


def followed(boxes, covers=(), encoding="bgr8", expected=None):
    """What is found in the last image of a target in these boxes, which was confirmed in all others."""
    points = FlowPoints()
    for i, box in enumerate(boxes):
        picture = scene(box, covers[i] if i < len(covers) else None)
        if encoding == "mono8":
            picture = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)
        image = Image.from_array(picture, encoding)
        found = points.follow(image, expected or box)
        points.keep(image, box)
    return found


def path(start: Box, count: int, dx: float = 4, dy: float = 1) -> list[Box]:
    return [start.moved(i * dx, i * dy) for i in range(count)]


@pytest.mark.parametrize("size", [(24, 18), (60, 40), (200, 160)])
@pytest.mark.parametrize("encoding", ["bgr8", "mono8"])
def test_points_go_on_with_a_target_that_moves(size, encoding):
    boxes = path(Box(200, 120, *size), 10)
    found = followed(boxes, encoding=encoding)
    assert found.earlier_count >= 6
    assert len(found.positions) >= 0.9 * found.earlier_count
    assert not have_ended(found, boxes[-1])


@pytest.mark.parametrize(
    ("boxes", "lag"),
    [
        ([Box(150 + 3 * i, 100, 40 + 4 * i, 30 + 3 * i) for i in range(26)], 0),
        # Always ahead of where it was expected, on each side.
        *((path(Box(250, 150, 60, 40), 14, dx, dy), 1) for dx, dy in ((9, 0), (-9, 0), (0, 9), (0, -9))),
    ],
)
def test_points_go_on_with_a_target_that_leaves_the_area_around_its_first_box(boxes, lag):
    """``lag``: images by which the expected box is behind."""
    points, counts = FlowPoints(), []
    for i, box in enumerate(boxes):
        image = Image.from_array(scene(box))
        found = points.follow(image, boxes[max(0, i - lag)])
        points.keep(image, box)
        counts.append((found.earlier_count, len(found.positions)))
    assert all(after >= 0.8 * before >= 4 for before, after in counts[LONG_IMAGES + 2 :])


def test_a_point_counts_after_it_was_followed_for_some_images():
    for count in range(2, LONG_IMAGES + 4):
        found = followed(path(Box(200, 120, 60, 40), count))
        assert (found.earlier_count > 0) == (count > LONG_IMAGES + 1), count


def test_the_places_are_where_the_points_have_gone():
    """Told from a target that jumps, whose box of before says nothing of where they are."""
    boxes = [*path(Box(200, 120, 60, 40), 8, dx=0, dy=0), Box(209, 115, 60, 40)]
    found = followed(boxes, expected=boxes[0])
    assert not have_ended(found, boxes[-1])
    assert have_ended(found, Box(269, 115, 60, 40))  # a neighbour
    before = followed(boxes[:-1])
    shift = np.median(found.positions, axis=0) - np.median(before.positions, axis=0)
    assert shift == pytest.approx((9, -5), abs=1.5)


def test_points_that_leave_the_box_of_a_confirmed_image_are_dropped():
    """The box held some ground: what it left behind does not count."""
    boxes = [*path(Box(180, 110, 100, 60), 6, dx=0), *path(Box(220, 120, 50, 40), 3, dx=0, dy=0)]
    found = followed(boxes)
    assert (found.positions >= (219, 119)).all()
    assert (found.positions <= (271, 161)).all()


@pytest.mark.parametrize(("dx", "dy"), [(0, 0), (25, 0), (40, -10), (0, 22)])
def test_fast_targets_are_followed_by_where_they_are_expected(dx, dy):
    boxes = path(Box(100, 120, 60, 40), 9, dx, dy)
    found = followed(boxes)
    assert found.earlier_count >= 6
    assert not have_ended(found, boxes[-1])


def test_new_points_keep_their_distance_from_those_that_are_followed():
    """Those of the left half are followed as the other half comes into view."""
    points, whole, left = FlowPoints(), Box(200, 120, 60, 40), Box(200, 120, 30, 40)
    image = Image.from_array(scene(whole))
    for box in (left, left, whole, whole):
        points.follow(image, box)
        points.keep(image, box)
    places = points._places
    apart = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1)) + 99 * np.eye(len(places))
    shown = Box.from_centre(whole.cx, whole.cy, 0.8 * whole.width, 0.8 * whole.height)  # its inner part
    assert 10 < len(places) <= 30
    assert (places > (left.x, shown.y - 1.5)).all()
    assert (places < (shown.x1 + 1.5, shown.y1 + 1.5)).all()
    assert apart.min() > 2.5  # a twelfth of the target, less a pixel that the mask rounds


def test_they_end_where_something_else_covers_the_target_compared_with_the_most_of_three_images():
    cover, counts = Box(180, 90, 160, 120), []
    for covered in range(1, 5):
        boxes = path(Box(200, 120, 60, 40), 8 + covered)
        found = followed(boxes, [None] * 8 + [cover] * covered)
        assert have_ended(found, boxes[-1]) is (covered < 4)
        counts.append(found.earlier_count)
    assert counts[0] == counts[1] == counts[2] >= 6 > counts[3]


@pytest.mark.parametrize(
    ("earlier", "inside", "ended"), [(5, 0, False), (6, 0, True), (20, 3, True), (20, 4, False)]
)
def test_of_at_least_six_points_all_but_fifteen_percent_must_be_gone(earlier, inside, ended):
    found = FoundPoints(earlier, np.array([[210.0, 130.0]] * inside).reshape(-1, 2))
    assert have_ended(found, Box(200, 120, 60, 40)) is ended


@pytest.mark.parametrize("moved", [(-1913.0, 0.0), (0.0, -1493.0)])
def test_a_patch_of_a_large_target_whose_part_in_the_image_is_reduced_to_nothing_has_no_points(moved):
    """Nine pixels at a scale of 1/22."""
    points, image = FlowPoints(), Image.from_array(texture(3, 1080, 1920))
    box = Box.from_centre(960, 540, 1050, 1050)
    points.keep(image, box)
    found = points.follow(image, box.moved(*moved))
    assert (found.earlier_count, len(found.positions)) == (0, 0)


@pytest.mark.parametrize(
    "image",
    [
        None,
        Image(np.zeros((2, 2), np.uint8), WIDTH, HEIGHT, "bgr8"),
        Image.from_array(np.zeros((40, 60, 3), np.uint8)),
    ],
    ids=["reset", "bad", "smaller"],
)
@pytest.mark.parametrize("events", ["follow", "follow keep", "keep"])
def test_after_a_reset_or_an_image_that_shows_nothing_of_it_there_are_no_points(image, events):
    points, box = FlowPoints(), Box(500, 120, 60, 40)
    good = Image.from_array(scene(box))
    for _ in range(9):
        points.follow(good, box)
        points.keep(good, box)
    for event in events.split():
        if image is None:
            points.reset()
        else:
            getattr(points, event)(image, box)
    if events == "follow":
        points.keep(good, box)
    assert points.follow(good, box).earlier_count == 0


@given(
    st.floats(-300, 900), st.floats(-300, 600), st.floats(0.5, 700), st.floats(0.5, 700), st.floats(-900, 900)
)
def test_any_box_is_taken(x, y, width, height, shift):
    """Also one beyond the image's border, or larger than the image."""
    points, box = FlowPoints(), Box(x, y, width, height)
    image = Image.from_array(GROUND)
    for _ in range(LONG_IMAGES + 2):
        found = points.follow(image, box.moved(shift, 0))
        points.keep(image, box)
    assert found.positions.shape[1] == 2
    assert len(found.positions) <= found.earlier_count


@pytest.mark.parametrize(
    ("plain", "is_plain"),
    [((140, 80, 320, 200), True), ((144, 80, 316, 200), False), ((140, 84, 320, 196), False)],
)
def test_a_target_of_one_shade_is_blank_only_where_all_is_up_to_three_times_its_size(plain, is_plain):
    picture, (left, top, right, bottom) = GROUND.copy(), plain
    picture[top:bottom, left:right] = 90
    assert is_blank(Image.from_array(picture), Box(200, 120, 60, 40)) is is_plain


def test_a_bad_image_is_not_called_blank():
    assert not is_blank(Image(GROUND[:2], WIDTH, HEIGHT, "bgr8"), Box(200, 120, 60, 40))
