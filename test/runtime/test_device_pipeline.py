"""The device pipeline, whole: our kernels by g++, the graphs of the bundle, on a GPU that punishes misuse."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from golden.clip import BOX_EDGES, CENTRES, clip
from runtime.cuda.fake_cuda import COPIES, FakeGpu
from runtime.cuda.fake_memory import Race
from support.gpu_rig import Rig

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.contract import Pipeline
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box, View
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Candidates, Frame, Image, MemoryPlan, Prompt
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.cuda.api import CudaError
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device.memory import GRAPHS, MemoryLayout
from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline

ABSENT = 2
FRAMES = 5
WINDOW = 420.0
EXACT_PX, EXACT = 1e-3, 1e-4


@pytest.fixture
def rig(shipped: Bundle) -> Iterator[Rig]:
    rig = Rig(shipped)
    yield rig
    rig.pipeline.close()


def window(pipeline: Pipeline, index: int) -> View:
    return View.window(180 + 14 * index, 200 + 6 * index, WINDOW, pipeline.spec.image_side)


def plan(index: int) -> MemoryPlan:
    """The prompted frame in the last row, the recent ones before it."""
    slots = (0, *range(index - 1, 0, -1))
    return MemoryPlan(slots, (6, *range(len(slots) - 1)), slots)


def one_frame(pipeline: Pipeline, index: int, prompt: Prompt | None = None) -> Candidates:
    pipeline.encode(Image.from_array(clip()[0][index], "rgb8"), window(pipeline, index))
    if prompt is None:
        pipeline.attend(plan(index))
    candidates = pipeline.decode(prompt)
    pipeline.remember(0, index, present=index != ABSENT)
    return candidates


def track(pipeline: Pipeline, prompt: Prompt) -> Iterator[tuple[Candidates, np.ndarray]]:
    for index in range(FRAMES):
        yield one_frame(pipeline, index, None if index else prompt), pipeline.mask(0)


def a_mask() -> np.ndarray:
    x0, y0, x1, y1 = (round(edge) for edge in BOX_EDGES)
    mask = np.zeros(clip()[0][0].shape[:2], bool)
    mask[y0:y1, x0:x1] = True
    return mask


PROMPTS = {
    "box": Prompt(box=Box.from_edges(*BOX_EDGES)),
    "click": Prompt(points=(CENTRES[0],), labels=(1,)),
    "box and clicks": Prompt(box=Box.from_edges(*BOX_EDGES), points=(CENTRES[0], (5.0, 5.0)), labels=(1, 0)),
    "mask": Prompt(mask=a_mask()),
}


@pytest.mark.parametrize(
    ("prompt", "integrated"),
    [*((prompt, False) for prompt in PROMPTS), ("box", True)],
    ids=[*PROMPTS, "box in memory that host and GPU share"],
)
def test_gives_what_the_cpu_gives(shipped: Bundle, prompt: str, integrated: bool) -> None:
    rig, cpu = Rig(shipped, seed=1, integrated=integrated), OrtPipeline(shipped)
    for (ours, our_mask), (theirs, their_mask) in zip(
        track(rig.pipeline, PROMPTS[prompt]), track(cpu, PROMPTS[prompt]), strict=True
    ):
        # OpenCV resizes in fixed point, the kernel in float: pixels differ by less than a grey level.
        assert np.allclose(ours.boxes, theirs.boxes, atol=0.15, equal_nan=True)
        assert np.allclose(ours.ious, theirs.ious, atol=0.001)
        assert ours.presence_logit == pytest.approx(theirs.presence_logit, abs=0.05)
        assert np.count_nonzero(our_mask != their_mask) < 0.02 * np.count_nonzero(their_mask) + 5
    rig.pipeline.close()


@pytest.mark.parametrize("prompt", PROMPTS)
def test_of_pixels_that_need_no_resizing_it_makes_exactly_what_the_cpu_makes(
    shipped: Bundle, prompt: str
) -> None:
    """One image pixel to a network pixel: nothing is left that could hide a small fault of the wiring."""
    rig, cpu = Rig(shipped), OrtPipeline(shipped)
    side, given = shipped.spec.image_side, PROMPTS[prompt]
    if len(given.points) > 1:
        given = replace(given, points=(CENTRES[0], (85.0, 110.0)))  # both within the view
    for index in range(FRAMES):
        answers = []
        for pipeline in (rig.pipeline, cpu):
            view = View(80 + 14 * index, 104 + 6 * index, 1.0, 1.0, side)
            pipeline.encode(Image.from_array(clip()[0][index], "rgb8"), view)
            if index:
                pipeline.attend(plan(index))
            answers.append(pipeline.decode(None if index else given))
            pipeline.remember(0, index, present=index != ABSENT)
        ours, theirs = answers
        assert np.allclose(ours.boxes, theirs.boxes, atol=EXACT_PX, equal_nan=True)
        assert np.allclose(ours.ious, theirs.ious, atol=EXACT)
        assert ours.presence_logit == pytest.approx(theirs.presence_logit, abs=EXACT)
    rig.pipeline.close()


@pytest.mark.slow
def test_an_official_network_gives_what_the_cpu_gives(golden_bundle: Path) -> None:
    """Another layout: a free number of prompt tokens, memory rounded to bfloat16, no features at finer
    strides."""
    bundle = Bundle.load(golden_bundle)
    rig, cpu = Rig(bundle), OrtPipeline(bundle)
    for index in range(3):
        prompt = None if index else PROMPTS["box and clicks"]
        ours, theirs = (one_frame(pipeline, index, prompt) for pipeline in (rig.pipeline, cpu))
        assert np.allclose(ours.boxes, theirs.boxes, atol=1.0, equal_nan=True)
        assert np.allclose(ours.ious, theirs.ious, atol=0.02)
    rig.pipeline.close()


def test_a_tracker_cannot_tell_them_apart(shipped: Bundle, rig: Rig) -> None:
    trackers = [Tracker(pipeline, TrackerConfig()) for pipeline in (rig.pipeline, OrtPipeline(shipped))]
    for index, picture in enumerate(clip()[0]):
        frame = Frame(Image.from_array(picture, "rgb8"), index * 33_000_000)
        prompt = None if index else PROMPTS["box"]
        ours, theirs = (tracker.step(frame, prompt) for tracker in trackers)
        assert ours.state is theirs.state
        assert ours.measured == theirs.measured
        assert ours.box is not None
        assert np.allclose(ours.box.edges(), theirs.box.edges(), atol=1.0)


def test_nothing_is_attended_to_on_an_empty_plan(shipped: Bundle, rig: Rig) -> None:
    cpu = OrtPipeline(shipped)
    answers = []
    for pipeline in (rig.pipeline, cpu):
        one_frame(pipeline, 0, PROMPTS["mask"])
        pipeline.encode(Image.from_array(clip()[0][1], "rgb8"), window(pipeline, 1))
        pipeline.attend(MemoryPlan())
        answers.append(pipeline.decode(None))
    assert np.allclose(answers[0].ious, answers[1].ious, atol=0.01)


class TestTheFrame:
    """One stream, one wait, nothing allocated: what makes a frame fast and right."""

    def test_is_copy_preprocess_encode_attend_decode_copy_wait_remember(self, rig: Rig) -> None:
        for index in range(3):
            rig.gpu.mark(f"frame {index}")
            one_frame(rig.pipeline, index, None if index else PROMPTS["box"])
        counted = (*COPIES, "cuLaunchKernel", "cuEventSynchronize", *GRAPHS)
        work = [call.name for call in rig.gpu.since("frame 2") if call.name in counted]
        assert work == [
            "cuMemcpyHtoDAsync",  # picture
            "cuMemcpyHtoDAsync",  # image bytes
            "cuLaunchKernel",  # preprocess
            "image_encoder",
            "cuMemcpyHtoDAsync",  # plan
            "cuLaunchKernel",  # gather
            "memory_attention_fixed",
            "mask_decoder",
            "cuMemcpyDtoHAsync",  # boxes and scores
            "cuEventSynchronize",
            "cuMemcpyHtoDAsync",  # decision
            "cuLaunchKernel",  # choose
            "memory_encoder",
            "cuLaunchKernel",  # store
        ]

    def test_waits_once_and_allocates_nothing(self, rig: Rig) -> None:
        one_frame(rig.pipeline, 0, PROMPTS["box"])
        one_frame(rig.pipeline, 1)
        for index in range(2, FRAMES):
            waits, allocations = len(rig.gpu.host_waits()), len(rig.gpu.allocations())
            one_frame(rig.pipeline, index)
            assert len(rig.gpu.host_waits()) == waits + 1
            assert len(rig.gpu.allocations()) == allocations
        assert not any(run.host_waited for run in rig.ort.runs[-8:])

    def test_keeps_to_one_stream(self, rig: Rig) -> None:
        rig.gpu.mark("frames")
        for index in range(3):
            one_frame(rig.pipeline, index, None if index else PROMPTS["box"])
        used = {call.stream for call in rig.gpu.since("frames") if call.stream is not None}
        assert used == {rig.stream.handle}

    def test_replays_captured_graphs(self, rig: Rig) -> None:
        assert set(rig.pipeline.launch.values()) == {"cuda graph"}
        one_frame(rig.pipeline, 0, PROMPTS["box"])
        before = len(rig.ort.runs)
        one_frame(rig.pipeline, 1)
        assert all(run.replayed for run in rig.ort.runs[before:])

    def test_only_the_rows_that_the_view_shows_are_copied(self, rig: Rig) -> None:
        picture = clip()[0][0]
        image = Image.from_array(picture, "rgb8")
        rig.pipeline.encode(image, View.window(200, 60, 40, rig.pipeline.spec.image_side))
        copies = [c.summary for c in rig.gpu.calls("cuMemcpyHtoDAsync")]
        copied = int(copies[-1].split(", ")[2], 0)
        assert copied < 60 * image.rows.shape[1]

    def test_has_a_time_for_every_stage(self, rig: Rig) -> None:
        one_frame(rig.pipeline, 0, PROMPTS["box"])
        assert set(rig.pipeline.stage_seconds) >= {"preprocess", "image_encoder", "mask_decoder"}
        one_frame(rig.pipeline, 1)
        seconds = rig.pipeline.stage_seconds
        assert {"memory_attention", "memory_encoder"} <= set(seconds)
        assert all(value > 0 for value in seconds.values())


@pytest.mark.parametrize("seed", range(4))
def test_a_copy_on_another_stream_is_found_out(shipped: Bundle, seed: int) -> None:
    rig = Rig(shipped, seed=seed)
    other = Stream(rig.cuda)
    rig.pipeline._image._stream = other  # the classic: upload on one stream, execution on another
    with pytest.raises(Race, match="no event or wait sets their order"):
        list(track(rig.pipeline, PROMPTS["box"]))


class TestFallback:
    """What can't be captured runs by plain launches, and says so."""

    @pytest.mark.parametrize("fault", ["no_capture", "capture_fails"])
    def test_plain_launches_give_the_same(self, shipped: Bundle, rig: Rig, fault: str) -> None:
        plain = Rig(shipped, **{fault: True})
        assert all(how.startswith("plain launches: ") for how in plain.pipeline.launch.values())
        for index in range(3):
            prompt = None if index else PROMPTS["box"]
            ours, theirs = (one_frame(r.pipeline, index, prompt) for r in (plain, rig))
            assert np.array_equal(ours.boxes, theirs.boxes)


