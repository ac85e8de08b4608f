"""Steers a gimbal by the tracker's answers. Each tick returns a command with its reason.

A timer calls `GimbalControl.tick`, not the arrival of a message: if messages stop, the timer must still bring
the rates to zero. Each input is stored when it arrives, and used at the next tick.
"""

from __future__ import annotations

import math
from dataclasses import replace

from efftam_flight.angles import unrolled, wrapped
from efftam_flight.camera_geometry import CameraGeometry
from efftam_flight.control_config import ControlConfig, GimbalCommand, Instant, Law, Phase
from efftam_flight.frozen_picture import FrozenPicture
from efftam_flight.law import bounded
from efftam_flight.stall_detector import StallDetector
from efftam_flight.steering import FUTURE_S, Steering
from efftam_flight.values import NS, STOPPED, AttitudeSample, Control, GimbalLimits, Rates, VehicleSample
from efftam_flight.waits import GEOMETRY_S, GIVEN_S
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.core.types import TrackState
from efftam_ros.messages.bearing import CameraModel
from efftam_ros.messages.reports import MotionReport

# The images' clock counts as set if its advance between two ticks differs from that of the steady clock by
# more than this, s.
CLOCK_STEP_S = 0.2
# Longest time between the stamps of two answers, s. A longer gap invalidates earlier measurements.
GAP_S = 1.0
# Until the picture has shown that the gimbal moves it as expected, rates are limited to `first_rate` times
# this factor.
TRIAL_SHARE = 4.0


class Permission:
    """Decides whether steering is permitted: from `enable` on, until control of the gimbal is lost or is not
    granted in time.

    ``gimbal_alive``: whether the gimbal itself sends messages. Its manager in the autopilot may send messages
    even if the gimbal is silent.
    """

    def __init__(self) -> None:
        self.enabled = False
        self.gimbal_alive = True
        self._control: Control | None = None  # who controls the gimbal; None: not reported yet
        self._reason = NO_REASON  # the manager's reason for `_control`
        self._held = False  # whether control was held at any time since `enable`
        self._waits_since_s = math.inf
        self._lost = NO_REASON  # why control was lost or not granted; empty if neither happened
        self._ended = NO_REASON  # why the controller itself ended steering; empty if it did not

    def enable(self, enabled: bool) -> None:
        self.enabled, self._lost, self._ended = enabled, NO_REASON, NO_REASON
        self._held, self._waits_since_s = self._control is Control.HELD, math.inf

    def on_control(self, control: Control, reason: Reason) -> None:
        """Store who controls the gimbal. If control was held and is lost, steering ends until it is enabled
        again."""
        self._control, self._reason = control, reason
        self._held = self._held or control is Control.HELD
        if self.enabled and self._held and control in (Control.OTHER, Control.NOBODY):
            who = reason or f"control: {control.value}"
            self.enabled, self._lost = False, ReasonCode.CONTROL_LOST.reason(who=who)

    def end(self, reason: Reason) -> None:
        """End steering for this reason, until it is enabled again."""
        self.enabled, self._ended = False, reason

    def wait(self, now_s: float) -> None:
        """End steering if control was not granted within `GIVEN_S` of waiting. ``now_s``: steady time, s."""
        waits = self.enabled and not self._held and self.waits_for
        self._waits_since_s = min(self._waits_since_s, now_s) if waits else math.inf
        if now_s - self._waits_since_s > GIVEN_S:
            self.enabled = False
            who = self._reason or waits
            self._lost = ReasonCode.CONTROL_NOT_GRANTED.reason(limit_s=GIVEN_S, who=who)

    @property
    def waits_for(self) -> Reason:
        """Why control is not granted yet; empty if it is granted, or if the manager has never reported who is
        in control. A manager that never reports may obey rates nevertheless. The bridge decides whether it
        sends rates to such a manager."""
        if self._control is Control.SILENT:
            who = self._reason or ReasonCode.AUTOPILOT_SILENT.reason(duration="")
            return ReasonCode.MANAGER_UNREACHABLE.reason(who=who)
        if self._control in (Control.OTHER, Control.NOBODY):
            return ReasonCode.CONTROL_AWAITED.reason(
                who=self._reason or f"control of the gimbal: {self._control.value}"
            )
        return NO_REASON

    def refusal(self) -> tuple[Phase, Reason] | None:
        """Return the phase and the reason if steering is not permitted; None if it is permitted."""
        if self._lost:
            return Phase.CONTROL_LOST, self._lost
        if not self.enabled:
            return Phase.OFF, self._ended
        if self.waits_for:
            return Phase.HOLDING, self.waits_for
        if not self.gimbal_alive:
            return Phase.HOLDING, ReasonCode.GIMBAL_SILENT.reason()
        return None


