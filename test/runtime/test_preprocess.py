"""From image bytes to network input: colours, geometry, filter."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from golden.clip import clip
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Image
from efftam_ros.runtime.preprocess import Preprocessor, fineness

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RED = np.array([10, 20, 200], np.uint8)  # BGR


def make(side: int) -> Preprocessor:
    return Preprocessor(side, MEAN, STD)


def levels(network_input: np.ndarray) -> np.ndarray:
    """Back to 0..255, float [3, S, S] RGB."""
    return (network_input[0] * np.array(STD)[:, None, None] + np.array(MEAN)[:, None, None]) * 255


def blob(width: int, height: int, x: float, y: float, sigma_x: float, sigma_y: float) -> Image:
    """A grey bell around the image point (x, y), on black."""
    across = np.exp(-((np.arange(width) + 0.5 - x) ** 2) / (2 * sigma_x**2))
    down = np.exp(-((np.arange(height) + 0.5 - y) ** 2) / (2 * sigma_y**2))
    return Image.from_array(np.rint(250 * down[:, None] * across).astype(np.uint8), "mono8")


def centroid(picture: np.ndarray) -> tuple[float, float]:
    """In edge coordinates."""
    centres = np.arange(picture.shape[0]) + 0.5
    total = picture.sum()
    return float((picture.sum(0) * centres).sum() / total), float((picture.sum(1) * centres).sum() / total)


class TestColours:
    @pytest.mark.parametrize(
        ("encoding", "pixel"),
        [
            ("bgr8", [10, 20, 200]),
            ("rgb8", [200, 20, 10]),
            ("bgra8", [10, 20, 200, 7]),
            ("rgba8", [200, 20, 10, 7]),
        ],
    )
    @pytest.mark.parametrize("window", [False, True])
    def test_come_out_as_normalised_rgb(self, encoding: str, pixel: list[int], window: bool) -> None:
        image = Image.from_array(np.full((60, 80, len(pixel)), pixel, np.uint8), encoding)
        view = View.window(40, 30, 20, 32) if window else View.full(80, 60, 32)
        got = make(32)(image, view)
        expected = (np.array([200, 20, 10]) / 255 - MEAN) / STD
        assert np.allclose(got[0], expected[:, None, None], atol=1e-5)

    def test_change_of_size_and_encoding_between_frames(self) -> None:
        prepare = make(32)
        rng = np.random.default_rng(0)
        shapes = {"bgr8": (60, 80, 3), "mono8": (30, 90), "rgba8": (300, 200, 4), "8UC3": (60, 80, 3)}
        for encoding, shape in shapes.items():
            image = Image.from_array(rng.integers(0, 256, shape, np.uint8), encoding)
            view = View.full(image.width, image.height, 32)
            assert np.array_equal(prepare(image, view), make(32)(image, view))


class TestTheArray:
    def test_is_one_and_the_same_for_every_call(self) -> None:
        prepare = make(32)
        first = prepare(Image.from_array(np.zeros((60, 80, 3), np.uint8)), View.full(80, 60, 32))
        second = prepare(
            Image.from_array(np.full((200, 300), 9, np.uint8), "mono8"), View.window(9, 9, 99, 32)
        )
        assert first is second is prepare.output
        assert first.shape == (1, 3, 32, 32)
        assert first.dtype == np.float32
        assert first.flags.c_contiguous

    def test_is_not_touched_by_a_refused_image(self) -> None:
        prepare = make(32)
        before = prepare(Image.from_array(np.full((60, 80, 3), 77, np.uint8)), View.full(80, 60, 32)).copy()
        with pytest.raises(InputError):
            prepare(Image(np.zeros((60, 100), np.uint8), 80, 60, "bgr8"), View.full(80, 60, 32))
        assert np.array_equal(prepare.output, before)


class TestAPointOfTheImageLiesWhereTheViewSaysIt:
    """Up to 0.05 network px, and in windows half of the 1/32 image px to which OpenCV 4 rounds positions."""

    @settings(max_examples=40, deadline=None)
    @given(
        x=st.floats(0.3, 0.7), y=st.floats(0.3, 0.7), width=st.integers(40, 900), height=st.integers(40, 900)
    )
    def test_full_view(self, x: float, y: float, width: int, height: int) -> None:
        view = View.full(width, height, 64)
        image = blob(width, height, x * width, y * height, 0.06 * width, 0.06 * height)
        got = levels(make(64)(image, view))[0]
        assert centroid(got) == pytest.approx((64 * x, 64 * y), abs=0.05)

    @settings(max_examples=60, deadline=None)
    @given(
        x=st.floats(150.0, 250.0),
        y=st.floats(120.0, 180.0),
        extent=st.floats(20.0, 240.0),  # wider and the image's border would cut the bell
        shift=st.floats(-0.15, 0.15),
    )
    def test_window_view(self, x: float, y: float, extent: float, shift: float) -> None:
        view = View.window(x + shift * extent, y - shift * extent, extent, 64)
        sigma = max(0.05 * extent, 2.0)
        got = levels(make(64)(blob(400, 300, x, y, sigma, sigma), view))[0]
        target = view.to_network(Box(x, y, 0, 0))
        assert centroid(got) == pytest.approx((target.x, target.y), abs=0.05 + view.scale_x / 64)


class TestTheFilter:
    def test_differs_little_from_the_reference_on_the_golden_clip(self) -> None:
        frames, _ = clip()
        for side, rms_limit in ((512, 0.75), (192, 0.85)):
            prepare, view = make(side), View.full(640, 480, side)
            for frame in frames[::6]:
                got = levels(prepare(Image.from_array(frame, "rgb8"), view))
                reference = np.asarray(PillowImage.fromarray(frame).resize((side, side))).transpose(2, 0, 1)
                assert np.sqrt(((got - reference) ** 2).mean()) < rms_limit

    @pytest.mark.parametrize(
        ("size", "window", "upright"),
        [
            *product([(640, 480), (1280, 720), (1920, 1080), (3840, 2160)], (False, True), (False,)),
            *product([(1280, 360)], (False,), (False, True)),  # squeezed more along one axis
        ],
    )
    def test_does_not_alias(self, size: tuple[int, int], window: bool, upright: bool) -> None:
        """Of stripes four pixels apart, finer than the network can show, most of the contrast goes (a
        standard deviation of 127); bilinear sampling alone turns it into false stripes of 100 and more."""
        width, height = size
        pixels = np.zeros((height, width), np.uint8)
        pixels[:, ::4] = pixels[:, 1::4] = 255
        pixels = np.ascontiguousarray(pixels.T) if upright else pixels
        view = View.full(pixels.shape[1], pixels.shape[0], 192)
        if window:
            view = View.window(width / 2 + 0.3, height / 2, height, 192)
        got = levels(make(192)(Image.from_array(pixels, "mono8"), view))[0, 4:-4, 4:-4]
        assert got.mean() == pytest.approx(127.5, abs=2)
        assert got.std() < 64

    @pytest.mark.parametrize(
        ("width", "height", "samples"),
        [
            *((96, 96, 1), (192, 320, 1), (320, 192, 1), (192, 326, 2), (640, 480, 2), (650, 480, 3)),
            *((6700, 480, 21), (60_000, 480, 21)),
            (960.0000000000002, 192, 3),  # above a whole number of samples by rounding alone
        ],
    )
    def test_takes_as_many_samples_as_the_image_has_pixels_for_and_at_most_4096_along_a_side(
        self, width: float, height: float, samples: int
    ) -> None:
        """Six tenths of a sample for a pixel will do."""
        assert fineness(View.full(width, height, 192)) == samples

    def test_keeps_both_views_alike(self) -> None:
        """The whole of a square image as full view and as window is the same picture."""
        pixels = clip()[0][0][:400, :400]
        image = Image.from_array(np.ascontiguousarray(pixels), "rgb8")
        full = levels(make(192)(image, View.full(400, 400, 192)))
        window = levels(make(192)(image, View(0.0, 1e-9, 0.48, 0.48, 192)))
        assert np.abs(full - window)[:, 1:-1, 1:-1].max() <= 2


class TestOutsideTheImage:
    def test_is_black_before_normalising(self) -> None:
        image = Image.from_array(np.full((60, 80, 3), 200, np.uint8))
        got = levels(make(32)(image, View.window(0, 0, 40, 32)))
        assert np.abs(got[:, :15, :]).max() < 0.01
        assert np.abs(got[:, :, :15]).max() < 0.01
        assert np.abs(got[:, 17:, 17:] - 200).max() < 0.01
        assert np.abs(levels(make(32)(image, View.window(500, 500, 40, 32)))).max() < 0.01


def test_a_window_depends_on_its_own_pixels_alone() -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (400, 600, 3), np.uint8)
    view = View.window(300, 200, 100, 64)
    before = make(64)(Image.from_array(pixels), view).copy()
    elsewhere = np.ones((400, 600), bool)
    elsewhere[148:252, 248:352] = False
    pixels[elsewhere] = 0
    assert np.array_equal(make(64)(Image.from_array(pixels), view), before)
