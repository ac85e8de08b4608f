"""The client of the autopilot's gimbal manager: requests control, sends rates, reads the gimbal's attitude.

It sends only what both ArduPilot and PX4 obey. Rates are sent as message 282 with no quaternion and with
finite rates. They are repeated until other rates replace them. When steering ends, zero rates are sent.
Control is requested with explicit ids. No command contains NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import Instant
from efftam_flight.mavlink.autopilot_link import AutopilotLink
from efftam_flight.mavlink.camera import Outbox
from efftam_flight.mavlink.clock_map import ClockMap
from efftam_flight.mavlink.dialect import (
    ATTITUDE,
    MANAGER_INFORMATION,
    MANAGER_STATUS,
    VEHICLE_ATTITUDE,
    Message,
    Severity,
    mav,
)
from efftam_flight.mavlink.gimbal.attitude_sources import AttitudeSources, mount_of
from efftam_flight.mavlink.gimbal.holder import CONFIGURE, GimbalHolder, Ids
from efftam_flight.mavlink.gimbal.rates import GimbalRates
from efftam_flight.mavlink.gimbal.rivals import Rivals
from efftam_flight.mavlink.gimbal.settings import BY_NAME, MountSettings
from efftam_flight.mavlink.gimbal.stop_sequence import Situation, StopStep
from efftam_flight.mavlink.ground.vehicle_state import ONCE, ONCE_HZ, POSITION
from efftam_flight.values import (
    NS,
    STOPPED,
    AttitudeSample,
    Control,
    GimbalLimits,
    Rates,
    VehicleSample,
    YawFrame,
)
from efftam_flight.waits import AUTOPILOT_SILENT_S, CONTROLLER_SILENT_S
from efftam_ros.core.reasons import Reason, ReasonCode

LEVEL = mav.GIMBAL_MANAGER_FLAGS_ROLL_LOCK | mav.GIMBAL_MANAGER_FLAGS_PITCH_LOCK
LEAVE = -1.0
NO_ATTITUDE = (math.nan,) * 4
STATUS_KIND, ATTITUDE_KIND = "GIMBAL_MANAGER_STATUS", "GIMBAL_DEVICE_ATTITUDE_STATUS"

STATUS_HZ = 5.0
# Our rates override the pilot's stick until its motion is detected. So the RC channels are requested often.
RC_HZ = 25.0
# Rate of the vehicle's attitude if the gimbal's yaw counts from north: only the check of the mount's stops
# needs the vehicle's attitude then.
SLOW_VEHICLE_HZ = 20.0
INFORMATION_S, MAX_INFORMATION_TRIES = 1.0, 5
# Limits beyond a full turn, rad, are ignored: such a gimbal manager sends them in degrees.
FULL_TURN = 2 * math.pi + 0.01


class GimbalPort(Protocol):
    """Interface of the receiver of the gimbal's data. Its methods must not block."""

    def attitude(self, sample: AttitudeSample) -> None: ...
    def vehicle(self, sample: VehicleSample) -> None: ...
    def control(self, control: Control, reason: Reason) -> None: ...
    def gimbal_alive(self, alive: bool) -> None: ...
    def limits(self, limits: GimbalLimits) -> None: ...