class GimbalControl:
    """The controller of one gimbal. It is not thread-safe: one thread must make all calls."""

    def __init__(self, config: ControlConfig | None = None) -> None:
        self.config = config or ControlConfig()
        self._steering = Steering(self.config)
        self._stall = StallDetector(self.config.first_rate)
        self._picture = FrozenPicture()
        self._geometry = CameraGeometry()
        self._tried_s: float | None = None  # steady time of the first motion since steering was enabled
        self._permission = Permission()
        self._camera: CameraModel | None = None
        self._estimate: MotionReport | None = None
        self._arrived_s = -math.inf
        self._waiting_reason = ReasonCode.NO_ANSWER_YET.reason()
        self._cautious_until_s = -math.inf
        self._last = STOPPED
        self._last_tick: Instant | None = None
        self._stood_s = 0.0  # how long the images' clock has not advanced, s
        self._moves = False  # whether the last tick steered the gimbal, rather than hold it
        # Steady time of the last tick that steered, or of the tick after it, which sent the first zero rates.
        self._moved_s: float | None = None

    @property
    def enabled(self) -> bool:
        return self._permission.enabled

    def set_enabled(self, enabled: bool) -> None:
        """Enable or disable steering. It is disabled initially and whenever control is lost."""
        self._permission.enable(enabled)
        self._stall.forget()
        self._geometry.begin()
        self._tried_s = None
        self._forget()

    @property
    def waits_for(self) -> Reason:
        """Why control of the gimbal is not granted yet; empty if steering need not wait for control."""
        return self._permission.waits_for

    def on_control(self, control: Control, reason: Reason = NO_REASON) -> None:
        """Store who controls the gimbal, and why. If control is lost while steering is enabled, steering is
        disabled until the next `set_enabled`."""
        self._permission.on_control(control, reason)

    def on_gimbal_alive(self, alive: bool) -> None:
        """Store whether the gimbal itself sends messages. Its manager in the autopilot may send messages even
        if the gimbal is silent."""
        self._permission.gimbal_alive = alive
        if not alive:
            self._stall.forget()

    def on_camera(self, camera: CameraModel) -> None:
        """Set the camera's calibration. A change of the calibration, such as a zoom, invalidates earlier
        measurements."""
        if self._camera is not None and camera != self._camera:
            self._forget()
        self._camera = camera

    def on_attitude(self, sample: AttitudeSample, now: Instant) -> bool:
        """Store the gimbal's attitude. Return False if its quaternion is no rotation, or if its stamp lies in
        the future."""
        return self._steering.add_attitude(sample, now)

    def on_vehicle(self, sample: VehicleSample) -> bool:
        """Store the vehicle's heading. Return False if a number in it is not finite."""
        return self._steering.add_vehicle(sample)

    def on_limits(self, limits: GimbalLimits) -> None:
        """Set the mount's end stops as the gimbal's manager reports them. The configured stops stay valid."""
        self._steering.set_limits(limits)

    def on_estimate(self, estimate: MotionReport, now: Instant) -> None:
        """Store the tracker's answer for one image. A second answer with the same stamp replaces the first
        one, and does not count as a second measurement."""
        last, self._estimate, self._arrived_s = self._estimate, estimate, now.steady_s
        step_s = math.inf if last is None else (estimate.stamp_ns - last.stamp_ns) / NS
        if last is not None and (not 0.0 <= step_s <= GAP_S or estimate.selection != last.selection):
            self._forget()
        if self.config.camera_roll:
            estimate = self._estimate = _unrolled(estimate, self.config.camera_roll)
        if last is None or (estimate.state is TrackState.TRACKING and last.state is not TrackState.TRACKING):
            self._cautious_until_s = now.steady_s + self.config.cautious_time
        if step_s != 0.0:
            self._watch_picture(estimate)
        if estimate.state in (TrackState.IDLE, TrackState.LOST):
            self._forget()
        elif step_s != 0.0 and estimate.valid and estimate.has_bearing and _is_finite(estimate):
            self._steering.measure(estimate)

    def _watch_picture(self, estimate: MotionReport) -> None:
        """Compare the picture's motion with the gimbal's, to detect a frozen picture or a rolled camera."""
        intrinsics = None if self._camera is None else self._camera.intrinsics
        focal_px = None if intrinsics is None else intrinsics.fx
        axis, was_frozen = self._steering.axis_from_north(estimate.stamp_ns), self._picture.is_frozen
        self._picture.take(estimate.stamp_ns, axis, estimate.image_shift, focal_px)
        if was_frozen and not self._picture.is_frozen:
            self._forget()  # the measurements made in the frozen picture are wrong
        is_seen = estimate.valid and estimate.measured and estimate.has_bearing and _is_finite(estimate)
        if self._picture.is_frozen or not is_seen or axis is None:
            self._geometry.forget()
            return
        self._geometry.take(estimate.stamp_ns, estimate.azimuth, estimate.elevation, axis)
        roll = self._geometry.roll
        if roll is not None and self.enabled:
            seems = math.degrees(wrapped(roll + self.config.camera_roll))
            self._permission.end(ReasonCode.CAMERA_ROLLED.reason(roll_deg=seems))

    def tick(self, now: Instant) -> GimbalCommand:
        """Return the command that holds until the next tick. Must be called at 50 Hz."""
        dt_s = self._since_last_tick(now)
        self._permission.wait(now.steady_s)
        self._stall.take(self._last, dt_s, self._steering.axis(now), now.steady_s)
        wish = self._decide(now, dt_s)
        rates = wish.rates if wish.rates.is_zero else self._limited(wish.rates, now, dt_s)
        self._last = rates
        return GimbalCommand(rates, self._sends(wish, now), wish.phase, wish.law, wish.reason, wish.at_stop)

    def _since_last_tick(self, now: Instant) -> float:
        """Return the time since the last tick, at most 0.1 s. If the images' clock was set since then, all
        stored measurements are discarded."""
        last, self._last_tick = self._last_tick, now
        if last is None:
            return 0.0
        steady_s = now.steady_s - last.steady_s
        stepped_s = (now.stamp_ns - last.stamp_ns) / NS - steady_s
        # Simulated time (/clock) stands still between two messages and then advances: the clock was not set.
        if now.stamp_ns == last.stamp_ns:
            self._stood_s += steady_s
        else:
            stepped_s -= min(self._stood_s, max(stepped_s, 0.0))
            self._stood_s = 0.0
        if abs(stepped_s) > CLOCK_STEP_S:
            self._forget()
            self._steering.forget_attitude()
            self._estimate = None
            self._waiting_reason = ReasonCode.CLOCK_SET.reason(step_s=stepped_s)
        return min(max(steady_s, 0.0), 0.1)

    def _forget(self) -> None:
        self._steering.forget_target()
        self._picture.forget()
        self._geometry.forget()
        if self._last_tick is not None:
            self._cautious_until_s = self._last_tick.steady_s + self.config.cautious_time

    def _decide(self, now: Instant, dt_s: float) -> GimbalCommand:
        """Return the command, before its rates are limited. The command holds the gimbal unless steering is
        permitted and the newest answer is usable."""
        refusal = self._permission.refusal()
        if refusal is not None:
            return _hold(refusal[1], refusal[0])
        estimate = self._estimate
        if estimate is None:
            return _hold(self._waiting_reason, Phase.WAITING)
        silent_s = now.steady_s - self._arrived_s
        if silent_s > self.config.silence:
            return _hold(ReasonCode.TRACKER_SILENT.reason(silence_s=silent_s))
        if estimate.state is TrackState.IDLE:
            return _hold(ReasonCode.NO_TARGET.reason(), Phase.WAITING)
        if estimate.state is TrackState.LOST:
            return _hold(ReasonCode.LOST.reason())
        if not estimate.valid:
            return _hold(estimate.reason or ReasonCode.NOT_VALID.reason())
        if not estimate.has_bearing or (self._camera is not None and self._camera.intrinsics is None):
            return _hold(ReasonCode.NO_CALIBRATION.reason())
        if not _is_finite(estimate):
            bearing = {"azimuth": estimate.azimuth, "elevation": estimate.elevation}
            return _hold(ReasonCode.BEARING_NOT_FINITE.reason(**bearing))
        if self._picture.is_frozen:
            return _hold(ReasonCode.PICTURE_FROZEN.reason())
        return self._follow(estimate, now, dt_s)

    def _follow(self, estimate: MotionReport, now: Instant, dt_s: float) -> GimbalCommand:
        """Return the command that follows a usable answer, or holds the gimbal if the answer is too old."""
        config = self.config
        age_s = (now.stamp_ns - estimate.stamp_ns) / NS
        if age_s < -FUTURE_S:
            return _hold(ReasonCode.IMAGE_IN_FUTURE.reason(ahead_s=-age_s))
        if age_s > config.silence:
            return _hold(ReasonCode.ANSWER_OLD.reason(age_s=age_s))
        unseen_s = age_s if estimate.measured else age_s + estimate.age_s
        left = 1.0 - max(unseen_s - config.coast, 0.0) / config.fade
        if not left > 0.0:  # also true if the age is NaN, because the target was never measured
            return _hold(ReasonCode.UNSEEN.reason(unseen_s=unseen_s))
        if self._stall.rests(now.steady_s):
            self._forget()
            return _hold(ReasonCode.GIMBAL_STALLED.reason())
        measured = estimate.measured and unseen_s < config.closed_loop_age
        rates, law, reason, at_stop = self._steering.steer(estimate, now, dt_s, measured)
        phase = Phase.FOLLOWING if measured else Phase.PREDICTING
        if left < 1.0:
            phase, reason = Phase.FADING, ReasonCode.FADING.reason(unseen_s=unseen_s)
        if self._stall.stands:
            phase, reason = Phase.HOLDING, ReasonCode.GIMBAL_STALLED.reason()
        rates = self._stall.limited(Rates(rates.pitch * left, rates.yaw * left))
        if law is Law.LINE_OF_SIGHT and not self._geometry.fits:
            rates = self._tried(rates, now)
        return GimbalCommand(rates, True, phase, law, reason, at_stop)

    def _tried(self, rates: Rates, now: Instant) -> Rates:
        """Limit the rates for the first second of motion, and while the images suggest a rolled camera."""
        if self._tried_s is None and not rates.is_zero:
            self._tried_s = now.steady_s
        is_trial = self._tried_s is not None and now.steady_s - self._tried_s < GEOMETRY_S
        is_trial = is_trial or self._geometry.is_doubtful
        return (
            rates.limited(TRIAL_SHARE * self.config.first_rate)
            if is_trial and self.config.first_rate
            else rates
        )

    def _limited(self, rates: Rates, now: Instant, dt_s: float) -> Rates:
        config, estimate = self.config, self._estimate
        acquiring = estimate is not None and estimate.state is TrackState.ACQUIRING
        cautious = acquiring or now.steady_s < self._cautious_until_s
        share = config.cautious_share if cautious else 1.0
        step = dt_s * (config.cautious_acceleration if cautious else config.max_acceleration)
        return Rates(
            _approach(self._last.pitch, bounded(rates.pitch, config.max_pitch_rate * share), step),
            _approach(self._last.yaw, bounded(rates.yaw, config.max_yaw_rate * share), step),
        )

    def _sends(self, wish: GimbalCommand, now: Instant) -> bool:
        """Return whether this tick sends rates. Zero rates are repeated for `zero_time` after the last
        motion, so that one lost packet does not leave the gimbal turning. Then nothing is sent, so that
        another component can take control."""
        if wish.phase is Phase.CONTROL_LOST:
            self._moves, self._moved_s = False, None
            return False
        # After a motion, zero rates are sent at least once, even if this tick is later than `zero_time` after
        # it.
        if wish.send or self._moves:
            self._moves, self._moved_s = wish.send, now.steady_s
            return True
        return self._moved_s is not None and now.steady_s - self._moved_s <= self.config.zero_time


