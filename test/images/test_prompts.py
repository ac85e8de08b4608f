"""Prompts in image pixels become the prompt encoder's inputs, or are refused with a reason."""

from __future__ import annotations

import math

import numpy as np
import pytest
from golden.clip import BOX_EDGES, CLICK, clip
from golden.stored import StoredModules
from support.limited import MIB, run_limited

from efftam_ros.core.crop import window_inside
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import MAX_POINTS, Prompt
from efftam_ros.runtime.preprocess import EncodedPrompt, encode_prompt, no_prompt

FULL = View.full(640, 480, 512)
BOX = Box.from_edges(*BOX_EDGES)


def encode(prompt: Prompt, view: View = FULL) -> EncodedPrompt:
    return encode_prompt(prompt, view, 640, 480)


class TestPoints:
    def test_a_box_is_its_two_corners_with_labels_2_and_3(self) -> None:
        encoded = encode(Prompt(box=BOX))
        assert encoded.points == pytest.approx(np.array([[[86.4, 164.26667], [185.6, 262.4]]]))
        assert encoded.points.dtype == np.float32
        assert encoded.labels.tolist() == [[2, 3]]
        assert encoded.labels.dtype == np.int64

    def test_a_box_comes_before_the_clicks(self) -> None:
        encoded = encode(Prompt(box=BOX, points=(CLICK, (300.0, 40.0)), labels=(1, 0)))
        assert encoded.labels.tolist() == [[2, 3, 1, 0]]
        assert np.allclose(encoded.points[0, 2:], [[136.0, 213.33333], [240.0, 42.66667]])

    def test_count_in_the_view_s_own_pixels(self) -> None:
        encoded = encode(Prompt(points=((170.0, 200.0),), labels=(1,)), View.window(160, 190, 40, 192))
        assert np.allclose(encoded.points, [[[(170 - 140) * 4.8, (200 - 170) * 4.8]]])

    def test_without_a_prompt_are_one_padding_point(self) -> None:
        encoded = no_prompt(192)
        assert (encoded.points.tolist(), encoded.labels.tolist()) == ([[[0, 0]]], [[-1]])
        assert encoded.mask.shape == (1, 1, 192, 192)
        assert not encoded.mask.any()
        assert encoded.has_mask.tolist() == [0]

    def test_leave_out_what_a_box_has_beyond_the_image(self) -> None:
        outside = encode(Prompt(box=Box.from_edges(-50, 400, 100, 700)))
        inside = encode(Prompt(box=Box.from_edges(0, 400, 100, 480)))
        assert np.array_equal(outside.points, inside.points)


@pytest.mark.parametrize(
    ("prompt", "multimask"),
    [
        (Prompt(points=(CLICK,), labels=(1,)), True),
        (Prompt(points=(CLICK, (9.0, 9.0)), labels=(1, 0)), False),
        (Prompt(box=BOX), False),
        (Prompt(box=BOX, points=(CLICK,), labels=(1,)), False),
        (Prompt(mask=clip()[1][0]), False),
    ],
    ids=["one click", "two clicks", "box", "box and click", "mask"],
)
def test_the_alternatives_are_offered_only_where_the_prompt_is_ambiguous(
    prompt: Prompt, multimask: bool
) -> None:
    assert encode(prompt).multimask is multimask


