"""What the network looks at while the target moves, hides and returns."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from efftam_ros.core.crop import OPENED, make_crop_policy
from efftam_ros.core.geometry import Box

IMAGE = (1280, 720)
TARGET = Box.from_centre(400, 300, 40, 30)


def started(factor=5.0, box=TARGET):
    crop_policy = make_crop_policy("window", 192, factor)
    return crop_policy, crop_policy.starts(IMAGE, box, box)[0]


def network_px(view, box):
    return view.to_network(box).size


@pytest.mark.parametrize(("size", "full"), [(30, False), (89, False), (92, True), (400, True)])
def test_the_automatic_view_is_full_from_48_network_px_on(size, full):
    """Of 512, in 1280 x 720: 90 px."""
    crop_policy = make_crop_policy("auto", 512, 5.0)
    box = Box.from_centre(400, 300, size, size)
    (view,) = crop_policy.starts(IMAGE, box, box)
    assert view.is_full(*IMAGE) == crop_policy.view(IMAGE, box, 0.0).is_full(*IMAGE) == full
    assert (crop_policy.extent(IMAGE) is None) == full
    assert network_px(view, box) >= min(48, 512 / 5) - 1


def test_the_automatic_view_changes_only_for_a_target_that_is_clearly_smaller_or_larger():
    crop_policy = make_crop_policy("auto", 512, 5.0)

    def is_full(px, coasted_s=0.0):
        side = px * math.sqrt(IMAGE[0] * IMAGE[1]) / 512
        return crop_policy.view(IMAGE, Box.from_centre(400, 300, side, side), coasted_s).is_full(*IMAGE)

    box = Box.from_centre(400, 300, 100, 100)
    crop_policy.starts(IMAGE, box, box)
    assert [is_full(px) for px in (60, 40, 33, 31, 40, 60, 71, 73, 40)] == [1, 1, 1, 0, 0, 0, 0, 1, 1]
    assert is_full(20, coasted_s=0.5)  # what is not measured changes nothing


def test_points_are_looked_for_in_windows_before_the_automatic_view_is_known():
    crop_policy = make_crop_policy("auto", 512, 5.0)
    assert len(crop_policy.starts(IMAGE, None, Box(900, 500, 0, 0))) == 4
    large = Box.from_centre(900, 500, 200, 200)
    crop_policy.settle(large)
    assert crop_policy.view(IMAGE, large, 0.0).is_full(*IMAGE)


@pytest.mark.parametrize(
    ("factor", "width", "height", "extent"),
    [(5.0, 1280, 20, 1.5 * 1280), (2.0, 400, 10, 600), (5.0, 500, 500, 2.2 * 500), (5.0, 700, 700, 1280)],
)
def test_a_long_or_large_target_fits_with_a_margin(factor, width, height, extent):
    _, view = started(factor, Box.from_centre(640, 300, width, height))
    assert view.extent[0] == pytest.approx(extent)


def test_around_a_point_ever_wider_windows_are_tried_up_to_the_whole_image():
    crop_policy = make_crop_policy("window", 192, 5.0)
    views = crop_policy.starts(IMAGE, None, Box(900, 500, 0, 0))
    assert [view.extent[0] for view in views] == pytest.approx([144, 288, 576, 1280])
    seen = views[0].to_network(Box.from_centre(900, 500, 2, 2))
    assert (seen.cx, seen.cy) == pytest.approx((96, 96))
    apart = crop_policy.starts(IMAGE, None, Box(300, 200, 700, 400))  # several points
    assert [view.extent[0] for view in apart] == pytest.approx([1.2 * 700, 1280])
    crop_policy.settle(TARGET)
    assert crop_policy.view(IMAGE, TARGET, 0.0).extent[0] == pytest.approx(5 * TARGET.size)


@settings(max_examples=60)
@given(*[st.floats(0, size) for size in IMAGE * 2], st.booleans())
def test_every_view_of_a_prompt_shows_all_of_its_points(x0, y0, x1, y1, has_box):
    marked = Box.from_edges(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
    box = Box(x0, y0, 1, 1) if has_box else None
    for view in make_crop_policy("window", 192, 5.0).starts(IMAGE, box, marked):
        seen = view.to_network(marked)
        assert min(seen.x, seen.y) > -1e-6
        assert max(seen.x1, seen.y1) < 192 + 1e-6


@pytest.mark.parametrize(
    ("factor", "first", "later", "images", "grown"),
    [
        *(
            (5.0, 40, 160, 300, 2.0),
            (20.0, 5, 400, 300, 8.0),
            (5.0, 40, 1, 300, 0.8),
        ),  # for good: within bounds
        (5.0, 40, 80, 15, 2 ** (0.5 * (1 - math.exp(-0.5 / 0.3)))),
        *((5.0, 40, 20, 15, math.exp(-0.1 * 0.5)), (5.0, 40, 800, 1, math.exp(1.5 / 30))),  # at most so fast
    ],
)
def test_a_change_of_size_is_followed_at_half_strength(factor, first, later, images, grown):
    """Four times the size for good: the window doubles. At full strength a bleeding mask would feed back. It
    grows readily and shrinks hardly."""
    crop_policy, _ = started(factor, Box.from_centre(400, 300, first, first))
    for _ in range(images):
        crop_policy.update(Box.from_centre(400, 300, later, later), 1 / 30)
    extent = crop_policy.view((4000, 4000), TARGET, 0.0).extent[0]
    assert extent == pytest.approx(grown * factor * first, rel=0.01)


def test_of_a_long_target_that_turns_the_window_follows_the_length_within_half_a_second():
    crop_policy, view = started(2.0, Box.from_centre(400, 300, 400, 10))
    extents = []
    for _ in range(45):
        crop_policy.update(Box.from_centre(400, 300, 60, 60), 1 / 30)
        extents.append(crop_policy.view(IMAGE, TARGET, 0.0).extent[0])
    assert view.extent[0] == pytest.approx(1.5 * 400)
    assert extents[8] == pytest.approx(1.5 * (60 + 340 / math.e), rel=0.01)
    assert extents[-1] == pytest.approx(2 * math.sqrt(4000), rel=0.1)


def test_the_window_is_a_multiple_of_the_target_around_it_and_opens_a_little_while_coasting():
    """Not much: in a window twice as wide as it was trained for, a network floods small targets."""
    crop_policy, first = started()
    views = [crop_policy.view(IMAGE, TARGET, s) for s in (0.0, 0.1, 0.29, 0.3, 1.0, 5.0)]
    opened = [view.extent[0] / first.extent[0] for view in views]
    assert first.extent == pytest.approx((5 * TARGET.size, 5 * TARGET.size))
    assert opened == pytest.approx([1.0] * 3 + [OPENED] * 3)
    for view in (first, *views):
        seen = view.to_network(TARGET)
        assert (seen.cx, seen.cy) == pytest.approx((96, 96))


@pytest.mark.parametrize("image", [IMAGE, IMAGE[::-1]])
@pytest.mark.parametrize("centre", [(30, 700), (690, 30), (360, 360)])
@pytest.mark.parametrize("size", [30.0, 200.0, 400.0])
def test_no_window_shows_less_of_the_image_than_it_could(size, centre, image):
    """What lies outside an image that is shorter than the window is shared evenly."""
    crop_policy, box = make_crop_policy("window", 192, 5.0), Box.from_centre(*centre, size, size)
    for view in (crop_policy.starts(image, box, box)[0], crop_policy.view(image, box, 0.0)):
        whole = view.to_network(Box(0, 0, *image))
        for low, high in ((whole.x, whole.x1), (whole.y, whole.y1)):
            shown = min(high, 192) - max(low, 0)
            assert shown == pytest.approx(min(192, high - low), rel=1e-6)
            assert high - low >= 192 or low + high == pytest.approx(192)


SIDES = st.floats(10, 400)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(["window", "auto"]),
    sides=st.lists(st.tuples(SIDES, SIDES), min_size=2, max_size=8),
    factor=st.sampled_from([0.5, 2.0]),
)
@example(kind="window", sides=[(300, 10), (200, 10)], factor=0.5)
def test_in_images_of_another_size_the_window_shows_the_same(kind, sides, factor):
    """Also as it goes on: every size that is kept changes with the images."""
    same, resized = (make_crop_policy(kind, 192, 5.0) for _ in range(2))
    first, *later = (Box.from_centre(640, 360, *both) for both in sides)
    for crop_policy in (same, resized):
        crop_policy.starts(IMAGE, first, first)
        crop_policy.update(later[0], 0.1)
    resized.resize(factor)
    image = round(factor * IMAGE[0]), round(factor * IMAGE[1])
    for box in later:
        there = Box(*(factor * number for number in box.xywh()))
        seen = [same.view(IMAGE, box, 0.0), resized.view(image, there, 0.0)]
        assert [v * factor for v in (seen[0].x, seen[0].y, *seen[0].extent)] == pytest.approx(
            [seen[1].x, seen[1].y, *seen[1].extent]
        )
        same.update(box, 0.1)
        resized.update(there, 0.1)


def test_the_window_follows_a_prediction_out_of_the_image_only_to_its_edge():
    crop_policy, _ = started()
    seen = crop_policy.view(IMAGE, Box.from_centre(2000, -300, 40, 30), 0.0).to_network(
        Box.from_centre(1280, 0, 2, 2)
    )
    assert (seen.cx, seen.cy) == pytest.approx((192, 0), abs=1e-6)  # the image's corner is the window's
