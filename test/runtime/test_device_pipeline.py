"""The device pipeline, whole: our kernels by g++, the graphs of the bundle, on a GPU that punishes misuse."""

from __future__ import annotations

import ctypes
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from golden.clip import clip
from hypothesis import given
from hypothesis import strategies as st
from runtime.cuda.fake_cuda import COPIES, HOST_WAITS, Call, FakeGpu
from runtime.cuda.shim import shared_shim
from runtime.fake_ort import FakeOrt
from runtime.frames import PROMPTS, clip_image, looked, window
from support.gpu_rig import Rig, divided_arena, fake_gpu

from efftam_ros.core.contract import Look, Pipeline, Remembered
from efftam_ros.core.errors import BackendError, PipelineLostError
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Candidates, Image, MemoryPlan, Prompt
from efftam_ros.images.pixels import ENCODINGS
from efftam_ros.runtime import verify
from efftam_ros.runtime.backends import backend_of
from efftam_ros.runtime.bundle import Bundle, default_bundle
from efftam_ros.runtime.cuda.api import Cuda, CudaError, open_device
from efftam_ros.runtime.cuda.kernel_table import PREPROCESS_PARAMS
from efftam_ros.runtime.cuda.preprocess_params import Part, PreprocessParameters
from efftam_ros.runtime.device import opening, tensors
from efftam_ros.runtime.device.image import merged
from efftam_ros.runtime.device.memory import GRAPHS, MemoryLayout
from efftam_ros.runtime.device.section import Section
from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline
from efftam_ros.runtime.onnxruntime.gpu import OrtGraphs
from efftam_ros.runtime.verify import Reference

ABSENT, UNATTENDED = 2, 4
FRAMES = 5
EXACT_PX, EXACT = 1e-3, 1e-4


@pytest.fixture
def rig(shipped: Bundle) -> Iterator[Rig]:
    rig = Rig(shipped)
    yield rig
    rig.pipeline.close()


@pytest.fixture
def tensorrt(shipped: Bundle) -> Iterator[Rig]:
    rig = Rig(shipped, tensorrt=True)
    yield rig
    rig.pipeline.close()


@pytest.fixture(scope="module")
def opened() -> Iterator[Rig]:
    """Opened once: for tests that look at one frame and need nothing of those before it."""
    rig = Rig(default_bundle())
    yield rig
    rig.pipeline.close()


def plan(index: int) -> MemoryPlan:
    """The prompted frame in the last row, the recent ones before it."""
    slots = (0, *range(index - 1, 0, -1))
    return MemoryPlan(slots, (6, *range(len(slots) - 1)), slots)


def begin(pipeline: Pipeline, frames: int) -> None:
    """Prompt with a box and track; ``frames`` in all."""
    for index in range(frames):
        one_frame(pipeline, index, None if index else PROMPTS["box"])


def one_frame(pipeline: Pipeline, index: int, prompt: Prompt | None = None) -> Candidates:
    view = window(index, pipeline.spec.image_side)
    candidates = looked(pipeline, clip_image(index), view, plan(index), prompt)
    pipeline.remember([Remembered(0, 0, index, present=index != ABSENT)])
    return candidates


@pytest.mark.parametrize("prompt", PROMPTS)
def test_of_pixels_that_need_no_resizing_it_makes_exactly_what_the_cpu_makes(
    shipped: Bundle, prompt: str
) -> None:
    """One image pixel to a network pixel: nothing is left that could hide a small fault of the wiring."""
    rig, cpu = Rig(shipped), OrtPipeline(shipped)
    side, given = shipped.spec.image_side, PROMPTS[prompt]
    for index in range(FRAMES):
        answers, masks = [], []
        for pipeline in (rig.pipeline, cpu):
            view = View(80 + 14 * index, 104 + 6 * index, 1.0, 1.0, side)
            attended = plan(index) if index != UNATTENDED else MemoryPlan()
            look = Look(0, (view,), attended, None if index else given)
            found = pipeline.look(clip_image(index), [look])
            answers += found.candidates(0)
            masks.append(found.mask(0, 0))
            pipeline.remember([Remembered(0, 0, index, present=index != ABSENT)])
        ours, theirs = answers
        assert np.allclose(ours.boxes, theirs.boxes, atol=EXACT_PX, equal_nan=True)
        assert np.allclose(ours.ious, theirs.ious, atol=EXACT)
        assert ours.presence_logit == pytest.approx(theirs.presence_logit, abs=EXACT)
        assert np.count_nonzero(masks[0] != masks[1]) <= 3
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