class TestMask:
    def test_equals_the_reference_bit_for_bit(self) -> None:
        stored = StoredModules("ti_512x512")
        encoded = encode(Prompt(mask=clip()[1][0]))
        bits = np.unpackbits(stored.plain("md/maskprompt/mask_bits")).reshape(512, 512)
        assert np.array_equal(encoded.mask[0, 0], bits)
        assert encoded.has_mask.tolist() == [1]

    def test_has_the_reference_s_low_resolution_logits(self) -> None:
        logits = encode(Prompt(mask=clip()[1][0])).logits
        assert logits is not None
        assert StoredModules("ti_512x512").deviation("md/maskprompt/lowres", logits) < 1e-5

    def test_goes_with_one_padding_point(self) -> None:
        encoded = encode(Prompt(mask=clip()[1][0]))
        assert (encoded.points.tolist(), encoded.labels.tolist()) == ([[[0, 0]]], [[-1]])

    def test_lies_in_a_window_where_the_view_shows_it(self) -> None:
        mask = np.zeros((480, 640), bool)
        mask[100:140, 200:260] = True
        view = View.window(230, 120, 96, 192)
        seen = encode(Prompt(mask=mask), view).mask[0, 0]
        expected = np.zeros((192, 192))
        box = view.to_network(Box(200, 100, 60, 40))
        expected[round(box.y) : round(box.y1), round(box.x) : round(box.x1)] = 1
        assert np.array_equal(seen, expected)

    def test_may_have_any_dtype_whose_truth_is_clear(self) -> None:
        mask = clip()[1][0]
        assert np.array_equal(
            encode(Prompt(mask=mask.astype(np.uint8) * 255)).mask, encode(Prompt(mask=mask)).mask
        )


@pytest.mark.parametrize("point", [(250.0, 250.0), (350.0, 350.0), (250.5, 300.0), (300.0, 250.5)])
def test_a_point_may_lie_anywhere_in_the_view_and_on_its_edges(point: tuple[float, float]) -> None:
    seen = encode(Prompt(points=(point,), labels=(1,)), View.window(300, 300, 100, 192)).points[0, 0]
    assert seen == pytest.approx([(v - 250) * 1.92 for v in point], abs=1e-4)


@pytest.mark.parametrize("size", [(2592, 1944), (100, 56), (1280, 720), (640, 360)])
def test_a_point_on_the_image_s_edge_lies_in_a_view_that_ends_there(size: tuple[int, int]) -> None:
    """Rounding puts it 1e-13 px outside in the first two."""
    width, height = size
    for point in ((width, height / 2), (width / 2, height), (width, height), (0, 0)):
        for view in (
            window_inside(size, *point, 0.4 * height, 192),
            View.full(width, height, 192),
        ):
            encoded = encode_prompt(Prompt(points=(point,), labels=(1,)), view, width, height)
            assert encoded.points.min() >= 0
            assert encoded.points.max() <= 192


SMALL = np.zeros((480, 640), bool)
SMALL[10, 10] = True
WINDOW, SMALLER = View.window(300, 300, 100, 192), View.full(640, 480, 192)


def at(*points: tuple[float, float], labels: tuple[int, ...] = (1,)) -> Prompt:
    return Prompt(points=points, labels=labels)