class GimbalClient:
    """Moves the gimbal of one vehicle. Not thread-safe: only one thread may call it at a time.

    Zero rates are sent, as `StopSequence` decides, and control is released in three cases: steering stops,
    control is lost, or the manager reports us in control although steering is not enabled.
    """

    def __init__(
        self,
        config: BridgeConfig,
        outbox: Outbox,
        port: GimbalPort,
        report: Callable[[Severity, str], object],
    ) -> None:
        self.config = config
        self._ids, self._port, self._report = config.ids, port, report
        self._autopilot = AutopilotLink(self._ids, config.manager_component, outbox)
        self._holder = GimbalHolder(self._ids, self._configure, self._on_control, report)
        self._rivals = Rivals(
            self._ids, config.manager_component, config.channels, config.rc_dead_band, self._is_ours
        )
        self._rates = GimbalRates(self._send)
        self._settings = MountSettings(self._ask_parameter)
        self._mount = mount_of(config.gimbal_device_id)  # number of the chosen mount; 0: none is chosen
        self._sources = AttitudeSources(config.manager_component, config.gimbal_device_id)
        # The gimbal_device_ids that the manager has sent, for each kind of message. A gimbal may have another
        # id in each kind.
        self._gimbals: dict[str, set[int]] = {}
        self._alive = True
        self._report_silence_s = -math.inf
        self._timeless = False  # whether it was logged that the gimbal sends no time
        self._information_tries = 0
        self._next_information_s = -math.inf

    @property
    def autopilot_clock(self) -> ClockMap:
        return self._autopilot.clock

    @property
    def at_rest(self) -> bool:
        """Whether the stop is finished: the gimbal stands and control is released, or there is no autopilot
        that could obey."""
        ours = self._holder.control is Control.HELD and not self._holder.wanted
        return self._autopilot.link is None or not (
            self._rates.step in (StopStep.ZERO, StopStep.WATCH) or ours
        )

    # Calls of the controller

    def take_control(self, wanted: bool, now: Instant, fresh: bool = True) -> None:
        """Request control of the gimbal, or stop the gimbal and release control.

        ``fresh``: whether steering was enabled just now. False: it was enabled before this client started,
        and another component may have taken control since. Then the client waits for the manager's report,
        and does not take control from another component.
        """
        if wanted == self._holder.wanted:
            return
        if wanted:
            self._rates.begin()
            self._report_settings()
        else:
            self._rates.stop(now.steady_s)
        self._rivals.begin()
        self._holder.want(wanted, fresh, now.steady_s)
        if wanted and self._autopilot.link is None:
            self._report(
                Severity.WARNING,
                "no message of an autopilot has arrived: the gimbal cannot be moved; check the link",
            )

    def set_rates(self, rates: Rates, now: Instant) -> None:
        """Set the rates from now on. Rates that are not finite stop the gimbal."""
        if not rates.is_finite:
            self._report(
                Severity.ERROR,
                f"rates {rates.pitch}, {rates.yaw} rad/s are not finite: the gimbal is stopped",
            )
            rates = STOPPED
        self._rates.wish(rates, now.steady_s)
        self._update_rates(now)

    # Periodic work

    def tick(self, now: Instant) -> None:
        """Request messages that are missing, repeat the present rates, and stop a gimbal that is not steered
        any more. Must be called at 50 Hz."""
        if self._autopilot.falls_silent(now.steady_s):
            self._holder.silent()
            self._report(
                Severity.ERROR, f"the autopilot is silent for {AUTOPILOT_SILENT_S:g} s; check its link"
            )
        self._report_silence(now.steady_s)
        if self._autopilot.link is None:
            return
        self._subscribe(now)
        self._watch_gimbal(now)
        self._holder.tick(self._autopilot.kind.gates, now.steady_s)
        starved = self._rates.starved(now.steady_s)
        self._update_rates(now)
        if starved:  # logged after the rates were sent, because logging may block
            self._report(
                Severity.WARNING,
                f"no rates from the controller for {CONTROLLER_SILENT_S:g} s: the gimbal is stopped",
            )
        # If the manager obeys only the component in control, zero rates have an effect only before control is
        # released. So control of such a manager is released when the gimbal stands.
        step = self._rates.step
        if step is not StopStep.DONE and self._autopilot.kind.gates:
            self._holder.take_to_stop(now.steady_s)
        if step is StopStep.DONE or (step is not StopStep.ZERO and not self._autopilot.kind.gates):
            self._holder.give_back(now.steady_s)
        if self._rates.unseen(now.steady_s):
            self._report(
                Severity.WARNING,
                "zero rates are still sent: no attitude shows that the gimbal stands; check the"
                " gimbal's link",
            )

    def _subscribe(self, now: Instant) -> None:
        manager, wanted = self.config.manager_component, self._autopilot.subscriptions
        wanted.want(manager, MANAGER_STATUS, STATUS_HZ)
        if self.config.vehicle_rate > 0:
            rate_hz = self.config.vehicle_rate
            if self._sources.yaw_frame is YawFrame.EARTH:
                rate_hz = min(rate_hz, SLOW_VEHICLE_HZ)
            wanted.want(manager, VEHICLE_ATTITUDE, rate_hz)
        if self.config.position_rate > 0:
            wanted.want(manager, POSITION, self.config.position_rate)
        if self.config.rc_channels:
            wanted.want(manager, mav.MAVLINK_MSG_ID_RC_CHANNELS, RC_HZ)
        if self.config.attitude_rate > 0:
            # Only one stream of attitudes is requested, because two fill a slow link. The gimbal's own
            # attitude is better than the autopilot's copy.
            device = self._sources.device if self._sources.device_sends(now) else None
            if device is not None:
                wanted.drop(manager, ATTITUDE)
                wanted.want(device, ATTITUDE, self.config.attitude_rate)
            elif now.steady_s - self._autopilot.since_s > 0.5:
                wanted.want(manager, ATTITUDE, self.config.attitude_rate)
        self._settings.tick(self._autopilot.autopilot, now.steady_s)
        asks, complaints = wanted.due(now.steady_s)
        for component, message_id, interval_us in asks:
            self._autopilot.command(
                mav.MAV_CMD_SET_MESSAGE_INTERVAL, message_id, interval_us, component=component
            )
        if now.steady_s >= self._next_information_s and self._information_tries < MAX_INFORMATION_TRIES:
            self._next_information_s = now.steady_s + INFORMATION_S
            self._information_tries += 1
            self._autopilot.command(mav.MAV_CMD_REQUEST_MESSAGE, MANAGER_INFORMATION)
        for complaint in complaints:
            self._report(Severity.WARNING, complaint)

    def _watch_gimbal(self, now: Instant) -> None:
        alive = not self._sources.is_dead(now)
        if alive != self._alive:
            self._alive = alive
            self._port.gimbal_alive(alive)
            if alive:
                self._report(Severity.INFO, "the gimbal sends messages again")
            else:
                self._report(Severity.ERROR, "the gimbal is silent: rates are zero; check its power and link")

    def _report_silence(self, now_s: float) -> None:
        """Report to the controller at once that the autopilot is silent, then once a second for how long."""
        silent_s, was_reported = self._autopilot.silent_s(now_s), self._report_silence_s > -math.inf
        if silent_s and now_s >= self._report_silence_s:
            self._report_silence_s = now_s + 1.0
            silence = ReasonCode.AUTOPILOT_SILENT.reason(duration=f" for {silent_s:.1f} s")
            self._port.control(Control.SILENT, silence)
        elif not silent_s and was_reported:
            self._report_silence_s = -math.inf
            self._port.control(self._holder.control, self._holder.reason)

    def _update_rates(self, now: Instant) -> None:
        now_s = now.steady_s
        if self._autopilot.link is not None:
            at = self._situation(now_s)
            is_alive = self._alive and not self._autopilot.pauses(now_s)
            self._rates.update(is_alive and self._holder.may_steer(at.autopilot.gates, now_s), at, now_s)

    def _situation(self, now_s: float) -> Situation:
        holder, autopilot = self._holder, self._autopilot
        return Situation(autopilot.kind, holder.in_control, holder.another, autopilot.boot_s(now_s))

    def _configure(self, holder: Ids) -> None:
        self._autopilot.command(CONFIGURE, *holder, LEAVE, LEAVE, 0.0, 0.0, self._gimbal)

    def _send(self, rates: Rates) -> None:
        self._autopilot.send(
            mav.MAVLink_gimbal_manager_set_attitude_message(
                target_system=self._ids[0],
                target_component=self.config.manager_component,
                flags=LEVEL | (mav.GIMBAL_MANAGER_FLAGS_YAW_LOCK if self.config.yaw_lock else 0),
                gimbal_device_id=self._gimbal,
                q=NO_ATTITUDE,
                angular_velocity_x=0.0,
                angular_velocity_y=rates.pitch,
                angular_velocity_z=rates.yaw,
            )
        )

    # Messages of the autopilot

    def handle(self, message: Message, link: str, now: Instant) -> None:
        """Handle a message of our vehicle, or of another component that commands its gimbal. Others are
        ignored."""
        if self._holder.wanted or self._rates.step is not StopStep.DONE:
            kind = self._autopilot.kind
            rival = self._rivals.find(message, kind)
            if rival is not None:
                self._rates.on_rival(rival.counts, kind.gates, now.steady_s)
                self._holder.yield_to(rival.name, now.steady_s)
        if message.get_srcSystem() != self._ids[0]:
            return
        kind, component = message.get_type(), message.get_srcComponent()
        manager = component == self.config.manager_component
        if manager and self._autopilot.receive(link, message, now.steady_s):
            self._begin_anew(now)
        if link != self._autopilot.link:
            return
        self._autopilot.subscriptions.received(component, message.get_msgId())
        made_s = self._time(message, now) if manager else now.steady_s
        if manager and self._is_of_another_gimbal(message):
            return
        if kind == ATTITUDE_KIND:
            sample = self._sources.take(message, now)
            if self._sources.is_timeless and not self._timeless:
                self._timeless = True
                self._report(
                    Severity.WARNING,
                    "the gimbal's attitude carries no time (time_boot_ms 0): the time of its arrival is used;"
                    " measure and set attitude_offset",
                )
            if sample is not None:
                self._rates.standstill.take(sample, now.steady_s)
                self._port.attitude(sample)
        elif not manager:
            return
        elif kind == "ATTITUDE":
            stamp_ns = now.stamp_ns - round((now.steady_s - made_s) * NS)
            heading = VehicleSample(stamp_ns, message.yaw, message.yawspeed, message.roll, message.pitch)
            self._rates.standstill.turned(heading)
            self._port.vehicle(heading)
        elif kind == STATUS_KIND:
            self._holder.read(message, now.steady_s)
        elif kind == "GIMBAL_MANAGER_INFORMATION":
            self._read_limits(message)
        elif kind == "COMMAND_ACK":
            self._read_ack(message)
        elif kind == "PARAM_VALUE":
            is_asked = self._settings.read(self._autopilot.autopilot, message)
            if is_asked and self._holder.wanted:
                self._report_settings()

    def _begin_anew(self, now: Instant) -> None:
        """Request all messages and parameters again. A restarted autopilot has forgotten the requests, and
        may have other parameters."""
        self._information_tries, self._next_information_s = 0, -math.inf
        self._settings.restart()
        self._holder.ask(now.steady_s)
        if self.config.position_rate > 0:
            for message_id in ONCE:
                self._autopilot.command(mav.MAV_CMD_SET_MESSAGE_INTERVAL, message_id, 1e6 / ONCE_HZ)

    def _time(self, message: Message, now: Instant) -> float:
        """Return when the autopilot made a message, on our steady clock, s; the present time if the message
        carries no time. The time since boot of any message may show a restart of the autopilot. The time of
        an attitude (message 285) is ignored, because it may be on the gimbal's clock."""
        kind = message.get_type()
        boot_s = 0.0 if kind == ATTITUDE_KIND else getattr(message, "time_boot_ms", 0) / 1e3
        if kind == "TIMESYNC" and message.tc1 == 0:  # a request, in which ts1 is the autopilot's own time
            boot_s = message.ts1 / NS
        if not boot_s:
            return now.steady_s
        made_s, restarted = self._autopilot.time(kind, boot_s, now)
        if restarted:
            self._report(Severity.WARNING, "the autopilot was restarted")
            self._gimbals.clear()
            self._begin_anew(now)
            self._holder.on_restart()
            self._rates.on_restart()
        return made_s

    def _ask_parameter(self, name: str) -> None:
        self._autopilot.send(
            mav.MAVLink_param_request_read_message(
                self._ids[0], self.config.manager_component, name.encode(), BY_NAME
            )
        )

    def _report_settings(self) -> None:
        fault = self._settings.fault(self._autopilot.autopilot)
        if fault:
            self._report(Severity.WARNING, fault)
        is_ardupilot = self._autopilot.autopilot == mav.MAV_AUTOPILOT_ARDUPILOTMEGA
        if is_ardupilot and not self.config.rc_channels:
            self._report(
                Severity.WARNING,
                "rc_channels is empty: the rates override the pilot's stick; set it to the channels that move"
                " the mount",
            )

    def _on_control(self, control: Control, reason: Reason) -> None:
        if control is Control.HELD and not self._holder.wanted:
            self._rates.stop_unknown()  # the gimbal may turn by a rate that an earlier process of ours sent
        self._port.control(control, reason)

    @property
    def _gimbal(self) -> int:
        """The gimbal_device_id for commands. If the settings choose no gimbal, it depends on the number of
        gimbals: with one gimbal it is 0 (all gimbals), which each manager obeys; with several gimbals it is
        the smallest id."""
        numbers = self._gimbals.get(STATUS_KIND, set())
        if not self._mount:
            return min(numbers) if len(numbers) > 1 else 0
        return self._chosen(numbers) or self._mount

    def _is_ours(self, number: int) -> bool:
        """Return whether a gimbal_device_id names the gimbal that we steer. 0 names all gimbals."""
        return number == 0 or mount_of(number) == (mount_of(self._gimbal) or 1)

    def _chosen(self, numbers: set[int]) -> int | None:
        return min((number for number in numbers if mount_of(number) == self._mount), default=None)

    def _is_of_another_gimbal(self, message: Message) -> bool:
        """Return whether a message of the manager is about a gimbal that we do not steer. ArduPilot sends
        status, limits and a copy of the attitude for each of its mounts."""
        number, kind = getattr(message, "gimbal_device_id", None), message.get_type()
        if number is None:
            return False
        if not number and kind != ATTITUDE_KIND:  # PX4 sends 0 after its boot, before it has found a gimbal
            if kind == STATUS_KIND and kind not in self._gimbals:
                self._holder.none_yet()
            return True
        numbers = self._gimbals.setdefault(kind, set())
        is_one_more = bool(numbers) and number not in numbers
        numbers.add(number)
        if self._mount and kind != STATUS_KIND:
            return bool(number) and mount_of(number) != self._mount
        if is_one_more and kind == STATUS_KIND and not self._mount:
            self._report(
                Severity.WARNING,
                f"the autopilot has several gimbals: number {min(numbers)} is steered; set"
                " gimbal_device_id to choose another one",
            )
        # Until a message of the chosen gimbal has arrived, the messages of the first gimbal are used.
        return bool(number != (self._chosen(numbers) or min(numbers)))

    def _read_limits(self, message: Message) -> None:
        def pair(low: float, high: float) -> tuple[float, float] | None:
            sane = math.isfinite(low) and math.isfinite(high) and max(abs(low), abs(high)) <= FULL_TURN
            return (low, high) if sane and low < high else None

        pitch, yaw = pair(message.pitch_min, message.pitch_max), pair(message.yaw_min, message.yaw_max)
        none = (-math.inf, math.inf)
        # A yaw range of a full turn means that there is no stop.
        if yaw is not None and yaw[1] - yaw[0] >= 2 * math.pi - 0.01:
            yaw = None
        self._next_information_s = math.inf
        self._port.limits(GimbalLimits(*(pitch or none), *(yaw or none)))

    def _read_ack(self, message: Message) -> None:
        addressed = (message.target_system, message.target_component)
        ours = message.command == CONFIGURE and addressed in (self._ids, (0, 0))
        # The result ACCEPTED does not mean that control is granted. Message 281 reports who is in control.
        if ours and message.result not in (mav.MAV_RESULT_ACCEPTED, mav.MAV_RESULT_IN_PROGRESS):
            self._report(
                Severity.ERROR,
                f"the gimbal's manager refuses control (MAV_RESULT {message.result}); check the gimbal's"
                " set-up",
            )
