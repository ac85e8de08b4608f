"""The CUDA kernels against the code that they replace."""

from __future__ import annotations

import re

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.cuda.on_gpu import OnGpu, shared_gpu
from runtime.cuda.shim import Shim, shared_shim

from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image
from efftam_ros.images.pixels import ENCODINGS, to_bgr
from efftam_ros.runtime.cuda.kernel_table import KERNEL_FOLDER, KERNELS
from efftam_ros.runtime.cuda.preprocess_params import PreprocessParameters, mask_view
from efftam_ros.runtime.device.memory import MemoryLayout
from efftam_ros.runtime.frame_state import round_bfloat16
from efftam_ros.runtime.preprocess import Preprocessor, image_mask
from efftam_workshop.agreement.compare import laid_out

Kernels = Shim | OnGpu
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIDE = 32

# OpenCV 4 rounds the positions of a warp to 1/32 px, OpenCV 5 no longer does.
ROUNDED_PX = 0.0 if int(cv2.__version__.split(".")[0]) >= 5 else 1 / 64


GUARD = 256


class Guarded:
    """An array [shape] between two strips of known bytes; its elements start as the same bytes (0xA5)."""

    def __init__(self, shape: tuple[int, ...], dtype: type = np.float32) -> None:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self._bytes = np.full(size + 2 * GUARD, 0xA5, np.uint8)
        self.array = self._bytes[GUARD : GUARD + size].view(dtype).reshape(shape)

    @property
    def intact(self) -> bool:
        """True while nothing was written outside the array."""
        return bool((self._bytes[:GUARD] == 0xA5).all() and (self._bytes[-GUARD:] == 0xA5).all())


@pytest.fixture(scope="module", params=["g++", pytest.param("gpu", marks=pytest.mark.gpu)])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """The sources compiled for the CPU, or the committed PTX on a GPU."""
    return shared_shim() if request.param == "g++" else shared_gpu()


def random_image(encoding: str, width: int, height: int, padding: int = 0, seed: int = 0) -> Image:
    """Random bytes; ``padding`` of them behind the pixels of every row."""
    facts = ENCODINGS[encoding]
    rows, row = height * facts.rows_per_pair // 2, width * facts.bytes_per_pixel
    stored = np.random.default_rng(seed).integers(0, 256, (rows, row + padding), np.uint8)
    return Image(stored, width, height, encoding)