class TestTheFrame:
    """One stream, one wait, nothing allocated: what makes a frame fast and right."""

    COUNTED: ClassVar = {*COPIES, *GRAPHS, "cuLaunchKernel", "cuGraphLaunch", *HOST_WAITS}
    ALIKE: ClassVar = {
        "cuMemcpy2DAsync": 1,  # the image's bytes that the window shows
        "cuEventSynchronize": 1,
    }

    def test_is_these_copies_kernels_and_graphs_and_one_wait(self, rig: Rig) -> None:
        for calls in self.calls(rig):
            assert Counter(call.name for call in calls if call.name in self.COUNTED) == self.ALIKE | {
                "cuMemcpyHtoDAsync": 3,  # descriptions of image and view, plan, decision
                "cuMemcpyDtoHAsync": 1,  # boxes and scores
                "cuLaunchKernel": 4,  # preprocess, gather, choose, store
                **dict.fromkeys(set(GRAPHS) - {"prompt_encoder"}, 1),
            }
            assert all(run.replayed and not run.host_waited for run in rig.ort.runs[-4:])
            assert {call.stream for call in calls if call.name in GRAPHS} == {rig.stream.handle}

    def test_is_two_graph_launches_of_engines_which_can_be_captured_with_what_is_around_them(
        self, tensorrt: Rig
    ) -> None:
        assert set(tensorrt.pipeline.launch.values()) == {"cuda graph"}
        for calls in self.calls(tensorrt):
            assert Counter(call.name for call in calls if call.name in self.COUNTED) == self.ALIKE | {
                "cuMemcpyHtoDAsync": 1,  # descriptions of image and view
                "cuLaunchKernel": 1,  # preprocess
                "cuGraphLaunch": 2,
            }

    @staticmethod
    def calls(rig: Rig) -> Iterator[list[Call]]:
        """Those of each tracked frame."""
        begin(rig.pipeline, 2)
        for index in range(2, FRAMES):
            rig.gpu.mark(f"frame {index}")
            allocations = len(rig.gpu.allocations())
            one_frame(rig.pipeline, index)
            calls = rig.gpu.since(f"frame {index}")
            assert len(rig.gpu.allocations()) == allocations
            assert len({call.stream for call in calls if call.stream is not None}) == 2
            yield calls

    def test_finds_everything_warm_when_the_first_click_comes(self, tensorrt: Rig) -> None:
        """The first run of a context loads kernels, tries them and allocates."""
        assert tensorrt.trt.fake.first_runs == tensorrt.trt.fake.contexts_alive == 7
        one_frame(tensorrt.pipeline, 0, PROMPTS["box"])
        assert tensorrt.trt.fake.first_runs == 7

    def test_is_worked_at_from_the_look_on_and_only_who_asks_for_candidates_waits(
        self, tensorrt: Rig
    ) -> None:
        """The host does its own work in between: it follows the target's points."""
        one_frame(tensorrt.pipeline, 0, PROMPTS["box"])
        waits = len(tensorrt.gpu.host_waits())
        tensorrt.gpu.mark("look")
        answers = tensorrt.pipeline.look(clip_image(1), [Look(0, (window(1),), plan(1))])
        assert "cuGraphLaunch" in [call.name for call in tensorrt.gpu.since("look")]
        assert len(tensorrt.gpu.host_waits()) == waits
        tensorrt.gpu.mark("candidates")
        assert answers.candidates(0)[0].is_finite
        assert "cuGraphLaunch" not in [call.name for call in tensorrt.gpu.since("candidates")]
        assert len(tensorrt.gpu.host_waits()) == waits + 1

    def test_that_is_searched_for_the_target_is_one_wait_too(self, tensorrt: Rig) -> None:
        one_frame(tensorrt.pipeline, 0, PROMPTS["box"])
        waits = len(tensorrt.gpu.host_waits())
        views = tuple(window(index) for index in range(3))
        search = Look(0, views, plan(1), is_search=True)
        assert len(tensorrt.pipeline.look(clip_image(1), [search]).candidates(0)) == len(views)
        assert len(tensorrt.gpu.host_waits()) == waits + 1


