"""Receives images, the camera's calibration and commands, checks them, and puts them into the buffer."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from geometry_msgs.msg import Point, PointStamped
from rclpy.node import Node
from sensor_msgs.msg import CameraInfo
from std_msgs.msg import Header, UInt8

from efftam_ros.core.errors import MAX_SHOWN, InputError, shown
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.targets import STEERED, id_for, listed
from efftam_ros.core.types import Image, Prompt
from efftam_ros.images.levels import Levels
from efftam_ros.images.message import (
    MAX_FRAME_ID,
    ImageReader,
    ReceivedImage,
    StampGuard,
    check_header,
    stamp_ns,
)
from efftam_ros.messages.bearing import camera_model, is_rectified_topic, rectified_note
from efftam_ros.messages.fields import Kind, Outcome, check_selection, selection_prompt
from efftam_ros.msg import TargetSelection
from efftam_ros.ros.common.image_input import ImageInput
from efftam_ros.ros.common.nodes import Subscriptions, reliable, sampled
from efftam_ros.ros.tracker.frame_buffer import ALL, Command, seconds
from efftam_ros.ros.tracker.loop import Exchange
from efftam_ros.ros.tracker.parameters import NodeConfig

# The message type of the topic `click`, by the value of the parameter `clicks`.
CLICK_TYPES: dict[str, Any] = {"point_stamped": PointStamped, "point": Point}
# Memory that the Python objects of a kept image take in addition to its pixels and its frame_id, bytes.
OVERHEAD_BYTES = 2048


class Receiver:
    """Checks every image and puts it into the buffer, and passes the camera's calibration to the outputs.

    Only the executor's thread uses this object. ``prefetch``: called with each raw image before it is
    buffered, see `TargetSet.prefetch`.
    """

    def __init__(
        self,
        node: Node,
        exchange: Exchange,
        config: NodeConfig,
        subscriptions: Subscriptions,
        prefetch: Callable[[Image], None],
    ) -> None:
        self._buffer, self._outputs = exchange.buffer, exchange.outputs
        self._statistics, self._log = exchange.statistics, exchange.log
        self._config, self._subscriptions = config, subscriptions
        self._prefetch = prefetch
        self._camera_info: Any = None  # the last message on camera_info; None before the first
        self._stamps = StampGuard()
        self._noted: set[str] = set()
        transport, reliability = config.image_transport, config.image_reliability
        self._reader = ImageReader(transport, Header, Levels(config.image_range))
        callbacks = partial(subscriptions.callbacks, lost=self._on_lost)
        self.input = ImageInput(node, transport, reliability, self._on_image, callbacks)
        self._subscribe_camera_info()

    def close(self) -> None:
        self.input.close()

    def reconfigure(self, config: NodeConfig) -> None:
        before, self._config = self._config, config
        if config.image_range != before.image_range:
            self._reader.levels = Levels(config.image_range)
        if config.rectified != before.rectified and self._camera_info is not None:
            self._read_camera(self._camera_info)

    def look(self) -> None:
        """Subscribe again if the topic or QoS of the images, or the topic of camera_info, has changed.

        Call this method regularly.
        """
        self.input.look()
        if self.input.camera_info_topic != self._camera_topic:
            self._subscriptions.remove(self._camera_subscription)
            self._subscribe_camera_info()

    def explain_no_image(self) -> Reason:
        """Return the reason why no image was accepted yet, with the remedy."""
        refusal = self._statistics.refusal
        why = f"every image is refused: {refusal}" if refusal else self.input.explain()
        return ReasonCode.NO_IMAGE.reason(why=why)

    def _on_image(self, message: Any) -> None:
        now_ns = time.monotonic_ns()
        if hasattr(message, "format"):
            # The format is used only in the messages of refusals, which show at most this much of it.
            message.format = message.format[: MAX_SHOWN + 1]
        try:
            got = self._reader.read(message, now_ns, self._config.max_image_pixels)
            check_header(got.header)
            if got.stamp_ns == 0:
                raise InputError(
                    "image stamp is zero; set header.stamp to the time of exposure in the driver"
                )
            self._stamps.check(got.stamp_ns, now_ns)
            if got.note and got.note not in self._noted:
                self._noted.add(got.note)
                self._log.inform(got.note, got.note)
            if isinstance(got.pixels, Image):
                self._prefetch(got.pixels)
            sent_bytes = got.nbytes
            got.nbytes += len(got.header.frame_id) + OVERHEAD_BYTES
            self._buffer.put(got)
            self._statistics.image_received(got.arrived_s, sent_bytes, got.still_s)
        except InputError as refusal:
            self._statistics.fault("image", str(refusal))

    def _on_lost(self, event: Any) -> None:
        self._statistics.images_lost(time.monotonic(), event.total_count_change)

    def _subscribe_camera_info(self) -> None:
        self._camera_topic = self.input.camera_info_topic
        self._camera_subscription = self._subscriptions.add(
            CameraInfo, self._camera_topic, self._on_camera_info, sampled(1)
        )

    def _on_camera_info(self, message: Any) -> None:
        # camera_info arrives with every image and rarely changes: an equal message is not evaluated again.
        if self._camera_info is None or _calibration(message) != _calibration(self._camera_info):
            self._read_camera(message)

    def _read_camera(self, message: Any) -> None:
        self._camera_info = message
        try:
            is_rectified = self._config.rectified or is_rectified_topic(self.input.topic)
            self._outputs.camera = model = camera_model(message, is_rectified)
        except InputError as refusal:
            self._outputs.camera = model = None
            self._statistics.fault("bearing", str(refusal))
        if not self._config.rectified and (note := rectified_note(message, self.input.topic)):
            self._log.inform(note, note)
        if model is not None and model.intrinsics is None:
            note = (
                "camera_info is not calibrated (k[0] is 0), so no bearing is published; calibrate the camera"
            )
            self._log.inform("camera_info", note)

    @property
    def image_range(self) -> str:
        """Pixel values of 16-bit images that are shown as black and as white; empty without such images."""
        return self._reader.levels.text if self._reader.levels is not None else ""

    def describe_camera(self) -> str:
        message, model = self._camera_info, self._outputs.camera
        if message is None:
            return f"none on {self._camera_topic}"
        state = "refused"
        if model is not None:
            state = "calibrated" if model.intrinsics is not None else "not calibrated"
        return f"{state}, {message.width} x {message.height} px, {self._camera_topic}"


def _calibration(message: Any) -> tuple[Any, ...]:
    """Return the fields of a CameraInfo that affect the bearing."""
    roi = message.roi
    region = (roi.x_offset, roi.y_offset, roi.width, roi.height, message.binning_x, message.binning_y)
    # Compared as bytes, because a NaN does not equal itself as a number.
    matrices = (bytes(message.k), bytes(message.d), bytes(message.p))
    return (message.width, message.height, message.distortion_model, *region, *matrices)


class Selections:
    """Checks commands and puts them into the buffer. Only the executor's thread uses this object.

    ``accepted``: number of selections accepted since the node started. ``explain_no_image``: returns why no
    image was accepted yet. ``max_targets``: largest number of targets.
    """

    def __init__(
        self,
        exchange: Exchange,
        config: NodeConfig,
        subscriptions: Subscriptions,
        explain_no_image: Callable[[], Reason],
        accepted: int,
        max_targets: int,
    ) -> None:
        self._buffer, self._outputs = exchange.buffer, exchange.outputs
        self._statistics, self._log = exchange.statistics, exchange.log
        self.config, self.accepted, self._explain_no_image = config, accepted, explain_no_image
        self._max_targets = max_targets
        subscriptions.add(TargetSelection, "select", self._on_selection, reliable())
        subscriptions.add(TargetSelection, "propose", self._on_propose, reliable())
        subscriptions.add(UInt8, "steer_target", self._on_steer, reliable())
        subscriptions.add(Header, "keep_image", self._on_keep_image, reliable())
        if config.clicks != "off":
            subscriptions.add(CLICK_TYPES[config.clicks], "click", self._on_click, reliable())

    def select(self, message: Any) -> tuple[Command, Reason]:
        """Carry out a TargetSelection.

        Returns the command, with the id of the target and the number of the selection (0 for CLEAR), and a
        remark for the response. Raises InputError if the selection is refused. Nothing changes then.
        """
        command = Command(message.header, message.target_id, self.accepted + 1)
        try:
            if check_selection(message) is Kind.CLEAR:
                command = self._cleared(replace(command, number=0))
                self._report(self._buffer.clear(command))
                return command, NO_REASON
            return self._select(message, command)
        except InputError as refusal:
            self._refuse(command, Reason.of(refusal, ReasonCode.COMMAND_REFUSED))
            raise

    def clear(self, command: Command) -> None:
        """Clear the command's target, or all. Raises InputError if no such target exists."""
        try:
            command = self._cleared(command)
            if not self._buffer.followed.ids:
                raise InputError(ReasonCode.NOTHING_TO_CLEAR.reason())
        except InputError as refusal:
            reason = Reason.of(refusal, ReasonCode.COMMAND_REFUSED)
            self._outputs.publish_result(command, Outcome.REFUSED, reason)
            raise
        self._report(self._buffer.clear(command))

    def steer(self, target_id: int) -> None:
        """Make this target the steered one. Raises InputError if it does not exist."""
        command = Command(None, target_id)
        try:
            self._require(target_id)
        except InputError as refusal:
            self._refuse(command, Reason.of(refusal, ReasonCode.COMMAND_REFUSED))
            raise
        self._buffer.steer(command)

    def _require(self, target_id: int) -> None:
        ids = self._buffer.followed.ids
        if target_id not in ids:
            raise InputError(ReasonCode.NO_SUCH_TARGET.reason(target=target_id, known=listed(ids)))

    def _cleared(self, command: Command) -> Command:
        """Return the command with the id of the target that it clears.

        The id 0 stands for target 0 if that exists, else for the steered or only target. Raises InputError if
        no such target exists.
        """
        if command.target_id == STEERED and STEERED not in self._buffer.followed.ids:
            return replace(command, target_id=self._id_for(STEERED))
        if command.target_id != ALL:
            self._require(command.target_id)
        return command

    def _id_for(self, asked: int) -> int:
        ids, steered = self._buffer.followed
        return id_for(asked, ids, steered, self._max_targets)

    def _select(self, message: Any, command: Command) -> tuple[Command, Reason]:
        frame, prompt = self._drawn(message)
        named, note = stamp_ns(message.header.stamp), NO_REASON
        if named and frame.stamp_ns != named:
            offset_ms = abs(frame.stamp_ns - named) * 1e-6
            taken = seconds(frame.stamp_ns)
            note = ReasonCode.NEAREST_IMAGE.reason(stamp=taken, offset_ms=offset_ms)
        command = replace(command, target_id=self._id_for(command.target_id), note=note)
        self._report(self._buffer.select(command, frame, prompt))
        self.accepted = command.number
        self._log.inform("selection", f"selection {command.number} accepted: {Kind(message.kind).name}")
        return command, note

    def _drawn(self, message: Any) -> tuple[ReceivedImage, Prompt]:
        """Return the image that a selection names, and its prompt.

        Raises InputError if the image is not kept or the prompt is not allowed.
        """
        if self._buffer.newest is None:
            raise InputError(self._explain_no_image())
        frame = self._buffer.find(stamp_ns(message.header.stamp))
        return frame, selection_prompt(message, *frame.size, self.config.max_image_pixels)

    def _report(self, replaced: list[Command]) -> None:
        superseded = ReasonCode.SUPERSEDED.reason(kind="command")
        for command in replaced:
            self._outputs.publish_result(command, Outcome.REFUSED, superseded)

    def _refuse(self, command: Command, reason: Reason) -> None:
        self._statistics.fault("selection", reason)
        self._outputs.publish_result(command, Outcome.REFUSED, reason)

    def _on_selection(self, message: Any) -> None:
        with suppress(InputError):  # reported on selection_result and in the log
            self.select(message)

    def _on_propose(self, message: Any) -> None:
        """Request a proposal for the prompt of this TargetSelection. Refusals are published on `proposal`."""
        message.header.frame_id = message.header.frame_id[:MAX_FRAME_ID]
        refused, reason = message, NO_REASON
        try:
            if check_selection(message) is Kind.CLEAR:
                raise InputError(
                    "a selection of kind CLEAR has no object to propose; give a box, points or a mask"
                )
            frame, prompt = self._drawn(message)
            refused = self._buffer.propose(Command(message.header, message.target_id), frame, prompt)
            reason = ReasonCode.SUPERSEDED.reason(kind="request")
        except InputError as refusal:
            reason = Reason.of(refusal, ReasonCode.COMMAND_REFUSED)
        if refused is not None:
            self._outputs.propose(refused.header, refused.target_id, None, reason)

    def _on_steer(self, message: Any) -> None:
        with suppress(InputError):  # reported on selection_result and in the log
            self.steer(message.data)

    def _on_keep_image(self, header: Any) -> None:
        """Keep the image of this stamp for a selection that is being drawn; the stamp 0 ends this."""
        try:
            self._buffer.hold(stamp_ns(header.stamp))
        except InputError as refusal:
            reason = Reason.of(refusal, ReasonCode.COMMAND_REFUSED)
            self._outputs.publish_result(Command(header, 0), Outcome.REFUSED, reason)

    def _on_click(self, message: Any) -> None:
        newest = self._buffer.newest
        try:
            selection = click_selection(message, None if newest is None else newest.header)
        except InputError as refusal:
            self._refuse(Command(message.header, 0), Reason.of(refusal, ReasonCode.COMMAND_REFUSED))
            return
        self._on_selection(selection)


def click_selection(click: Any, newest: Any) -> TargetSelection:
    """Return the TargetSelection for a click: a geometry_msgs Point or PointStamped in image px.

    ``newest``: header of the newest image, None before the first. Some tools stamp a click with the current
    time, which is later than the newest image. The newest image is then used. Raises InputError if the
    frame_id of the click is neither empty nor that of the images.
    """
    selection = TargetSelection(kind=TargetSelection.POINTS, labels=[1])
    point = click
    if isinstance(click, PointStamped):
        point = click.point
        frame = click.header.frame_id
        if newest is not None and frame and frame != newest.frame_id:
            raise InputError(
                f"the click has the frame_id {shown(frame)}, the images have {shown(newest.frame_id)};"
                " publish the click in pixels of the image, with the frame_id of the images or an empty one"
            )
        if newest is not None and stamp_ns(click.header.stamp) <= stamp_ns(newest.stamp):
            selection.header.stamp = click.header.stamp
    selection.points = [Point(x=point.x, y=point.y)]
    return selection