def preprocessed(kernels: Kernels, image: Image, view: View) -> np.ndarray:
    """The kernel's [3, S, S], by a grid with surplus threads in both directions."""
    side = view.side
    record = PreprocessParameters(side, MEAN, STD).record(image, view)
    out = Guarded((3, side, side), np.float32)
    grid = (side // 16 + 2, side // 8 + 2, 1)
    kernels.call("preprocess", grid, (16, 8, 1), record, image.rows, out.array)
    assert out.intact
    return out.array


def levels(network_input: np.ndarray) -> np.ndarray:
    """Back to 0..255, [3, S, S] RGB."""
    return (network_input * np.array(STD)[:, None, None] + np.array(MEAN)[:, None, None]) * 255


VIEWS = {
    "the full view": lambda w, h: View.full(w, h, SIDE),
    "a window inside": lambda w, h: View.window(0.52 * w, 0.47 * h, 0.5 * min(w, h), SIDE),
    "a window over the border": lambda w, h: View.window(3.3, h - 7.7, 0.6 * max(w, h), SIDE),
    "a window over the whole": lambda w, h: View.window(0.5 * w, 0.4 * h, 1.6 * max(w, h), SIDE),
    "a window beside the image": lambda w, h: View.window(5.0 * w, 0.5 * h, w, SIDE),
}


class TestThePreprocessingKernel:
    """Its float arithmetic stands against the CPU's, which rounds to bytes once or twice on the way."""

    @pytest.mark.parametrize("padding", [0, 5])
    @pytest.mark.parametrize("size", [(24, 18), (200, 150)], ids=["enlarging", "shrinking"])
    @pytest.mark.parametrize("view", VIEWS)
    @pytest.mark.parametrize("encoding", ENCODINGS)
    def test_is_within_a_grey_level_of_the_cpu(
        self, kernels: Kernels, encoding: str, view: str, size: tuple[int, int], padding: int
    ) -> None:
        image, shown = random_image(encoding, *size, padding), VIEWS[view](*size)
        off = np.abs(
            levels(preprocessed(kernels, image, shown))
            - levels(Preprocessor(SIDE, MEAN, STD)(image, shown)[0])
        )
        # A position that is off by d px changes a sample of noise by up to 255 d per axis.
        slack = 2 * 255 * ROUNDED_PX if view != "the full view" else 0.0
        assert off.max() <= 1.0 + slack
        assert off.mean() <= 0.3 + slack / 2

    @pytest.mark.parametrize("encoding", ENCODINGS)
    @pytest.mark.parametrize("seed", range(3))
    def test_reads_exactly_the_colours_that_opencv_reads(
        self, kernels: Kernels, encoding: str, seed: int
    ) -> None:
        """Seen at scale one, where samples fall on pixel centres."""
        image = random_image(encoding, SIDE, SIDE, padding=3, seed=seed)
        got = levels(preprocessed(kernels, image, View.full(SIDE, SIDE, SIDE)))
        expected = to_bgr(image)[..., ::-1].transpose(2, 0, 1)
        assert np.abs(got - expected).max() < 0.002

    @pytest.mark.parametrize("size", [(2, 2), (4, 2), (2, 6), (4, 4)])
    @pytest.mark.parametrize("encoding", ENCODINGS)
    def test_reads_the_smallest_images_as_opencv_does(
        self, kernels: Kernels, encoding: str, size: tuple[int, int]
    ) -> None:
        image = random_image(encoding, *size)
        expected = np.zeros((3, 8, 8))
        expected[:, : size[1], : size[0]] = to_bgr(image)[..., ::-1].transpose(2, 0, 1)
        got = levels(preprocessed(kernels, image, View(0.0, 0.0, 1.0, 1.0, 8)))
        assert np.abs(got - expected).max() < 0.002

    @settings(max_examples=60, deadline=None)
    @given(
        width=st.integers(1, 400),
        height=st.integers(1, 400),
        x=st.floats(-1.0, 1.5),
        y=st.floats(-1.0, 1.5),
        extent=st.floats(0.05, 3.0),
        full=st.booleans(),
    )
    def test_is_within_a_grey_level_for_any_size_and_view(
        self, kernels: Kernels, width: int, height: int, x: float, y: float, extent: float, full: bool
    ) -> None:
        image = random_image("mono8", width, height)
        view = View.full(width, height, SIDE)
        if not full:
            view = View.window(x * width, y * height, max(extent * max(width, height), 1.0), SIDE)
        got, expected = preprocessed(kernels, image, view), Preprocessor(SIDE, MEAN, STD)(image, view)[0]
        assert np.abs(levels(got) - levels(expected)).max() <= 1.1 + 2 * 255 * ROUNDED_PX

    @pytest.mark.parametrize("distance", [1e6, 1e12, 1e30])
    def test_shows_black_however_far_the_view_is(self, kernels: Kernels, distance: float) -> None:
        image = random_image("bgr8", 30, 20)
        for view in (View(distance, 0.0, 1.0, 1.0, 8), View(0.0, -distance, 1.0, 1.0, 8)):
            assert np.abs(levels(preprocessed(kernels, image, view))).max() < 0.001


def bilinear(logits: np.ndarray, view: View, width: int, height: int) -> np.ndarray:
    """The logits at the image's pixel centres, in double precision, [height, width]."""

    def places(count: int, origin: float, scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        low = len(logits)
        position = np.clip((np.arange(count) + 0.5 - origin) * scale * low / view.side - 0.5, 0, low - 1)
        below = np.floor(position).astype(int)
        return below, np.minimum(below + 1, low - 1), position - below

    left, right, fx = places(width, view.x, view.scale_x)
    up, down, fy = places(height, view.y, view.scale_y)
    rows = logits.astype(np.float64)
    rows = rows[up] * (1 - fy)[:, None] + rows[down] * fy[:, None]
    return rows[:, left] * (1 - fx) + rows[:, right] * fx


def upsampled(kernels: Kernels, logits: np.ndarray, view: View, width: int, height: int) -> np.ndarray:
    record = mask_view(view, width, height, len(logits))
    out = Guarded((height, width), np.uint8)
    kernels.call("mask_upsample", (width // 8 + 2, height // 8 + 2, 1), (8, 8, 1), record, logits, out.array)
    assert out.intact
    return out.array


coordinates = st.one_of(st.floats(-1.0, 1.5), st.sampled_from([0.0, 0.25, 0.5, 1.0]))


class TestTheMaskKernel:
    @settings(max_examples=150, deadline=None)
    @given(
        low=st.sampled_from([1, 2, 5, 16]),
        width=st.integers(1, 70),
        height=st.integers(1, 70),
        x=coordinates,
        y=coordinates,
        extent=st.floats(0.1, 3.0),
        full=st.booleans(),
        seed=st.integers(0, 99),
    )
    def test_agrees_with_the_cpu_but_where_the_logit_is_all_but_zero(
        self,
        kernels: Kernels,
        low: int,
        width: int,
        height: int,
        x: float,
        y: float,
        extent: float,
        full: bool,
        seed: int,
    ) -> None:
        logits = np.random.default_rng(seed).normal(size=(low, low)).astype(np.float32)
        view = View.full(width, height, 4 * low)
        if not full:
            view = View.window(x * width, y * height, extent * max(width, height), 4 * low)
        got, expected = (
            upsampled(kernels, logits, view, width, height),
            image_mask(logits, view, width, height),
        )
        differs = got != expected
        tolerance = 1e-4 + 2 * np.ptp(logits) * ROUNDED_PX
        assert np.abs(bilinear(logits, view, width, height)[differs]).max(initial=0.0) < tolerance
        assert set(np.unique(got)) <= {0, 255}

    @settings(max_examples=150, deadline=None)
    @given(
        x=st.integers(-40, 80),
        y=st.integers(-40, 80),
        parts=st.sampled_from([1, 2, 3, 10]),
        extent=st.sampled_from([0.5, 1.0, 7.0, 21.5, 33.3, 90.0]),
    )
    def test_fills_exactly_the_pixels_whose_centre_the_view_shows(
        self, kernels: Kernels, x: int, y: int, parts: int, extent: float
    ) -> None:
        logits, view = np.ones((8, 8), np.float32), View.window(x / parts, y / parts, extent, 32)
        assert np.array_equal(upsampled(kernels, logits, view, 50, 41), image_mask(logits, view, 50, 41))

    def test_leaves_out_a_logit_of_zero(self, kernels: Kernels) -> None:
        assert not upsampled(kernels, np.zeros((4, 4), np.float32), View.full(9, 7, 16), 9, 7).any()

    @pytest.mark.parametrize("distance", [1e6, 1e15])
    def test_shows_nothing_for_a_view_far_away(self, kernels: Kernels, distance: float) -> None:
        logits = np.ones((4, 4), np.float32)
        for view in (View(distance, 0.0, 1.0, 1.0, 16), View(0.0, -distance, 1.0, 1.0, 16)):
            assert not upsampled(kernels, logits, view, 9, 7).any()


class TestTheGatheringKernel:
    SLOTS = 9

    def gather(
        self, kernels: Kernels, plan: list[int], rows: int, tokens: int, places: int, pooled: bool
    ) -> tuple:
        """Both rings, and what the kernel laid out of them; 8 and 16 channels, 2 pointer tokens."""
        rng = np.random.default_rng(0)
        ring = rng.normal(size=(self.SLOTS, tokens, 8)).astype(np.float32)
        ring_pointers = rng.normal(size=(self.SLOTS, 16)).astype(np.float32)
        keys = (tokens + rows * tokens // 4 if pooled else rows * tokens) + places * 2
        outputs = Guarded((rows, tokens, 8)), Guarded((places, 16)), Guarded((keys,))
        threads = sum(out.array.size for out in outputs)
        arrays = [np.array(plan, np.int32), ring, ring_pointers, *(out.array for out in outputs)]
        sizes = [rows, tokens, 8, places, 16, 2, int(pooled)]
        kernels.call("gather_memory", (threads // 64 + 3, 1, 1), (64, 1, 1), *arrays, *sizes)
        assert all(out.intact for out in outputs)
        return ring, ring_pointers, *(out.array for out in outputs)

    @pytest.mark.parametrize("layout", ["plain", "pooled"])
    @pytest.mark.parametrize(
        ("rows", "pointers"), [((6,), 1), ((0, 6), 2), ((6, 2, 3), 0), ((0, 1, 2, 3, 4, 5, 6), 5), ((3,), 0)]
    )
    def test_lays_memory_out_as_the_exported_graph_wants_it(
        self, kernels: Kernels, layout: str, rows: tuple[int, ...], pointers: int
    ) -> None:
        sizes = MemoryLayout(9, 7, 16, 8, 5, 16, 2, 0, layout == "pooled", False)
        slots, pointer_slots = [8, 3, 0, 5, 1, 7, 2][: len(rows)], [4, 8, 0, 1, 6][:pointers]
        plan = [-1] * 12
        for row, slot in zip(rows, slots, strict=True):
            plan[row] = slot
        plan[7 : 7 + pointers] = pointer_slots
        ring, ring_pointers, maps, laid_pointers, bias = self.gather(
            kernels, plan, 7, 16, 5, pooled=layout == "pooled"
        )
        wanted = laid_out(sizes, rows, ring[slots], ring_pointers[pointer_slots])
        assert np.array_equal(maps, wanted["maps"])
        assert np.array_equal(laid_pointers, wanted["pointers"])
        assert np.array_equal(bias, wanted["key_bias"].flatten())

    def test_leaves_out_an_unused_pointer_between_used_ones(self, kernels: Kernels) -> None:
        _, ring_pointers, _, pointers, bias = self.gather(kernels, [2, 4, -1, 6], 1, 4, 3, pooled=False)
        assert np.array_equal(pointers, [ring_pointers[4], np.zeros(16), ring_pointers[6]])
        assert bias.tolist() == [0, 0, 0, 0, 0, 0, -1e4, -1e4, 0, 0]


class TestTheChoosingKernel:
    @pytest.mark.parametrize("row", range(4))
    @pytest.mark.parametrize(("present", "binarize"), [(0, 1), (1, 0)])
    def test_copies_the_chosen_row(self, kernels: Kernels, row: int, present: int, binarize: int) -> None:
        rng = np.random.default_rng(0)
        logits, pointers = (
            rng.normal(size=(4, 49)).astype(np.float32),
            rng.normal(size=(4, 24)).astype(np.float32),
        )
        outputs = [Guarded((49,)), Guarded((24,)), Guarded((1,)), Guarded((1,))]
        decision = np.array([row, 5, present, binarize], np.int32)
        arrays = [decision, logits, pointers, *(out.array for out in outputs)]
        kernels.call("choose_candidate", (9, 1, 1), (16, 1, 1), *arrays, 49, 24)
        mask, pointer, *flags = (out.array for out in outputs)
        assert np.array_equal(mask, logits[row])
        assert np.array_equal(pointer, pointers[row])
        assert [float(flag[0]) for flag in flags] == [present, binarize]
        assert all(out.intact for out in outputs)


class TestTheStoringKernel:
    def store(
        self, kernels: Kernels, slot: int, map_: np.ndarray, pointer: np.ndarray, rounds: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rings of five slots, zero before."""
        ring, ring_pointers = Guarded((5, map_.size)), Guarded((5, pointer.size))
        ring.array[:] = ring_pointers.array[:] = 0
        decision = np.array([3, slot, 1, 0], np.int32)
        threads = map_.size + pointer.size
        arrays = [decision, map_, pointer, ring.array, ring_pointers.array]
        kernels.call(
            "store_memory", (threads // 32 + 3, 1, 1), (32, 1, 1), *arrays, map_.size, pointer.size, rounds
        )
        assert ring.intact
        assert ring_pointers.intact
        return ring.array, ring_pointers.array

    @pytest.mark.parametrize("slot", [0, 2, 4])
    def test_writes_its_slot_alone(self, kernels: Kernels, slot: int) -> None:
        rng = np.random.default_rng(0)
        map_, pointer = rng.normal(size=37).astype(np.float32), rng.normal(size=11).astype(np.float32)
        ring, ring_pointers = self.store(kernels, slot, map_, pointer, rounds=0)
        assert np.array_equal(ring[slot], map_)
        assert np.array_equal(ring_pointers[slot], pointer)
        assert not np.delete(ring, slot, 0).any()
        assert not np.delete(ring_pointers, slot, 0).any()

    def test_stores_nothing_in_a_negative_slot(self, kernels: Kernels) -> None:
        ring, ring_pointers = self.store(kernels, -1, np.ones(37, np.float32), np.ones(11, np.float32), 1)
        assert not ring.any()
        assert not ring_pointers.any()

    @settings(max_examples=300, deadline=None)
    @given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40))
    def test_rounds_the_map_bit_by_bit_as_the_cpu_does(self, kernels: Kernels, bits: list[int]) -> None:
        special = [0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0xFFFFFFFF, 0x3F808000, 0x3F818000, 1]
        map_ = np.array(bits + special, np.uint32).view(np.float32)
        pointer = np.array([1.001], np.float32)
        ring, ring_pointers = self.store(kernels, 1, map_, pointer, rounds=1)
        expected = map_.copy()
        round_bfloat16(expected)
        assert np.array_equal(ring[1].view(np.uint32), expected.view(np.uint32))
        assert ring_pointers[1] == pointer


class TestTheTables:
    """The tables in Python say the same as the CUDA sources."""

    def test_have_the_parameters_of_the_kernels(self) -> None:
        found = {}
        for path in KERNEL_FOLDER.glob("*.cu"):
            for name, parameters in re.findall(r"__global__ void (\w+)\((.*?)\) {", path.read_text(), re.S):
                found[name] = (path.stem, [" ".join(p.split()) for p in parameters.split(",")])
        assert set(found) == set(KERNELS)
        for name, (file, parameters) in found.items():
            signature = KERNELS[name]
            assert signature.file == file
            for text, parameter in zip(parameters, signature.parameters, strict=True):
                assert text.split()[-1].lstrip("*").removeprefix("__restrict__") == parameter.name
                assert ("*" not in text) == (parameter.access == "value")
                assert text.startswith("const ") == (parameter.access == "in")
