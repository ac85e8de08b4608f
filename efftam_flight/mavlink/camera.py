"""The MAVLink camera component: sends the tracker's status to ground stations and receives their
selections."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import Instant
from efftam_flight.mavlink.clock_map import image_clock
from efftam_flight.mavlink.dialect import Message, Severity, mav
from efftam_flight.mavlink.ground.geo_status import geo_message
from efftam_flight.mavlink.tracking_status import StreamView, between, status_flags, tracking_message
from efftam_flight.values import NS
from efftam_ros.core.types import TrackState
from efftam_ros.messages.bearing import CameraModel
from efftam_ros.messages.fields import Outcome
from efftam_ros.messages.positions import PositionReport
from efftam_ros.messages.reports import BoxReport, ResultReport, Selection
from efftam_ros.version import __version__

INFORMATION = mav.MAVLINK_MSG_ID_CAMERA_INFORMATION
STATUS = mav.MAVLINK_MSG_ID_CAMERA_TRACKING_IMAGE_STATUS
GEO_STATUS = mav.MAVLINK_MSG_ID_CAMERA_TRACKING_GEO_STATUS
STREAMED = (STATUS, GEO_STATUS)
SET_INTERVAL = mav.MAV_CMD_SET_MESSAGE_INTERVAL
REQUEST = mav.MAV_CMD_REQUEST_MESSAGE
REQUEST_INFORMATION = mav.MAV_CMD_REQUEST_CAMERA_INFORMATION
TRACK_POINT = mav.MAV_CMD_CAMERA_TRACK_POINT
TRACK_RECTANGLE = mav.MAV_CMD_CAMERA_TRACK_RECTANGLE
STOP_TRACKING = mav.MAV_CMD_CAMERA_STOP_TRACKING
# For each command, the index (from 0) of the parameter that holds the camera's id.
CAMERA_PARAMETER = {TRACK_POINT: 3, TRACK_RECTANGLE: 4, STOP_TRACKING: 0}
ACCEPTED: int = mav.MAV_RESULT_ACCEPTED
REJECTED: int = mav.MAV_RESULT_TEMPORARILY_REJECTED
DENIED: int = mav.MAV_RESULT_DENIED
UNSUPPORTED: int = mav.MAV_RESULT_UNSUPPORTED
IN_PROGRESS: int = mav.MAV_RESULT_IN_PROGRESS
NOT_SET = 2**31 - 1  # means "not set" in the whole-number parameters of COMMAND_INT

HEARTBEAT_S = 1.0
# Coordinates are 0 to 1 of the video's size, and a box may extend beyond the edge. A larger coordinate than
# this is refused: the station sent pixels.
PIXELS = 3.0
DEFAULT_INTERVAL_S = 0.2
SHORTEST_INTERVAL_S = 0.02
# A selection that the tracker has not answered after this time is rejected, s. Ground stations wait for 2 s.
DECISION_S = 1.5
# A position of the target that is older than this is sent as unknown, s.
POSITION_AGE_S = 1.0
# If the same command arrives again within REPEAT_S (s), it counts as a repeat of a command whose answer was
# lost. For a command that is marked as a repeat, the limit is MARKED_REPEAT_S (s).
REPEAT_S = 1.0
MARKED_REPEAT_S = 5.0
# Number of stamps of requests that are stored, to make each stamp unique. More requests never wait at once.
MAX_STAMPS = 64
# CAMERA_INFORMATION needs the sensor's width, mm, which is unknown. Stations use only its ratio to the focal
# length, which is right.
NOMINAL_SENSOR_MM = 6.0
CAPABILITIES = (
    mav.CAMERA_CAP_FLAGS_HAS_TRACKING_POINT
    | mav.CAMERA_CAP_FLAGS_HAS_TRACKING_RECTANGLE
    | mav.CAMERA_CAP_FLAGS_HAS_TRACKING_GEO_STATUS
)

Sender = tuple[str, int, int]  # link by which a command came, system id and component id of its sender


class TrackerPort(Protocol):
    """Interface through which the camera component passes selections to the tracker."""

    def select(self, request: Selection) -> str | None:
        """Publish a request, with coordinates in 0..1 of the tracker's image. Each request has another stamp.

        Must not block. The outcome arrives later, by `CameraComponent.selection_result`. Return None if the
        request was published, otherwise the reason.
        """


class Outbox(Protocol):
    """Interface that sends MAVLink messages."""

    def send(self, message: Message, link: str | None = None) -> None:
        """Send a message on one link, or on all links if ``link`` is None."""


@dataclass
class _Command:
    """A selection command whose request was passed to the tracker. It is stored to answer repeats of the
    command, which may arrive on another link."""

    links: list[str]
    parameters: tuple[float, ...]
    taken_s: float
    request: Selection
    result: int | None = None  # MAV_RESULT; None: the tracker has not decided yet
    # The tracker's refusal, if the image of the request has not reached the tracker yet. The request is
    # published again when the image has been answered.
    refusal: str = ""


def firmware_version(version: str) -> int:
    """Return a version such as "1.2.3" as MAVLink packs it: one byte per number, the first one lowest."""
    numbers = [int("".join(filter(str.isdigit, part)) or 0) for part in version.split(".")[:4]]
    return sum((number & 0xFF) << (8 * place) for place, number in enumerate(numbers))


class CameraComponent:
    """Answers commands of ground stations and streams the tracker's status. Not thread-safe: only one thread
    may call it at a time."""

    def __init__(
        self,
        config: BridgeConfig,
        outbox: Outbox,
        tracker: TrackerPort,
        report: Callable[[Severity, str], object],
    ) -> None:
        self.config = config
        # A random number in our heartbeats, by which they differ from those of another camera with our ids.
        self.instance = random.getrandbits(32)
        self._outbox, self._tracker, self._report = outbox, tracker, report
        self._camera: CameraModel | None = None
        self._status = BoxReport(0)
        self._received_s: float | None = None
        self._sent_status: tuple[int, int] | None = None
        # The selection whose target was last announced as tracked; None after a loss, and before the first.
        self._announced: int | None = None
        # The newest position of the target, and its arrival, s.
        self._position: tuple[PositionReport | None, float] = (None, -math.inf)
        # The interval of each requested stream, s, by (message id, requester).
        self._intervals: dict[tuple[int, Sender], float] = {}
        # When the next message of each stream is due, s, by (message id, link).
        self._due: dict[tuple[int, str], float] = {}
        # The newest selection command of each kind from each sender, by (system id, component id, command).
        self._commands: dict[tuple[int, int, int], _Command] = {}
        self._image_offset_ns = 0  # the images' clock minus the system's clock
        self._next_heartbeat_s = -math.inf
        self._started_s: float | None = None
        self._stamps: deque[int] = deque(maxlen=MAX_STAMPS)  # stamps of the last requests, ns
        self.asked_for_information = False

    def set_camera(self, camera: CameraModel) -> None:
        """Set calibration and size of the images, which CAMERA_INFORMATION contains."""
        self._camera = camera

    @property
    def _view(self) -> StreamView:
        c = self.config
        return StreamView(c.view_left, c.view_top, c.view_width, c.view_height, c.view_quarter_turns)

    # Calls of the tracker

    def track(self, status: BoxReport, now: Instant) -> None:
        self._status, self._received_s = status, now.steady_s
        clock = image_clock(status.stamp_ns, now)
        self._image_offset_ns = 0 if clock is None else clock[1] - now.stamp_ns
        self._announce()
        self._send_change()
        for command in self._commands.values():
            if command.refusal and status.stamp_ns >= command.request.stamp_ns:
                command.refusal = ""
                self._tracker.select(command.request)

    def locate(self, report: PositionReport, now: Instant) -> None:
        """Store the newest position of the steered target, for CAMERA_TRACKING_GEO_STATUS."""
        self._position = (report, now.steady_s)

    def selection_result(self, result: ResultReport) -> None:
        """Answer the command whose request the tracker has decided. Results of other components' requests are
        ignored."""
        for key, command in self._commands.items():
            stamp_ns = command.request.stamp_ns
            if stamp_ns != result.stamp_ns or command.result is not None:
                continue
            if result.outcome is not Outcome.REFUSED:
                self._decide(key, command, ACCEPTED)
            elif 0 < self._status.stamp_ns < stamp_ns:
                # The tracker has not answered an image of this stamp yet: the station may receive its video
                # sooner than the tracker its images.
                command.refusal = result.message
            else:
                self._refuse(key, command, result.message)

    # Periodic work

    def tick(self, now: Instant) -> None:
        """Send the heartbeat and the streams that are due, and reject commands that the tracker did not
        answer. Must be called at 50 Hz."""
        if self._started_s is None:
            self._started_s = now.steady_s
        if now.steady_s >= self._next_heartbeat_s:
            self._next_heartbeat_s = now.steady_s + HEARTBEAT_S
            self._outbox.send(
                mav.MAVLink_heartbeat_message(
                    mav.MAV_TYPE_CAMERA, mav.MAV_AUTOPILOT_INVALID, 0, self.instance, mav.MAV_STATE_ACTIVE, 3
                )
            )
        self._notice_silence(now)
        for (number, link), due_s in self._due.items():
            wanted = [s for (of, sender), s in self._intervals.items() if (of, sender[0]) == (number, link)]
            if wanted and now.steady_s >= due_s:
                # The next message is scheduled from the time at which this one was due, not from this tick.
                # Otherwise the rate would be lower than requested.
                self._due[number, link] = max(due_s + min(wanted), now.steady_s)
                self._send_stream(number, link, now)
        for key, command in self._commands.items():
            if command.result is not None or now.steady_s - command.taken_s <= DECISION_S:
                continue
            if command.refusal:
                self._refuse(key, command, command.refusal)
            else:
                self._report(Severity.WARNING, "the tracker did not answer the selection; is it running?")
                self._decide(key, command, REJECTED)

    def _refuse(self, key: tuple[int, int, int], command: _Command, why: str) -> None:
        self._report(Severity.WARNING, f"selection refused: {why}")
        self._decide(key, command, DENIED)

    def _decide(self, key: tuple[int, int, int], command: _Command, result: int) -> None:
        """Store the result of a command, and send it on each link by which the command came."""
        command.result = result
        for link in command.links:
            self._acknowledge(key[2], result, (link, *key[:2]))

    def _notice_silence(self, now: Instant) -> None:
        """Report the target as LOST when the tracker is silent, instead of repeating its last status."""
        if (
            self._received_s is not None
            and now.steady_s - self._received_s > self.config.tracker_silence
            and self._status.state not in (TrackState.IDLE, TrackState.LOST)
        ):
            self._report(
                Severity.ERROR,
                f"no answer of the tracker for {now.steady_s - self._received_s:.1f} s; is it running?",
            )
            self._status = replace(self._status, state=TrackState.LOST)
            self._announce()
            self._send_change()

    def _announce(self) -> None:
        """Report in a text when the target is tracked, with the confidence, and when it is LOST. The tracking
        status of MAVLink has no field for the confidence."""
        status = self._status
        if status.state is TrackState.IDLE:
            self._announced = None
        elif status.state is TrackState.LOST and self._announced is not None:
            self._announced = None
            self._report(Severity.NOTICE, f"target {status.target_id}: LOST")
        elif status.state is TrackState.TRACKING and status.measured and status.selection != self._announced:
            self._announced = status.selection
            known = "" if math.isnan(status.confidence) else f", confidence {status.confidence:.2f}"
            self._report(Severity.NOTICE, f"target {status.target_id}: TRACKING{known}")

    def _send_change(self) -> None:
        status = (status_flags(self._status.state, self.config.lost_status), self._status.selection)
        if status != self._sent_status:
            self._sent_status = status
            self._send_status(None)

    def _send_stream(self, number: int, link: str, now: Instant) -> None:
        if number == STATUS:
            self._send_status(link)
            return
        report, arrived_s = self._position
        is_young = now.steady_s - arrived_s <= POSITION_AGE_S
        known = report if is_young else None
        self._outbox.send(geo_message(self._status.state, known, self.config.lost_status), link)

    def _send_status(self, link: str | None) -> None:
        config = self.config
        message = tracking_message(self._status, self._view, config.lost_status, config.rendered)
        self._outbox.send(message, link)

    # Commands of ground stations

    def handle(self, message: Message, link: str, now: Instant) -> None:
        """Carry out and answer a command to this camera. A broadcast command that the camera does not support
        gets no answer, because it may be meant for another component."""
        kind = message.get_type()
        if kind not in ("COMMAND_LONG", "COMMAND_INT"):
            return
        ours = self.config.component_id
        if message.target_system not in (0, self.config.system_id) or message.target_component not in (
            0,
            ours,
        ):
            return
        sender = (link, message.get_srcSystem(), message.get_srcComponent())
        parameters = _parameters(message)
        number = message.command
        if number in CAMERA_PARAMETER:
            camera = parameters[CAMERA_PARAMETER[number]]
            if math.isfinite(camera) and camera not in (0.0, float(ours)):
                result: int | None = DENIED
                if message.target_component == 0:
                    return
                self._deny(
                    f"the command is for camera {camera:g}, but this is camera {ours}; give {ours}, or 0 for"
                    " all cameras"
                )
            else:
                result = self._select(number, parameters, sender, getattr(message, "confirmation", 0), now)
            self._acknowledge(number, IN_PROGRESS if result is None else result, sender)
            return
        result, named = UNSUPPORTED, parameters[0]
        if number == SET_INTERVAL:
            result = self._set_interval(parameters, sender, now)
        elif number == REQUEST and named in (float(INFORMATION), *map(float, STREAMED)):
            result = ACCEPTED
        elif number == REQUEST_INFORMATION:
            result, named = ACCEPTED, float(INFORMATION) if named == 1.0 else math.nan
        # A broadcast of an unsupported command or message id is meant for another component.
        foreign = named not in STREAMED if number == SET_INTERVAL else result == UNSUPPORTED
        if foreign and message.target_component == 0:
            return
        self._acknowledge(number, result, sender)
        if number != SET_INTERVAL and result == ACCEPTED and math.isfinite(named):
            self._send_requested(named, link, now)

    def _acknowledge(self, command: int, result: int, sender: Sender) -> None:
        self._outbox.send(
            mav.MAVLink_command_ack_message(
                command,
                result,
                progress=255 if result == IN_PROGRESS else 0,
                target_system=sender[1],
                target_component=sender[2],
            ),
            sender[0],
        )

    def _send_requested(self, number: float, link: str, now: Instant) -> None:
        if number in STREAMED:
            self._send_stream(int(number), link, now)
            return
        self.asked_for_information = True
        self._outbox.send(self._information(now), link)

    def _information(self, now: Instant) -> Message:
        config, camera = self.config, self._camera
        focal = height = math.nan
        lens = None if camera is None else camera.intrinsics
        if camera is not None and lens is not None and camera.width and camera.height:
            focal = lens.fx / camera.width * NOMINAL_SENSOR_MM
            height = NOMINAL_SENSOR_MM * camera.height / camera.width * lens.fx / lens.fy
        return mav.MAVLink_camera_information_message(
            time_boot_ms=round((now.steady_s - (self._started_s or now.steady_s)) * 1000) & 0xFFFFFFFF,
            vendor_name=config.vendor.encode().ljust(32, b"\0"),
            model_name=config.model.encode().ljust(32, b"\0"),
            firmware_version=firmware_version(__version__),
            focal_length=focal,
            sensor_size_h=NOMINAL_SENSOR_MM if math.isfinite(focal) else math.nan,
            sensor_size_v=height,
            resolution_h=0 if camera is None else camera.width,
            resolution_v=0 if camera is None else camera.height,
            lens_id=0,
            flags=CAPABILITIES,
            cam_definition_version=0,
            cam_definition_uri=b"",
            gimbal_device_id=config.gimbal_device_id,
        )

    def _set_interval(self, parameters: tuple[float, ...], sender: Sender, now: Instant) -> int:
        number, interval_us = parameters[:2]
        if number not in STREAMED or not math.isfinite(interval_us):
            return DENIED
        if interval_us == -1.0:
            self._intervals.pop((int(number), sender), None)
            return ACCEPTED
        interval_s = interval_us / 1e6 if interval_us else DEFAULT_INTERVAL_S
        if interval_s < SHORTEST_INTERVAL_S:
            return DENIED
        self._intervals[int(number), sender] = interval_s
        self._due[int(number), sender[0]] = now.steady_s
        return ACCEPTED

    def _select(
        self, number: int, parameters: tuple[float, ...], sender: Sender, confirmation: int, now: Instant
    ) -> int | None:
        """Publish the request of a selection command, unless the command is a repeat. Return the result to
        acknowledge, None while the tracker has not decided."""
        # NaN is replaced, because it would differ from the NaN of a repeated command.
        comparable = tuple(p if math.isfinite(p) else -math.inf for p in parameters)
        link, key = sender[0], (*sender[1:], number)
        known = self._commands.get(key)
        if known is not None and known.parameters == comparable:
            age_s = now.steady_s - known.taken_s
            if age_s < (MARKED_REPEAT_S if confirmation else REPEAT_S):
                if link not in known.links:
                    known.links.append(link)
                return known.result
        request = self._read(number, parameters, now)
        if request is None:
            return DENIED
        command = _Command([link], comparable, now.steady_s, request)
        self._commands[key] = command
        impossible = self._tracker.select(request)
        if impossible is not None:
            command.result = REJECTED
            self._report(Severity.WARNING, f"selection not possible: {impossible}")
        return command.result

    def _read(self, number: int, parameters: tuple[float, ...], now: Instant) -> Selection | None:
        """Return the request that a command contains. Return None, after a warning, if the command's numbers
        are not a point or a box in the video."""
        if number == STOP_TRACKING:
            return Selection(self._stamp(now.stamp_ns), normalized=True)
        latency_ns = round(self.config.video_latency * NS)
        stamp_ns = self._stamp(now.stamp_ns + self._image_offset_ns - latency_ns)
        u, v, right, bottom = parameters[:4]
        edges = (u, v) if number == TRACK_POINT else (u, v, right, bottom)
        if any(abs(edge) > PIXELS for edge in edges):
            self._deny(
                f"{max(edges, key=abs):g} looks like pixels; give coordinates from 0 to 1 of the video's size"
            )
            return None
        if number == TRACK_POINT:
            if 0.0 <= u <= 1.0 and 0.0 <= v <= 1.0:
                points = (self._view.to_image(u, v),)
                return Selection(stamp_ns, points=points, labels=(1,), normalized=True)
            self._deny(f"the point {u:g}, {v:g} is not in the video; give 0 to 1 of its size")
            return None
        # If the operator drew the box upwards or to the left, the first corner may be the lower or the right
        # one.
        shown = between((u, v), (right, bottom)).clipped(1.0, 1.0)
        if shown.is_empty:  # also true if a coordinate is NaN
            corners = ", ".join(f"{edge:g}" for edge in edges)
            self._deny(f"the corners {corners} are no box in the video; give 0 to 1 of its size")
            return None
        return Selection(stamp_ns, box=self._view.box_to_image(shown), normalized=True)

    def _deny(self, why: str) -> None:
        self._report(Severity.WARNING, f"selection refused: {why}")

    def _stamp(self, stamp_ns: int) -> int:
        """Return the stamp, increased until no stored request has it, because results are matched by stamp. A
        negative stamp becomes 0, because messages can't carry it; simulated time has such stamps at its
        start."""
        stamp_ns = max(stamp_ns, 0)
        while stamp_ns in self._stamps:
            stamp_ns += 1
        self._stamps.append(stamp_ns)
        return stamp_ns


def _parameters(message: Message) -> tuple[float, ...]:
    """Return the seven parameters of a command. A whole-number parameter with the value `NOT_SET` is returned
    as NaN."""
    if message.get_type() == "COMMAND_LONG":
        return tuple(float(getattr(message, f"param{i}")) for i in range(1, 8))
    whole = [math.nan if v == NOT_SET else float(v) for v in (message.x, message.y)]
    return (message.param1, message.param2, message.param3, message.param4, *whole, message.z)
