"""Takes selections and clear requests from topics and services, for the loop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from rclpy.qos import QoSProfile

from efftam_ros.core.errors import InputError
from efftam_ros.core.types import TrackState
from efftam_ros.interop.messages import (
    Kind,
    Outcome,
    check_selection,
    check_target,
    selection_prompt,
    stamp_ns,
)
from efftam_ros.msg import TargetSelection
from efftam_ros.ros.common.subscriptions import Subscriptions
from efftam_ros.ros.tracker.frame_buffer import Command, seconds
from efftam_ros.ros.tracker.parameters import NodeConfig
from efftam_ros.ros.tracker.shared import Shared

SELECTION_DEPTH = 10


class Selections:
    """Checks commands and puts them into the buffer. All in the executor's thread.

    ``accepted``: selections accepted since the node started. ``explain_no_image``: says why none came.
    """

    def __init__(
        self,
        shared: Shared,
        config: NodeConfig,
        subscriptions: Subscriptions,
        explain_no_image: Callable[[], str],
        accepted: int,
    ) -> None:
        self._buffer, self._outputs, self._statistics, self._log = shared
        self.config, self.accepted, self._explain_no_image = config, accepted, explain_no_image
        subscriptions.add(TargetSelection, "select", self._on_selection, QoSProfile(depth=SELECTION_DEPTH))
        if config.clicks != "off":
            # Clicks of other tools are off by default.
            from efftam_ros.ros.tracker.clicks import CLICK_TYPES, click_selection

            take = partial(self._on_click, click_selection)
            subscriptions.add(CLICK_TYPES[config.clicks], "click", take, QoSProfile(depth=SELECTION_DEPTH))

    def select(self, message: Any) -> tuple[int, str]:
        """Carry out a TargetSelection.

        Returns its number (0 for CLEAR) and a remark for the response. Raises InputError, in which case
        nothing changes.
        """
        command = Command(message.header, message.target_id, self.accepted + 1)
        try:
            return self._carry_out(message, command)
        except InputError as refusal:
            self._refuse(command, str(refusal))
            raise

    def clear(self, command: Command) -> None:
        """Clear the target. Raises InputError when there is none, in which case nothing changes."""
        try:
            check_target(command.target_id)
            answer = self._outputs.latest
            is_idle = answer is None or answer.track.state is TrackState.IDLE
            if is_idle and not self._buffer.has_selection:
                raise InputError("there is no target to clear")
        except InputError as refusal:
            self._outputs.publish_result(command, Outcome.REFUSED, str(refusal))
            raise
        self._replaced(self._buffer.clear(command))

    def _carry_out(self, message: Any, command: Command) -> tuple[int, str]:
        if check_selection(message) is Kind.CLEAR:
            self._replaced(self._buffer.clear(replace(command, number=0)))
            return 0, ""
        if self._buffer.newest is None:
            raise InputError(self._explain_no_image())
        named = stamp_ns(message.header.stamp)
        frame = self._buffer.find(named)
        prompt = selection_prompt(message, *frame.size, self.config.max_image_pixels)
        note = ""
        if named and frame.stamp_ns != named:
            offset_ms = abs(frame.stamp_ns - named) * 1e-6
            note = f"the image of {seconds(frame.stamp_ns)} is taken, {offset_ms:.1f} ms from the one named"
        self._replaced(self._buffer.select(frame, prompt, replace(command, note=note)))
        self.accepted = command.number
        self._log.inform("selection", f"selection {command.number} accepted: {Kind(message.kind).name}")
        return command.number, note

    def _replaced(self, command: Command | None) -> None:
        if command is not None:
            self._outputs.publish_result(command, Outcome.REFUSED, "a newer command took its place")

    def _refuse(self, command: Command, reason: str) -> None:
        self._statistics.selection_refused(reason)
        self._outputs.publish_result(command, Outcome.REFUSED, reason)

    def _on_selection(self, message: Any) -> None:
        with suppress(InputError):  # reported on selection_result and in the log
            self.select(message)

    def _on_click(self, selection_of: Callable[[Any, Any], TargetSelection], message: Any) -> None:
        newest = self._buffer.newest
        try:
            selection = selection_of(message, None if newest is None else newest.header)
        except InputError as refusal:
            self._refuse(Command(message.header, 0), str(refusal))
            return
        self._on_selection(selection)