class TestTheBytesOfAnImage:
    """What the view does not show stays on the host, and what it shows is whole."""

    @staticmethod
    def image(encoding: str, width: int = 400, height: int = 300, padding: int = 0) -> Image:
        facts = ENCODINGS[encoding]
        shape = (height * facts.rows_per_pair // 2, width * facts.bytes_per_pixel + padding)
        return Image(np.random.default_rng(7).integers(0, 256, shape, np.uint8), width, height, encoding)

    @staticmethod
    def copied(opened: Rig, image: Image, view: View) -> int:
        """Bytes that go to the device for a frame, besides its description. What lay there before is gone."""
        counted, device = opened.gpu.scheduler.copied, opened.pipeline._image._device
        opened.gpu.scheduler.wait_for_all()
        counted.clear()
        if device is not None:
            ctypes.memset(device.pointer, 0xA5, device.nbytes)
            for host in opened.pipeline._image._hosts:
                host.array[:] = 0x5A
        opened.pipeline._prepare(image, [view])
        return sum(counted.values()) - PREPROCESS_PARAMS.itemsize

    @pytest.mark.parametrize("padding", [0, 7])
    @pytest.mark.parametrize("encoding", ENCODINGS)
    def test_give_the_network_what_the_whole_image_gives(
        self, opened: Rig, encoding: str, padding: int
    ) -> None:
        """Of images of noise, in windows that lie within them, at their edges, and beyond them."""
        side = opened.pipeline.spec.image_side
        image = self.image(encoding, padding=padding)
        for x, y, extent in ((200.5, 150.3, 61.0), (9, 8, 50), (397, 296, 40), (201, 140, 220), (-90, 20, 9)):
            view = View.window(x, y, extent, side)
            assert self.copied(opened, image, view) < 0.75 * image.rows.size
            opened.gpu.scheduler.wait_for_all()
            address = opened.pipeline._tensors.at("image")
            found = np.ctypeslib.as_array((ctypes.c_float * (3 * side * side)).from_address(address))
            assert np.array_equal(found.reshape(3, side, side), by_the_kernel(image, view))

    @pytest.mark.parametrize(
        ("encoding", "size", "extent", "nbytes"),
        [
            ("bgr8", (1280, 720), 200, 127_308),
            ("nv12", (1280, 720), 200, 64_480),
            ("uyvy", (1920, 1080), 300, 188_496),
            ("bgr8", (3840, 2160), 400, 494_508),
        ],
    )
    def test_are_few_for_a_window(
        self, opened: Rig, encoding: str, size: tuple[int, int], extent: int, nbytes: int
    ) -> None:
        image = self.image(encoding, *size)
        view = View.window(size[0] / 2, size[1] / 2, extent, opened.pipeline.spec.image_side)
        assert self.copied(opened, image, view) == nbytes

    def test_go_in_one_piece_where_few_columns_are_left_out(self, opened: Rig) -> None:
        image, side = self.image("bgr8"), opened.pipeline.spec.image_side
        opened.gpu.mark("wide")
        wide = self.copied(opened, image, View.window(200, 150, 300, side))
        assert wide == 300 * 1200
        opened.gpu.mark("full")
        assert self.copied(opened, image, View.full(400, 300, side)) == 300 * 1200
        assert not [call for call in opened.gpu.since("wide") if call.name == "cuMemcpy2DAsync"]

    def test_of_several_windows_go_once(self, opened: Rig) -> None:
        one_frame(opened.pipeline, 0, PROMPTS["box"])
        image, side = self.image("bgr8"), opened.pipeline.spec.image_side
        views = [View.window(100 + 10 * index, 60, 50, side) for index in range(3)]
        opened.gpu.scheduler.copied.clear()
        opened.pipeline.look(image, [Look(0, tuple(views), plan(1), is_search=True)]).candidates(0)
        # From 25 px left of the first to 25 px right of the last, and three more on each side.
        assert opened.gpu.scheduler.copied["Memcpy2D HtoD"] == 56 * 76 * 3


@given(st.lists(st.tuples(*[st.integers(0, 12), st.integers(1, 6)] * 2), max_size=6))
def test_merged_parts_hold_all_and_share_no_row(drawn: list[tuple[int, int, int, int]]) -> None:
    parts = [Part(top, top + rows, left, left + width) for top, rows, left, width in drawn]
    found = merged(parts)
    assert all(any(one.holds(part) for one in found) for part in parts)
    assert all(above.bottom < below.top for above, below in pairwise(found))
    for one in found:
        inside = [part for part in parts if one.holds(part)]
        assert (one.left, one.right) == (min(p.left for p in inside), max(p.right for p in inside))
        assert {row for p in inside for row in range(p.top, p.bottom)} == set(range(one.top, one.bottom))


def by_the_kernel(image: Image, view: View) -> np.ndarray:
    """Network input made of the whole image."""
    bundle, side = default_bundle(), view.side
    record = PreprocessParameters(side, bundle.mean, bundle.std).record(image, view)
    out = np.empty((3, side, side), np.float32)
    grid = (-(-side // 32), -(-side // 8), 1)
    shared_shim().call("preprocess", grid, (32, 8, 1), record, image.rows, out)
    return out


class TestTimesOfStages:
    """Events are recorded in the frames that are timed, and in no others."""

    INTERVAL = 3
    BESIDES = 2
    """Events of every frame: the image is there, the answers are."""

    @pytest.fixture(params=[False, True], ids=["onnxruntime", "tensorrt"])
    def timed(self, shipped: Bundle, request: pytest.FixtureRequest) -> Iterator[Rig]:
        rig = Rig(shipped, tensorrt=request.param)
        yield rig
        rig.pipeline.close()

    @staticmethod
    def frames(rig: Rig, count: int) -> Iterator[dict[str, float]]:
        """The times told after each frame."""
        for index in range(count):
            rig.gpu.mark(f"frame {index}")
            number, prompt = min(index, FRAMES - 1), None if index else PROMPTS["box"]
            look = Look(0, (window(number),), plan(number), prompt)
            answers = rig.pipeline.look(clip_image(number), [look])
            answers.candidates(0)
            rig.pipeline.remember([Remembered(0, 0, number, present=number != ABSENT)])
            yield dict(answers.stage_seconds(0))

    def test_cost_no_event_in_the_frames_between(self, timed: Rig) -> None:
        timed.pipeline.stage_interval = self.INTERVAL
        driver = timed.gpu.driver.functions
        each = np.diff([driver.events_recorded for _ in self.frames(timed, 7)])
        of_stages = 2 * len(("preprocess", "encoder", "attention", "decoder", "memory encoder"))
        timed_frame = self.BESIDES + of_stages
        assert each.tolist() == [self.BESIDES, self.BESIDES, timed_frame] * 2

    def test_stay_until_the_next_timed_frame(self, timed: Rig) -> None:
        timed.pipeline.stage_interval = self.INTERVAL
        told = list(self.frames(timed, 8))
        tracked = {"preprocess", "image_encoder", "memory_attention", "mask_decoder"}
        assert set(told[0]) == {"preprocess", "image_encoder", "prompt_encoder", "mask_decoder"}
        assert told[1] == told[2] == told[0] | {"memory_encoder": told[1]["memory_encoder"]}
        assert set(told[3]) == tracked
        assert told[4] == told[5] == told[3] | {"memory_encoder": told[4]["memory_encoder"]}
        assert set(told[6]) == tracked

    def test_are_those_of_the_first_target_in_a_view(self, shipped: Bundle) -> None:
        rig, events = Rig(shipped, max_targets=2, tensorrt=True), []
        rig.pipeline.stage_interval = 1
        for target in (0, 1):
            looked(rig.pipeline, clip_image(0), window(0), prompt=PROMPTS["box"], target=target)
            rig.pipeline.remember([Remembered(target, 0, 0, True)])
        image, driver = clip_image(1), rig.gpu.driver.functions
        for target in (0, 1):
            before = driver.events_recorded
            rig.pipeline.look(image, [Look(target, (window(1),), plan(1))])
            events.append(driver.events_recorded - before)
        answered = 1  # of the look before, which nobody has waited for
        assert events == [2 * len(("preprocess", "encoder", "attention", "decoder")) + 1, answered]
        rig.pipeline.close()

    def test_are_those_of_the_gpu(self, shipped: Bundle) -> None:
        rig = Rig(shipped, tensorrt=True)
        rig.pipeline.stage_interval = 2
        rig.gpu.scheduler.durations |= {"TensorRT image_encoder": 2.0, "TensorRT memory_encoder": 0.5}
        *_, seconds = self.frames(rig, 4)
        assert seconds["image_encoder"] == pytest.approx(2e-3, rel=0.01)
        assert seconds["memory_encoder"] == pytest.approx(0.5e-3, rel=0.2)
        rig.pipeline.close()

    @pytest.mark.parametrize("after", [0, 1])
    def test_a_capture_that_fails_leaves_plain_launches_with_times(
        self, shipped: Bundle, monkeypatch: pytest.MonkeyPatch, after: int
    ) -> None:
        """Of the two graphs of each section one alone would not do."""
        capture, captures = Section.capture, []

        def refused(section: Section) -> None:
            if not captures:
                section._stream.cuda.driver.gpu.fail("cuGraphInstantiate", 2, after=after)
            captures.append(section)
            capture(section)

        monkeypatch.setattr(Section, "capture", refused)
        rig = Rig(shipped, tensorrt=True)
        assert rig.pipeline.launch["plan to answers"].startswith("plain launches: cuGraphInstantiate failed")
        rig.pipeline.stage_interval = 1
        *_, told = self.frames(rig, 3)
        assert "memory_attention" in told
        rig.pipeline.close()
        assert rig.gpu.driver.functions.held == 0


class TestTheImagesStream:
    """The next image goes up beside the memory encoder, and nothing but one event orders the two streams."""

    def test_is_not_behind_the_memory_encoder(self, rig: Rig) -> None:
        begin(rig.pipeline, 3)
        encoder = rig.gpu.scheduler.latest["memory_encoder"]
        rig.pipeline.look(clip_image(3), [Look(0, (window(3),), plan(3))])
        upload = rig.gpu.scheduler.latest["Memcpy2D HtoD"]
        assert upload.stream != encoder.stream
        assert not encoder.precedes(upload.clock)

    def test_makes_masks_without_waiting_for_the_memory_encoder(self, rig: Rig) -> None:
        begin(rig.pipeline, 1)
        answers = rig.pipeline.look(clip_image(1), [Look(0, (window(1),), plan(1))])
        answers.candidates(0)
        rig.pipeline.remember([Remembered(0, 0, 1, True)])
        assert answers.mask(0, 0).any()
        assert not rig.gpu.scheduler.was_waited_for(rig.gpu.scheduler.latest["memory_encoder"])


class TestPrefetching:
    """An image is copied to pinned memory ahead of its turn."""

    @pytest.fixture
    def copied(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> list[Image]:
        """The images whose bytes were copied, in order; after a prompted frame and one that was tracked."""
        copied: list[Image] = []
        copy = rig.pipeline._image._copy
        begin(rig.pipeline, 2)
        monkeypatch.setattr(
            rig.pipeline._image, "_copy", lambda image, *rest: (copied.append(image), copy(image, *rest))
        )
        return copied

    @staticmethod
    def images(rig: Rig) -> tuple[Image, Image, View]:
        second, third = (clip_image(index) for index in (2, 3))
        return second, third, window(2)

    @staticmethod
    def answers(pipeline: Pipeline, image: Image, view: View) -> Candidates:
        pipeline._present = None  # as if it had been another object
        return looked(pipeline, image, view, plan(2))

    def test_spares_the_frame_of_that_image_its_copy(self, rig: Rig, copied: list[Image]) -> None:
        second, third, view = self.images(rig)
        for image in (second, third, second):
            rig.pipeline.prefetch(image)
            self.answers(rig.pipeline, image, view)
        assert copied == [second, third, second]
        rig.pipeline.prefetch(third)
        self.answers(rig.pipeline, second, view)
        assert copied[3:] == [third, second]
        self.answers(rig.pipeline, third, view)
        assert copied[3:] == [third, second], "the image that was fetched ahead is still there"
        # The window moves as far as was fetched ahead, then farther: columns, then rows are missing.
        self.answers(rig.pipeline, second, View.window(120, 180, 100, view.side))
        for image, place, copies in ((third, (130, 170), 1), (second, (170, 170), 2), (third, (170, 230), 2)):
            del copied[:]
            rig.pipeline.prefetch(image)
            self.answers(rig.pipeline, image, View.window(*place, 100, view.side))
            assert copied == [image] * copies

    def test_is_safe_beside_the_frames(self, shipped: Bundle, rig: Rig) -> None:
        """Another thread fetches images without a pause; every frame still sees its own."""
        quiet, pictures = Rig(shipped), [Image.from_array(picture, "rgb8") for picture in clip()[0]]
        ended = threading.Event()

        def fetch() -> None:
            while not ended.is_set():
                for picture in pictures:
                    rig.pipeline.prefetch(picture)

        thread = threading.Thread(target=fetch)
        thread.start()
        try:
            for index in range(FRAMES):
                answers = []
                for pipeline in (rig.pipeline, quiet.pipeline):
                    prompt = None if index else PROMPTS["box"]
                    answers.append(looked(pipeline, pictures[index], window(index), plan(index), prompt))
                    pipeline.remember([Remembered(0, 0, index, present=True)])
                assert np.array_equal(answers[0].boxes, answers[1].boxes)
        finally:
            ended.set()
            thread.join()


class TestAnotherThread:
    def test_is_made_ready_even_if_it_has_the_identity_of_one_that_ended(self, rig: Rig) -> None:
        """Identities are used again, and a new thread has no device and no captured graphs."""
        one_frame(rig.pipeline, 0, PROMPTS["box"])
        answers: list[Candidates] = []
        identities: list[int | None] = []
        for index in (1, 2, 3, 4):
            thread = threading.Thread(target=lambda: answers.append(one_frame(rig.pipeline, 1)))
            thread.start()
            identities.append(thread.ident)
            thread.join()
            assert len(answers) == index
            assert all(run.replayed for run in rig.ort.runs[-4:])
        assert len(set(identities)) < len(identities)
        assert len({run.thread for run in rig.ort.runs}) == 5

    def test_asks_for_a_mask_and_closes(self, shipped: Bundle) -> None:
        rig = Rig(shipped)
        one_frame(rig.pipeline, 0, PROMPTS["box"])
        answers = rig.pipeline.look(clip_image(1), [Look(0, (window(1),), plan(1))])
        answers.candidates(0)
        with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as another:
            mask = one.submit(answers.mask, 0, 0).result()
            another.submit(rig.pipeline.close).result()
        assert mask.any()
        assert rig.gpu.memory.alive == []


class TestFailuresOnTheGpu:
    """What fails there is told later, by another call: the pipeline is lost, and says so."""

    @pytest.mark.parametrize("work", ["image_encoder", "memory_encoder", "gather_memory", "Memcpy DtoH"])
    def test_end_the_pipeline_within_the_next_frame(self, rig: Rig, work: str) -> None:
        begin(rig.pipeline, 2)
        rig.gpu.fail_work(work, 700)
        with pytest.raises(PipelineLostError, match="restart it"):
            list(map(partial(one_frame, rig.pipeline), (2, 3)))
        rig.pipeline.close()


class TestTooLittleMemory:
    @pytest.mark.parametrize(
        ("call", "after", "zero_copy"),
        [
            *product(("cuMemHostAlloc", "cuMemHostGetDevicePointer"), (0, 1), (False, True)),
            ("cuMemAlloc", 0, False),
        ],
    )
    def test_for_any_buffer_of_a_larger_image_leaves_none_of_them(
        self, shipped: Bundle, call: str, after: int, zero_copy: bool
    ) -> None:
        """Frames go on as before, once there is enough memory again also larger ones."""
        rig = Rig(shipped, zero_copy=zero_copy)
        pipeline, side = rig.pipeline, rig.pipeline.spec.image_side
        small, again = (clip_image(index) for index in (1, 2))
        large = Image.from_array(np.repeat(np.repeat(clip()[0][1], 2, axis=0), 2, axis=1), "rgb8")

        def boxes(image: Image) -> np.ndarray:
            return looked(pipeline, image, View.full(image.width, image.height, side), plan(1)).boxes

        one_frame(pipeline, 0, PROMPTS["box"])
        buffers, held = len(rig.gpu.memory.alive), pipeline.device_bytes
        pipeline.prefetch(small)  # so that the second of the pinned buffers is in use
        expected = boxes(small)
        whole = Look(0, (View.full(small.width, small.height, side),), plan(1))
        pipeline.look(replace(small), [whole])  # given up, and still at work
        rig.gpu.fail(call, 2, after)
        with pytest.raises(CudaError, match="CUDA_ERROR_OUT_OF_MEMORY"):
            pipeline.look(large, [Look(0, (View.full(large.width, large.height, side),), plan(1))])
        assert len(rig.gpu.memory.alive) == buffers - (2 if zero_copy else 3)
        pipeline.prefetch(large)
        assert np.array_equal(boxes(small), expected)
        pipeline.prefetch(again)
        assert pipeline.device_bytes == held
        assert np.isfinite(boxes(large)).all()
        assert pipeline.device_bytes == held + (0 if zero_copy else large.rows.size - small.rows.size)
        assert np.array_equal(boxes(small), expected)
        pipeline.close()
        assert rig.gpu.memory.alive == []

    @pytest.mark.parametrize("call", ["cuMemAlloc", "cuMemHostAlloc", "cuMemHostGetDevicePointer"])
    def test_for_a_mask_leaves_nothing_of_it(self, rig: Rig, call: str) -> None:
        answers = rig.pipeline.look(clip_image(0), [Look(0, (window(0),), prompt=PROMPTS["box"])])
        answers.candidates(0)
        buffers = len(rig.gpu.memory.alive)
        rig.gpu.fail(call, 2)
        with pytest.raises(CudaError, match="CUDA_ERROR_OUT_OF_MEMORY"):
            answers.mask(0, 0)
        assert len(rig.gpu.memory.alive) == buffers
        assert answers.mask(0, 0).any()


class TestBadInput:
    def test_closing_gives_everything_back_and_the_next_one_takes_the_context_again(
        self, shipped: Bundle
    ) -> None:
        """The driver keeps hundreds of megabytes for a context."""
        for _ in range(2):
            rig = Rig(shipped)
            assert rig.gpu.driver.functions.retained[0] == 1
            answers = rig.pipeline.look(clip_image(0), [Look(0, (window(0),), prompt=PROMPTS["box"])])
            answers.candidates(0)
            answers.mask(0, 0)
            rig.pipeline.close()
            rig.pipeline.close()
            assert rig.gpu.driver.functions.retained[0] == 0
            assert rig.gpu.memory.alive == []
            with pytest.raises(RuntimeError, match="closed"):
                rig.pipeline.look(clip_image(0), [])
        open_device(rig.cuda)
        assert rig.gpu.driver.functions.retained[0] == 1


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(default_bundle(), 1)


class TestOpening:
    """`open_device_pipeline`, whole, where a call of the driver fails for lack of memory."""

    @pytest.fixture
    def gpu(self, monkeypatch: pytest.MonkeyPatch, reference: Reference, tmp_path: Path) -> FakeGpu:
        gpu = fake_gpu()
        cuda = Cuda(gpu.driver)
        ort = FakeOrt(gpu.enqueue, gpu.take)
        monkeypatch.setattr(opening, "_opened", lambda: (cuda, open_device(cuda)))
        monkeypatch.setattr(
            opening,
            "function_of",
            lambda row: (
                lambda bundle, _, facts, stream, folder: OrtGraphs(bundle, "cuda", stream.handle, ort=ort)
            ),
        )
        monkeypatch.setattr(verify, "Reference", lambda bundle, lanes: reference)
        monkeypatch.setattr(opening, "engine_folder", lambda: tmp_path)
        monkeypatch.setattr(tensors, "Arena", partial(divided_arena, gpu))
        return gpu

    @pytest.mark.parametrize(
        ("call", "after"),
        [
            # Of the pipeline.
            *product(["cuStreamCreate"], (0, 1)),
            *product(["cuEventCreate"], (0, 2, 3, 10, 14)),
            *product(["cuMemHostAlloc"], (0, 2)),
            *product(["cuMemAlloc", "cuMemsetD8Async", "cuMemHostGetDevicePointer"], [0]),
            ("cuModuleLoadDataEx", 1),
            # Of the agreement check.
            ("cuMemAlloc", 1),
            *product(["cuMemHostAlloc", "cuMemHostGetDevicePointer"], (3, 5)),
            *product(["cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"], [10]),
        ],
    )
    def test_is_refused_and_leaves_nothing(
        self, shipped: Bundle, gpu: FakeGpu, call: str, after: int
    ) -> None:
        gpu.fail(call, 2, after)
        with pytest.raises(BackendError, match=f"on the GPU Fake GPU failed; {call} .*OUT_OF_MEMORY"):
            opening.open_device_pipeline(shipped, backend_of("onnxruntime-cuda"), "tf32", "always")
        assert gpu.memory.alive == []
        assert gpu.driver.functions.held == 0

    def test_is_checked_once_for_all_that_its_results_depend_on(
        self,
        shipped: Bundle,
        gpu: FakeGpu,
        monkeypatch: pytest.MonkeyPatch,
        spoiled: Callable[[Callable[[dict[str, Any]], None]], Path],
    ) -> None:
        another = Bundle.load(spoiled(lambda manifest: manifest.update(family="another")))
        agreements, judged = [verify.Agreement((), (), 0.0)], []
        judge = SimpleNamespace(judge=lambda *given: judged.append(given) or agreements[-1])
        monkeypatch.setattr(verify, "Reference", lambda bundle, lanes: judge)

        def checks(bundle: Bundle = shipped, precision: str = "tf32", when: str = "once", **how: Any) -> int:
            """Of two starts alike."""
            judged.clear()
            for _ in range(2):
                row = backend_of("onnxruntime-cuda")
                opening.open_device_pipeline(bundle, row, precision, when, **how).close()
            return len(judged)

        assert [checks(when=when) for when in ("never", "once", "once", "always")] == [0, 1, 0, 2]
        assert (gpu.memory.alive, gpu.driver.functions.held) == ([], 0)
        agreements.append(verify.Agreement((), (verify.Deviation("image 1", "mask", "mask", 1, 0.1),), 0.0))
        with pytest.raises(BackendError, match="what the CPU computes: image 1: output mask of mask"):
            checks(when="always")
        del agreements[-1]
        assert checks() == 1, "that it agreed once does not count any more"
        for how in ({"bundle": another}, {"precision": "fp32"}, {"zero_copy": True}, {"max_targets": 2}):
            assert checks(**how) == 1, how
        cuda, facts = opening._opened()
        for changed in (replace(facts, multiprocessors=7), replace(facts, driver_version=13000)):
            monkeypatch.setattr(opening, "_opened", lambda facts=changed: (cuda, open_device(cuda) and facts))
            assert checks() == 1, changed
        monkeypatch.setattr(OrtGraphs, "made_of", "another library")
        assert checks() == 1
        monkeypatch.setattr(opening, "__version__", "0.0")
        assert checks() == 1

    def test_is_refused_at_once_with_less_memory_than_the_libraries_take(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        little = FakeGpu(total_bytes=500_000_000)
        monkeypatch.setattr(Cuda, "load", lambda: Cuda(little.driver))
        with pytest.raises(BackendError, match=r"500 MB .* are needed"), opening.device_session():
            pytest.fail("nothing is opened")

    def test_a_session_is_refused_without_a_stream(self, gpu: FakeGpu) -> None:
        gpu.fail("cuStreamCreate", 2)
        with pytest.raises(BackendError, match="cuStreamCreate"), opening.device_session():
            pytest.fail("there is no stream")


class TestLayout:
    """What the fixed form of memory attention is laid out as."""

    def test_names_each_row_once(self, shipped: Bundle) -> None:
        layout = MemoryLayout.of(shipped)
        out = np.zeros(layout.rows + layout.pointers, np.int32)
        layout.write_plan(MemoryPlan((3, 5), (6, 0), (3, 5)), out)
        assert out.tolist() == [5, -1, -1, -1, -1, -1, 3, 3, 5] + [-1] * 14
        with pytest.raises(ValueError, match="twice"):
            layout.write_plan(MemoryPlan((3, 5), (6, 6), ()), out)
        with pytest.raises(IndexError, match="rows"):
            layout.write_plan(MemoryPlan((3,), (7,), ()), out)
