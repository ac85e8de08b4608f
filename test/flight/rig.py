"""Bridge, stand-in autopilot and gimbal on links in memory, in simulated time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from efftam_flight.angles import wrapped
from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import ControlConfig, Instant
from efftam_flight.gimbal_control import GimbalControl
from efftam_flight.mavlink.bridge import Bridge
from efftam_flight.mavlink.dialect import Severity, mav
from efftam_flight.mavlink.framing import Decoder, Encoder
from efftam_flight.values import (
    NS,
    AttitudeSample,
    Control,
    GimbalLimits,
    Rates,
    VehicleSample,
)
from efftam_ros.core.geometry import Box
from efftam_ros.core.reasons import Reason
from efftam_ros.core.types import TrackState
from efftam_ros.messages.bearing import CameraModel, Intrinsics
from efftam_ros.messages.fields import Outcome
from efftam_ros.messages.reports import BoxReport, MotionReport, ResultReport, Selection
from simulation.autopilots.ardupilot import ArduPilot
from simulation.autopilots.autopilot import Autopilot, Port
from simulation.autopilots.gimbal import GimbalDevice, Mount, level
from simulation.autopilots.memory_link import MemoryLink, memory_link
from simulation.autopilots.px4 import PX4
from simulation.rotations import from_yaw_pitch, matrix

EPOCH_NS = 1_700_000_000 * NS
STEP_S = 0.002
FOCAL_PX = 900.0
CONFIGURE = mav.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE
FLAVOURS = {"ardupilot": ArduPilot, "px4": PX4}


class Time:
    """A clock that is set by hand; ``jump_s`` sets the images' clock alone."""

    def __init__(self) -> None:
        self.t = 0.0
        self.jump_s = 0.0

    def __call__(self) -> float:
        return self.t

    def instant(self) -> Instant:
        return Instant(EPOCH_NS + round((self.t + self.jump_s) * NS), self.t)


class GimbalLog:
    """Takes what the client says of the gimbal; ``control`` gets it too when there is a controller."""

    def __init__(self, time: Time, control: GimbalControl | None = None) -> None:
        self._time, self._control = time, control
        self.samples: list[AttitudeSample] = []
        self.headings: list[VehicleSample] = []
        self.controls: list[Control] = []
        self.reasons: list[Reason] = []
        self.alive: list[bool] = []
        self.limits_seen: list[GimbalLimits] = []

    def attitude(self, sample: AttitudeSample) -> None:
        self.samples.append(sample)
        if self._control is not None:
            self._control.on_attitude(sample, self._time.instant())

    def vehicle(self, sample: VehicleSample) -> None:
        self.headings.append(sample)
        if self._control is not None:
            self._control.on_vehicle(sample)

    def control(self, control: Control, reason: Reason) -> None:
        self.controls.append(control)
        self.reasons.append(reason)
        if self._control is not None:
            self._control.on_control(control, reason)

    def gimbal_alive(self, alive: bool) -> None:
        self.alive.append(alive)
        if self._control is not None:
            self._control.on_gimbal_alive(alive)

    def limits(self, limits: GimbalLimits) -> None:
        self.limits_seen.append(limits)


@dataclass
class Desk:
    """A tracker that decides when the test says so."""

    requests: list[Selection] = field(default_factory=list)
    impossible: str | None = None

    def select(self, request: Selection) -> str | None:
        self.requests.append(request)
        return self.impossible

    def accept(self, bridge: Bridge) -> None:
        bridge.selection_result(ResultReport(self.requests[-1].stamp_ns, Outcome.ACCEPTED))


class Peer:
    """Another component on the other end of a link: a ground station, or an attacker."""

    def __init__(self, link: MemoryLink, time: Time, ids: tuple[int, int] = (255, 190)) -> None:
        self.link, self.time = link, time
        self._encoder, self._decoder = Encoder(*ids), Decoder(True)
        self.heard: list[Any] = []

    def send(self, message: Any) -> None:
        self.link.send(self._encoder.encode(message))

    def heartbeat(self) -> None:
        self.send(mav.MAVLink_heartbeat_message(mav.MAV_TYPE_GCS, mav.MAV_AUTOPILOT_INVALID, 0, 0, 4, 3))

    def command(
        self, number: int, *parameters: float, target: tuple[int, int] = (1, 100), confirmation: int = 0
    ) -> None:
        filled = [*parameters, *[0.0] * 7][:7]
        self.send(mav.MAVLink_command_long_message(*target, number, confirmation, *filled))

    def read(self) -> None:
        for _, data in self.link.receive():
            for message in self._decoder.feed(data):
                message.at = self.time.t
                self.heard.append(message)

    def of(self, kind: str, source: tuple[int, int] | None = None) -> list[Any]:
        self.read()
        return [
            m
            for m in self.heard
            if m.get_type() == kind and source in (None, (m.get_srcSystem(), m.get_srcComponent()))
        ]

    def acks(self, command: int) -> list[tuple[int, int]]:
        """(result, answering component) of a command, in order."""
        return [(m.result, m.get_srcComponent()) for m in self.of("COMMAND_ACK") if m.command == command]


