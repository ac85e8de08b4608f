"""The worker's thread: what it does when the tracker raises."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from efftam_ros.core.errors import InputError, PipelineLostError
from efftam_ros.core.geometry import Box
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Image, Prompt, Track, TrackState
from efftam_ros.ros.tracker.frame_buffer import BufferedFrame, Command, FrameBuffer
from efftam_ros.ros.tracker.worker import Worker, WorkThread
from efftam_ros.runtime.null_pipeline import NullPipeline

PIXELS = Image.from_array(np.zeros((48, 64, 3), np.uint8))
PROMPT = Prompt(box=Box(10.0, 10.0, 12.0, 12.0))
LOST = "cudaMemcpyAsync failed: CUDA_ERROR_UNKNOWN (999); restart it"


class Faulty(NullPipeline):
    """Raises what it is told to: ``error`` in every call of encode, ``refusal`` in decode with a prompt,
    ``late_error`` in remember."""

    error: Exception | None = None
    refusal: InputError | None = None
    late_error: Exception | None = None
    calls = 0
    remembered = 0

    def encode(self, image, view):
        self.calls += 1
        if self.error is not None:
            raise self.error
        super().encode(image, view)

    def decode(self, prompt):
        if prompt is not None and self.refusal is not None:
            raise self.refusal
        return super().decode(prompt)

    def remember(self, choice, slot, present):
        if self.late_error is not None:
            raise self.late_error
        self.remembered += 1
        super().remember(choice, slot, present)


class Heard:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.tracks: list[Track] = []
        self.errors: list[Exception] = []
        self.accepted_selections: list[int] = []
        self.refused_selections: list[str] = []
        self.delivered = threading.Condition()
        self.remembered_when_delivered: list[int] = []
        self.pipeline: Faulty | None = None
        self.fault: Exception | None = None  # raised by `deliver`

    def deliver(self, frame: BufferedFrame, image: Image, track: Track) -> None:
        with self.delivered:
            if self.pipeline is not None:
                self.remembered_when_delivered.append(self.pipeline.remembered)
            self.tracks.append(track)
            self.delivered.notify()
            if self.fault is not None:
                raise self.fault

    def image_refused(self, reason: str) -> None: ...

    def selection_accepted(self, command: Command) -> None:
        self.accepted_selections.append(command.number)

    def selection_refused(self, command: Command, reason: str) -> None:
        with self.delivered:
            self.refused_selections.append(reason)
            self.delivered.notify()

    def cleared(self, command: Command) -> None: ...

    def skipped(self, images: int) -> None: ...

    def failed(self, error: Exception) -> None:
        self.errors.append(error)


class Bench:
    """A worker with one image after another."""

    def __init__(self) -> None:
        self.pipeline, self.heard, self.frame_buffer = Faulty(), Heard(), FrameBuffer(10.0, 10**9)
        self.heard.pipeline = self.pipeline
        self.thread = WorkThread()
        self.worker = Worker(Tracker(self.pipeline), self.frame_buffer, self.heard, self.thread)
        self.worker.start()
        self._stamp_ns = 0

    def step(self, select: bool = False) -> Track:
        """The answer for the next image, with the target selected on it or not."""
        self._stamp_ns += 33_000_000
        with self.heard.delivered:
            count = len(self.heard.tracks)
            if select:  # the image waits for its selection, so that the worker sees them together
                with self.frame_buffer._condition:
                    self.frame_buffer.put(self._arrival())
                    self.select(0)
            else:
                self.frame_buffer.put(self._arrival())
            assert self.heard.delivered.wait_for(lambda: len(self.heard.tracks) > count, 5.0)
            return self.heard.tracks[-1]

    def select(self, stamp_ns: int) -> None:
        self.frame_buffer.select(self.frame_buffer.find(stamp_ns), PROMPT, Command(None, 0, 1))

    def _arrival(self) -> BufferedFrame:
        return BufferedFrame(None, self._stamp_ns, 0.0, 100, (PIXELS.width, PIXELS.height), lambda: PIXELS)


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.worker.stop()
    bench.thread.end()


def test_an_internal_error_costs_the_target_and_no_more(bench):
    assert bench.step(select=True).state is TrackState.ACQUIRING
    bench.pipeline.error = ZeroDivisionError("by zero")
    track = bench.step()
    assert track.state is TrackState.IDLE
    assert "ZeroDivisionError" in track.reason
    assert "select it again" in track.reason
    bench.pipeline.error, calls = None, bench.pipeline.calls
    assert bench.step().state is TrackState.IDLE  # the tracker itself has no target any more
    assert bench.pipeline.calls == calls
    bench.pipeline.error = ZeroDivisionError("by zero")
    assert bench.step(select=True).state is TrackState.IDLE  # the error is in the selected image itself
    assert bench.heard.refused_selections == [bench.heard.tracks[-1].reason]
    bench.pipeline.error = None
    assert bench.step(select=True).state is TrackState.ACQUIRING
    assert bench.heard.accepted_selections == [1, 1]


def test_after_a_refused_selection_on_an_older_image_the_newest_image_is_next(bench):
    """The images since the one it was drawn on are not gone through: nothing is to be followed in them."""
    for _ in range(4):
        bench.step()
    answered = len(bench.heard.tracks)
    bench.pipeline.refusal = InputError("the network finds nothing at the selected point")
    bench.select(2 * 33_000_000)
    with bench.heard.delivered:
        assert bench.heard.delivered.wait_for(lambda: bench.heard.refused_selections, 5.0)
    bench.step()
    assert [track.stamp_ns for track in bench.heard.tracks[answered:]] == [5 * 33_000_000]


def test_a_lost_gpu_is_asked_for_nothing_again_and_every_answer_says_why(bench):
    bench.step(select=True)
    bench.pipeline.error = PipelineLostError(LOST)
    assert bench.step().reason == LOST
    bench.pipeline.error, calls = None, bench.pipeline.calls
    for _ in range(3):
        track = bench.step()
        assert (track.state, track.box, track.reason) == (TrackState.IDLE, None, LOST)
    assert bench.step(select=True).reason == LOST
    assert bench.heard.refused_selections == [LOST]
    assert bench.pipeline.calls == calls
    assert len(bench.heard.errors) == 1


def test_an_answer_is_delivered_before_its_frame_is_remembered(bench):
    for select in (True, False, False):
        bench.step(select)
    assert bench.heard.remembered_when_delivered == [0, 1, 2]
    bench.worker.stop()
    assert bench.pipeline.remembered == 3


def test_a_fault_while_delivering_costs_neither_the_target_nor_the_thread(bench):
    bench.step(select=True)
    bench.heard.fault = MemoryError("no room for the mask")
    for _ in range(2):
        assert bench.step().state in (TrackState.ACQUIRING, TrackState.TRACKING)
    bench.heard.fault = None
    assert bench.step().measured
    assert [str(error) for error in bench.heard.errors] == ["no room for the mask"] * 2
    bench.worker.stop()
    assert bench.pipeline.remembered == 4


@pytest.mark.parametrize("at", ["delivering", "remembering"])
def test_a_gpu_that_is_lost_after_the_answer_is_asked_for_nothing_again(bench, at):
    bench.step(select=True)
    lost = PipelineLostError(LOST)
    bench.heard.fault, bench.pipeline.late_error = (lost, None) if at == "delivering" else (None, lost)
    bench.step()
    bench.heard.fault, calls = None, bench.pipeline.calls
    assert bench.step().reason == LOST
    assert bench.pipeline.calls == calls
    assert [str(error) for error in bench.heard.errors] == [LOST]
