"""The parts of an active node without a graph, by a clock that goes on when a test says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from builtin_interfaces.msg import Time
from recorded_outputs import RecordedOutputs
from std_msgs.msg import Header

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.targets import TargetSet
from efftam_ros.core.types import Image, Prompt
from efftam_ros.images.message import ReceivedImage
from efftam_ros.messages.fields import Outcome
from efftam_ros.ros.common.nodes import ThrottledLog
from efftam_ros.ros.tracker import frame_buffer, loop, publishing, session
from efftam_ros.ros.tracker.diagnostics import Health, Setup, Statistics
from efftam_ros.ros.tracker.frame_buffer import Command, FrameBuffer
from efftam_ros.ros.tracker.loop import Exchange, TrackingLoop
from efftam_ros.ros.tracker.parameters import NodeConfig
from efftam_ros.ros.tracker.receiving import Selections
from efftam_ros.ros.tracker.session import SilenceWatch
from simulation.null_pipeline import NullPipeline

PERIOD_NS = 100_000_000
PIXELS = Image.from_array(np.random.default_rng(1).integers(0, 255, (48, 64, 3), np.uint8))
PROMPTS = [Prompt(box=Box(4.0 + 20 * k, 10.0, 12.0, 12.0)) for k in range(3)]


class Faulty(NullPipeline):
    """Raises what ``plan`` says: ``error`` in every look, ``refusal`` in one with a prompt, ``late_error`` in
    remember, ZeroDivisionError in each look of ``bad_target``. Each image takes ``seconds`` of the bench's
    clock, and shows nobody where ``is_absent``."""

    def __init__(self, max_targets: int, clock: SimpleNamespace) -> None:
        self.plan = SimpleNamespace(error=None, refusal=None, late_error=None, bad_target=None, seconds=0.0)
        self.plan.calls = self.plan.remembered = 0
        self.plan.is_absent = False
        self._clock = clock
        super().__init__(max_targets=max_targets)

    def check(self, image):
        super().check(image)
        if isinstance(self.plan.error, InputError):
            raise self.plan.error

    def _compute(self, image, frame):
        self.plan.calls += 1
        self._clock.now_s += self.plan.seconds
        if self.plan.error is not None:
            raise self.plan.error
        if frame.look.prompt is not None and self.plan.refusal is not None:
            raise self.plan.refusal
        super()._compute(image, frame)
        bad = self.plan.bad_target
        if bad is not None and frame.found[0].box(0) == PROMPTS[bad].box:
            raise ZeroDivisionError("by zero")
        if self.plan.is_absent:
            frame.found = [replace(found, presence_logit=-9.0) for found in frame.found]

    def _remember(self, chosen):
        if self.plan.late_error is not None:
            raise self.plan.late_error
        self.plan.remembered += 1


class Buffer(FrameBuffer):
    """Ends the loop's run where it would wait for its next task."""

    def __init__(self) -> None:
        super().__init__(10.0, 10**9, NodeConfig().image_timeout)
        self._condition.wait = self._leave

    def _leave(self, timeout=None) -> None:
        self._closed = True

    def take(self, *arguments):
        self._closed = False
        return super().take(*arguments)


class Node:
    """Of the watch: its timers. Of the commands: their topics."""

    def __init__(self, clock: SimpleNamespace) -> None:
        self._clock, self._timers = clock, list[SimpleNamespace]()
        self.hear: dict[str, Callable] = {}

    def create_timer(self, period_s: float, call: Callable, clock) -> SimpleNamespace:
        self._timers.append(SimpleNamespace(due_s=self._clock.now_s + period_s, period_s=period_s, call=call))
        return self._timers[-1]

    def destroy_timer(self, timer: SimpleNamespace) -> None:
        self._timers.remove(timer)

    def add(self, kind, topic: str, callback: Callable, qos) -> None:
        """As `Subscriptions`."""
        self.hear[topic] = callback

    def spin(self) -> None:
        """Call the timers that are due."""
        for timer in list(self._timers):
            if self._clock.now_s >= timer.due_s:
                timer.due_s = self._clock.now_s + timer.period_s
                timer.call()