@pytest.mark.parametrize(
    ("prompt", "view", "message"),
    [
        (Prompt(), FULL, "selection is empty; give a box, a point on the target or a mask"),
        (Prompt(box=Box(math.nan, 0, 10, 10)), FULL, r"x=nan .* not finite; give pixels"),
        (Prompt(box=Box(5, 5, math.inf, 10)), FULL, r"width=inf .* not finite"),
        (Prompt(box=Box(100, 100, 0, 50)), FULL, r"width=0 height=50 has no area; .* must be above 0"),
        (Prompt(box=Box(100, 100, -20, 50)), FULL, "width=-20 height=50 has no area"),
        (Prompt(box=Box(700, 10, 50, 50)), FULL, r"x=700 .* outside the image of 640 x 480 px; draw it"),
        (Prompt(box=Box(-60, -60, 60, 60)), FULL, r"outside the image of 640 x 480 px"),
        (Prompt(box=Box(10, 10, 20, 20)), WINDOW, r"outside the view of 100 x 100 px at \(250, 250\)"),
        (at((math.nan, 5.0)), FULL, r"point \(nan, 5\) is not finite"),
        (at((640.5, 5.0)), FULL, r"point \(640.5, 5\) lies outside the image of 640 x 480 px"),
        (at((5.0, 5.0)), WINDOW, r"point \(5, 5\) lies outside the view"),
        (at((5.0, 5.0), labels=(1, 0)), FULL, "1 points and 2 labels; give one label per point"),
        (at((5.0, 5.0), labels=(2,)), FULL, "label is 2; use 1 for a point on the target, 0 for one off it"),
        (at((5.0, 5.0), labels=(0,)), FULL, "only points off the target; give at least one on it"),
        (Prompt(mask=np.zeros((480, 640), bool)), FULL, "mask has no pixel set; mark the target"),
        (Prompt(mask=np.ones((240, 320), bool)), FULL, "mask is 320 x 240 px, the image 640 x 480 px"),
        (Prompt(mask=np.ones((480, 640, 3), bool)), FULL, "mask is 3 x 640 x 480 px, the image"),
        (Prompt(mask=SMALL, box=BOX), FULL, "a mask and also a box or points; give the mask alone"),
        (Prompt(mask=SMALL), WINDOW, r"mask \(1 px\) remains when the view of 100 x 100 px"),
        (Prompt(mask=SMALL), SMALLER, r"mask \(1 px\) remains .* the network's 192 x 192 px; .*larger"),
    ],
)
def test_what_can_not_be_used_is_refused_with_value_and_remedy(
    prompt: Prompt, view: View, message: str
) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        encode(prompt, view)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("box", [Box(400, 100, 460, 140), Box(100, 250, 630, 290)], ids=["right", "below"])
def test_edges_given_as_position_and_size_are_refused_with_the_position_and_size(box: Box) -> None:
    meant = f"{box.x}, {box.y}, {box.width - box.x}, {box.height - box.y}"
    with pytest.raises(InputError, match=f"leaves the image of 640 x 480 px; .*width, height: {meant}$"):
        Prompt(box=box).checked(640, 480, is_typed=True)


@pytest.mark.parametrize(
    "box",
    [Box(600, 300, 60, 40), Box(-50, 10, 100, 100), Box(0, 0, 700, 500), Box(0.3, 0.3, 640, 480)],
    ids=["right edge", "left edge", "all", "rounded"],
)
def test_a_box_over_the_image_s_border_is_taken(box: Box) -> None:
    Prompt(box=box).checked(640, 480, is_typed=True)


@pytest.mark.parametrize("core", ["", "Haswell"])
def test_a_mask_is_encoded_where_no_memory_is_left_for_blas(
    core: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels for some processors multiply small matrices without a workspace."""
    monkeypatch.setenv("OPENBLAS_CORETYPE", core)
    if not core:
        monkeypatch.delenv("OPENBLAS_CORETYPE")
    code = f"""
import resource
import numpy as np
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Prompt
from efftam_ros.runtime.preprocess import reserve_workspace
from efftam_ros.runtime.preprocess import encode_prompt
reserve_workspace()
mask = np.zeros((240, 320), bool)
mask[100:150, 100:150] = True
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + 8 * {MIB}, taken + 8 * {MIB}))
encoded = encode_prompt(Prompt(mask=mask), View.full(320, 240, 64), 320, 240)
print(int(encoded.mask.sum()))
"""
    done = run_limited(code, address_space=4096 * MIB)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) == pytest.approx(10 * 13, abs=30)


def test_points_without_number_are_refused_before_anything_is_sized_by_them() -> None:
    many = tuple((10.0, 10.0) for _ in range(MAX_POINTS + 1))
    with pytest.raises(InputError, match=f"{MAX_POINTS + 1} points; give at most {MAX_POINTS}"):
        encode_prompt(Prompt(points=many, labels=(1,) * len(many)), View.full(100, 100, 64), 100, 100)
    most = Prompt(box=Box(1, 1, 9, 9), points=many[: MAX_POINTS - 2], labels=(1,) * (MAX_POINTS - 2))
    assert encode_prompt(most, View.full(100, 100, 64), 100, 100).points.shape == (1, MAX_POINTS, 2)