def _hold(reason: Reason, phase: Phase = Phase.HOLDING) -> GimbalCommand:
    return GimbalCommand(STOPPED, False, phase, Law.NONE, reason)


def _unrolled(estimate: MotionReport, roll: float) -> MotionReport:
    """Return the answer with bearing and rates as an upright camera would measure them. ``roll``: the
    camera's roll, clockwise seen from behind, rad."""
    azimuth, elevation = unrolled(estimate.azimuth, estimate.elevation, roll)
    c, s = math.cos(roll), math.sin(roll)
    right, down = estimate.azimuth_rate, estimate.elevation_rate
    return replace(
        estimate,
        azimuth=azimuth,
        elevation=elevation,
        azimuth_rate=right * c - down * s,
        elevation_rate=right * s + down * c,
    )


def _is_finite(estimate: MotionReport) -> bool:
    return all(
        map(
            math.isfinite,
            (estimate.azimuth, estimate.elevation, estimate.azimuth_rate, estimate.elevation_rate),
        )
    )


def _approach(last: float, wanted: float, step: float) -> float:
    """Return the rate ``wanted``, limited so that its size grows by at most ``step`` from ``last``. Slowing
    down is not limited."""
    return min(max(wanted, min(last, 0.0) - step), max(last, 0.0) + step)
