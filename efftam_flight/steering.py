"""Computes gimbal rates: stores the measurements, selects the control law, and limits the rates at end stops
and in a camera that looks straight down."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from efftam_flight.angles import axis_direction, target_direction, wrapped
from efftam_flight.attitude import EXTRAPOLATED_NS, GimbalHistory, VehicleHistory
from efftam_flight.control_config import ControlConfig, Instant, Law
from efftam_flight.direction_filter import DirectionFilter
from efftam_flight.law import ImageOnly, line_of_sight, nadir_factor
from efftam_flight.values import NS, AttitudeSample, GimbalLimits, Rates, VehicleSample, YawFrame
from efftam_ros.core.reasons import NO_REASON, Reason, ReasonCode
from efftam_ros.messages.reports import MotionReport

# An attitude whose stamp is further ahead of the images' clock than this is rejected, s.
FUTURE_S = 0.05
# How long attitudes must have arrived without fault before line of sight is used again, s.
WELL_S = 0.5


# (rates, control law, reason for a limit of steering or an empty reason, names of the axes at a stop)
Steered = tuple[Rates, Law, Reason, tuple[str, ...]]


@dataclass(frozen=True)
class _Stop:
    """Whether one axis is at a stop. ``low``, ``high``: its angle has reached the lower or the upper stop.
    ``reported``: the gimbal reports that the axis is at one of its stops."""

    low: bool = False
    high: bool = False
    reported: bool = False

    def blocks(self, rate: float) -> bool:
        return (self.low and rate < 0.0) or (self.high and rate > 0.0)


class Steering:
    def __init__(self, config: ControlConfig) -> None:
        self._config = config
        self._limits = config.limits
        self._gimbal = GimbalHistory()
        self._vehicle = VehicleHistory()
        self._attitude_arrived_s = -math.inf
        self._ahead_s = 0.0  # how far the newest attitude lies in the future, s; 0 if it was accepted
        self._filter = DirectionFilter(config.acceleration_density, config.bearing_noise)
        self._filter_frame: YawFrame | None = None
        self._image_only = ImageOnly(config.image_latency)
        self._last = Rates()
        self._law = Law.NONE
        # Steady time (s) until which the law is image only, and the reason.
        self._distrust: tuple[float, Reason] = (-math.inf, NO_REASON)

    def forget_target(self) -> None:
        self._filter.reset()
        self._image_only.reset()

    def set_limits(self, limits: GimbalLimits) -> None:
        """Set the mount's own end stops. On each side the tighter one of these and the configured stops
        applies."""
        self._limits = self._config.limits.tightened(limits)

    def forget_attitude(self) -> None:
        self._gimbal.clear()
        self._vehicle.clear()

    def add_attitude(self, sample: AttitudeSample, now: Instant) -> bool:
        """Store an attitude. Return False, and drop it, if its quaternion is no rotation, or if its stamp
        lies more than `FUTURE_S` in the future."""
        stamp_ns = sample.stamp_ns + round(self._config.attitude_offset * NS)
        # Of the stamps with and without the offset, the earlier one must not lie in the future. An offset
        # below zero corrects a clock that is ahead. An offset above zero makes stamps later on purpose, to
        # match images that are stamped late.
        ahead_s = (min(sample.stamp_ns, stamp_ns) - now.stamp_ns) / NS
        self._ahead_s = ahead_s if ahead_s > FUTURE_S else 0.0
        if self._ahead_s:
            return False
        taken = self._gimbal.add(replace(sample, stamp_ns=stamp_ns))
        if taken:
            self._attitude_arrived_s = now.steady_s
        return taken

    def add_vehicle(self, sample: VehicleSample) -> bool:
        """Store the vehicle's heading. Return False, and drop it, if a number in it is not finite."""
        stamp_ns = sample.stamp_ns + round(self._config.attitude_offset * NS)
        return self._vehicle.add(sample._replace(stamp_ns=stamp_ns))

    def axis_from_north(self, stamp_ns: int) -> tuple[float, float] | None:
        """Return yaw from north and pitch of the optical axis at a stamp, rad; None if unknown."""
        q = self._gimbal.at(stamp_ns)
        frame, heading = self._heading_at(stamp_ns)
        if q is None or frame is not YawFrame.EARTH:
            return None
        yaw, pitch = axis_direction(q)
        return wrapped(yaw + heading), pitch

    def measure(self, estimate: MotionReport) -> None:
        """Correct the filter of directions with a bearing, if the attitude at its image's stamp is known.

        A predicted bearing is used only to start an empty filter. It contains no new measurement, because the
        tracker computed it from earlier ones.
        """
        if not (estimate.measured or self._filter.is_empty):
            return
        q = self._gimbal.at(estimate.stamp_ns)
        if q is None:
            return
        frame, heading = self._heading_at(estimate.stamp_ns)
        if frame is not self._filter_frame:
            self._filter.reset()
            self._filter_frame = frame
        yaw, pitch = target_direction(q, estimate.azimuth, estimate.elevation)
        self._filter.update(estimate.stamp_ns, wrapped(yaw + heading), pitch)

    def steer(self, estimate: MotionReport, now: Instant, dt_s: float, measured: bool) -> Steered:
        """Return the rates for this moment, the law, the reason for a limit, and the axes at a stop.

        ``dt_s``: time since the last call. ``measured``: whether the bearing is a recent measurement; only
        then the integrals of the image-only law change.
        """
        sample = self._gimbal.newest
        stops = self._stops(now)
        missing = self._distrusted(now)
        frame, heading = self._heading_at(now.stamp_ns)
        q = None
        if sample is not None:
            # Attitudes are extrapolated for at most EXTRAPOLATED_NS. After that the last extrapolated
            # attitude is kept: with the sample itself, the axis would jump back.
            q = self._gimbal.at(min(now.stamp_ns, sample.stamp_ns + EXTRAPOLATED_NS)) or sample.q
        if not missing and q is not None and not self._filter.is_empty and frame is self._filter_frame:
            law = Law.LINE_OF_SIGHT
            self._image_only.reset()
            yaw, pitch = axis_direction(q)
            target = self._filter.predict(now.stamp_ns)
            rates = line_of_sight(target, (wrapped(yaw + heading), pitch), self._config)
            rates = Rates(rates.pitch, rates.yaw - self._own_turn(frame, now))
        else:
            law = Law.IMAGE_ONLY
            self._filter.reset()
            rates = self._by_image(estimate, now, dt_s, measured, stops)
        # An attitude that never arrived is not reported as missing.
        note = missing if sample is not None or self._ahead_s else NO_REASON
        if q is not None:
            rates = Rates(rates.pitch, rates.yaw * nadir_factor(axis_direction(q)[1]))
        wished = {"pitch": rates.pitch, "yaw": rates.yaw}
        at_stop = tuple(
            axis for axis, rate in wished.items() if stops[axis].blocks(rate) or stops[axis].reported
        )
        rates = Rates(*(0.0 if stops[axis].blocks(rate) else rate for axis, rate in wished.items()))
        if at_stop:
            note = ReasonCode.AT_STOP.reason(axes=", ".join(at_stop))
        self._last, self._law = Rates(wished["pitch"], wished["yaw"]), law
        return rates, law, note, at_stop

    def axis(self, now: Instant) -> tuple[float, float] | None:
        """Return yaw, in the frame of the rates, and pitch of the gimbal, rad; None if unknown."""
        sample = self._gimbal.newest
        if sample is None or self._attitude_missing(now):
            return None
        yaw, pitch = axis_direction(sample.q)
        from_north = sample.yaw_frame is YawFrame.EARTH
        if from_north is self._config.yaw_lock:
            return yaw, pitch
        heading = self._vehicle.at(sample.stamp_ns)
        return None if heading is None else (yaw - heading if from_north else yaw + heading, pitch)

    def _by_image(
        self, estimate: MotionReport, now: Instant, dt_s: float, measured: bool, stops: dict[str, _Stop]
    ) -> Rates:
        age_s = (now.stamp_ns - estimate.stamp_ns) / NS
        return self._image_only.rates(
            estimate.azimuth + estimate.azimuth_rate * age_s,
            estimate.elevation + estimate.elevation_rate * age_s,
            dt_s,
            self._config.max_rate,
            hold_pitch=not measured or stops["pitch"].reported or stops["pitch"].blocks(self._last.pitch),
            hold_yaw=not measured or stops["yaw"].reported or stops["yaw"].blocks(self._last.yaw),
        )

    def _heading_at(self, stamp_ns: int) -> tuple[YawFrame | None, float]:
        """Return the frame in which directions are filtered, and the angle that must be added to the gimbal's
        yaw to get the yaw in this frame, rad."""
        if self._gimbal.yaw_frame is YawFrame.VEHICLE:
            heading = self._vehicle.at(stamp_ns)
            if heading is not None:
                return YawFrame.EARTH, heading
        return self._gimbal.yaw_frame, 0.0

    def _own_turn(self, frame: YawFrame | None, now: Instant) -> float:
        """Return the vehicle's yaw rate, rad/s, which must be subtracted if rates count from its nose and
        directions are filtered from north. Return 0 otherwise, or if the heading is older than
        ``attitude_age``."""
        newest = self._vehicle.newest
        if self._config.yaw_lock or frame is not YawFrame.EARTH or newest is None:
            return 0.0
        is_young = now.stamp_ns - newest.stamp_ns <= self._config.attitude_age * NS
        return newest.yaw_rate if is_young else 0.0

    def _distrusted(self, now: Instant) -> Reason:
        """Return why line of sight can't be used now; empty if it can be used.

        After a fault, line of sight is used again only when there has been no fault for `WELL_S`. Without
        this delay, each late message would change the control law twice.
        """
        missing = self._attitude_missing(now) or self._heading_missing(now)
        until_s, reason = self._distrust
        if missing and (self._law is Law.LINE_OF_SIGHT or now.steady_s < until_s):
            self._distrust = (now.steady_s + WELL_S, missing)
        return missing or (reason if now.steady_s < until_s else NO_REASON)

    def _heading_missing(self, now: Instant) -> Reason:
        """Return why a yaw from the vehicle's nose can't be converted to one from north any more; empty if it
        can, or if no heading has ever arrived."""
        newest = self._vehicle.newest
        if self._gimbal.yaw_frame is not YawFrame.VEHICLE or newest is None:
            return NO_REASON
        age_s = (now.stamp_ns - newest.stamp_ns) / NS
        if self._vehicle.at(now.stamp_ns) is not None or age_s < 0.0:
            return NO_REASON
        return ReasonCode.HEADING_OLD.reason(age_s=age_s)

    def _attitude_missing(self, now: Instant) -> Reason:
        """Return why the gimbal's attitude can't be used for line of sight; empty if it can."""
        newest = self._gimbal.newest
        if newest is None:
            if self._ahead_s:
                return ReasonCode.ATTITUDE_AHEAD.reason(ahead_s=self._ahead_s)
            return ReasonCode.ATTITUDE_MISSING.reason()
        age_s = max((now.stamp_ns - newest.stamp_ns) / NS, now.steady_s - self._attitude_arrived_s)
        if age_s > self._config.attitude_age:
            return ReasonCode.ATTITUDE_OLD.reason(age_s=age_s)
        return NO_REASON

    def _stops(self, now: Instant) -> dict[str, _Stop]:
        """Return for "pitch" and "yaw" whether the newest attitude is at an end stop of the mount."""
        sample = self._gimbal.newest
        if sample is None or self._attitude_missing(now):
            return {"pitch": _Stop(), "yaw": _Stop()}
        limits, margin = self._limits, self._config.stop_margin
        yaw, pitch = axis_direction(sample.q)
        joint: float | None = yaw
        if sample.yaw_frame is YawFrame.EARTH:
            heading = self._vehicle.at(sample.stamp_ns)
            joint = None if heading is None else wrapped(yaw - heading)
        if joint is not None:
            joint = _among(joint, limits)
        return {
            "pitch": _Stop(
                pitch <= limits.pitch_min + margin, pitch >= limits.pitch_max - margin, sample.at_pitch_limit
            ),
            "yaw": _Stop(
                joint is not None and joint <= limits.yaw_min + margin,
                joint is not None and joint >= limits.yaw_max - margin,
                sample.at_yaw_limit,
            ),
        }


def _among(yaw: float, limits: GimbalLimits) -> float:
    """Return the yaw plus the multiple of a full turn that brings it closest to the middle between its stops,
    rad. With stops at -60 and 260 degrees, -160 degrees become 200."""
    middle = (limits.yaw_min + limits.yaw_max) / 2
    return middle + wrapped(yaw - middle) if math.isfinite(middle) else yaw
