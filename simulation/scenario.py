"""The course of one simulated flight: select at the ground station, enable steering, follow, disable
steering."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
from efftam_ros.msg import GimbalStatus
from numpy.typing import NDArray

from efftam_flight.mavlink.dialect import mav
from efftam_ros.core.errors import InputError
from efftam_ros.core.types import TrackState
from simulation.autopilots.station import Station
from simulation.node import SimulationNode
from simulation.record import Sample
from simulation.rendered_flight import RenderedFlight, angle_between

STEP_S = 0.004
# Longest waits for the nodes to start, and for their answers later, s.
START_S, ANSWER_S = 60.0, 20.0
# For this time before the selection the gimbal points at the target, as if a pilot steered it by hand, s.
BY_HAND_S = 2.0
SELECTIONS = 5
# With an operator: how long the camera is left alone after steering has ended, s.
OFF_S = 5.0
# Longest time between two messages of a gimbal controller that runs, s.
STATUS_S = 1.0
# Age of the picture on which the operator draws the box, s. It is the default of the bridge's parameter
# video_latency.
VIDEO_LATENCY_S = 0.2
# Time from the exposure of a picture to its publication, s. It is about one frame in a real camera.
CAMERA_LATENCY_S = 0.033
JPEG_QUALITY = 95


class Scenario:
    """Flies one flight.

    ``folder``: the pictures are stored here, None: they are not kept. ``said``: called with the name of the
    present phase and the time since the phase began, s. ``stopped``: called often; if it returns true, the
    flight ends by KeyboardInterrupt.
    """

    def __init__(
        self,
        flight: RenderedFlight,
        station: Station,
        node: SimulationNode,
        folder: Path | None,
        fps: float,
        said: Callable[[str, float], None],
        stopped: Callable[[], bool],
    ) -> None:
        self._flight, self._station, self._node = flight, station, node
        self._folder, self._period_s = folder, 1.0 / fps
        self._said, self._stopped = said, stopped
        self._by_hand = True
        self._index = 0
        self._next_image_s = self._next_word_s = 0.0
        self._shown: deque[Sample] = deque(maxlen=round(2.0 * fps) + 2)
        self._leaving: deque[tuple[float, NDArray[np.uint8], int]] = deque()

    def run(self, seconds: float) -> None:
        """Fly, follow the target for these seconds, then send images and messages until ``stopped``. Raise
        InputError if a node does not start or answer, or if the selection is refused."""
        node, station = self._node, self._station
        self._until("starting", lambda: station.sees_camera, START_S, "the bridge at the ground station")
        self._until("starting", lambda: node.answer is not None, START_S, "an answer of the tracker")
        self._until("starting", lambda: node.status is not None, START_S, "the gimbal controller")
        self._until("starting", lambda: node.can_enable, START_S, "the service enable")
        self._flight.begin()
        self._for("by hand", BY_HAND_S)
        self._select()
        self._enable(True)
        self._by_hand = False
        self._node.event("following", time.monotonic())
        self._for("following", seconds)
        self._node.event("ended", time.monotonic())
        self._enable(False)
        self._until("stopping", self._stands, ANSWER_S, "zero rates")
        # The nodes are ended while autopilot and camera still send: silence at the end would be an error.
        with suppress(KeyboardInterrupt):
            self._for("ended", math.inf)

    def run_for_operator(self, seconds: float) -> None:
        """Fly for so many seconds while somebody else selects and enables.

        The pilot's hand points the camera at the target whenever steering has been off for `OFF_S`.
        """
        self._flight.begin()
        begin_s = time.monotonic()
        steered_s = -math.inf
        while (passed_s := time.monotonic() - begin_s) < seconds:
            if self._is_steered():
                steered_s = time.monotonic()
            self._by_hand = time.monotonic() - steered_s > OFF_S
            self._step("flying", passed_s)

    def _select(self) -> None:
        """Select the target's box at the ground station. If that is refused, repeat it, as an operator
        would."""
        node, station = self._node, self._station
        for _ in range(SELECTIONS):
            sent_s = station.track(self._drawn())
            self._until(
                "selecting",
                lambda: 1 in node.first_answers or self._refused(),
                ANSWER_S,
                "a box of the selection",
            )
            if 1 in node.first_answers:
                break
        else:
            raise InputError(f"the selection was refused {SELECTIONS} times, at last with {station.result}")
        self._node.event("selected", sent_s)
        node.event("answered", node.first_answers[1])
        self._until("selecting", lambda: station.result is not None, ANSWER_S, "the station's answer")
        self._until("selecting", self._tracks, ANSWER_S, "the state TRACKING")

    def _drawn(self) -> tuple[float, float, float, float]:
        """Return the target's box (left, top, right, bottom, 0..1 of the picture) in the picture that the
        operator sees, which is `VIDEO_LATENCY_S` old."""
        now_s, config = time.monotonic(), self._flight.world.config
        seen = [s for s in self._shown if s.time_s <= now_s - VIDEO_LATENCY_S and s.box is not None]
        if not seen or seen[-1].box is None:
            raise InputError("the target was not in the picture when it was to be selected")
        x, y, width, height = seen[-1].box
        w, h = config.width, config.height
        return x / w, y / h, (x + width) / w, (y + height) / h

    def _refused(self) -> bool:
        return self._station.result not in (None, mav.MAV_RESULT_ACCEPTED)

    def _tracks(self) -> bool:
        answer = self._node.answer
        return answer is not None and answer.state == TrackState.TRACKING

    def _stands(self) -> bool:
        status = self._node.status
        return status is not None and not (status.pitch_rate or status.yaw_rate)

    def _is_steered(self) -> bool:
        """Whether the gimbal controller reports that steering is enabled."""
        status = self._node.status
        if status is None or time.monotonic() - status.time_s > STATUS_S:
            return False
        return status.phase not in (GimbalStatus.OFF, GimbalStatus.CONTROL_LOST)

    def _enable(self, yes: bool) -> None:
        answer = self._node.enable(yes)
        self._until("steering", answer.done, ANSWER_S, "the answer of the service enable")
        if not answer.result().success:
            raise InputError(f"steering was refused: {answer.result().message}")

    def _until(self, phase: str, condition: Callable[[], bool], patience_s: float, what: str) -> None:
        begin_s = time.monotonic()
        while not condition():
            passed_s = time.monotonic() - begin_s
            if passed_s > patience_s:
                raise InputError(f"{what}: still missing after {patience_s:g} s")
            self._step(phase, passed_s)

    def _for(self, phase: str, seconds: float) -> None:
        begin_s = time.monotonic()
        while (passed_s := time.monotonic() - begin_s) < seconds:
            self._step(phase, passed_s)

    def _step(self, phase: str, passed_s: float) -> None:
        if self._stopped():
            raise KeyboardInterrupt
        now_s = time.monotonic()
        if now_s >= self._next_word_s:
            self._next_word_s = now_s + 0.2
            self._said(phase, passed_s)
        if self._by_hand:
            self._flight.point_at_target()
        self._flight.step()
        self._station.step()
        if now_s >= self._next_image_s:
            self._next_image_s = max(self._next_image_s + self._period_s, now_s)
            self._shoot()
        while self._leaving and self._leaving[0][0] <= now_s:
            self._node.publish(*self._leaving.popleft()[1:])
        left_s = STEP_S - (time.monotonic() - now_s)
        if left_s > 0:
            time.sleep(left_s)

    def _shoot(self) -> None:
        flight, now_s = self._flight, time.monotonic()
        stamp_ns = self._node.get_clock().now().nanoseconds
        axis, target = flight.pointing(), flight.target(now_s)
        shot = flight.shoot()
        self._leaving.append((now_s + CAMERA_LATENCY_S, shot.image, stamp_ns))
        u, v = flight.world.project(axis, target)
        sample = Sample(
            index=self._index,
            stamp_ns=stamp_ns,
            time_s=now_s,
            yaw=axis[0],
            pitch=axis[1],
            target_yaw=target[0],
            target_pitch=target[1],
            off_axis=angle_between(axis, target),
            u=u,
            v=v,
            box=None if shot.box is None else shot.box.xywh(),
            visible_px=shot.visible_px,
        )
        self._shown.append(sample)
        self._node.write(sample)
        if self._folder is not None:
            name = str(self._folder / f"{self._index:06d}.jpg")
            cv2.imwrite(name, shot.image, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
        self._index += 1