class Camera:
    """What the watch asks of the receiving side."""

    image_range = mixed = ""
    looks = 0

    def __init__(self) -> None:
        self.input, self.facts = self, {"image publishers": "camera: reliable"}

    def look(self) -> None:
        self.looks += 1

    def describe_camera(self) -> str:
        return "none"

    def explain(self, have_come: bool = False) -> str:
        return "the publisher is there, and nothing arrives from it"

    def explain_no_image(self) -> str:
        return "no image has arrived yet"


class Bench:
    """Loop, commands and watch of an active node; the camera sends an image every 0.1 s."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_ns, self.clock = 0, SimpleNamespace(now_s=100.0)
        self.logged: list[str] = []
        logger = SimpleNamespace(**dict.fromkeys(("error", "warning", "info"), self.logged.append))
        log = ThrottledLog(logger)
        self.buffer, self.statistics = Buffer(), Statistics(log.warn)
        pipeline, clock = Faulty(3, self.clock), SimpleNamespace(monotonic=lambda: self.clock.now_s)
        self.plan = pipeline.plan
        for module in (loop, publishing, frame_buffer, session):
            patch.setattr(module, "time", clock)
        patch.setattr(RecordedOutputs, "others", "")
        self.outputs = RecordedOutputs(patch)
        self.outputs.begin(self.statistics.targets)
        self.published, self.topics = self.outputs.published, self.outputs.topics
        self.targets = TargetSet(pipeline)
        exchange = Exchange(self.buffer, self.outputs, self.statistics, log)
        self.loop = TrackingLoop(self.targets, exchange)
        self.node = Node(self.clock)
        self.config = NodeConfig(clicks="point_stamped")
        self.camera = camera = Camera()
        most, unseen = self.targets.max_targets, camera.explain_no_image
        self.commands = Selections(exchange, self.config, self.node, unseen, 0, most)
        self.watch = SilenceWatch(self.node, exchange, self.config, TrackerConfig(), camera)

    def image(self, pixels=PIXELS) -> list:
        """The boxes that the next image brings."""
        self.put(pixels)
        return self.work()

    def put(self, pixels=PIXELS) -> None:
        self.now_ns += PERIOD_NS
        self.clock.now_s += PERIOD_NS * 1e-9
        header = Header(stamp=Time(sec=self.now_ns // 10**9, nanosec=self.now_ns % 10**9), frame_id="camera")
        size = (PIXELS.width, PIXELS.height)
        self.buffer.put(ReceivedImage(header, self.now_ns, self.clock.now_s, 100, size, pixels))
        self.statistics.image_received(self.clock.now_s)

    def work(self) -> list:
        """The boxes of all that there is to do."""
        before = len(self.published)
        self.loop.run()
        return [message for topic, message in self.published[before:] if topic == "bbox"]

    def wait(self, seconds: float) -> list:
        """The velocities that the watch publishes while no image comes and none is worked on."""
        before = len(self.outputs.sent("velocity"))
        for _ in range(round(seconds / 0.05)):
            self.clock.now_s += 0.05
            self.node.spin()
        return self.outputs.sent("velocity")[before:]

    def select(self, target_id: int = 0, ago: int = 0, number: int = 1, prompt=None) -> list:
        """Select on the image before so many others; the boxes."""
        frame = self.buffer.find(self.now_ns - ago * PERIOD_NS)
        self.buffer.select(Command(frame.header, target_id, number), frame, prompt or PROMPTS[target_id])
        return self.work()

    def command(self, target_id: int, steers: bool = False) -> list:
        """Clear a target, or steer by it; the boxes."""
        (self.buffer.steer if steers else self.buffer.clear)(Command(None, target_id))
        return self.work()

    def propose(self) -> tuple[bool, str]:
        """Whether a box is proposed on the newest image, and why not."""
        self.clock.now_s += 1.0
        self.buffer.propose(Command(Header(), 0), self.buffer.find(0), PROMPTS[0])
        self.work()
        said = self.outputs.sent("proposal")[-1]
        return not math.isnan(said.x), said.reason

    def results(self, outcome: Outcome) -> list[tuple[int, str]]:
        return [
            (m.selection, m.message) for m in self.outputs.sent("selection_result") if m.outcome == outcome
        ]

    def verdict(self) -> Health:
        return self.statistics.verdict(self.clock.now_s, Setup("active"), 60.0)


def following(bench: Bench, count: int = 1) -> Bench:
    """The bench with so many targets."""
    for target_id in range(count):
        bench.select(target_id, number=target_id + 1)
    return bench
