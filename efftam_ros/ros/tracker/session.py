"""The active node: subscriptions, frame buffer, worker, and supervision of stale input."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_policy_name_from_kind
from rclpy.qos_overriding_options import QoSOverridingOptions
from sensor_msgs.msg import CameraInfo

from efftam_ros.core.errors import MOST_SHOWN, InputError, PipelineLostError
from efftam_ros.core.tracker import Tracker
from efftam_ros.core.types import Image, Track, TrackState
from efftam_ros.interop.messages import (
    STEERABLE,
    CameraModel,
    Kind,
    Outcome,
    camera_model,
    check_header,
    check_selection,
    check_target,
    compressed_size,
    image_from_compressed,
    selection_prompt,
    stamp_ns,
)
from efftam_ros.msg import TargetSelection
from efftam_ros.ros.common.image_input import ImageInput
from efftam_ros.ros.common.images import image_reader
from efftam_ros.ros.common.throttle import Throttle
from efftam_ros.ros.tracker.diagnostics import Statistics
from efftam_ros.ros.tracker.frame_buffer import BufferedFrame, Command, FrameBuffer, seconds
from efftam_ros.ros.tracker.parameters import NodeConfig
from efftam_ros.ros.tracker.publishing import Outputs
from efftam_ros.ros.tracker.worker import Worker, WorkThread

if TYPE_CHECKING:
    from efftam_ros.ros.tracker.attitude_input import AttitudeInput

try:
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import SubscriptionEventCallbacks

SELECTION_DEPTH = 10
# Period of checking the image publishers, s.
INPUT_PERIOD_S = 0.2
# Time without a first image before a warning, and the interval at which it is repeated, s.
FIRST_IMAGE_S, REMINDER_S = 2.0, 30.0
# Checks of images and answers per image_timeout.
CHECKS_PER_TIMEOUT = 5
# The worker counts as stalled after image_timeout plus this many frame times without an answer, and after at
# least STALL_PATIENCE_S while the last answer is not valid: first frames and searches are slow.
STALL_FRAMES = 3.0
STALL_PATIENCE_S = 2.0
# Info lines of one kind per throttle period: a target may change its state several times within a second.
INFORMED = 10
# Memory of a kept image besides its data and strings: the message and its Python objects.
OVERHEAD_BYTES = 2048


@dataclass(frozen=True)
class _Camera:
    message: Any
    model: CameraModel | None


@dataclass(frozen=True)
class _Answer:
    """The last published answer.

    Attributes:
        header: Header of the image.
        track: The track.
        selection: Number of the selection it answers.
        published_s: When it was published, on the steady clock.
        arrived_s: When its image arrived, on the steady clock.
    """

    header: Any
    track: Track
    selection: int
    published_s: float
    arrived_s: float


class Session:
    """Receives, tracks and publishes from construction until `close`.

    Methods are called in the executor's thread, except those of `worker.Listener`.
    """

    def __init__(
        self,
        node: Node,
        tracker: Tracker,
        outputs: Outputs,
        statistics: Statistics,
        config: NodeConfig,
        accepted: int,
        thread: WorkThread,
        attitude: AttitudeInput | None = None,
    ) -> None:
        self._node, self._tracker, self._outputs = node, tracker, outputs
        self._statistics, self._config = statistics, config
        self._log = node.get_logger()
        # rclpy ties each logging call site to one severity, so each severity needs its own.
        self._fail = Throttle(lambda text: self._log.error(text))
        self._warn = Throttle(lambda text: self._log.warning(text))
        self._remind = Throttle(lambda text: self._log.warning(text), period_s=REMINDER_S)
        self._begin_s = time.monotonic()
        self._inform = Throttle(lambda text: self._log.info(text), burst=INFORMED)
        self._read_raw, self.conversion = image_reader()
        self._camera = _Camera(None, None)
        self._attitude = attitude
        self.accepted = accepted  # selections accepted since the node started
        self._selection = 0  # number of the selection being tracked
        self._newest: BufferedFrame | None = None
        self._answer: _Answer | None = None
        self._furthest_s = 0.0  # arrival of the newest image that was answered
        self._waiting_s: float | None = None  # since when an image is waiting for its answer
        self._silence_reported = False
        self._ending = ""  # why the node is about to stop publishing
        self._last_refusal = ""  # last refusal of an image since one was used
        self.frame_buffer = FrameBuffer(config.selection_buffer, config.selection_buffer_bytes)
        self._worker = Worker(tracker, self.frame_buffer, self, thread)
        with ExitStack() as made:  # destroys what was made when a later part raises
            self._open(made)
            self._worker.start()
            self._made = made.pop_all()

    def _open(self, made: ExitStack) -> None:
        """Create subscriptions and timers; ``made`` takes how each is destroyed."""
        node, config = self._node, self._config
        if self._attitude is not None:
            made.callback(self._attitude.close, node)
            self._attitude.open(node, self._no_camera_motion)
        compressed = config.image_transport == "compressed"
        if compressed:
            self.conversion = "OpenCV's decoder"
        self._input = ImageInput(
            node,
            config.image_transport,
            config.image_reliability,
            self._on_compressed if compressed else self._on_image,
            self._incompatible,
        )
        made.callback(self._input.close)
        self._camera_info = self._subscribe_camera_info()
        made.callback(lambda: node.destroy_subscription(self._camera_info))  # `_check_input` replaces it
        # Separate profiles: rclpy writes overrides into the object it is given.
        made.callback(
            node.destroy_subscription,
            self._subscribe(TargetSelection, "select", self._on_selection, QoSProfile(depth=SELECTION_DEPTH)),
        )
        if config.clicks != "off":
            # Clicks of other tools are off by default.
            from efftam_ros.ros.tracker.clicks import CLICK_TYPES, click_selection

            take = partial(self._on_click, click_selection)
            clicks = CLICK_TYPES[config.clicks]
            subscription = self._subscribe(clicks, "click", take, QoSProfile(depth=SELECTION_DEPTH))
            made.callback(node.destroy_subscription, subscription)
        self._steady = Clock(clock_type=ClockType.STEADY_TIME)
        look = node.create_timer(INPUT_PERIOD_S, self._check_input, clock=self._steady)
        made.callback(node.destroy_timer, look)
        self._watch = self._start_watch()
        made.callback(lambda: node.destroy_timer(self._watch))  # `reconfigure` replaces it

    def close(self, reason: str) -> None:
        """Stop receiving, finish and publish the current frame, then mark all outputs not valid with
        ``reason``."""
        self._ending = reason
        self._invalidate(reason)
        self._made.close()
        left = self._worker.stop()
        self._invalidate(reason)
        if left is not None:
            self._outputs.publish_result(left, Outcome.REFUSED, reason)

    # Interface for the node

    @property
    def image_topic(self) -> str:
        """The topic that images are read from."""
        return self._input.topic

    def reconfigure(self, config: NodeConfig) -> None:
        """Apply settings that may change while active."""
        before, self._config = self._config, config
        self.frame_buffer.limit(config.selection_buffer, config.selection_buffer_bytes)
        if config.image_timeout != before.image_timeout:
            self._node.destroy_timer(self._watch)
            self._watch = self._start_watch()
        if config.rectified != before.rectified and self._camera.message is not None:
            self._read_camera(self._camera.message)

    def reconfigure_tracker(self, config: Any) -> None:
        """Apply these tracker settings from the next image on."""
        self._worker.reconfigure(config)

    def select(self, message: Any) -> tuple[int, str]:
        """Carry out a TargetSelection.

        Returns its number (0 for CLEAR) and a remark for the response. Raises InputError, in which case
        nothing changes.
        """
        command = Command(message.header, message.target_id, self.accepted + 1)
        try:
            return self._carry_out(message, command)
        except InputError as refusal:
            self.selection_refused(command, str(refusal))
            raise

    def clear(self, command: Command) -> None:
        """Clear the target. Raises InputError when there is none, in which case nothing changes."""
        try:
            check_target(command.target_id)
            if self._worker.state is TrackState.IDLE and not self.frame_buffer.has_selection:
                raise InputError("there is no target to clear")
        except InputError as refusal:
            self._outputs.publish_result(command, Outcome.REFUSED, str(refusal))
            raise
        self._replace(self.frame_buffer.clear(command))

    def _carry_out(self, message: Any, command: Command) -> tuple[int, str]:
        if check_selection(message) is Kind.CLEAR:
            self._replace(self.frame_buffer.clear(replace(command, number=0)))
            return 0, ""
        if self._newest is None:
            raise InputError(self._explain_no_image())
        named = stamp_ns(message.header.stamp)
        kept = self.frame_buffer.find(named)
        prompt = selection_prompt(message, *kept.frame.size, self._config.max_image_pixels)
        note = ""
        if named and kept.stamp_ns != named:
            offset_ms = abs(kept.stamp_ns - named) * 1e-6
            note = f"the image of {seconds(kept.stamp_ns)} is taken, {offset_ms:.1f} ms from the one named"
        self._replace(self.frame_buffer.select(kept, prompt, replace(command, note=note)))
        self.accepted = command.number
        self._inform("selection", f"selection {command.number} accepted: {Kind(message.kind).name}")
        return command.number, note

    def _replace(self, command: Command | None) -> None:
        if command is not None:
            self._outputs.publish_result(command, Outcome.REFUSED, "a newer command took its place")

    # Subscriptions

    def _incompatible(self, resolved: str) -> Any:
        """Return event callbacks that report which publisher's QoS does not match."""

        def on_incompatible(event: Any) -> None:
            policy = qos_policy_name_from_kind(event.last_policy_kind)
            reason = (
                f"a publisher of {resolved} offers a QoS the subscription can't accept (policy {policy}):"
                f" nothing arrives from it; set qos_overrides.{resolved}.subscription.{policy.lower()}"
            )
            self._statistics.incompatible_qos(reason)
            self._warn("qos", reason)

        return SubscriptionEventCallbacks(incompatible_qos=on_incompatible)

    def _subscribe_camera_info(self) -> Any:
        newest_wins = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._camera_info_topic = self._input.camera_info_topic
        return self._subscribe(CameraInfo, self._camera_info_topic, self._on_camera_info, newest_wins)

    def _subscribe(self, message_type: Any, topic: str, callback: Any, qos: QoSProfile) -> Any:
        return self._node.create_subscription(
            message_type,
            topic,
            callback,
            qos,
            event_callbacks=self._incompatible(self._node.resolve_topic_name(topic)),
            qos_overriding_options=QoSOverridingOptions.with_default_policies(),
        )

    def _check_input(self) -> None:
        """Follow changes of the image publishers; report images that do not arrive."""
        self._input.look()
        if self._input.camera_info_topic != self._camera_info_topic:
            self._node.destroy_subscription(self._camera_info)
            self._camera_info = self._subscribe_camera_info()
        self._statistics.input_seen(
            self._input.facts | {"camera_info": self._describe_camera()},
            self._input.explain(),
            self._input.has_several,
        )
        shared = {"others": self._outputs.others, "mixed": self._input.mixed}
        self._statistics.topics_shared([reason for reason in shared.values() if reason])
        for kind, reason in shared.items():
            if reason:
                self._remind(kind, reason)
        loss = self._statistics.loss(time.monotonic())
        if loss:
            self._warn("loss", loss)
        if self._newest is None and time.monotonic() - self._begin_s > FIRST_IMAGE_S:
            self._remind("input", self._explain_no_image())

    def _explain_no_image(self) -> str:
        refused = f"every image is refused: {self._last_refusal}" if self._last_refusal else ""
        return f"no image has arrived yet: {refused or self._input.explain()}"

    def _describe_camera(self) -> str:
        camera, topic = self._camera, self._camera_info_topic
        if camera.message is None:
            return f"none on {topic}"
        size = f"{camera.message.width} x {camera.message.height} px, {topic}"
        if camera.model is None:
            return f"refused, {size}"
        return f"calibrated, {size}" if camera.model.intrinsics is not None else f"not calibrated, {size}"

    def _on_image(self, message: Any) -> None:
        now_s = time.monotonic()
        try:
            image = self._read_raw(message, self._config.max_image_pixels)
        except InputError as refusal:
            self.image_refused(str(refusal))
            return
        self._tracker.prefetch(image)
        self._receive(message, now_s, (image.width, image.height), lambda: image)

    def _on_compressed(self, message: Any) -> None:
        now_s, most = time.monotonic(), self._config.max_image_pixels
        message.format = message.format[: MOST_SHOWN + 1]  # only used in refusals
        try:
            size = compressed_size(message, most)
        except InputError as refusal:
            self.image_refused(str(refusal))
            return
        # Decoding takes milliseconds, so the worker does it, and only for images that are used.
        self._receive(message, now_s, size, lambda: image_from_compressed(message, most))

    def _receive(self, message: Any, now_s: float, size: tuple[int, int], read: Any) -> None:
        stamp = stamp_ns(message.header.stamp)
        nbytes = len(message.data) + len(message.header.frame_id) + OVERHEAD_BYTES
        frame = BufferedFrame(message.header, stamp, now_s, nbytes, size, read)
        try:
            check_header(message.header)
            if stamp == 0:
                raise InputError(
                    "image stamp is zero; set header.stamp to the time of exposure in the driver"
                )
            self.frame_buffer.put(frame)
        except InputError as refusal:
            self.image_refused(str(refusal))
            return
        self._newest = frame
        if self._waiting_s is None:
            self._waiting_s = now_s
        self._statistics.image_received(now_s, stamp, len(message.data))

    def _on_camera_info(self, message: Any) -> None:
        # camera_info comes with every image and rarely changes.
        if self._camera.message is None or _calibration(message) != _calibration(self._camera.message):
            self._read_camera(message)

    def _read_camera(self, message: Any) -> None:
        try:
            self._camera = _Camera(message, camera_model(message, self._config.rectified))
        except InputError as refusal:
            self._camera = _Camera(message, None)
            self._no_bearing(str(refusal))
        model = self._camera.model
        if self._attitude is not None:
            self._attitude.set_camera(None if model is None else model.intrinsics)
        if model is not None and model.intrinsics is None:
            self._inform("camera_info", "camera_info is not calibrated (k[0] is 0): no bearing is published")

    def _on_selection(self, message: Any) -> None:
        with suppress(InputError):  # reported on selection_result and in the log
            self.select(message)

    def _on_click(self, selection_of: Callable[[Any, Any], TargetSelection], message: Any) -> None:
        newest = None if self._newest is None else self._newest.header
        try:
            selection = selection_of(message, newest)
        except InputError as refusal:
            self.selection_refused(Command(message.header, 0), str(refusal))
            return
        self._on_selection(selection)

    # Stale input

    def _start_watch(self) -> Any:
        period_s = self._config.image_timeout / CHECKS_PER_TIMEOUT
        return self._node.create_timer(period_s, self._check_stale, clock=self._steady)

    def _stale(self, now_s: float) -> str:
        """Why images can no longer be relied on; empty while they arrive."""
        if self._newest is None:
            return ""
        silence_s = now_s - self._newest.arrived_s
        if silence_s <= self._config.image_timeout:
            return ""
        return f"no image for {silence_s:.2f} s (image_timeout is {self._config.image_timeout:g} s)"

    def _stalled(self, now_s: float) -> str:
        """Why answers can no longer be relied on although images arrive; empty while they follow."""
        waiting_s, answer = self._waiting_s, self._answer
        if waiting_s is None:
            return ""
        patience_s = self._config.image_timeout + STALL_FRAMES * self._worker.frame_s
        if answer is None or answer.track.state not in STEERABLE:
            patience_s = max(patience_s, STALL_PATIENCE_S)
        silence_s = now_s - waiting_s
        return f"no answer for {silence_s:.2f} s while images come" if silence_s > patience_s else ""

    def _check_stale(self) -> None:
        """Invalidate the last answer once images or answers stop coming."""
        now_s, answer = time.monotonic(), self._answer
        stale, stalled = self._stale(now_s), self._stalled(now_s)
        if stalled and not stale:
            self._statistics.stalled(stalled)
            self._warn("stalled", f"{stalled}; the network hangs or takes much longer than usual")
        refused = ""
        if answer is not None and self._last_refusal:
            silence_s = now_s - answer.published_s
            if stale or silence_s > self._config.image_timeout + STALL_FRAMES * self._worker.frame_s:
                refused = f"no image could be used for {silence_s:.2f} s: {self._last_refusal}"
        reason = refused or stale or stalled
        if reason and answer is not None and not self._silence_reported:
            self._silence_reported = True
            self._invalidate(reason)
            if stale and not refused:
                slow = self._statistics.slow(now_s, self._config.image_timeout)
                self._warn("slow" if slow else "stale", f"{stale}; {slow or self._explain_silence()}")

    def _explain_silence(self) -> str:
        if self._node.count_publishers(self.image_topic) == 0:
            return f"nothing publishes on {self.image_topic} any more"
        return f"the publisher of {self.image_topic} is there and sends nothing"

    def _invalidate(self, reason: str) -> None:
        answer = self._answer
        if answer is not None:
            self._outputs.publish_not_valid(answer.header, answer.track, answer.selection, reason)

    # worker.Listener

    def deliver(self, frame: BufferedFrame, image: Image, track: Track) -> None:
        selection = 0 if track.state is TrackState.IDLE else self._selection
        latency_s, no_bearing = self._outputs.publish(
            frame,
            track,
            self._tracker,
            self._camera.model,
            selection,
            self._ending or self._catching_up(frame),
            self._stale(time.monotonic()),
        )
        now_s = time.monotonic()
        self._answered(_Answer(frame.header, track, selection, now_s, frame.arrived_s))
        again = frame.arrived_s <= self._furthest_s
        self._furthest_s = max(self._furthest_s, frame.arrived_s)
        self._waiting_s = None if frame is self._newest else now_s
        self._silence_reported, self._last_refusal = False, ""
        self._statistics.answered(now_s, latency_s, track, again)
        if no_bearing:
            self._no_bearing(no_bearing)
        if self._attitude is not None and track.camera is not None and track.camera.reason:
            images_alone = track.camera.matrix is not None
            self._no_camera_motion(self._attitude.refusal or track.camera.reason, images_alone)
        # Last: when it fails, the answer has been published and counted.
        self._outputs.publish_views(frame, image, track, self._tracker)

    def _catching_up(self, frame: BufferedFrame) -> str:
        """Why the answer to this image is outdated (it or a newer image was answered before); empty if it is
        not."""
        if frame.arrived_s > self._furthest_s or self._newest is None:
            return ""
        # By arrival: the camera's clock may have gone back in between.
        behind_s = self._newest.arrived_s - frame.arrived_s
        return f"catching up after a selection: {behind_s:.2f} s behind the camera"

    def _answered(self, answer: _Answer) -> None:
        before = TrackState.IDLE if self._answer is None else self._answer.track.state
        self._answer = answer
        track = answer.track
        if track.state is not before:
            because = f": {track.reason}" if track.reason else ""
            self._inform("state", f"{before.name} -> {track.state.name}{because}")

    def selection_accepted(self, command: Command) -> None:
        self._selection = command.number
        self._outputs.publish_result(command, Outcome.ACCEPTED, command.note)

    def selection_refused(self, command: Command, reason: str) -> None:
        self._statistics.selection_refused(reason)
        self._warn("selection", f"selection refused: {reason}")
        self._outputs.publish_result(command, Outcome.REFUSED, reason)

    def cleared(self, command: Command) -> None:
        self._outputs.publish_result(command, Outcome.CLEARED)
        answer = self._answer
        if answer is not None:
            # Published at once, because there may be no further image to answer.
            size = answer.track.image_size
            track = Track(
                answer.track.stamp_ns, TrackState.IDLE, image_size=size, reason="the target was cleared"
            )
            self._answered(replace(answer, track=track, selection=0))
            self._invalidate(track.reason)
            self._statistics.state(track)

    def image_refused(self, reason: str) -> None:
        self._last_refusal, self._waiting_s = reason, None
        self._statistics.image_refused(reason)
        self._warn("image", f"image refused: {reason}")

    def skipped(self, images: int) -> None:
        self._statistics.dropped(images)

    def failed(self, error: Exception) -> None:
        self._statistics.failed(f"{type(error).__name__}: {error}", isinstance(error, PipelineLostError))
        self._fail("failure", "".join(traceback.format_exception(error)).rstrip())

    def _no_camera_motion(self, reason: str, images_alone: bool = False) -> None:
        known = "known from the images alone" if images_alone else "not known"
        fault = f"the camera's motion is {known}: {reason}"
        self._statistics.no_camera_motion(fault)
        self._warn("camera motion", fault)

    def _no_bearing(self, reason: str) -> None:
        self._statistics.no_bearing(reason)
        self._warn("bearing", reason)


def _calibration(message: Any) -> tuple[Any, ...]:
    """The fields of a CameraInfo that affect the bearing."""
    roi = message.roi
    region = (roi.x_offset, roi.y_offset, roi.width, roi.height, message.binning_x, message.binning_y)
    # As bytes: a NaN equals itself.
    matrices = (bytes(message.k), bytes(message.d), bytes(message.p))
    return (message.width, message.height, message.distortion_model, *region, *matrices)
