"""The loop that tracks: what it publishes and keeps when the tracker, the network or an output raises."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError, PipelineLostError
from efftam_ros.core.geometry import Box
from efftam_ros.core.targets import TargetSet
from efftam_ros.core.types import Image, Prompt, Track, TrackState
from efftam_ros.images.message import ReceivedImage
from efftam_ros.messages.fields import Outcome
from efftam_ros.ros.common.nodes import ThrottledLog
from efftam_ros.ros.tracker.diagnostics import Level, Setup, Statistics
from efftam_ros.ros.tracker.frame_buffer import Command, FrameBuffer
from efftam_ros.ros.tracker.loop import Exchange, TrackingLoop
from efftam_ros.ros.tracker.table import PublishedAnswer, TargetTable
from simulation.null_pipeline import NullPipeline

PIXELS = Image.from_array(np.zeros((48, 64, 3), np.uint8))
PROMPTS = [Prompt(box=Box(4.0 + 20 * k, 10.0, 12.0, 12.0)) for k in range(3)]
LOST = "cudaMemcpyAsync failed: CUDA_ERROR_UNKNOWN (999); restart it"


class Faulty(NullPipeline):
    """Raises what ``plan`` says: ``error`` in every call of encode, ``refusal`` in decode with a prompt,
    ``late_error`` in remember, ZeroDivisionError for each image of ``bad_lane``."""

    def __init__(self, lanes: int) -> None:
        self.plan = SimpleNamespace(error=None, refusal=None, late_error=None, bad_lane=None)
        self.plan.calls = self.plan.remembered = 0
        super().__init__(lanes=lanes)

    def encode(self, image, view):
        self.plan.calls += 1
        if self.plan.error is not None:
            raise self.plan.error
        if self._lane == self.plan.bad_lane:
            raise ZeroDivisionError("by zero")
        super().encode(image, view)

    def decode(self, prompt):
        if prompt is not None and self.plan.refusal is not None:
            raise self.plan.refusal
        return super().decode(prompt)

    def remember(self, choice, slot, present):
        if self.plan.late_error is not None:
            raise self.plan.late_error
        self.plan.remembered += 1
        super().remember(choice, slot, present)


class Published:
    """Outputs that keep what is published."""

    def __init__(self, pipeline: Faulty) -> None:
        self.pipeline = pipeline
        self.tracks: list[Track] = []
        self.ids: list[int] = []  # of their targets
        self.images = 0  # finished
        self.results: list[tuple[Outcome, int, str]] = []
        self.proposals: list[tuple[Box | None, str]] = []
        self.changed = threading.Condition()
        self.remembered_when_published: list[int] = []
        self.views, self.fault = self, None  # raised by `add`
        self.table = TargetTable()

    def publish(self, frame, step, about, stale, box_waits):
        track = step.track
        with self.changed:
            self.remembered_when_published.append(self.pipeline.plan.remembered)
            self.tracks.append(track)
            self.ids.append(step.target_id)
            self.changed.notify()
        answer = PublishedAnswer(about, track, 0.0, 0.0)
        self.table.keep(step.target_id, answer)
        return answer, ""

    def add(self, header, image, step, is_steered, are_several):
        if self.fault is not None:
            raise self.fault

    def finish(self, *arguments):
        with self.changed:
            self.images += 1
            self.changed.notify()

    def publish_result(self, command, outcome, message=""):
        with self.changed:
            self.results.append((outcome, command.number, message))
            self.changed.notify()

    def propose(self, header, target_id, box, reason, size):
        with self.changed:
            self.proposals.append((box, reason))
            self.changed.notify()

    def clear(self, target_id, reason):
        return None

    def of(self, outcome: Outcome) -> list[tuple[int, str]]:
        return [(number, message) for found, number, message in self.results if found is outcome]


class Bench:
    """A loop with one image after another."""

    def __init__(self) -> None:
        self.pipeline, self.buffer = Faulty(lanes=3), FrameBuffer(10.0, 10**9)
        self.outputs, self.statistics = Published(self.pipeline), Statistics()
        self.logged: list[str] = []
        logger = SimpleNamespace(**dict.fromkeys(("error", "warning", "info"), self.logged.append))
        shared = Exchange(self.buffer, self.outputs, self.statistics, ThrottledLog(logger))
        self.targets = TargetSet(self.pipeline)
        self.thread = ThreadPoolExecutor(1)
        self.running = self.thread.submit(TrackingLoop(self.targets, shared).run)
        self._stamp_ns = 0

    def step(self, select: bool = False, target_id: int = 0) -> Track:
        """The first answer for the next image, with a target selected on it or not."""
        self._stamp_ns += 33_000_000
        with self.outputs.changed:
            count = len(self.outputs.tracks)
            if select:  # the image waits for its selection, so that the loop sees them together
                with self.buffer._condition:
                    self.buffer.put(self._frame())
                    self.select(0, target_id)
            else:
                self.buffer.put(self._frame())
            assert self.outputs.changed.wait_for(lambda: len(self.outputs.tracks) > count, 5.0)
            return self.outputs.tracks[-1]

    def select(self, stamp_ns: int, target_id: int = 0) -> None:
        self.buffer.request(Command(None, target_id, 1), self.buffer.find(stamp_ns), PROMPTS[target_id])

    def propose(self) -> tuple[Box | None, str]:
        """What is proposed on the newest image, and why not."""
        with self.outputs.changed:
            count = len(self.outputs.proposals)
            self.buffer.propose(self.buffer.find(0), PROMPTS[0], Command(None, 0))
            assert self.outputs.changed.wait_for(lambda: len(self.outputs.proposals) > count, 5.0)
            return self.outputs.proposals[-1]

    def _frame(self) -> ReceivedImage:
        return ReceivedImage(None, self._stamp_ns, 0.0, 100, (PIXELS.width, PIXELS.height), PIXELS)

    def finish(self) -> None:
        """Have the frame in work finished, and end the loop."""
        self.buffer.close()
        self.running.result(5.0)

    def faults(self) -> tuple[Level, str]:
        verdict = self.statistics.verdict(0.0, Setup("active"), 60.0)
        return verdict.level, verdict.values["last internal error"]


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.finish()
    bench.thread.shutdown()


def test_an_internal_error_costs_the_target_and_no_more(bench):
    assert bench.step(select=True).state is TrackState.ACQUIRING
    bench.pipeline.plan.error = ZeroDivisionError("by zero")
    track = bench.step()
    assert track.state is TrackState.IDLE
    assert "ZeroDivisionError" in track.reason
    assert "select it again" in track.reason
    bench.pipeline.plan.error, calls = None, bench.pipeline.plan.calls
    assert bench.step().state is TrackState.IDLE  # the tracker itself has no target any more
    assert bench.pipeline.plan.calls == calls
    bench.pipeline.plan.error = ZeroDivisionError("by zero")
    assert bench.step(select=True).state is TrackState.IDLE  # the error is in the selected image itself
    assert bench.outputs.of(Outcome.REFUSED) == [(1, bench.outputs.tracks[-1].reason)]
    bench.pipeline.plan.error = None
    assert bench.step(select=True).state is TrackState.ACQUIRING
    assert bench.outputs.of(Outcome.ACCEPTED) == [(1, "")] * 2


def test_after_a_refused_selection_on_an_older_image_the_newest_image_is_next(bench):
    """The images since the one it was drawn on are not gone through: nothing is to be followed in them."""
    for _ in range(4):
        bench.step()
    answered = len(bench.outputs.tracks)
    bench.pipeline.plan.refusal = InputError("the network finds nothing at the selected point")
    bench.select(2 * 33_000_000)
    with bench.outputs.changed:
        assert bench.outputs.changed.wait_for(lambda: bench.outputs.results, 5.0)
    assert bench.outputs.of(Outcome.REFUSED) == [(1, str(bench.pipeline.plan.refusal))]
    bench.step()
    assert [track.stamp_ns for track in bench.outputs.tracks[answered:]] == [5 * 33_000_000]


def test_a_lost_gpu_is_asked_for_nothing_again_and_every_answer_says_why(bench):
    bench.step(select=True)
    bench.pipeline.plan.error = PipelineLostError(LOST)
    assert bench.step().reason == LOST
    bench.pipeline.plan.error, calls = None, bench.pipeline.plan.calls
    for _ in range(3):
        track = bench.step()
        assert (track.state, track.box, track.reason) == (TrackState.IDLE, None, LOST)
    assert bench.step(select=True).reason == LOST
    assert bench.outputs.of(Outcome.REFUSED) == [(1, LOST)]
    assert bench.pipeline.plan.calls == calls
    for _ in range(2):  # as long as the process runs
        assert bench.faults() == (Level.ERROR, f"PipelineLostError: {LOST}")
    assert not any("Traceback" in line for line in bench.logged)


def test_a_proposal_that_fails_costs_no_target(bench):
    bench.step(select=True)
    bench.pipeline.plan.error = ZeroDivisionError("by zero")
    assert bench.propose() == (None, "internal error (ZeroDivisionError: by zero)")
    bench.pipeline.plan.error = None
    assert bench.step().state is TrackState.ACQUIRING
    bench.pipeline.plan.refusal = InputError("the prompt can't be used")
    assert bench.propose() == (None, "the prompt can't be used")
    assert bench.step().box is not None


def test_a_gpu_that_is_lost_in_a_proposal_is_asked_for_nothing_again(bench):
    bench.step(select=True)
    bench.pipeline.plan.error = PipelineLostError(LOST)
    assert bench.propose() == (None, LOST)
    bench.pipeline.plan.error, calls = None, bench.pipeline.plan.calls
    assert (bench.step().state, bench.outputs.tracks[-1].reason) == (TrackState.IDLE, LOST)
    assert bench.propose() == (None, LOST)
    assert bench.pipeline.plan.calls == calls


def test_an_answer_is_published_before_its_frame_is_remembered(bench):
    for select in (True, False, False):
        bench.step(select)
    assert bench.outputs.remembered_when_published == [0, 1, 2]
    bench.finish()
    assert bench.pipeline.plan.remembered == 3


def test_a_fault_while_publishing_costs_neither_the_target_nor_the_thread(bench):
    bench.step(select=True)
    bench.outputs.fault = MemoryError("no room for the mask")
    for _ in range(2):
        assert bench.step().state in (TrackState.ACQUIRING, TrackState.TRACKING)
    bench.outputs.fault = None
    assert bench.step().measured
    bench.finish()
    assert bench.faults() == (Level.ERROR, "MemoryError: no room for the mask")
    assert bench.pipeline.plan.remembered == 4


def three_targets(bench) -> None:
    for target_id in range(3):
        bench.step(select=True, target_id=target_id)
    with bench.outputs.changed:
        # Outputs and views are finished apart.
        assert bench.outputs.changed.wait_for(lambda: bench.outputs.images == 6, 5.0)
    del bench.outputs.tracks[:], bench.outputs.ids[:]


def next_answers(bench) -> dict[int, Track]:
    images, count = bench.outputs.images, len(bench.outputs.tracks)
    bench.step()
    with bench.outputs.changed:
        assert bench.outputs.changed.wait_for(lambda: bench.outputs.images == images + 2, 5.0)
    return dict(zip(bench.outputs.ids[count:], bench.outputs.tracks[count:], strict=True))


def test_an_internal_error_in_one_target_costs_that_one_alone(bench):
    three_targets(bench)
    bench.pipeline.plan.bad_lane = 1
    answers = next_answers(bench)
    assert (answers[0].measured, answers[1].state) == (True, TrackState.IDLE)
    assert "ZeroDivisionError" in answers[1].reason
    bench.pipeline.plan.bad_lane = None
    answers = next_answers(bench)
    assert list(answers) == [0, 2]
    assert all(track.measured for track in answers.values())


def test_a_lost_gpu_costs_all_targets(bench):
    three_targets(bench)
    bench.targets.steer(1)
    bench.pipeline.plan.error = PipelineLostError(LOST)
    answers = next_answers(bench)
    assert list(answers) == [1, 0, 2]  # control hears of it first
    assert {key: (track.state, track.reason) for key, track in answers.items()} == dict.fromkeys(
        range(3), (TrackState.IDLE, LOST)
    )
    assert list(next_answers(bench)) == [0]


@pytest.mark.parametrize("at", ["publishing", "remembering"])
def test_a_gpu_that_is_lost_after_the_answer_is_asked_for_nothing_again(bench, at):
    bench.step(select=True)
    lost = PipelineLostError(LOST)
    bench.outputs.fault, bench.pipeline.plan.late_error = (lost, None) if at == "publishing" else (None, lost)
    bench.step()
    bench.outputs.fault, calls = None, bench.pipeline.plan.calls
    assert bench.step().reason == LOST
    assert bench.pipeline.plan.calls == calls
    assert bench.faults() == (Level.ERROR, f"PipelineLostError: {LOST}")


def test_settings_apply_from_the_next_task_on(bench):
    bench.step(select=True)
    config = TrackerConfig(lost_after=0.7)
    bench.buffer.reconfigure(config)
    bench.step()
    bench.finish()
    assert bench.targets.config is config