class Rig:
    """A vehicle with everything on it. ``device``: a MAVLink gimbal, else the autopilot's servo mount.

    The bridge is on the port "companion", a ground station on the port "station".
    """

    def __init__(
        self,
        flavour: str,
        device: bool = True,
        config: BridgeConfig | None = None,
        control: ControlConfig | None = None,
        vehicle: Callable[[float], tuple[float, float]] = level,
        budget_bytes_s: float = math.inf,
    ) -> None:
        self.time = Time()
        self.mount = Mount(vehicle=vehicle)
        if not device:
            self.mount.lag_s = 0.0
        bridge_end, self.bridge_port = memory_link("companion", self.time)
        station_end, station_port = memory_link("station", self.time)
        ports = {
            "companion": Port(self.bridge_port, budget_bytes_s),
            "station": Port(station_port),
        }
        self.device: GimbalDevice | None = None
        if device:
            device_end, device_port = memory_link("gimbal", self.time)
            ports["gimbal"] = Port(device_port)
            self.device = GimbalDevice(self.mount, device_end, self.time)
        self.autopilot: Autopilot = FLAVOURS[flavour](
            ports, self.time, self.mount, "gimbal" if device else None
        )
        self.control = GimbalControl(control)
        self.log = GimbalLog(self.time, self.control)
        self.desk = Desk()
        self.lines: list[tuple[Severity, str]] = []
        self.bridge_end = bridge_end
        self.bridge_end.record = True
        self._config = config or BridgeConfig()
        self.begin_bridge_anew()
        self.station = Peer(station_end, self.time)
        self.rates: Callable[[float], Rates | None] = lambda t: None
        self.after_step: Callable[[], None] = lambda: None
        self._next_rates_s = 0.0
        self.autopilot_runs = True

    def begin_bridge_anew(self) -> None:
        """As after its process was killed: the new one knows nothing."""
        self.bridge = Bridge(
            self._config,
            [self.bridge_end],
            self.desk,
            self.log,
            self.time.instant,
            lambda severity, text: self.lines.append((severity, text)),
        )

    def end_bridge(self) -> None:
        """The bridge ends in order, while the time goes on."""
        self.bridge.poll = lambda timeout_s=0.02: self.run(STEP_S)
        self.bridge.close()

    def run(self, seconds: float, step_s: float = STEP_S) -> Rig:
        """``step_s``: longer steps are enough where nothing moves."""
        for _ in range(round(seconds / step_s)):
            self.time.t += step_s
            if self.device is not None:
                self.device.step()
            if self.autopilot_runs:
                self.autopilot.step()
            if self.time.t >= self._next_rates_s:
                self._next_rates_s += 0.02
                rates = self.rates(self.time.t)
                if rates is not None:
                    self.bridge.set_rates(rates)
            self.bridge.step()
            self.after_step()
        return self

    def steer(self, pitch: float = 0.0, yaw: float = 0.2) -> Rig:
        """Take control and keep these rates."""
        self.bridge.take_control(True)
        self.rates = lambda t: Rates(pitch, yaw)
        return self

    def sent(self, kind: str) -> list[Any]:
        """Messages the bridge has sent so far."""
        decoder = Decoder(True)
        found = [m for data in self.bridge_end.sent for m in decoder.feed(data)]
        return [m for m in found if m.get_type() == kind]

    def wishes(self) -> list[tuple[float, float]]:
        """Pitch and yaw rates that the bridge has sent so far."""
        sent = self.sent("GIMBAL_MANAGER_SET_ATTITUDE")
        return [(wish.angular_velocity_y, wish.angular_velocity_z) for wish in sent]

    def commands(self, number: int) -> list[Any]:
        """Such commands of the bridge so far."""
        return [each for each in self.sent("COMMAND_LONG") if each.command == number]

    def station_takes(self) -> None:
        """The ground station takes the gimbal from its manager."""
        self.station.heartbeat()
        self.station.command(CONFIGURE, 255, 190, -1, -1, target=(1, 1))

    def yaw_rate(self, seconds: float = 1.0) -> float:
        """How fast the gimbal turns over the next time, rad/s."""
        before = self.mount.yaw
        self.run(seconds)
        return (self.mount.yaw - before) / seconds

    def said(self, word: str) -> int:
        return sum(word in text for _, text in self.lines)


