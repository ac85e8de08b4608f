"""The onnxruntime pipeline, against the same graphs run one by one without any of its buffers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runtime.frames import BOX, PROMPTS, SIDE, clip_image, looked, window

from efftam_ros.core.contract import Look, Remembered
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, Prompt
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.frame_state import round_bfloat16
from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline
from efftam_ros.runtime.preprocess import Preprocessor, boxes_and_areas, encode_prompt, image_mask, no_prompt

WIDTH, HEIGHT = 640, 480


def view_of(index: int, is_window: bool = True) -> View:
    return window(index) if is_window else View.full(WIDTH, HEIGHT, SIDE)


class OneByOne:
    """What the pipeline must compute: plain runs of the graphs, a list of memories, no buffer kept."""

    def __init__(self, bundle: Bundle) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 2
        self.bundle = bundle
        self.sessions = {
            name: onnxruntime.InferenceSession(str(graph.path), options, providers=["CPUExecutionProvider"])
            for name, graph in bundle.graphs.items()
            if name != "memory_attention_fixed"
        }
        self.memory: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def run(self, name: str, **feeds: np.ndarray) -> dict[str, np.ndarray]:
        session = self.sessions[name]
        wanted = {tensor.name for tensor in session.get_inputs()}
        names = [tensor.name for tensor in session.get_outputs()]
        return dict(
            zip(names, session.run(names, {k: v for k, v in feeds.items() if k in wanted}), strict=True)
        )

    def step(
        self, image: Image, view: View, prompt: Prompt | None, plan: MemoryPlan | None
    ) -> dict[str, np.ndarray]:
        bundle = self.bundle
        prepare = Preprocessor(bundle.spec.image_side, bundle.mean, bundle.std)
        self.features = self.run("image_encoder", image=prepare(image, view))
        encoded = (
            no_prompt(view.side) if prompt is None else encode_prompt(prompt, view, image.width, image.height)
        )
        self.prompted = self.run(
            "prompt_encoder",
            features=self.features["features"],
            points=encoded.points,
            labels=encoded.labels,
            mask=encoded.mask,
            has_mask=encoded.has_mask,
        )
        conditioned = self.prompted["conditioned"]
        if plan is not None and plan.slots:
            conditioned = self.run(
                "memory_attention",
                features=self.features["features"],
                maps=np.concatenate([self.memory[slot][0] for slot in plan.slots]),
                rows=np.array(plan.rows, np.int64),
                pointers=np.concatenate([self.memory[slot][1] for slot in plan.pointer_slots]),
            )["conditioned"]
        feeds = {**self.features, **self.prompted, "conditioned": conditioned}
        self.answer = self.run("mask_decoder", **feeds)
        self.binarize = np.array([prompt is not None], np.float32)
        return self.answer

    def remember(self, row: int, slot: int, present: bool) -> None:
        stored = self.run(
            "memory_encoder",
            features=self.features["features"],
            mask_logits=self.answer["masks"][:, row : row + 1],
            pointer=self.answer["pointers"][row : row + 1],
            present=np.array([present], np.float32),
            binarize=self.binarize,
            **{k: v for k, v in self.prompted.items() if k == "prompt_raster"},
        )
        if self.bundle.memory_dtype == "bfloat16":
            round_bfloat16(stored["map"])
        self.memory[slot] = stored["map"], stored["stored_pointer"]


def assert_same(found: Candidates, answer: dict[str, np.ndarray], rows: list[int], view: View) -> None:
    boxes, areas = answer["boxes"][rows], answer["areas"][rows]
    assert np.allclose(found.ious, answer["ious"][rows], atol=1e-6)
    assert found.presence_logit == pytest.approx(float(answer["presence"][0]), abs=1e-5)
    assert np.allclose(found.areas, areas / (view.scale_x * view.scale_y), atol=1e-2)
    filled = areas > 0
    assert np.allclose(
        found.boxes[filled],
        np.array([view.to_image(Box.from_edges(*box)).edges() for box in boxes])[filled],
        atol=1e-3,
    )
    assert np.isnan(found.boxes[~filled]).all()


def play(
    pipeline: OrtPipeline, absent: tuple[int, ...] = (), frames: int = 6, is_window: bool = True
) -> list[Candidates]:
    """Boxes on some frames, tracking between them; another candidate of each frame is remembered."""
    found = []
    for index in range(frames):
        prompt = Prompt(box=BOX) if index in PROMPTED else None
        view = view_of(index, is_window)
        found.append(looked(pipeline, clip_image(index), view, plan_for(index), prompt))
        pipeline.remember([Remembered(0, chosen(index), index, present=index not in absent)])
    return found


PROMPTED = (0, 4)  # the second one with memories, of which it takes no notice


def chosen(index: int) -> int:
    return 0 if index in PROMPTED else index % 3


def plan_for(index: int) -> MemoryPlan:
    """A map more in every second frame, a pointer more in each: their numbers change apart."""
    recent = tuple(range(index - 1, max(0, index - 7), -1))
    shown = recent[: index // 2]
    return MemoryPlan((0, *shown), (6, *range(len(shown))), (0, *recent))


@pytest.fixture
def twin(shipped: Bundle) -> OneByOne:
    return OneByOne(shipped)


class TestAPromptedFrame:
    @pytest.mark.parametrize("kind", PROMPTS)
    def test_is_decoded_as_the_graphs_say(self, pipeline: OrtPipeline, twin: OneByOne, kind: str) -> None:
        view, prompt = view_of(0), PROMPTS[kind]
        answers = pipeline.look(clip_image(0), [Look(0, (view,), prompt=prompt)])
        (found,) = answers.candidates(0)
        answer = twin.step(clip_image(0), view, prompt, None)
        if kind == "mask":
            logits = encode_prompt(prompt, view, WIDTH, HEIGHT).logits
            assert logits is not None
            answer["masks"][0, 0] = logits
            boxes, areas = boxes_and_areas(logits[None])
            answer["boxes"][0], answer["areas"][0] = boxes[0], areas[0]
            answer["ious"][0], answer["presence"][0] = 1.0, 10.0
        rows = [1, 2, 3] if kind == "click" else [0]
        assert_same(found, answer, rows, view)
        for choice, row in enumerate(rows):
            expected = image_mask(answer["masks"][0, row], view, WIDTH, HEIGHT)
            assert np.count_nonzero(answers.mask(0, choice) != expected) <= 3


class TestTrackedFrames:
    @pytest.mark.parametrize(
        ("is_window", "memory_dtype"), [(True, "float32"), (False, "float32"), (True, "bfloat16")]
    )
    def test_are_what_the_graphs_give_one_by_one(
        self, spoiled: Callable[[Callable[[dict[str, Any]], None]], Path], is_window: bool, memory_dtype: str
    ) -> None:
        bundle = Bundle.load(spoiled(lambda manifest: manifest["protocol"].update(memory_dtype=memory_dtype)))
        pipeline, twin, absent = OrtPipeline(bundle, threads=2), OneByOne(bundle), (2, 4, 5)
        for index, candidates in enumerate(play(pipeline, absent, frames=8, is_window=is_window)):
            view, is_tracked = view_of(index, is_window), index not in PROMPTED
            prompt, plan = (None, plan_for(index)) if is_tracked else (Prompt(box=BOX), None)
            answer = twin.step(clip_image(index), view, prompt, plan)
            assert_same(candidates, answer, [1, 2, 3] if is_tracked else [0], view)
            twin.remember(chosen(index) + is_tracked, index, index not in absent)
        pipeline.close()

    def test_know_of_what_ages_as_many_memories_are(self, pipeline: OrtPipeline) -> None:
        def seen(rows: tuple[int, ...]) -> np.ndarray:
            plan = MemoryPlan((0, 1, 2), rows, (0, 1, 2))
            return looked(pipeline, image, view_of(0), plan).ious

        play(pipeline, frames=3)
        image = clip_image(5)
        young = seen((6, 0, 1))
        old = seen((6, 4, 5))
        looked(pipeline, image, view_of(0))
        assert np.array_equal(seen((6, 4, 5)), old)
        assert not np.array_equal(young, old)

    def test_without_memory_are_conditioned_on_nothing(self, pipeline: OrtPipeline, twin: OneByOne) -> None:
        play(pipeline, frames=3)
        view = view_of(0)
        found = looked(pipeline, clip_image(5), view)
        assert_same(found, twin.step(clip_image(5), view, None, None), [1, 2, 3], view)


def rounded(value: float) -> float:
    """To bfloat16."""
    array = np.array([value], np.float32)
    round_bfloat16(array)
    return float(array[0])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, 1.0),
        (1.0 + 2**-8, 1.0),  # a tie, down to the even neighbour
        (1.0 + 3 * 2**-8, 1.0 + 2**-6),  # a tie, up to the even neighbour
        (-1.0 - 3 * 2**-8, -1.0 - 2**-6),
        (1e-40, 2.0**-133),  # subnormal
        (math.inf, math.inf),
        (-math.inf, -math.inf),
        (3.4e38, math.inf),  # beyond the largest bfloat16
    ],
)
def test_bfloat16_has_known_values(value: float, expected: float) -> None:
    assert rounded(value) == pytest.approx(expected, rel=1e-7, abs=0)


def test_rounding_keeps_every_nan() -> None:
    bits = np.array([0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x3F800000], np.uint32)
    values = bits.view(np.float32)
    round_bfloat16(values)
    assert np.isnan(values[:4]).all()
    assert values[4] == 1.0


@settings(deadline=None)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100))
def test_rounding_gives_a_bfloat16_and_none_is_nearer(value: float) -> None:
    result = np.array([rounded(value)], np.float32)
    bits = int(result.view(np.uint32)[0])
    assert bits & 0xFFFF == 0
    step = abs(
        float(np.array([(bits & 0x7FFFFFFF) + 0x10000], np.uint32).view(np.float32)[0])
        - abs(float(result[0]))
    )
    assert abs(float(result[0]) - value) <= step / 2


def test_output_that_is_not_finite_is_handed_on(shipped: Bundle) -> None:
    bundle = replace(shipped, std=(1e-39, 1e-39, 1e-39))
    pipeline = OrtPipeline(bundle, threads=2)
    answers = pipeline.look(clip_image(0), [Look(0, (view_of(0),), prompt=Prompt(box=BOX))])
    assert not answers.candidates(0)[0].is_finite
    pipeline.remember([Remembered(0, 0, 0, True)])
    assert not answers.mask(0, 0).any()


def test_stages_of_a_frame_are_those_that_ran(pipeline: OrtPipeline) -> None:
    tracked = {"preprocess", "image_encoder", "memory_attention", "mask_decoder"}

    def stages(image: Image, prompt: Prompt | None = None) -> set[str]:
        answers = pipeline.look(image, [Look(0, (view_of(0),), plan_for(1), prompt)])
        answers.candidates(0)
        assert all(seconds > 0 for seconds in answers.stage_seconds(0).values())
        return set(answers.stage_seconds(0))

    first, second = clip_image(0), clip_image(1)
    prompted = tracked - {"memory_attention"} | {"prompt_encoder"}
    assert stages(first, Prompt(box=BOX)) == prompted
    assert stages(first, Prompt(box=BOX)) == prompted  # on the features that are there
    pipeline.remember([Remembered(0, 0, 0, True)])
    assert stages(second) == tracked | {"memory_encoder"}
    assert stages(clip_image(2)) == tracked


@pytest.mark.slow
def test_memory_does_not_grow_with_the_frames(pipeline: OrtPipeline) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def track(first: int, last: int) -> None:
        for index in range(first, last):
            view = view_of(index % 20, is_window=index % 50 > 5)
            looked(pipeline, clip_image(index % 20), view, plan_for(1 + index % 10))
            pipeline.remember([Remembered(0, index % 3, 1 + index % 20, True)])

    play(pipeline, frames=12)
    track(0, 100)
    before = resident()
    track(100, 1000)
    assert resident() - before < 5e6
