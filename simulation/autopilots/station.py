"""A simulated ground station on one link. It detects a camera, sends boxes, and stores the camera's
answers."""

from __future__ import annotations

import math
from collections.abc import Callable

from efftam_flight.mavlink.dialect import Message, mav
from efftam_flight.mavlink.framing import Decoder, Encoder
from efftam_flight.mavlink.links.connection import Connection

CAMERA = (1, mav.MAV_COMP_ID_CAMERA)
HEARTBEAT_S = 1.0


class Station:
    """A ground station. `step` must be called whenever the clock has advanced. ``clock``: returns steady
    time, s."""

    def __init__(self, link: Connection, clock: Callable[[], float]) -> None:
        self.sees_camera = False
        self.result: int | None = None  # MAV_RESULT of the last command; None: no answer yet
        self._link, self._clock = link, clock
        self._encoder, self._decoder = Encoder(255, 190), Decoder(link.datagrams)
        self._next_heartbeat_s = -math.inf

    def step(self) -> None:
        """Read the messages that have arrived, and send a heartbeat each second."""
        for _, data in self._link.receive():
            for message in self._decoder.feed(data):
                self._take(message)
        now_s = self._clock()
        if now_s >= self._next_heartbeat_s:
            self._next_heartbeat_s = now_s + HEARTBEAT_S
            self._send(mav.MAVLink_heartbeat_message(mav.MAV_TYPE_GCS, mav.MAV_AUTOPILOT_INVALID, 0, 0, 4, 3))

    def track(self, edges: tuple[float, float, float, float]) -> float:
        """Select a box (left, top, right, bottom, 0..1 of the picture). Return the time at which the command
        was sent, s."""
        self.result = None
        self._command(mav.MAV_CMD_CAMERA_TRACK_RECTANGLE, *edges)
        return self._clock()

    def close(self) -> None:
        self._link.close()

    def _take(self, message: Message) -> None:
        kind, sender = message.get_type(), (message.get_srcSystem(), message.get_srcComponent())
        if sender != CAMERA:
            return
        if kind == "HEARTBEAT":
            self.sees_camera = True
        elif kind == "COMMAND_ACK" and message.result != mav.MAV_RESULT_IN_PROGRESS:
            self.result = message.result

    def _command(self, number: int, *parameters: float) -> None:
        filled = [*parameters, *[0.0] * 7][:7]
        self._send(mav.MAVLink_command_long_message(*CAMERA, number, 0, *filled))

    def _send(self, message: Message) -> None:
        self._link.send(self._encoder.encode(message))
