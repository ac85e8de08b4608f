"""The onnxruntime pipeline, against the same graphs run one by one without any of its buffers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from golden.clip import BOX_EDGES, CLICK, clip

from efftam_ros.core.geometry import Box, View, iou
from efftam_ros.core.types import Candidates, Image, MemoryPlan, Prompt
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.frame_state import round_bfloat16
from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline
from efftam_ros.runtime.preprocess import Preprocessor, boxes_and_areas, encode_prompt, image_mask, no_prompt

FRAMES, MASKS = clip()
WIDTH, HEIGHT = 640, 480
BOX = Box.from_edges(*BOX_EDGES)
PROMPTS = {
    "box": Prompt(box=BOX),
    "click": Prompt(points=(CLICK,), labels=(1,)),
    "box and click": Prompt(box=BOX, points=((30.0, 40.0),), labels=(0,)),
    "mask": Prompt(mask=MASKS[0]),
}


def frame(index: int) -> Image:
    return Image.from_array(FRAMES[index], "rgb8")


def view_of(bundle: Bundle, index: int, window: bool = True) -> View:
    if window:
        return View.window(180 + 14 * index, 200 + 6 * index, 420 + 3 * index, bundle.spec.image_side)
    return View.full(WIDTH, HEIGHT, bundle.spec.image_side)


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
    pipeline: OrtPipeline, bundle: Bundle, absent: tuple[int, ...] = (), frames: int = 6, window: bool = True
) -> list[Candidates]:
    """Box on frame 0, then tracking with the first candidate of every frame remembered."""
    found = []
    for index in range(frames):
        pipeline.encode(frame(index), view_of(bundle, index, window))
        if index:
            pipeline.attend(plan_for(index))
        found.append(pipeline.decode(None if index else Prompt(box=BOX)))
        pipeline.remember(0, index, present=index not in absent)
    return found


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
    def test_is_decoded_as_the_graphs_say(
        self, pipeline: OrtPipeline, twin: OneByOne, shipped: Bundle, kind: str
    ) -> None:
        view, prompt = view_of(shipped, 0), PROMPTS[kind]
        pipeline.encode(frame(0), view)
        found = pipeline.decode(prompt)
        answer = twin.step(frame(0), view, prompt, None)
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
            assert np.count_nonzero(pipeline.mask(choice) != expected) <= 3

    def test_of_a_mask_answers_with_that_mask(self, pipeline: OrtPipeline, shipped: Bundle) -> None:
        pipeline.encode(frame(0), view_of(shipped, 0))
        found = pipeline.decode(PROMPTS["mask"])
        assert found.ious.tolist() == [1.0]
        assert found.presence_logit == 10.0
        assert iou(found.box(0), Box.from_edges(108, 154, 233, 247)) > 0.95
        got = pipeline.mask(0) > 0
        assert (got & MASKS[0]).sum() / (got | MASKS[0]).sum() > 0.95

    def test_takes_no_notice_of_memory(self, pipeline: OrtPipeline, shipped: Bundle) -> None:
        play(pipeline, shipped)
        pipeline.encode(frame(0), view_of(shipped, 0))
        again = pipeline.decode(Prompt(box=BOX))
        fresh = OrtPipeline(shipped, threads=2)
        fresh.encode(frame(0), view_of(shipped, 0))
        assert np.array_equal(fresh.decode(Prompt(box=BOX)).boxes, again.boxes)


class TestTrackedFrames:
    @pytest.mark.parametrize("window", [True, False])
    def test_are_what_the_graphs_give_one_by_one(
        self, pipeline: OrtPipeline, twin: OneByOne, shipped: Bundle, window: bool
    ) -> None:
        absent = (2, 4)
        found = play(pipeline, shipped, absent, window=window)
        for index, candidates in enumerate(found):
            view = view_of(shipped, index, window)
            prompt = None if index else Prompt(box=BOX)
            answer = twin.step(frame(index), view, prompt, plan_for(index) if index else None)
            assert_same(candidates, answer, [1, 2, 3] if index else [0], view)
            twin.remember(1 if index else 0, index, index not in absent)

    def test_without_memory_are_conditioned_on_nothing(
        self, pipeline: OrtPipeline, twin: OneByOne, shipped: Bundle
    ) -> None:
        play(pipeline, shipped, frames=3)
        view = view_of(shipped, 0)
        pipeline.encode(frame(5), view)
        pipeline.attend(MemoryPlan())
        assert_same(pipeline.decode(None), twin.step(frame(5), view, None, None), [1, 2, 3], view)


class TestBoxesAndMasks:
    def test_agree_to_a_hundredth_of_a_pixel(self, twin: OneByOne, shipped: Bundle) -> None:
        """The decoder's boxes against the zero crossings of its own logits, network px."""
        for index, prompt in enumerate(PROMPTS.values()):
            answer = twin.step(frame(index), view_of(shipped, index), prompt, None)
            boxes, areas = boxes_and_areas(answer["masks"][0])
            assert np.abs(boxes - answer["boxes"]).max() < 0.01
            assert np.array_equal(areas, answer["areas"])

    def test_agree_in_the_image(self, pipeline: OrtPipeline, shipped: Bundle) -> None:
        candidates = play(pipeline, shipped, frames=6)[-1]
        view = view_of(shipped, 5)
        for choice in range(len(candidates)):
            rows, columns = np.nonzero(pipeline.mask(choice))
            box = candidates.box(choice)
            if len(rows):
                drawn = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
                visible = box.clipped(WIDTH, HEIGHT)
                assert drawn == pytest.approx(visible.edges(), abs=1 + 2 / view.scale_x)


