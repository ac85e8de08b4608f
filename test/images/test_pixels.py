"""Every accepted encoding, against conversions written out in support/stored_images.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stored_images import stored

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Image
from efftam_ros.images.pixels import ENCODINGS, Region, check_image, to_bgr, to_grey

WIDTH, HEIGHT = 36, 28
PADDING = 5


def scene() -> np.ndarray:
    """Smooth colours, uint8 [HEIGHT, WIDTH, 3] BGR: chroma and colour-filter cells see little change."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    return np.stack([40 + 4 * x, 200 - 5 * y, 60 + 2 * x + 3 * y], axis=-1).astype(np.uint8)


regions = st.builds(
    lambda x, y: Region(x[0], y[0], x[1] + 1, y[1] + 1),
    *(st.lists(st.integers(0, n - 1), min_size=2, max_size=2).map(sorted) for n in (WIDTH, HEIGHT)),
)


def padded(rows: np.ndarray) -> np.ndarray:
    """The same rows as a view into a buffer whose lines are longer."""
    buffer = np.full((rows.shape[0], rows.shape[1] + PADDING), 99, np.uint8)
    buffer[:, : rows.shape[1]] = rows
    return buffer[:, : rows.shape[1]]


@pytest.mark.parametrize("encoding", ENCODINGS)
class TestEveryEncoding:
    def test_gives_the_colours_of_an_independent_conversion(self, encoding: str) -> None:
        rows, expected = stored(encoding, scene())
        got = to_bgr(Image(np.ascontiguousarray(rows), WIDTH, HEIGHT, encoding))
        assert got.shape == (HEIGHT, WIDTH, 3)
        assert got.dtype == np.uint8
        difference = np.abs(got.astype(int) - expected)
        if encoding.startswith(
            "bayer_"
        ):  # the border has no neighbours to ask; slopes of up to 5 levels per pixel
            assert difference[2:-2, 2:-2].max() <= 2
            assert difference.max() <= 10
        else:
            assert difference.max() <= 2

    def test_ignores_row_padding_and_reads_bytes_that_may_not_be_written(self, encoding: str) -> None:
        rows, _ = stored(encoding, scene())
        plain = to_bgr(Image(np.ascontiguousarray(rows), WIDTH, HEIGHT, encoding))
        frozen = np.frombuffer(rows.tobytes(), np.uint8).reshape(rows.shape)
        for other in (padded(rows), frozen):
            assert np.array_equal(plain, to_bgr(Image(other, WIDTH, HEIGHT, encoding)))

    @settings(max_examples=40)
    @given(data=st.data())
    def test_a_region_is_a_part_of_the_whole_and_its_grey_the_lightness_of_its_colours(
        self, encoding: str, data: st.DataObject
    ) -> None:
        region = data.draw(regions)
        x0, y0, x1, y1 = region
        row_step = data.draw(st.integers(1, HEIGHT))
        column_step = data.draw(st.sampled_from([n for n in range(1, 17) if (x1 - x0) % n == 0]))
        rows, _ = stored(encoding, scene())
        image = Image(padded(rows), WIDTH, HEIGHT, encoding)
        part = to_bgr(image, region)
        assert np.array_equal(part, to_bgr(image)[y0:y1, x0:x1])
        blue, green, red = part[::row_step, ::column_step].astype(float).transpose(2, 0, 1)
        grey = to_grey(image, region, row_step, column_step)
        assert grey.dtype == np.uint8
        # Luma and chroma are rounded apart, so the lightness of colours made from both differs by two levels.
        assert np.abs(grey - (0.114 * blue + 0.587 * green + 0.299 * red)).max() <= 2

    def test_too_few_bytes_are_refused_with_both_numbers(self, encoding: str) -> None:
        rows, _ = stored(encoding, scene())
        count, length = rows.shape
        for cut, width, said in (
            (rows[:, :-1], WIDTH, rf"{length - 1} bytes; .* need {length}"),
            (rows[:-1], WIDTH, rf"after {count - 1} rows; .* need {count}: .*truncated"),
            (rows, 0, "0 x 28 px; both sides must be at least 1"),
        ):
            for read in (check_image, to_grey):
                with pytest.raises(InputError, match=said):
                    read(Image(cut, width, HEIGHT, encoding))
        with pytest.raises(InputError, match="36 x 0 px; both sides must be at least 1"):
            check_image(Image(rows, WIDTH, 0, encoding))


@pytest.mark.parametrize("encoding", ["bgr8", "rgb8", "bgra8", "rgba8", "mono8", "8UC1", "8UC3"])
def test_plain_encodings_are_read_without_a_copy(encoding: str) -> None:
    rows, _ = stored(encoding, scene())
    image = Image(np.ascontiguousarray(rows), WIDTH, HEIGHT, encoding)
    pixels = check_image(image).read(image, Region(3, 2, 30, 20))
    assert np.shares_memory(pixels, image.rows)