class TestAnotherThread:
    def test_tracks_after_opening_here(self, rig: Rig) -> None:
        answers: list[Candidates] = []
        one_frame(rig.pipeline, 0, PROMPTS["box"])
        thread = threading.Thread(target=lambda: answers.append(one_frame(rig.pipeline, 1)))
        thread.start()
        thread.join()
        assert len(answers) == 1
        assert answers[0].is_finite


class TestBadInput:
    def test_a_bad_image_leaves_the_memory_as_it_was(self, shipped: Bundle, rig: Rig) -> None:
        clean = Rig(shipped)
        for r in (rig, clean):
            one_frame(r.pipeline, 0, PROMPTS["box"])
        broken = replace(Image.from_array(clip()[0][1], "rgb8"), encoding="jpeg2000")
        with pytest.raises(InputError, match="jpeg2000"):
            rig.pipeline.encode(broken, window(rig.pipeline, 1))
        with pytest.raises(RuntimeError, match="encode comes first"):
            rig.pipeline.decode(None)
        ours, theirs = (one_frame(r.pipeline, 1) for r in (rig, clean))
        assert np.array_equal(ours.boxes, theirs.boxes)

    def test_a_larger_image_is_taken(self, rig: Rig) -> None:
        one_frame(rig.pipeline, 0, PROMPTS["box"])
        large = np.zeros((1080, 1920, 3), np.uint8)
        rig.pipeline.encode(
            Image.from_array(large, "bgr8"), View.full(1920, 1080, rig.pipeline.spec.image_side)
        )
        rig.pipeline.attend(plan(1))
        assert rig.pipeline.decode(None).is_finite
        assert rig.pipeline.mask(0).shape == (1080, 1920)

    def test_too_many_points_are_refused(self, rig: Rig) -> None:
        rig.pipeline.encode(Image.from_array(clip()[0][0], "rgb8"), window(rig.pipeline, 0))
        with pytest.raises(InputError, match="300 points; give at most 256"):
            rig.pipeline.decode(Prompt(points=(CENTRES[0],) * 300, labels=(1,) * 300))

    def test_decode_without_attend_is_an_error(self, rig: Rig) -> None:
        rig.pipeline.encode(Image.from_array(clip()[0][0], "rgb8"), window(rig.pipeline, 0))
        with pytest.raises(RuntimeError, match="without attend"):
            rig.pipeline.decode(None)

    def test_a_slot_beyond_the_ring_is_an_error(self, rig: Rig) -> None:
        rig.pipeline.encode(Image.from_array(clip()[0][0], "rgb8"), window(rig.pipeline, 0))
        with pytest.raises(IndexError, match="24"):
            rig.pipeline.attend(MemoryPlan((24,), (6,), (24,)))

    def test_a_gpu_that_disappears_is_an_error_and_can_be_closed(self, rig: Rig) -> None:
        one_frame(rig.pipeline, 0, PROMPTS["box"])
        rig.gpu.lose_device()
        with pytest.raises(CudaError, match="restart"):
            one_frame(rig.pipeline, 1)
        rig.pipeline.close()