class Chase:
    """The rig's gimbal camera, a target in space, a tracker that answers late: the loop is closed."""

    def __init__(
        self,
        rig: Rig,
        target: Callable[[float], tuple[float, float]],
        latency_s: float = 0.1,
        noise_rad: float = math.radians(0.1),
        camera_roll: float = 0.0,
    ) -> None:
        self.rig, self.target, self.latency_s, self.noise_rad = rig, target, latency_s, noise_rad
        self.camera_roll = camera_roll  # clockwise seen from behind, rad
        self.state = TrackState.TRACKING
        self.errors: list[tuple[float, float]] = []
        self._rng = np.random.default_rng(3)
        self._answers: deque[tuple[float, MotionReport]] = deque()
        self._next_image_s = 0.0
        self.is_frozen = False  # the camera repeats its last image with new stamps
        self._last_axis = (0.0, 0.0)
        self._last_bearing = (0.0, 0.0)
        rig.control.on_camera(CameraModel(Intrinsics(FOCAL_PX, FOCAL_PX, 639.5, 359.5), 1280, 720))
        rig.after_step = self._step
        rig.rates = self._tick
        rig.control.set_enabled(True)
        rig.bridge.take_control(True)
        self.answering = True

    def _tick(self, t: float) -> Rates | None:
        command = self.rig.control.tick(self.rig.time.instant())
        return command.rates if command.send else None

    def _step(self) -> None:
        rig, t = self.rig, self.rig.time.t
        yaw, pitch = self.target(t)
        heading = rig.mount.heading(t)
        off = (wrapped(yaw - heading), pitch - rig.mount.pitch)
        self.errors.append((t, math.hypot(off[0] * math.cos(pitch), off[1])))
        if t >= self._next_image_s:
            self._next_image_s += 1 / 30
            ray = matrix(from_yaw_pitch(heading, rig.mount.pitch)).T @ np.array(
                [math.cos(pitch) * math.cos(yaw), math.cos(pitch) * math.sin(yaw), -math.sin(pitch)]
            )
            c, s = math.cos(self.camera_roll), math.sin(self.camera_roll)
            ray = np.array([ray[0], ray[1] * c + ray[2] * s, ray[2] * c - ray[1] * s])
            noise = self._rng.normal(0, self.noise_rad, 2)
            azimuth = math.atan2(ray[1], ray[0]) + noise[0]
            elevation = math.atan2(ray[2], math.hypot(ray[0], ray[1])) + noise[1]
            turned = math.hypot(wrapped(heading - self._last_axis[0]), rig.mount.pitch - self._last_axis[1])
            # Noise of the images looks like a little motion; repeated images have none.
            shift_px = 0.0 if self.is_frozen else FOCAL_PX * turned + 0.02
            if self.is_frozen:
                azimuth, elevation = self._last_bearing
            else:
                self._last_axis = (heading, rig.mount.pitch)
                self._last_bearing = (azimuth, elevation)
            stamp_ns = rig.time.instant().stamp_ns
            estimate = seen_at(stamp_ns, azimuth, elevation, state=self.state, image_shift=shift_px)
            self._answers.append((t + self.latency_s, estimate))
        while self._answers and self._answers[0][0] <= t:
            answer = self._answers.popleft()[1]
            if self.answering:
                self.rig.control.on_estimate(answer, rig.time.instant())

    def figures(self, after_s: float = 6.0) -> tuple[float, float]:
        """RMS and 99th percentile, degrees."""
        off = np.degrees([e for t, e in self.errors if t >= after_s])
        return float(np.sqrt(np.mean(off**2))), float(np.quantile(off, 0.99))


def in_yaw(t: float) -> tuple[float, float]:
    """A target that swings: 20 degrees at 0.1 Hz and 5 at 0.37 Hz; rad."""
    return math.radians(20 * math.sin(0.2 * math.pi * t) + 5 * math.sin(0.74 * math.pi * t)), 0.0


def seen_at(stamp_ns: int, azimuth: float, elevation: float, **other: Any) -> MotionReport:
    """A tracker's answer for a target that is measured in this direction, rad."""
    seen = MotionReport(stamp_ns, state=TrackState.TRACKING, measured=True, age_s=0.0, valid=True)
    return replace(seen, has_bearing=True, azimuth=azimuth, elevation=elevation, **other)


def status(state: TrackState, stamp_ns: int = EPOCH_NS, selection: int = 1, **box: float) -> BoxReport:
    """A tracker's answer in a 1280x720 image."""
    has_box = state not in (TrackState.IDLE, TrackState.LOST)
    shown = replace(Box(512.0, 288.0, 256.0, 144.0), **box) if has_box else None
    return BoxReport(stamp_ns, state=state, selection=selection, image_size=(1280, 720), box=shown)