@pytest.mark.parametrize(
    ("encoding", "width", "height", "sides"),
    [
        ("nv12", 35, 28, "width and height"),
        ("nv21", 36, 27, "width and height"),
        ("yuv422", 35, 28, "width"),
        ("yuyv", 35, 28, "width"),
        ("bayer_rggb8", 35, 28, "width and height"),
    ],
)
def test_odd_sizes_are_refused_where_pixels_share_colour(
    encoding: str, width: int, height: int, sides: str
) -> None:
    rows = np.zeros((100, 200), np.uint8)
    with pytest.raises(
        InputError, match=f"{width} x {height} px; encoding {encoding} needs an even {sides}:"
    ):
        check_image(Image(rows, width, height, encoding))


def test_an_odd_height_is_fine_where_rows_stand_alone() -> None:
    rows, _ = stored("yuv422", scene())
    whole = to_bgr(Image(rows, WIDTH, HEIGHT, "yuv422"))
    assert np.array_equal(to_bgr(Image(rows[:-1], WIDTH, HEIGHT - 1, "yuv422")), whole[:-1])


def test_an_unknown_encoding_is_refused_with_the_names_that_are_known() -> None:
    with pytest.raises(InputError) as refusal:
        check_image(Image(np.zeros((4, 4), np.uint8), 4, 4, "32FC1"))
    assert "'32FC1'" in str(refusal.value)
    assert all(name in str(refusal.value) for name in ENCODINGS)


@pytest.mark.parametrize(
    ("rows", "width"),
    [
        (np.zeros((4, 4), np.int8), 4),
        (np.zeros((4, 4, 1), np.uint8), 4),
        (np.zeros((4, 8), np.uint8)[:, ::2], 4),
        (np.zeros((4, 8), np.uint8)[:, ::2], 1),
    ],
    ids=["signed", "three axes", "bytes apart", "bytes apart, of which one is used"],
)
def test_rows_of_another_form_are_refused(rows: np.ndarray, width: int) -> None:
    with pytest.raises(InputError, match="give uint8"):
        check_image(Image(rows, width, 4, "mono8"))


def test_a_single_column_may_be_a_part_of_wider_rows() -> None:
    check_image(Image(np.zeros((4, 8), np.uint8)[:, ::8], 1, 4, "mono8"))


@pytest.mark.parametrize(
    ("box", "share", "pixels"),
    [
        (Box(2.5, 3.2, 10.0, 8.0), 1.0, (2, 3, 13, 12)),
        (Box(2.5, 3.2, 10.0, 8.0), 0.5, (5, 5, 10, 10)),
        (Box(-4.0, -3.0, 10.0, 10.0), 1.0, (0, 0, 6, 7)),
        (Box(30.0, 20.0, 10.0, 10.0), 1.0, (30, 20, WIDTH, HEIGHT)),
        *((box, 1.0, None) for box in (Box(50, 2, 9, 9), Box(2, 50, 9, 9), Box(-20, -20, 9, 9))),
        *((box, 1.0, None) for box in (Box(2.5, 2.5, 0, 5), Box(2.5, 2.5, 5, 0), Box(math.nan, 2, 5, 5))),
    ],
)
def test_the_pixels_of_a_box_are_those_that_it_touches_in_the_image(box, share, pixels) -> None:
    found = Region.inside(box, share, Image.from_array(scene()))
    assert found.is_empty if pixels is None else found == pixels


def test_the_smallest_images_are_read() -> None:
    for encoding in ENCODINGS:
        rows = np.full((3, 8), 128, np.uint8)
        assert to_bgr(Image(rows, 2, 2, encoding)).shape == (2, 2, 3)


@pytest.mark.parametrize("encoding", ["bgr8", "mono8", "nv12", "bayer_rggb8"])
@given(
    asked=st.lists(
        st.tuples(st.none() | regions, st.integers(1, 4), st.sampled_from([1, WIDTH])), min_size=2, max_size=5
    )
)
def test_what_an_image_was_asked_for_before_changes_no_answer(encoding: str, asked: list) -> None:
    """It keeps what it was checked for, and its grey once that was asked for whole."""
    rows = np.random.default_rng(3).integers(0, 256, (54, WIDTH * 3), np.uint8)
    one = Image(rows, WIDTH, HEIGHT, encoding)
    for region, row_step, column_step in asked:
        if region is not None:
            column_step = 1 if column_step == 1 else region.x1 - region.x0
        fresh = to_grey(Image(rows, WIDTH, HEIGHT, encoding), region, row_step, column_step)
        assert np.array_equal(to_grey(one, region, row_step, column_step), fresh)


def test_an_image_is_checked_and_made_grey_once(monkeypatch: pytest.MonkeyPatch) -> None:
    image = Image.from_array(np.zeros((36, 48, 3), np.uint8))
    check_image(image)
    whole = to_grey(image)
    monkeypatch.setitem(ENCODINGS, "bgr8", None)
    assert check_image(image).bytes_per_pixel == 3
    assert np.shares_memory(to_grey(image, Region(5, 3, 31, 27)), whole)