class TestClosing:
    def test_gives_everything_back(self, shipped: Bundle) -> None:
        rig = Rig(shipped)
        one_frame(rig.pipeline, 0, PROMPTS["box"])
        rig.pipeline.mask(0)
        rig.pipeline.close()
        rig.pipeline.close()
        assert rig.gpu.memory.alive == []
        with pytest.raises(RuntimeError, match="closed"):
            rig.pipeline.decode(None)

    @pytest.mark.parametrize("after", range(0, 14, 3))
    def test_a_failure_while_opening_gives_everything_back(
        self, shipped: Bundle, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        gpus, whole = [], FakeGpu

        def made(*args: object, **kwargs: object) -> FakeGpu:
            gpu = whole(*args, **kwargs)
            gpu.fail("cuEventCreate", 2, after=after)
            gpus.append(gpu)
            return gpu

        monkeypatch.setattr("support.gpu_rig.FakeGpu", made)
        with pytest.raises(CudaError, match="CUDA_ERROR_OUT_OF_MEMORY"):
            Rig(shipped)
        assert gpus[0].memory.alive == []


class TestLayout:
    """What the fixed form of memory attention is laid out as."""

    def test_counts_the_keys_of_the_graph(self, shipped: Bundle) -> None:
        layout = MemoryLayout.of(shipped)
        assert (layout.rows, layout.tokens, layout.channels) == (7, 144, 64)
        assert layout.keys == layout.rows * layout.tokens + layout.pointers * layout.pointer_tokens

    def test_names_each_row_once(self, shipped: Bundle) -> None:
        layout = MemoryLayout.of(shipped)
        out = np.zeros(layout.rows + layout.pointers, np.int32)
        layout.write_plan(MemoryPlan((3, 5), (6, 0), (3, 5)), out)
        assert out.tolist() == [5, -1, -1, -1, -1, -1, 3, 3, 5] + [-1] * 14
        with pytest.raises(ValueError, match="twice"):
            layout.write_plan(MemoryPlan((3, 5), (6, 6), ()), out)
        with pytest.raises(IndexError, match="rows"):
            layout.write_plan(MemoryPlan((3,), (7,), ()), out)