class TestTheRing:
    def after(self, pipeline: OrtPipeline, bundle: Bundle, slot: int) -> Candidates:
        pipeline.encode(frame(9), view_of(bundle, 9))
        pipeline.attend(MemoryPlan((slot,), (6,), (slot,)))
        return pipeline.decode(None)

    def test_slots_do_not_touch_each_other(self, pipeline: OrtPipeline, shipped: Bundle) -> None:
        play(pipeline, shipped, frames=4)
        before = [self.after(pipeline, shipped, slot) for slot in range(4)]
        pipeline.encode(frame(19), view_of(shipped, 3))
        pipeline.decode(Prompt(points=((300.0, 200.0),), labels=(1,)))
        pipeline.remember(2, 2, True)
        for slot in (0, 1, 3):
            assert np.array_equal(self.after(pipeline, shipped, slot).ious, before[slot].ious)
        assert not np.array_equal(self.after(pipeline, shipped, 2).ious, before[2].ious)

    def test_an_absent_target_leaves_the_network_s_no_object_whatever_the_candidate(
        self, pipeline: OrtPipeline, shipped: Bundle
    ) -> None:
        pipeline.encode(frame(0), view_of(shipped, 0))
        pipeline.decode(PROMPTS["click"])
        for choice in range(3):
            pipeline.remember(choice, choice, present=False)
        pipeline.remember(0, 3, present=True)
        answers = [self.after(pipeline, shipped, slot).ious for slot in range(4)]
        assert np.array_equal(answers[0], answers[1])
        assert np.array_equal(answers[0], answers[2])
        assert not np.array_equal(answers[0], answers[3])

    def test_holds_bfloat16_where_the_bundle_asks_for_it(
        self, spoiled: Callable[[Callable[[dict[str, Any]], None]], Path]
    ) -> None:
        def round_memory(manifest: dict[str, Any]) -> None:
            manifest["protocol"]["memory_dtype"] = "bfloat16"

        bundle = Bundle.load(spoiled(round_memory))
        pipeline, twin = OrtPipeline(bundle, threads=2), OneByOne(bundle)
        for index, candidates in enumerate(play(pipeline, bundle, frames=3)):
            view = view_of(bundle, index)
            plan = plan_for(index) if index else None
            answer = twin.step(frame(index), view, None if index else Prompt(box=BOX), plan)
            assert_same(candidates, answer, [1, 2, 3] if index else [0], view)
            twin.remember(1 if index else 0, index, True)


def test_output_that_is_not_finite_is_handed_on(shipped: Bundle) -> None:
    bundle = replace(shipped, std=(1e-39, 1e-39, 1e-39))
    pipeline = OrtPipeline(bundle, threads=2)
    pipeline.encode(frame(0), view_of(bundle, 0))
    found = pipeline.decode(Prompt(box=BOX))
    assert not found.is_finite
    pipeline.remember(0, 0, True)
    assert not pipeline.mask(0).any()


def test_stages_of_a_frame_are_those_that_ran(pipeline: OrtPipeline, shipped: Bundle) -> None:
    tracked = {"preprocess", "image_encoder", "memory_attention", "mask_decoder"}
    play(pipeline, shipped, frames=1)
    assert set(pipeline.stage_seconds) == tracked - {"memory_attention"} | {"prompt_encoder"}
    play(pipeline, shipped, frames=2)
    assert set(pipeline.stage_seconds) == tracked | {"memory_encoder"}
    assert all(seconds > 0 for seconds in pipeline.stage_seconds.values())
    pipeline.encode(frame(2), view_of(shipped, 2))
    assert set(pipeline.stage_seconds) == {"preprocess", "image_encoder", "memory_encoder"}
    pipeline.encode(frame(2), view_of(shipped, 2))
    assert set(pipeline.stage_seconds) == {"preprocess", "image_encoder"}


@pytest.mark.slow
def test_memory_does_not_grow_with_the_frames(pipeline: OrtPipeline, shipped: Bundle) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def track(first: int, last: int) -> None:
        for index in range(first, last):
            pipeline.encode(frame(index % 20), view_of(shipped, index % 20, window=index % 50 > 5))
            pipeline.attend(plan_for(1 + index % 10))
            pipeline.decode(None)
            pipeline.remember(index % 3, 1 + index % 20, True)

    play(pipeline, shipped, frames=12)
    track(0, 100)
    before = resident()
    track(100, 1000)
    assert resident() - before < 5e6
