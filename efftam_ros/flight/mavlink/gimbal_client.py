"""The client of the autopilot's gimbal manager: takes control, sends rates, reads the gimbal's attitude.

What is sent is what both ArduPilot and PX4 obey: message 282 with no quaternion and all rates finite, control
taken with explicit ids, no NaN in any command, rates repeated while they hold and zeros at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from efftam_ros.flight.control_config import Instant
from efftam_ros.flight.mavlink.attitude_sources import AttitudeSources, mount_of
from efftam_ros.flight.mavlink.camera import Outbox
from efftam_ros.flight.mavlink.clock_map import ClockMap
from efftam_ros.flight.mavlink.dialect import (
    ATTITUDE,
    MANAGER_INFORMATION,
    MANAGER_STATUS,
    VEHICLE_ATTITUDE,
    Message,
    mav,
)
from efftam_ros.flight.mavlink.selection import Severity
from efftam_ros.flight.mavlink.subscriptions import Subscriptions
from efftam_ros.flight.values import (
    NS,
    STOPPED,
    AttitudeSample,
    Control,
    GimbalLimits,
    Rates,
    VehicleSample,
    YawFrame,
)

CONFIGURE = mav.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE
LEVEL = mav.GIMBAL_MANAGER_FLAGS_ROLL_LOCK | mav.GIMBAL_MANAGER_FLAGS_PITCH_LOCK
LEAVE, RELEASE_MINE = -1.0, -3.0
NO_ATTITUDE = (math.nan,) * 4
STATUS_KIND = "GIMBAL_MANAGER_STATUS"

STATUS_HZ = 5.0
# Of the vehicle's attitude where the gimbal's yaw counts from north: only the mount's stops need it then.
SLOW_VEHICLE_HZ = 20.0
REPEAT_S = 1.0
MOST_TRIES = 5
# PX4 stops a gimbal after 2 s without a wish; some gimbals shake at every repeated one.
KEEP_ALIVE_S = 0.2
DEAD_BAND = math.radians(0.05)
# The controller ticks at 50 Hz; after so long without it the gimbal is stopped here.
WATCHDOG_S = 0.3
# A packet may be lost, and this process may be held up between two.
ZEROS_S, LEAST_ZEROS = 1.0, 3
AUTOPILOT_SILENT_S = 3.0
# How long the manager's word on who is in control is waited for, where it counts: it is asked for every 2 s.
WORD_S = 3.0
# A gimbal manager that counts in degrees gives limits beyond a full turn.
FULL_TURN = 2 * math.pi + 0.01


@dataclass(frozen=True)
class GimbalConfig:
    """``manager_component``: who manages the gimbal, mostly the autopilot. ``attitude_rate_hz``,
    ``vehicle_rate_hz``: asked of the autopilot; 0 does not ask. ``gimbal_device_id``: of the one that is
    steered where there are several; 0: the first."""

    manager_component: int = mav.MAV_COMP_ID_AUTOPILOT1
    yaw_lock: bool = True
    attitude_rate_hz: float = 50.0
    vehicle_rate_hz: float = 50.0
    gimbal_device_id: int = 0


class GimbalPort(Protocol):
    """Who wants to know of the gimbal. Calls must not block."""

    def attitude(self, sample: AttitudeSample) -> None: ...
    def vehicle(self, sample: VehicleSample) -> None: ...
    def control(self, control: Control, reason: str) -> None: ...
    def gimbal_alive(self, alive: bool) -> None: ...
    def limits(self, limits: GimbalLimits) -> None: ...


class GimbalClient:
    """One vehicle's gimbal. One thread at a time."""

    def __init__(
        self,
        config: GimbalConfig,
        ids: tuple[int, int],
        outbox: Outbox,
        port: GimbalPort,
        report: Callable[[Severity, str], None],
    ) -> None:
        self.config = config
        self._system, self._component = ids
        self._outbox, self._port, self._report = outbox, port, report
        self._link: str | None = None
        self._autopilot_s = -math.inf
        self._autopilot_clock = ClockMap()
        self._subscriptions = Subscriptions()
        self._mount = mount_of(config.gimbal_device_id)  # 0: none is chosen
        self._sources = AttitudeSources(config.manager_component, config.gimbal_device_id)
        self._subscribed_s = math.inf
        self._control = Control.UNKNOWN
        self._holder = (0, 0)
        # The manager's, by their numbers in each kind of message: those need not agree.
        self._gimbals: dict[str, set[int]] = {}
        self._alive = True
        self._wanted = False
        self._held = False  # since it was wanted
        self._fresh = True  # wanted just now, see `take_control`
        self._tries = 0
        self._next_try_s = -math.inf
        self._information_tries = 0
        self._next_information_s = -math.inf
        self._rates = STOPPED
        self._rates_s = -math.inf
        self._sent = STOPPED
        self._sent_s = -math.inf
        self._moved_s = -math.inf
        self._zeros = LEAST_ZEROS  # sent since
        self._unheard = False  # what was sent before the autopilot fell silent may not have arrived

    @property
    def autopilot_clock(self) -> ClockMap:
        return self._autopilot_clock

    # The controller's side

    def take_control(self, wanted: bool, now: Instant, fresh: bool = True) -> None:
        """Take the gimbal, or stop it and give it back.

        A wish that is not ``fresh`` is older than this client: another component may have taken the gimbal
        since. It waits for the manager's word, and takes the gimbal from nobody.
        """
        if wanted == self._wanted:
            return
        if not wanted:
            self._stop_surely(now)
            self._release()
        self._wanted, self._held = wanted, wanted and self._control is Control.HELD
        self._fresh = fresh
        self._tries, self._next_try_s = 0, now.steady_s
        if wanted and self._link is None:
            self._report(Severity.WARNING, "no autopilot has been heard: nobody to move the gimbal")

    def set_rates(self, rates: Rates, now: Instant) -> None:
        """What the gimbal shall do from now on. Not finite: it stops."""
        if not rates.is_finite:
            self._report(Severity.ERROR, f"rates {rates.pitch}, {rates.yaw} rad/s are not finite: stopped")
            rates = STOPPED
        self._rates, self._rates_s = rates, now.steady_s
        self._send_rates(now)

    def close(self, now: Instant) -> None:
        """Before the end: zeros, more than one in case of a loss, and the gimbal is given back."""
        if self._wanted:
            self._stop_surely(now)
            self._release()
            self._wanted = False

    # Time

    def tick(self, now: Instant) -> None:
        """Ask for what is missing, repeat what holds, stop what nobody wants any more; call at 50 Hz."""
        if self._link is not None and now.steady_s - self._autopilot_s > AUTOPILOT_SILENT_S:
            self._link = None
            self._unheard = self._unheard or self._wanted
            self._set_control(Control.SILENT, "the autopilot is silent")
            self._report(Severity.ERROR, f"the autopilot is silent for {AUTOPILOT_SILENT_S:g} s")
        if self._link is None:
            return
        self._subscribe(now)
        self._watch_gimbal(now)
        # What was held is not taken again: after a silence another component may have the gimbal.
        is_missing = self._wanted and not self._held and self._control is not Control.HELD
        if is_missing and now.steady_s >= self._next_try_s and not self._awaits_word(now):
            self._take(now)
        if self._unheard and not self._wanted and self._control is Control.HELD:
            self._stop_surely(now)
            self._release()
        is_silent = self._moving and now.steady_s - self._rates_s > WATCHDOG_S
        if is_silent:
            self._rates = STOPPED
        self._send_rates(now)
        if is_silent:  # said afterwards, as a log line may hold up this process
            self._report(Severity.WARNING, f"no rates from the controller for {WATCHDOG_S:g} s: stopped")

    def _awaits_word(self, now: Instant) -> bool:
        return not self._fresh and now.steady_s - self._subscribed_s < WORD_S

    @property
    def _moving(self) -> bool:
        return not (self._rates.is_zero and self._sent.is_zero)

    def _subscribe(self, now: Instant) -> None:
        manager = self.config.manager_component
        self._subscriptions.want(manager, MANAGER_STATUS, STATUS_HZ)
        if self.config.vehicle_rate_hz > 0:
            rate_hz = self.config.vehicle_rate_hz
            if self._sources.yaw_frame is YawFrame.EARTH:
                rate_hz = min(rate_hz, SLOW_VEHICLE_HZ)
            self._subscriptions.want(manager, VEHICLE_ATTITUDE, rate_hz)
        if self.config.attitude_rate_hz > 0:
            # A gimbal that speaks for itself is the better source, and two streams fill a slow link.
            device = self._sources.device if self._sources.device_speaks(now) else None
            if device is not None:
                self._subscriptions.drop(manager, ATTITUDE)
                self._subscriptions.want(device, ATTITUDE, self.config.attitude_rate_hz / 2)
            elif now.steady_s - self._subscribed_s > 0.5:
                self._subscriptions.want(manager, ATTITUDE, self.config.attitude_rate_hz)
        asks, complaints = self._subscriptions.due(now.steady_s)
        for component, message_id, interval_us in asks:
            self._command(mav.MAV_CMD_SET_MESSAGE_INTERVAL, message_id, interval_us, component=component)
        if now.steady_s >= self._next_information_s and self._information_tries < MOST_TRIES:
            self._next_information_s = now.steady_s + REPEAT_S
            self._information_tries += 1
            self._command(mav.MAV_CMD_REQUEST_MESSAGE, MANAGER_INFORMATION)
        for complaint in complaints:
            self._report(Severity.WARNING, complaint)

    def _watch_gimbal(self, now: Instant) -> None:
        alive = not self._sources.is_dead(now)
        if alive != self._alive:
            self._alive = alive
            self._port.gimbal_alive(alive)
            if alive:
                self._report(Severity.INFO, "the gimbal is heard again")
            else:
                self._report(Severity.ERROR, "the gimbal is silent: rates are zero; check its power and link")

    def _take(self, now: Instant) -> None:
        if not self._fresh and self._control is Control.OTHER:
            self._wanted = False
            system, component = self._holder
            self._report(
                Severity.WARNING,
                f"{system}/{component} controls the gimbal: steering was enabled before this bridge started;"
                " disable and enable it to take the gimbal",
            )
            return
        self._next_try_s = now.steady_s + REPEAT_S
        if self._tries == MOST_TRIES and self._control is not Control.UNKNOWN:
            system, component = self._holder
            self._report(
                Severity.ERROR,
                f"the gimbal's manager leaves control with {system}/{component}, asked 5 times",
            )
        if self._tries < MOST_TRIES:
            self._configure(self._system, self._component)
        self._tries += 1

    def _release(self) -> None:
        if self._link is not None and self._control is not Control.OTHER:
            self._configure(RELEASE_MINE, RELEASE_MINE)

    def _configure(self, system: float, component: float) -> None:
        self._command(CONFIGURE, system, component, LEAVE, LEAVE, 0.0, 0.0, self._gimbal)

    def _stop_surely(self, now: Instant) -> None:
        for _ in range(3):  # a packet may be lost, and none follows
            self._stop(now)

    def _stop(self, now: Instant) -> None:
        self._rates, self._rates_s = STOPPED, now.steady_s
        if self._link is not None and self._control in (Control.HELD, Control.UNKNOWN):
            self._send(STOPPED, now)

    def _send_rates(self, now: Instant) -> None:
        """Send what changed at once, what holds now and then, zeros for a while, and then nothing."""
        self._sources.wished(not self._sent.is_zero, now)
        if self._link is None or not self._wanted or self._control not in (Control.HELD, Control.UNKNOWN):
            return
        if self._control is Control.UNKNOWN and self._awaits_word(now):
            return
        rates = self._rates if self._alive else STOPPED
        # Zeros follow however much later: this process may have stood still, or heard no autopilot meanwhile.
        if self._unheard or not (rates.is_zero and self._sent.is_zero):
            self._moved_s, self._zeros = now.steady_s, 0
        elif now.steady_s - self._moved_s > ZEROS_S and self._zeros >= LEAST_ZEROS:
            return
        same = (
            not self._unheard
            and rates.is_zero == self._sent.is_zero
            and abs(rates.pitch - self._sent.pitch) < DEAD_BAND
            and abs(rates.yaw - self._sent.yaw) < DEAD_BAND
        )
        if not same or now.steady_s - self._sent_s >= KEEP_ALIVE_S:
            self._send(rates, now)

    def _send(self, rates: Rates, now: Instant) -> None:
        self._sent, self._sent_s, self._unheard = rates, now.steady_s, False
        self._zeros += rates.is_zero
        self._outbox.send(
            mav.MAVLink_gimbal_manager_set_attitude_message(
                target_system=self._system,
                target_component=self.config.manager_component,
                flags=LEVEL | (mav.GIMBAL_MANAGER_FLAGS_YAW_LOCK if self.config.yaw_lock else 0),
                gimbal_device_id=self._gimbal,
                q=NO_ATTITUDE,
                angular_velocity_x=0.0,
                angular_velocity_y=rates.pitch,
                angular_velocity_z=rates.yaw,
            ),
            self._link,
        )

    def _command(self, number: int, *parameters: float, component: int | None = None) -> None:
        # Unused parameters are 0 and never NaN: an autopilot that casts them to whole numbers may crash.
        filled = [*(float(p) for p in parameters), *[0.0] * 7][:7]
        target = self.config.manager_component if component is None else component
        self._outbox.send(
            mav.MAVLink_command_long_message(self._system, target, number, 0, *filled), self._link
        )

    # The autopilot's side

    def handle(self, message: Message, link: str, now: Instant) -> None:
        """A message of our vehicle."""
        if message.get_srcSystem() != self._system:
            return
        kind, component = message.get_type(), message.get_srcComponent()
        manager = component == self.config.manager_component
        if kind == "HEARTBEAT" and manager and message.autopilot != mav.MAV_AUTOPILOT_INVALID:
            self._hear_autopilot(link, now)
            return
        if link != self._link:
            return
        self._subscriptions.heard(component, message.get_msgId())
        if manager and self._is_of_another_gimbal(message):
            return
        if kind == "GIMBAL_DEVICE_ATTITUDE_STATUS":
            sample = self._sources.take(message, now)
            if sample is not None:
                self._port.attitude(sample)
        elif not manager:
            return
        elif kind == "ATTITUDE":
            made_s = self._time(message.time_boot_ms, now)
            stamp_ns = now.stamp_ns - round((now.steady_s - made_s) * NS)
            self._port.vehicle(VehicleSample(stamp_ns, message.yaw, message.yawspeed))
        elif kind == STATUS_KIND:
            self._time(message.time_boot_ms, now)
            self._read_control(message)
        elif kind == "GIMBAL_MANAGER_INFORMATION":
            self._read_limits(message)
        elif kind == "COMMAND_ACK":
            self._read_ack(message)

    def _hear_autopilot(self, link: str, now: Instant) -> None:
        if self._link is None:
            self._link = link
            self._subscribed_s = now.steady_s
            self._ask_anew()
        if link == self._link:
            self._autopilot_s = now.steady_s
            # Where the gimbal was held, nothing moves until the manager has said who holds it now.
            if self._control is Control.SILENT and not self._held:
                self._set_control(Control.UNKNOWN, "")

    def _ask_anew(self) -> None:
        """The autopilot may have forgotten what it was asked, and may have other parameters."""
        self._subscriptions.restart()
        self._information_tries, self._next_information_s = 0, -math.inf

    def _time(self, time_boot_ms: int, now: Instant) -> float:
        """When the autopilot made a message, on our steady clock, s."""
        restarts = self._autopilot_clock.restarts
        made_s = self._autopilot_clock.to_ours(time_boot_ms / 1000.0, now.steady_s)
        if self._autopilot_clock.restarts != restarts:
            self._report(Severity.WARNING, "the autopilot was restarted")
            self._ask_anew()
            self._sources.forget()
            self._gimbals.clear()
        return made_s

    @property
    def _gimbal(self) -> int:
        """Whom commands name. Where none is chosen: 0, all, which every manager with one gimbal obeys, and of
        several the first."""
        numbers = self._gimbals.get(STATUS_KIND, set())
        if not self._mount:
            return min(numbers) if len(numbers) > 1 else 0
        return self._chosen(numbers) or self._mount

    def _chosen(self, numbers: set[int]) -> int | None:
        return min((number for number in numbers if mount_of(number) == self._mount), default=None)

    def _is_of_another_gimbal(self, message: Message) -> bool:
        """Whether the manager speaks of a gimbal that is not steered: ArduPilot sends status, limits and copy
        of the attitude for each of its mounts."""
        number, kind = getattr(message, "gimbal_device_id", None), message.get_type()
        if number is None:
            return False
        numbers = self._gimbals.setdefault(kind, set())
        is_one_more = bool(numbers) and number not in numbers
        numbers.add(number)
        if self._mount and kind != STATUS_KIND:
            return bool(number) and mount_of(number) != self._mount
        if is_one_more and kind == STATUS_KIND and not self._mount:
            self._report(
                Severity.WARNING,
                f"several gimbals are managed: number {min(numbers)} is steered; gimbal_device_id chooses",
            )
        # Who is in control is believed of the first until the chosen one is heard: better than of none.
        return bool(number != (self._chosen(numbers) or min(numbers)))

    def _read_control(self, message: Message) -> None:
        holder = (message.primary_control_sysid, message.primary_control_compid)
        self._holder = holder
        if holder == (self._system, self._component):
            self._set_control(Control.HELD, "")
        elif holder == (0, 0):
            self._set_control(Control.NOBODY, "nobody controls the gimbal")
        else:
            self._set_control(Control.OTHER, f"{holder[0]}/{holder[1]} controls the gimbal")

    def _set_control(self, control: Control, reason: str) -> None:
        if control is self._control:
            return
        self._control = control
        if control in (Control.OTHER, Control.NOBODY):
            self._unheard = False
        if control is Control.HELD:
            self._held = True
        elif self._held and control in (Control.OTHER, Control.NOBODY):
            # Whoever took it must not find us pulling; who steers decides whether to take it back.
            self._held = self._wanted = False
            self._rates = self._sent = STOPPED
            self._report(Severity.WARNING, f"steering ends: {reason}")
        self._port.control(control, reason)

    def _read_limits(self, message: Message) -> None:
        def pair(low: float, high: float) -> tuple[float, float] | None:
            sane = math.isfinite(low) and math.isfinite(high) and max(abs(low), abs(high)) <= FULL_TURN
            return (low, high) if sane and low < high else None

        pitch, yaw = pair(message.pitch_min, message.pitch_max), pair(message.yaw_min, message.yaw_max)
        none = (-math.inf, math.inf)
        # A yaw that goes all the way round has no stop.
        if yaw is not None and yaw[1] - yaw[0] >= 2 * math.pi - 0.01:
            yaw = None
        self._next_information_s = math.inf
        self._port.limits(GimbalLimits(*(pitch or none), *(yaw or none)))

    def _read_ack(self, message: Message) -> None:
        addressed = (message.target_system, message.target_component)
        ours = message.command == CONFIGURE and addressed in ((self._system, self._component), (0, 0))
        # ACCEPTED says nothing: message 281 tells who is in control.
        if ours and message.result not in (mav.MAV_RESULT_ACCEPTED, mav.MAV_RESULT_IN_PROGRESS):
            self._report(Severity.ERROR, f"the gimbal's manager refuses control, result {message.result}")
