"""What the kernels are told of an image and a view, and which of its bytes they need."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.cuda.shim import shared_shim

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image
from efftam_ros.images.pixels import ENCODINGS
from efftam_ros.runtime.cuda.preprocess_params import Part, PreprocessParameters

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE = 16
DISTINCT = ["bgr8", "rgba8", "mono8", "nv12", "nv21", "uyvy", "yuyv", "bayer_rggb8", "bayer_gbrg8"]


def maker() -> PreprocessParameters:
    return PreprocessParameters(SIDE, MEAN, STD)


def random_image(encoding: str, width: int, height: int) -> Image:
    facts = ENCODINGS[encoding]
    shape = (height * facts.rows_per_pair // 2, width * facts.bytes_per_pixel)
    return Image(np.random.default_rng(0).integers(0, 256, shape, np.uint8), width, height, encoding)


def network_input(image: Image, view: View, stored: np.ndarray) -> np.ndarray:
    """What the kernel makes of this copy of the image's rows."""
    out = np.empty((3, SIDE, SIDE), np.float32)
    record = maker().record(image, view)
    shared_shim().call("preprocess", (2, 2, 1), (8, 8, 1), record, stored, out)
    return out


class TestTheParameters:
    def test_maps_white_and_black_to_the_normalised_values(self) -> None:
        record = maker().record(random_image("bgr8", 64, 48), View.full(64, 48, SIDE))
        expected = (1 - np.array(MEAN)) / STD, -np.array(MEAN) / STD
        assert np.allclose(255 * record["gain"] + record["shift"], expected[0])
        assert np.allclose(record["shift"], expected[1])

    def test_has_the_step_of_a_packed_copy_of_the_rows(self) -> None:
        padded = np.zeros((48, 200), np.uint8)
        for rows, step in ((padded, 200), (padded[:, :192], 192), (padded[::-1, :195], 195)):
            assert maker().record(Image(rows, 64, 48, "bgr8"), View.full(64, 48, SIDE))["step"] == step

    @pytest.mark.parametrize("method", ["record", "needed_parts"])
    def test_is_refused_as_on_the_cpu_and_for_another_network(self, method: str) -> None:
        short = Image(np.zeros((48, 100), np.uint8), 64, 48, "bgr8")
        with pytest.raises(InputError, match="has 100 bytes; 64 px of bgr8 need 192"):
            getattr(maker(), method)(short, View.full(64, 48, SIDE))
        with pytest.raises(ValueError, match=r"64.* 16"):
            getattr(maker(), method)(random_image("bgr8", 64, 48), View.full(64, 48, 64))


class TestTheNeededParts:
    @settings(max_examples=400, deadline=None)
    @given(
        encoding=st.sampled_from(DISTINCT),
        half_sides=st.tuples(st.integers(1, 40), st.integers(1, 40)),
        corner=st.tuples(*[st.one_of(st.floats(-1.2, 1.2), st.sampled_from([-0.5, 0.0, 0.5, 1.0]))] * 2),
        offsets=st.tuples(*[st.sampled_from([0.0, -0.5, 0.5, 1e-6, -1e-6])] * 2),
        extents=st.tuples(*[st.sampled_from([0.5, 1.0, 2.0, 9.7, 33.0])] * 2),
    )
    def test_are_all_that_the_result_depends_on(
        self,
        encoding: str,
        half_sides: tuple[int, int],
        corner: tuple[float, float],
        offsets: tuple[float, float],
        extents: tuple[float, float],
    ) -> None:
        sides = [2 * half for half in half_sides]
        image = random_image(encoding, *sides)
        x, y = (c * side + off for c, side, off in zip(corner, sides, offsets, strict=True))
        view = View(x, y, SIDE / extents[0], SIDE / extents[1], SIDE)
        rng = np.random.default_rng(1)
        copies = [rng.integers(0, 256, image.rows.shape, np.uint8) for _ in range(2)]
        for copy in copies:
            for part in maker().needed_parts(image, view):
                copy[part.slices] = image.rows[part.slices]
        expected = network_input(image, view, image.rows)
        for copy in copies:
            assert np.array_equal(network_input(image, view, copy), expected)

    @pytest.mark.parametrize(
        ("encoding", "stored", "row"),
        [("bgr8", 48, 192), ("nv12", 72, 64), ("uyvy", 48, 128)],
    )
    def test_are_the_whole_image_for_the_full_view(self, encoding: str, stored: int, row: int) -> None:
        parts = maker().needed_parts(random_image(encoding, 64, 48), View.full(64, 48, SIDE))
        assert parts == (Part(0, stored, 0, row),)

    def test_leave_out_the_padding_of_the_rows(self) -> None:
        padded = Image(np.zeros((48, 500), np.uint8), 64, 48, "bgr8")
        assert maker().needed_parts(padded, View.full(64, 48, SIDE)) == (Part(0, 48, 0, 192),)
        assert maker().needed_parts(padded, View.window(60, 20, 40, SIDE)) == (Part(0, 43, 111, 192),)

    @pytest.mark.parametrize("centre", [(-40, 20), (110, 20), (30, -30), (30, 80), (1e9, -1e9)])
    @pytest.mark.parametrize("encoding", ["bgr8", "nv12"])
    def test_are_none_for_a_view_past_the_image(self, encoding: str, centre: tuple[float, float]) -> None:
        assert maker().needed_parts(random_image(encoding, 64, 48), View.window(*centre, 20, SIDE)) == ()
