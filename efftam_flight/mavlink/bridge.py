"""The bridge: connects links, camera component and gimbal client. The node runs it in a thread of its own."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Sequence

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import Instant
from efftam_flight.mavlink.camera import CameraComponent, TrackerPort
from efftam_flight.mavlink.dialect import Message, Severity, mav
from efftam_flight.mavlink.framing import Decoder, Encoder
from efftam_flight.mavlink.gimbal.client import GimbalClient, GimbalPort
from efftam_flight.mavlink.ground.follow import Follow
from efftam_flight.mavlink.ground.vehicle_state import VehicleState
from efftam_flight.mavlink.links.connection import Connection
from efftam_flight.mavlink.signing import Signer
from efftam_flight.mavlink.tracking_status import LandingTarget
from efftam_flight.position.poses import PlaceSample
from efftam_flight.values import Rates
from efftam_flight.waits import TICK_S
from efftam_ros.messages.bearing import CameraModel
from efftam_ros.messages.positions import PositionReport
from efftam_ros.messages.reports import BoxReport, MotionReport, ResultReport

MAX_DECODERS = 16
REPORT_AGAIN_S = 5.0
UNASKED_S = 10.0
# If another camera with our ids sends within this time after our start, it was running before us, s.
FIRST_S = 5.0
FOLLOW_COMPONENT = mav.MAV_COMP_ID_ONBOARD_COMPUTER
TEXT_BYTES, MAX_PIECES = 50, 5
# When the bridge ends, the stop sequence may take END_S. Then the links stay open for READ_S, so that the
# last messages are read. Both together must take less than 5 s, after which launch kills the process.
END_S, READ_S = 3.0, 0.2


class _Link:
    """A connection with the encoders and decoders of its MAVLink frames."""

    def __init__(
        self, connection: Connection, config: BridgeConfig, signer: Signer | None, link_id: int
    ) -> None:
        self.connection, self._signer = connection, signer
        self.encoder = Encoder(*config.ids, signer, link_id)
        self.follow_encoder = Encoder(config.follow_system_id, FOLLOW_COMPONENT, signer, link_id)
        self._decoders: dict[str, Decoder] = {}
        self.reported_fault = ""

    def receive(self) -> list[Message]:
        messages = []
        for peer, data in self.connection.receive():
            if peer not in self._decoders:
                if len(self._decoders) >= MAX_DECODERS:
                    del self._decoders[next(iter(self._decoders))]
                self._decoders[peer] = Decoder(self.connection.datagrams, self._signer)
            messages += self._decoders[peer].feed(data)
        return messages


class Bridge:
    """Connects the tracker with an autopilot and ground stations.

    Not thread-safe: only one thread may call it at a time. Messages are not forwarded from one of the
    ``connections`` to another. ``report`` is called with each line for the log; a line that is repeated
    within 5 s is left out. ``signer`` signs each message that is sent, and messages that it refuses are
    ignored. ``vehicle`` is called with each position of the vehicle.
    """

    def __init__(
        self,
        config: BridgeConfig,
        connections: Sequence[Connection],
        tracker: TrackerPort,
        gimbal: GimbalPort,
        clock: Callable[[], Instant],
        report: Callable[[Severity, str], object],
        signer: Signer | None = None,
        vehicle: Callable[[PlaceSample], object] = lambda sample: None,
    ) -> None:
        self.config = config
        self._links = {
            connection.address: _Link(connection, config, signer, number)
            for number, connection in enumerate(connections)
        }
        self._signer = signer
        self._clock = clock
        self._log = report
        self._reported: dict[str, float] = {}
        self.camera = CameraComponent(config, self, tracker, self._report)
        self.gimbal = GimbalClient(config, self, gimbal, self._report)
        self._vehicle = VehicleState(config, vehicle)
        self.follow = Follow(config, self._send_follow, self._report)
        self._restarts = 0  # number of restarts of the autopilot so far
        self._landing = LandingTarget(config.system_id, config.camera_roll, self._report)
        self._next_tick_s = -math.inf
        self._started_s: float | None = None
        self._texts = 0  # number of the last text that was sent in several pieces
        self._strangers: set[tuple[int, int]] = set()
        self._is_signing_reported = signer is not None
        # Why this bridge must end: another camera with its ids was running before it. Empty if there is none.
        self.refusal = ""

    # Calls of the tracker and the controller

    def track(self, status: BoxReport) -> None:
        self._landing.status = status
        self.camera.track(status, self._clock())

    def estimate(self, estimate: MotionReport) -> None:
        """Send the tracker's newest bearing as LANDING_TARGET, if the setting `landing_target` is on."""
        if self.config.landing_target:
            message = self._landing.message(estimate, self.gimbal.autopilot_clock, self._clock())
            if message is not None:
                self.send(message)

    def locate(self, report: PositionReport) -> None:
        """Store the newest position of the steered target, for ground stations and for FOLLOW_TARGET."""
        self.camera.locate(report, self._clock())
        self.follow.locate(report, self._clock())

    def enable_follow(self, wanted: bool) -> str:
        """Enable or end the sending of FOLLOW_TARGET. Return why no position can be sent yet; empty if one
        can. Raise InputError if it can't be enabled now."""
        return self.follow.enable(wanted, self._clock())

    def selection_result(self, result: ResultReport) -> None:
        self.camera.selection_result(result)

    def set_camera(self, camera: CameraModel) -> None:
        self._landing.camera = camera
        self.camera.set_camera(camera)

    def take_control(self, wanted: bool, fresh: bool = True) -> None:
        """Request control of the gimbal, or stop the gimbal and release control; see
        `GimbalClient.take_control`."""
        self.gimbal.take_control(wanted, self._clock(), fresh)

    def set_rates(self, rates: Rates) -> None:
        """Set the controller's rates. Waiting messages are handled first: another component's command among
        them ends steering, and a rate sent after this command would undo it."""
        now = self._clock()
        self._receive(now)
        self.gimbal.set_rates(rates, now)

    # Work on the links

    def send(self, message: Message, link: str | None = None) -> None:
        """Send a message on one link, or on all links if ``link`` is None."""
        for name, each in self._links.items():
            if link is None or name == link:
                each.connection.send(each.encoder.encode(message))

    def _send_follow(self, message: Message) -> None:
        for each in self._links.values():
            each.connection.send(each.follow_encoder.encode(message))

    def poll(self, timeout_s: float = TICK_S) -> None:
        """Wait for messages, at most until the next tick or ``timeout_s``, and do the work that is due."""
        files = [file for link in self._links.values() for file in link.connection.files()]
        wait_s = min(max(self._next_tick_s - time.monotonic(), 0.0), timeout_s)
        # select() can't wait for a connection that has no file descriptor. Such connections are read at each
        # tick.
        try:
            ready = select.select(files, [], [], wait_s)[0]
        except (OSError, ValueError):  # ValueError: a link was lost, and its file is closed
            ready = []
            time.sleep(wait_s)
        if ready or time.monotonic() >= self._next_tick_s:
            self.step()

    def step(self) -> None:
        """Handle the messages that have arrived, and do the tick if it is due. Never wait."""
        now = self._clock()
        self._receive(now)
        if now.steady_s >= self._next_tick_s:
            self._next_tick_s = max(self._next_tick_s + TICK_S, now.steady_s)
            self._tick(now)

    def _receive(self, now: Instant) -> None:
        for name, link in self._links.items():
            for message in link.receive():
                self._handle(message, name, now)

    def close(self) -> None:
        """Stop the gimbal, release control when the gimbal stands, and close the links. This takes a second
        or two. If `refusal` is set, nothing is sent, because another bridge with our ids controls the
        gimbal."""
        if self.refusal:
            self._close_links()
            return
        self.take_control(False)
        end_s = self._clock().steady_s + END_S
        while not self.gimbal.at_rest and self._clock().steady_s < end_s:
            self.poll()
        if not self.gimbal.at_rest:
            self._report(
                Severity.ERROR, f"the gimbal has not stopped within {END_S:g} s; take over by the stick"
            )
        # The links stay open for a moment: when a TCP connection closes, ArduPilot drops the messages from it
        # that it has not read yet.
        end_s = self._clock().steady_s + READ_S
        while self._clock().steady_s < end_s:
            self.poll()
        self._close_links()

    def _close_links(self) -> None:
        for link in self._links.values():
            link.connection.close()
        if self._signer is not None:
            self._store_time(self._signer.close)
            counts = ", ".join(f"{count} {kind}" for kind, count in self._signer.refused.items())
            self._report(Severity.INFO, f"messages refused: {counts or 'none'}")

    def _handle(self, message: Message, link: str, now: Instant) -> None:
        self._notice_stranger(message, now)
        self.camera.handle(message, link, now)
        self.gimbal.handle(message, link, now)
        self._vehicle.handle(message, self.gimbal.autopilot_clock, now)
        self.follow.handle(message, now)
        if message.get_type() == "DISTANCE_SENSOR":
            self._landing.measure(message, now)

    def _notice_stranger(self, message: Message, now: Instant) -> None:
        """Warn once for each other component whose ids conflict with ours. Set `refusal` if that component
        was running before this bridge."""
        if message.get_type() != "HEARTBEAT":
            return
        self._notice_signing(message)
        sender, ours = (message.get_srcSystem(), message.get_srcComponent()), self.config
        if sender in self._strangers:
            return
        if sender == ours.ids:
            remedy = "end one of them, or set component_id to one from 100 to 105 that is free"
            is_echo = message.custom_mode == self.camera.instance
            if not is_echo and self._started_s is not None and now.steady_s - self._started_s < FIRST_S:
                self.refusal = (
                    f"another camera, perhaps a second bridge, has the ids {sender[0]}/{sender[1]} already;"
                    f" {remedy}"
                )
                return
            other = f"another camera has the ids {sender[0]}/{sender[1]}"
            what = "a link returns the messages that this bridge sends" if is_echo else other
            fault = f"{what}: ground stations see two cameras with the same ids; {remedy}"
        elif message.autopilot != mav.MAV_AUTOPILOT_INVALID and sender[0] != ours.system_id:
            fault = (
                f"an autopilot has system id {sender[0]}, but this camera has {ours.system_id}: ground"
                f" stations ignore the camera of another system; set system_id to {sender[0]}"
            )
        else:
            return
        self._strangers.add(sender)
        self._report(Severity.WARNING, fault)

    def _notice_signing(self, message: Message) -> None:
        """Warn once if the autopilot signs and this bridge does not: the autopilot may refuse our messages
        silently."""
        is_signed = message.get_header().incompat_flags & mav.MAVLINK_IFLAG_SIGNED
        if is_signed and message.autopilot != mav.MAV_AUTOPILOT_INVALID and not self._is_signing_reported:
            self._is_signing_reported = True
            self._report(
                Severity.WARNING,
                "the autopilot signs its messages and this bridge has no signing_key: the autopilot may"
                " refuse the bridge's messages without notice; set signing_key. The autopilot also refuses"
                " a gimbal that does not sign",
            )

    def _report_faults(self) -> None:
        for name, link in self._links.items():
            fault = link.connection.fault
            if fault == link.reported_fault:
                continue
            severity = Severity.WARNING if fault else Severity.INFO
            if self._report(severity, fault or f"{name} is open"):
                link.reported_fault = fault

    def _store_time(self, store: Callable[[], None]) -> None:
        try:
            store()
        except OSError as error:
            self._report(Severity.ERROR, f"signing_key: the time of signatures can't be stored: {error}")

    def _tick(self, now: Instant) -> None:
        self._report_faults()
        if self._signer is not None:
            self._store_time(self._signer.keep)
            while self._signer.news:
                self._report(Severity.WARNING, self._signer.news.pop())
        self.camera.tick(now)
        self.gimbal.tick(now)
        restarts = self.gimbal.autopilot_clock.restarts
        if restarts != self._restarts:
            self._restarts = restarts
            self.follow.restarted()
        self.follow.tick(now)
        if self._started_s is None:
            self._started_s = now.steady_s
        elif now.steady_s - self._started_s > UNASKED_S and not self.camera.asked_for_information:
            self.camera.asked_for_information = True  # so that the message below is logged only once
            self._report(
                Severity.INFO,
                f"no ground station has requested the camera's information for {UNASKED_S:g} s; check the"
                " links",
            )

    def _report(self, severity: Severity, text: str) -> bool:
        """Log a line, and send all but an INFO to the ground stations too. Return False, and do nothing, if
        the same line was logged less than `REPORT_AGAIN_S` ago."""
        now_s = self._clock().steady_s
        if now_s - self._reported.get(text, -math.inf) < REPORT_AGAIN_S:
            return False
        if len(self._reported) > 100:
            self._reported.clear()
        self._reported[text] = now_s
        self._log(severity, text)
        if severity is not Severity.INFO:
            self._send_text(severity, text.encode())
        return True

    def _send_text(self, severity: Severity, text: bytes) -> None:
        """Send a text as STATUSTEXT. A text of more than 50 bytes is sent in pieces, which carry a common
        number, as MAVLink 2 defines it. After five pieces the rest is cut off."""
        pieces = [text[at : at + TEXT_BYTES] for at in range(0, len(text), TEXT_BYTES)][:MAX_PIECES]
        if len(pieces) > 1:
            self._texts = self._texts % 65535 + 1
        number = self._texts if len(pieces) > 1 else 0
        for place, piece in enumerate(pieces):
            self.send(mav.MAVLink_statustext_message(severity, piece, number, place))
