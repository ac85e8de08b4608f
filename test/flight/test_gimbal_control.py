"""When the gimbal controller steers, by what, and when its rates are zero."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from flight.rig import seen_at
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reasons import because

from efftam_flight.angles import wrapped
from efftam_flight.control_config import ControlConfig, GimbalCommand, Instant, Law, Phase
from efftam_flight.gimbal_control import GimbalControl, Permission
from efftam_flight.law import ImageOnly
from efftam_flight.stall_detector import StallDetector
from efftam_flight.values import (
    NS,
    AttitudeSample,
    Control,
    GimbalLimits,
    Rates,
    VehicleSample,
    YawFrame,
)
from efftam_ros.core.reasons import ReasonCode
from efftam_ros.core.types import TrackState
from efftam_ros.messages.bearing import CameraModel, Intrinsics
from efftam_ros.messages.reports import MotionReport
from simulation.rotations import from_yaw_pitch

EPOCH_NS = 1_700_000_000 * NS
RIGHT = math.radians(2.0)  # the target lies so far right of the axis
KP = ControlConfig().kp
SETTLED = 20  # ticks until the limits at the start are over


@dataclass
class Bench:
    """A controller with clocks and inputs that go on by themselves, 20 ms at a time. Its gimbal does not
    answer the rates."""

    control: GimbalControl
    t: float = 0.0
    jump_s: float = 0.0
    attitude: tuple[float, float] | None = (0.0, 0.0)  # yaw, pitch
    frame: YawFrame = YawFrame.EARTH
    vehicle: tuple[float, float] | None = None  # heading, rate
    late_s: float = 0.0  # the stamps of both
    at_limit: dict[str, bool] = field(default_factory=dict)
    answers: bool = True
    latency_s: float = 0.1
    estimate: MotionReport = field(default_factory=lambda: seen_at(0, RIGHT, 0.0))

    def instant(self) -> Instant:
        return Instant(EPOCH_NS + round((self.t + self.jump_s) * NS), self.t)

    def step(self, count: int = 1) -> GimbalCommand:
        for _ in range(count):
            now = self.instant()
            stamp = now.stamp_ns + round(self.late_s * NS)
            if self.attitude is not None:
                q = from_yaw_pitch(*self.attitude)
                self.control.on_attitude(AttitudeSample(stamp, q, self.frame, **self.at_limit), now)
            if self.vehicle is not None:
                self.control.on_vehicle(VehicleSample(stamp, *self.vehicle))
            if self.answers:
                stamp = now.stamp_ns - round(self.latency_s * NS)
                self.control.on_estimate(replace(self.estimate, stamp_ns=stamp), now)
            command = self.control.tick(now)
            self.t += 0.02
        return command

    def given(self, **fields: object) -> Bench:
        self.estimate = replace(self.estimate, **fields)
        return self


def bench(enabled: bool = True, **config: object) -> Bench:
    made = Bench(GimbalControl(ControlConfig(**{"first_rate": 0.0, **config})))  # type: ignore[arg-type]
    if enabled:
        made.control.set_enabled(True)
    return made


def following(**config: object) -> Bench:
    made = bench(**config)
    command = made.step(SETTLED + 15)
    assert command.phase is Phase.FOLLOWING
    assert command.rates.yaw > 0
    return made


def assert_stops(made: Bench, phase: Phase = Phase.HOLDING) -> GimbalCommand:
    """Zero at the next tick, sent for a second, then nothing is sent any more."""
    first = made.step()
    assert first.rates.is_zero
    assert first.send
    assert first.phase is phase
    assert made.step(48).send
    last = made.step(5)
    assert last.rates.is_zero
    assert not last.send
    return first


# Who may steer


ENDS = {
    "switched off": (lambda made: made.control.set_enabled(False), Phase.OFF, ReasonCode.NONE),
    "lost": (lambda made: made.given(state=TrackState.LOST), Phase.HOLDING, ReasonCode.LOST),
    "no target": (lambda made: made.given(state=TrackState.IDLE), Phase.WAITING, ReasonCode.NO_TARGET),
    "not valid": (
        lambda made: made.given(valid=False, reason=because("no image")),
        Phase.HOLDING,
        ReasonCode.OTHER,
    ),
    "not valid without a reason": (lambda made: made.given(valid=False), Phase.HOLDING, ReasonCode.NOT_VALID),
    "no bearing": (lambda made: made.given(has_bearing=False), Phase.HOLDING, ReasonCode.NO_CALIBRATION),
    "uncalibrated": (
        lambda made: made.control.on_camera(CameraModel(None, 1280, 720)),
        *(Phase.HOLDING, ReasonCode.NO_CALIBRATION),
    ),
    "gimbal silent": (
        lambda made: made.control.on_gimbal_alive(False),
        Phase.HOLDING,
        ReasonCode.GIMBAL_SILENT,
    ),
    "old image repeated": (
        lambda made: setattr(made, "latency_s", 0.7),
        Phase.HOLDING,
        ReasonCode.ANSWER_OLD,
    ),
    "image from ahead": (
        lambda made: setattr(made, "latency_s", -0.5),
        Phase.HOLDING,
        ReasonCode.IMAGE_IN_FUTURE,
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_each_end_in_motion_sends_zeros_for_a_second_and_says_why(end):
    act, phase, why = ENDS[end]
    made = following()
    act(made)
    assert assert_stops(made, phase).reason.code is why


@pytest.mark.parametrize("late_s", [0.3, 5.0])
def test_a_controller_that_stood_still_in_motion_sends_zeros_first(late_s):
    """Also after longer than the time for which zeros are repeated."""
    made = following()
    made.t += late_s
    made.answers = False
    made.control.set_enabled(False)
    assert_stops(made, Phase.OFF)


def test_nothing_is_sent_before_it_is_enabled_nor_once_control_is_lost_nor_zeros_for_the_motion_before():
    made = bench(enabled=False)
    assert not made.step(50).send
    made.control.set_enabled(True)
    made.control.on_control(Control.HELD)
    assert made.step(SETTLED).phase is Phase.FOLLOWING
    made.control.on_control(Control.OTHER)
    assert not made.step(10).send
    made.control.set_enabled(False)
    assert not made.step().send
    made.control.on_control(Control.HELD)
    made.control.set_enabled(True)
    assert made.step(SETTLED).phase is Phase.FOLLOWING


WORDS = {
    None: ["on", "on 11", "on other held 11", "on held other on held", "on held silent 11 held"]
    + ["on unknown 9", "on unknown 11", "on held dead alive"],
    Phase.OFF: [
        "other",
        "other 11",
        "on other off 11",
        "on other 11 off",
        "on held other off",
        "on held off other",
    ],
    # Another's from the beginning is waited for, 10 s each time; who says nothing takes nothing.
    Phase.HOLDING: ["on other 9", "on nobody", "held off other on other", "on other 9 on 9"]
    + ["on other 11 on 9", "on held other on", "on held silent", "on held dead", "dead on held"],
    # Who takes one that was held ends steering, whenever it was enabled, until it is enabled again.
    Phase.CONTROL_LOST: ["on other 11", "on silent 11", "on held other", "on held nobody"]
    + ["held on other", "held on held other", "on other 9 held other", "on held silent other"]
    + ["on held other held"],
}


@pytest.mark.parametrize(
    ("events", "phase"), [(events, phase) for phase, given in WORDS.items() for events in given]
)
@pytest.mark.parametrize("word", ["the word", ""])
def test_who_may_steer_after_what(events, phase, word):
    """``on``, ``off``: somebody enables, disables it; the manager's words; ``dead``, ``alive``: the gimbal;
    a number: so many seconds. ``phase``: None where it may be steered."""
    permission, now_s = Permission(), 0.0
    permission.wait(now_s)
    for event in events.split():
        if event in ("on", "off"):
            permission.enable(event == "on")
        elif event in ("dead", "alive"):
            permission.gimbal_alive = event == "alive"
        elif not event.isdecimal():
            permission.on_control(Control(event), because(word))
        for _ in range(int(event) if event.isdecimal() else 0):
            now_s += 1.0
            permission.wait(now_s)
        permission.wait(now_s)
    refusal = permission.refusal()
    assert (refusal and refusal[0]) == phase
    if phase in (Phase.HOLDING, Phase.CONTROL_LOST) and "dead" not in events:
        named = re.findall("other|nobody|silent", events) or ["has not said"]
        assert (word or named[-1]) in refusal[1]
    assert permission.enabled is (phase in (None, Phase.HOLDING))


# Rows of the table


def test_a_measured_target_is_followed_with_the_gain_of_line_of_sight():
    command = following().step(50)
    assert command.law is Law.LINE_OF_SIGHT
    assert command.rates.yaw == pytest.approx(KP * RIGHT, rel=0.02)
    assert command.rates.pitch == pytest.approx(0.0, abs=1e-6)
    assert command.reason == ""


def test_an_old_answer_is_carried_on_by_prediction():
    made = following()
    made.latency_s = 0.3
    made.step(20)
    command = made.step()
    assert command.phase is Phase.PREDICTING
    assert command.rates.yaw > 0


def test_coasting_goes_on_for_a_second_then_fades_to_zero():
    made = following().given(state=TrackState.COASTING, measured=False)
    seen = []
    for i in range(150):
        made.given(age_s=0.02 * i)
        seen.append(made.step())
    whole = [c.rates.yaw for c in seen[:40]]
    assert all(c.phase is Phase.PREDICTING for c in seen[:40])
    assert min(whole) == pytest.approx(max(whole), rel=0.05)
    fading = [c.rates.yaw for c in seen[46:90]]
    assert all(c.phase is Phase.FADING for c in seen[46:90])
    assert fading == sorted(fading, reverse=True)
    assert fading[22] == pytest.approx(whole[-1] * 0.5, rel=0.1)
    assert seen[100].rates.is_zero
    assert seen[100].phase is Phase.HOLDING


def test_a_predicted_bearing_starts_line_of_sight_and_counts_no_more():
    """It is made from those that were measured before."""
    made = bench().given(state=TrackState.COASTING, measured=False, age_s=0.1)
    command = made.step(SETTLED)
    assert (command.law, command.phase) == (Law.LINE_OF_SIGHT, Phase.PREDICTING)
    assert made.given(azimuth=-RIGHT).step(10).rates.yaw == pytest.approx(KP * RIGHT, rel=0.02)


def test_coasting_freezes_the_integral_of_image_control():
    made = bench().given(elevation=RIGHT)
    made.attitude = None
    made.step(60)
    made.given(state=TrackState.COASTING, measured=False, age_s=0.2)
    before = made.step().rates
    assert made.step(20).rates == before


@pytest.mark.parametrize("clock_rate", [0.0, 1.0])
def test_silence_of_the_tracker_stops_the_gimbal_within_half_a_second(clock_rate):
    """Also while the images' clock stands still."""
    made = following()
    made.answers, still = False, []
    for _ in range(26):
        made.jump_s -= 0.02 * (1.0 - clock_rate)
        still.append(made.step().rates.is_zero)
    assert not still[10]
    assert still[25]
    assert made.step(48 - sum(still)).send
    assert not made.step(5).send


def test_acquiring_is_limited_to_a_third_of_the_rate():
    made = bench(max_acceleration=1e3).given(state=TrackState.ACQUIRING, azimuth=0.5)
    assert made.step(60).rates.yaw == pytest.approx(0.3 * math.radians(90))
    made.given(state=TrackState.TRACKING)
    assert made.step(14).rates.yaw == pytest.approx(0.3 * math.radians(90))
    assert made.step(4).rates.yaw == pytest.approx(math.radians(90))


def test_each_axis_has_its_own_largest_rate():
    made = bench(max_pitch_rate=0.2, max_yaw_rate=0.4).given(azimuth=0.5, elevation=-0.5)
    found = made.step(100).rates
    assert (found.pitch, found.yaw) == pytest.approx((0.2, 0.4))


@pytest.mark.parametrize("way", [1.0, -1.0])
def test_rates_grow_no_faster_than_configured_and_fall_at_once(way):
    made = bench(max_acceleration=2.0, cautious_time=0.0).given(azimuth=0.5 * way)
    made.attitude = None
    rates = [way * made.step().rates.yaw for _ in range(20)]
    assert max(b - a for a, b in itertools.pairwise([0.0, *rates])) == pytest.approx(2.0 * 0.02)
    made.given(azimuth=0.0)
    assert 0.0 <= way * made.step().rates.yaw < 0.5 * rates[-1]
    made.given(azimuth=-0.5 * way)
    assert way * made.step().rates.yaw == pytest.approx(-2.0 * 0.02)


def test_a_return_or_another_beginning_is_limited_for_a_while():
    made = bench(max_acceleration=1e3).given(azimuth=0.5)
    assert made.step(60).rates.yaw == pytest.approx(math.radians(90))
    made.given(state=TrackState.COASTING, measured=False, age_s=0.1)
    assert made.step(3).rates.yaw == pytest.approx(math.radians(90))
    made.given(state=TrackState.TRACKING, measured=True, age_s=0.0)
    for _ in range(2):
        assert made.step().rates.yaw == pytest.approx(0.3 * math.radians(90))
        assert made.step(18).rates.yaw == pytest.approx(math.radians(90))
        made.control.set_enabled(True)


def test_without_young_attitude_the_image_steers_with_its_own_gain_and_neither_law_knows_of_the_other():
    made = quick()
    made.attitude = None
    made.step(150)
    made.attitude = (0.0, 0.0)
    assert made.step(60).law is Law.LINE_OF_SIGHT
    made.attitude = None
    made.step(12)
    command = made.step()
    assert command.law is Law.IMAGE_ONLY
    assert command.reason
    gains = ImageOnly(made.control.config.image_latency)
    assert gains.kp * RIGHT <= command.rates.yaw < 1.2 * gains.kp * RIGHT
    made.attitude = (0.0, 0.0)
    # For half a second: one attitude may be followed by none. Then what is seen in that very image counts.
    laws = [made.given(azimuth=RIGHT * (-1) ** i).step() for i in range(33)]
    assert laws[2].law is Law.IMAGE_ONLY
    first = next(command for command in laws if command.law is Law.LINE_OF_SIGHT)
    assert abs(first.rates.yaw) == pytest.approx(KP * RIGHT, rel=0.02)


angles = st.floats(-0.5, 0.5)


@given(st.lists(st.tuples(angles, angles, st.booleans()), max_size=20), angles, angles)
def test_control_by_the_image_is_alike_in_both_axes_and_knows_nothing_after_a_reset(
    bearings, azimuth, elevation
):
    one, other = ImageOnly(0.1), ImageOnly(0.1)
    most = Rates(0.2, 0.2)
    for right, down, is_held in bearings:
        rates = one.rates(right, down, 0.02, most, hold_pitch=is_held, hold_yaw=False)
        swapped = other.rates(-down, -right, 0.02, most, hold_pitch=False, hold_yaw=is_held)
        assert (rates.pitch, rates.yaw) == (swapped.yaw, swapped.pitch)
    one.reset()
    given = azimuth, elevation, 0.02, most, False, False
    assert one.rates(*given) == ImageOnly(0.1).rates(*given)


def quick() -> Bench:
    made = following(max_acceleration=1e3, cautious_acceleration=1e3)
    made.control.on_camera(CameraModel(Intrinsics(900, 900, 640, 360), 1280, 720))
    made.step(30)
    return made


def test_an_attitude_that_comes_rarely_does_not_go_back():
    """At 6 Hz the newest is up to 0.17 s old: its motion is continued for 0.1 s, and then holds."""
    made = following(max_acceleration=1000.0)
    for _ in range(30):
        made.attitude = (0.5 * made.t, 0.0)
        made.step()
    made.attitude = None
    rates = [made.step().rates.yaw for _ in range(8)]
    steps = [abs(b - a) for a, b in itertools.pairwise(rates)]
    # Target and axis go on alike; then at most 0.02 s of its turn times the gain, never 0.1 s of it at once.
    assert max(steps[:4]) < 0.1 * 0.02 * 0.5 * KP
    assert max(steps) < 1.5 * 0.02 * 0.5 * KP


def test_an_attitude_that_ended_is_not_taken_for_a_gimbal_that_stands():
    made = bench(first_rate=0.05, silence=2.0)
    made.step(5)
    made.attitude = None
    for _ in range(100):
        assert made.step().phase is Phase.FOLLOWING


@pytest.mark.parametrize("latency_s", [0.0, 0.1])
def test_the_first_heading_turns_the_frame_and_not_the_gimbal(latency_s):
    made = following()
    made.frame, made.latency_s = YawFrame.VEHICLE, latency_s
    made.step(60)
    made.vehicle = (1.0, 0.0)
    rates = [made.step().rates.yaw for _ in range(60)]
    assert 0.0 < min(rates) <= max(rates) < 1.1 * KP * RIGHT


def test_without_a_heading_the_reason_is_said_and_the_law_does_not_flicker():
    made = following()
    made.frame, made.vehicle = YawFrame.VEHICLE, (0.3, 0.0)
    assert made.step(60).law is Law.LINE_OF_SIGHT
    made.vehicle = None
    command = made.step(40)
    assert command.law is Law.IMAGE_ONLY
    assert "heading is 0." in command.reason
    for i in range(100):  # one heading each 0.4 s
        made.vehicle = (0.3, 0.0) if i % 20 == 0 else None
        assert made.step().law is Law.IMAGE_ONLY
    made.vehicle = (0.3, 0.0)
    assert made.step(75).law is Law.LINE_OF_SIGHT


def test_neither_a_leap_of_the_same_target_nor_a_word_that_changes_nothing_starts_anew():
    made = following(max_acceleration=1e3, cautious_acceleration=1e3)
    for _ in range(2):
        made.control.on_control(Control.HELD)
        made.control.on_camera(CameraModel(Intrinsics(900, 900, 640, 360), 1280, 720))
    command = made.given(azimuth=-RIGHT).step()
    assert command.rates.yaw < -1.2 * KP * RIGHT


@pytest.mark.parametrize(
    "bad",
    [{"valid": False}, {"has_bearing": False}, {"elevation": math.nan}, {"azimuth_rate": math.inf}],
    ids=lambda bad: next(iter(bad)),
)
def test_what_may_not_be_used_is_forgotten_with_its_answer(bad):
    made = quick()
    used = made.estimate
    assert made.given(azimuth=-0.3, **bad).step(3).rates.is_zero
    made.estimate = used
    command = made.step(2)
    assert (command.law, command.rates.yaw) == (Law.LINE_OF_SIGHT, pytest.approx(KP * RIGHT, rel=0.05))


def test_a_second_answer_for_an_image_is_no_second_measurement():
    made = quick()
    newest = replace(made.estimate, stamp_ns=made.instant().stamp_ns - round((0.02 + made.latency_s) * NS))
    made.answers = False
    for _ in range(3):
        made.control.on_estimate(replace(newest, azimuth=-0.3), made.instant())
    assert made.step().rates.yaw == pytest.approx(KP * RIGHT, rel=0.05)


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.given(selection=1),
        lambda made: setattr(made, "latency_s", 0.4),  # stamps go back
        lambda made: made.control.on_camera(CameraModel(Intrinsics(1800, 1800, 640, 360), 1280, 720)),
        lambda made: made.control.set_enabled(True),
        lambda made: made.given(state=TrackState.LOST).step() and made.given(state=TrackState.TRACKING),
    ],
    ids=["another target", "stamps back", "zoom", "enabled again", "lost and found"],
)
@pytest.mark.parametrize("law", [Law.LINE_OF_SIGHT, Law.IMAGE_ONLY])
def test_what_was_measured_before_a_change_does_not_count(change, law):
    """The next answer counts alone: one that was joined to those before it would look like a leap."""
    made, gain = quick(), KP
    if law is Law.IMAGE_ONLY:
        made.attitude, gain = None, ImageOnly(made.control.config.image_latency).kp
        made.step(150)
    change(made)
    command = made.given(azimuth=-RIGHT).step()
    assert command.law is law
    assert command.rates.yaw == pytest.approx(-gain * RIGHT, rel=0.02)


def test_after_the_images_clock_was_set_the_image_alone_steers_as_if_it_had_just_begun():
    made = quick()
    made.attitude = None
    made.step(150)
    made.answers, made.jump_s = False, 1.0
    made.step()
    made.answers = True
    gain = ImageOnly(made.control.config.image_latency).kp
    assert made.given(azimuth=-RIGHT).step().rates.yaw == pytest.approx(-gain * RIGHT, rel=0.02)


def test_a_stop_takes_the_push_away_and_lets_the_mount_come_back():
    made = following(yaw_min=-1.0, yaw_max=1.0)
    made.frame = YawFrame.VEHICLE
    made.attitude = (0.995, 0.0)
    command = made.step(30)
    assert command.rates.yaw == 0.0
    assert command.at_stop == ("yaw",)
    assert "yaw" in command.reason
    made.given(azimuth=-RIGHT)
    command = made.step(30)
    assert command.rates.yaw < 0
    assert command.at_stop == ()


@pytest.mark.parametrize("axis", ["pitch", "yaw"])
@pytest.mark.parametrize("is_said", [True, False])
def test_at_a_stop_nothing_is_integrated(axis, is_said):
    """Where its angle or the gimbal's own word says that it stands there."""
    made = bench() if is_said else bench(pitch_max=0.5, yaw_max=0.5)
    made.frame, made.attitude = YawFrame.VEHICLE, (0.5 * (axis == "yaw"), 0.5 * (axis == "pitch"))
    made.at_limit = {f"at_{axis}_limit": is_said}

    def asked(right_or_up: float) -> Bench:
        return made.given(azimuth=right_or_up) if axis == "yaw" else made.given(elevation=-right_or_up)

    made.given(azimuth=0.0)
    asked(RIGHT)
    made.control._steering._filter.update = lambda *a: None  # line of sight never starts
    assert made.step(200).at_stop == (axis,)
    gains = ImageOnly(made.control.config.image_latency)
    rates = asked(-RIGHT).step(2).rates
    assert getattr(rates, axis) == pytest.approx(-gains.kp * RIGHT, rel=0.05)


def test_a_stop_that_an_old_attitude_told_holds_nothing_back():
    made = following(yaw_max=0.5)
    made.frame, made.attitude = YawFrame.VEHICLE, (0.5, 0.0)
    assert made.step(30).at_stop == ("yaw",)
    made.attitude = None
    command = made.step(30)
    assert command.at_stop == ()
    assert command.rates.yaw > 0.0


def test_at_nadir_yaw_is_held():
    made = following()
    for pitch, share in ((-70, 1.0), (-81.5, 0.5), (-89, 0.0)):
        made.attitude = (0.0, math.radians(pitch))
        made.control.set_enabled(True)
        made.given(azimuth=0.001)
        command = made.step(60)
        want = KP * math.atan2(math.tan(0.001), math.cos(math.radians(pitch))) * share
        assert command.rates.yaw == pytest.approx(want, rel=0.05, abs=1e-9)


@pytest.mark.parametrize("switch", ["on_gimbal_alive", "set_enabled"])
def test_a_gimbal_that_was_silent_or_not_steered_has_to_answer_small_rates_again(switch: str):
    made = bench(first_rate=0.05, yaw_max=3.0)

    def follow(count: int) -> float:
        for _ in range(count):
            rate = made.step().rates.yaw
            made.attitude = (made.attitude[0] + 0.02 * rate, 0.0)
        return rate

    assert follow(5) <= 0.051
    assert follow(60) > 0.1
    made.control.on_gimbal_alive(True)  # as the bridge repeats
    assert follow(1) > 0.1
    getattr(made.control, switch)(False)
    follow(5)
    getattr(made.control, switch)(True)
    assert 0.0 < follow(5) <= 0.051


@pytest.mark.parametrize(
    ("parts", "answers", "stands"),
    [
        ([(0.05, 0.05, 0.5)], True, False),
        ([(0.05, 0.0, 0.5)], False, False),
        ([(0.05, 0.0, 0.85)], False, True),
        ([(0.05, 0.0, 0.85), (0.05, 0.05, 0.5)], True, False),
        ([(0.05, 0.05, 0.5), (0.05, 0.0, 2.0)], False, True),
        # What was asked just now can't be answered yet.
        ([(0.02, 0.014, 0.34), (0.0, 0.0, 0.36), (0.2, 0.0, 0.12)], False, False),
        ([(0.05, -0.02, 2.0)], False, False),  # another moves it
        ([(0.005, 0.004, 6.0)], False, False),  # it drifts: never much at once
        ([(0.05, 0.0, 0.2), (0.05, None, 0.2), (0.05, 0.0, 0.1)], False, False),  # turned unseen
        ([(0.05, 0.0, 0.15), (0.0, 0.0, 3.0), (0.05, 0.0, 0.25)], False, False),  # too little of it lately
        # Only what was asked last is enough for an answer, a third of a second ago.
        ([(0.05, 0.0, 0.15), (-0.05, 0.0, 0.15), (0.2, 0.0, 0.1), (0.0, 0.0, 0.25)], False, False),
    ],
)
def test_a_gimbal_answers_once_it_turns_along_and_stands_once_it_was_asked_in_vain(parts, answers, stands):
    """Each part: the rate asked, how fast the gimbal turns, rad/s (None: it is not seen), how long, s."""
    answer, now_s, yaw = StallDetector(first_rate=0.05), 0.0, 0.0
    for asked, turns, seconds in parts:
        for _ in range(round(50 * seconds)):
            answer.take(Rates(0.0, asked), 0.02, None if turns is None else (yaw, 0.0), now_s)
            now_s, yaw = now_s + 0.02, yaw + 0.02 * (0.25 if turns is None else turns)
    assert (answer.limited(Rates(0.0, 1.0)).yaw == 1.0) is answers
    assert answer.stands is stands


def test_a_gimbal_that_stands_rests_for_a_second_each_time_and_is_asked_as_at_first():
    answer, spans = StallDetector(first_rate=0.05), [[False, 0]]
    for tick in range(400):
        rests = answer.rests(0.02 * tick)
        if rests is not spans[-1][0]:
            spans.append([rests, 0])
        spans[-1][1] += 1
        answer.take(Rates(0.0, 0.0 if rests else 0.05), 0.02, (0.0, 0.0), 0.02 * tick)
    asked, rested = spans[:-1:2], spans[1:-1:2]
    assert [count for _, count in rested] == pytest.approx([50] * 4, abs=1)
    assert [count for _, count in asked] == pytest.approx([39] * 5, abs=1)


def test_after_a_rest_what_is_seen_in_that_very_image_counts():
    """Directions that alternate: those of before would have it stand."""
    made, aside = bench(first_rate=0.05, max_acceleration=1e3, cautious_acceleration=1e3), 0.005
    while made.given(azimuth=aside).step().phase is not Phase.HOLDING:
        pass
    commands = [made.given(azimuth=aside * (-1) ** i).step() for i in range(60)]
    first = next(command for command in commands if not command.rates.is_zero)
    assert abs(first.rates.yaw) == pytest.approx(KP * aside, rel=0.02)


def test_without_an_attitude_for_three_seconds_no_answer_is_waited_for_until_there_is_one_again():
    made = bench(first_rate=0.05)
    shown = [(None, 2.9, True), (None, 1.0, False), ((0.0, 0.0), 0.5, True), (None, 2.9, True)]
    for attitude, seconds, is_limited in shown:
        made.attitude = attitude
        rate = made.step(round(50 * seconds)).rates.yaw
        assert rate > 0.0
        assert (rate <= 0.0501) is is_limited


# Frames


def test_stops_that_the_gimbal_names_anew_replace_the_old_ones_also_where_they_are_wider():
    made = following()
    made.frame, made.attitude = YawFrame.VEHICLE, (0.5, 0.0)
    made.control.on_limits(GimbalLimits(-1.0, 1.0, -0.4, 0.4))
    assert made.step(30).at_stop == ("yaw",)
    made.control.on_limits(GimbalLimits(-1.0, 1.0, -2.0, 2.0))
    assert made.step(30).at_stop == ()


def test_rates_from_the_vehicle_take_its_own_turn_off():
    made = following(yaw_lock=False)
    made.frame, made.vehicle = YawFrame.VEHICLE, (0.3, 0.5)
    made.given(azimuth=0.0)
    assert made.step(60).rates.yaw == pytest.approx(-0.5, abs=0.02)
    locked = following(yaw_lock=True)
    locked.frame, locked.vehicle = YawFrame.VEHICLE, (0.3, 0.5)
    locked.given(azimuth=0.0)
    assert locked.step(60).rates.yaw == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("set_by_s", [0.0, -3600.0])
def test_a_yaw_rate_of_the_vehicle_that_is_old_is_not_taken_off(set_by_s):
    """Nor one of before the images' clock was set back: it never grows old."""
    made = following(yaw_lock=False)
    made.vehicle = (0.3, 0.5)
    made.given(azimuth=0.0)
    assert made.step(60).rates.yaw == pytest.approx(-0.5, abs=0.02)
    made.vehicle, made.jump_s = None, set_by_s
    command = made.step(60)
    assert command.rates.yaw == pytest.approx(0.0, abs=0.02)
    assert command.law is Law.LINE_OF_SIGHT  # a yaw that counts from north needs no heading


def test_stops_that_are_not_alike_on_both_sides_count_from_their_middle():
    """From -1 to 4.5 rad, 200 degrees are within reach although they are read as -160."""
    made = following(yaw_min=-1.0, yaw_max=4.5)
    made.frame = YawFrame.VEHICLE
    for at, azimuth, stops in (
        (200, -RIGHT, ()),
        (200, RIGHT, ()),
        (257.7, RIGHT, ("yaw",)),
        (-57, -RIGHT, ("yaw",)),
    ):
        made.attitude = (math.radians(at), 0.0)
        made.given(azimuth=azimuth)
        command = made.step(30)
        assert command.at_stop == stops
        assert (command.rates.yaw == 0.0) is bool(stops)


def test_of_two_ranges_of_stops_the_nearer_ends_count():
    one, other = GimbalLimits(-1.0, 0.5, -2.0, 3.0), GimbalLimits(-1.5, 0.3, -1.0, 4.0)
    assert one.tightened(other) == other.tightened(one) == GimbalLimits(-1.0, 0.3, -1.0, 3.0)
    assert one.tightened(GimbalLimits()) == one


EACH = ("as it is", "turned", "mirrored", "upside down", "other frame", "stamped late")


def flown(seed: int, look: str, known: float, **config: object) -> np.ndarray:
    """Pitch and yaw rates through ten stretches of any attitude, heading and bearing; ``look``: how the same
    scene is told, taken back in the rates; ``known``: in which share of them the attitude is."""
    rng, turn = np.random.default_rng(seed), 2.5 * (look == "turned")
    yaw_stops, pitch_stops, late_s = [-0.9, 1.4], [-1.7, 0.6], 0.03 * (look == "stamped late")
    if look == "mirrored":
        yaw_stops = [-stop for stop in reversed(yaw_stops)]
    if look == "upside down":
        pitch_stops = [-stop for stop in reversed(pitch_stops)]
    stops = dict(zip(("yaw_min", "yaw_max", "pitch_min", "pitch_max"), yaw_stops + pitch_stops, strict=True))
    made = bench(attitude_offset=-late_s, max_acceleration=50.0, cautious_time=0.1, **stops, **config)
    made.late_s = late_s
    right, up = 1.0 - 2.0 * (look == "mirrored"), 1.0 - 2.0 * (look == "upside down")
    made.frame = YawFrame.EARTH if (seed < 2) is not (look == "other frame") else YawFrame.VEHICLE
    rates = []
    for _ in range(10):
        yaw, pitch, heading, rate = rng.uniform((-1.2, -1.6, -3.1, -0.3), (1.7, 0.9, 3.1, 0.3))
        azimuth, elevation, azimuth_rate, elevation_rate = rng.uniform(-0.2, 0.2, 4)
        is_known = rng.random() < known
        made.given(azimuth=right * azimuth, elevation=up * elevation)
        made.given(azimuth_rate=right * azimuth_rate, elevation_rate=up * elevation_rate)
        for _ in range(25):
            heading, yaw = heading + 0.02 * rate, yaw - 0.01 * rate
            north = right * heading + turn
            made.vehicle = (wrapped(north), right * rate)
            zero = north if made.frame is YawFrame.EARTH else 0.0
            made.attitude = (right * yaw + zero, up * pitch) if is_known else None
            found = made.step().rates
            rates.append((up * found.pitch, right * found.yaw))
    return np.array(rates)


@pytest.mark.parametrize("yaw_lock", [True, False])
@pytest.mark.parametrize("known", [0.7, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_scene_is_steered_alike_wherever_north_is_and_however_it_is_told(seed, known, yaw_lock):
    given = {"known": known, "yaw_lock": yaw_lock, "first_rate": 0.05 * (seed % 2)}
    expected = flown(seed, EACH[0], **given)
    assert np.ptp(expected, axis=0).min() > 0.1
    # A missing attitude is carried on in the frame in which it came.
    for look in EACH[1:] if known == 1.0 else set(EACH[1:]) - {"other frame"}:
        assert flown(seed, look, **given) == pytest.approx(expected, abs=1e-5), look


def test_without_an_attitude_an_older_bearing_is_carried_on_by_its_rate():
    rates = []
    for latency_s in (0.02, 0.12):
        made = bench(cautious_time=0.0, max_acceleration=50.0)
        made.attitude, made.latency_s = None, latency_s
        made.given(azimuth=0.1 - 0.3 * latency_s, elevation=0.05 + 0.2 * latency_s)
        found = made.given(azimuth_rate=0.3, elevation_rate=-0.2).step(5).rates
        rates.append((found.pitch, found.yaw))
    assert rates[0] == pytest.approx(rates[1])
    assert rates[0][0] < 0.0 < rates[0][1]


# Clocks and bad input


@pytest.mark.parametrize("by_s", [-3600.0, -0.3, -0.15, 0.15, 0.3, 3600.0])
@pytest.mark.parametrize("is_seen", [False, True])
def test_answers_of_before_the_images_clock_was_set_either_way_do_not_count(by_s, is_seen):
    """``is_seen``: whether attitudes go on."""
    made = quick()
    made.answers, made.jump_s = False, by_s
    command = made.step()
    is_set = abs(by_s) > 0.2
    assert (command.phase is Phase.WAITING) is is_set, command.reason
    assert command.rates.is_zero is is_set
    assert (f"{by_s:+.1f} s" in command.reason) is is_set
    made.answers, made.attitude = True, (0.0, 0.0) if is_seen else None
    made.given(azimuth=-RIGHT)
    # Nor do attitudes: their stamps are on the clock of before.
    assert made.step().law is Law.IMAGE_ONLY or not is_set
    made.attitude = (0.0, 0.0)
    laws = (made.step() for _ in range(2 * SETTLED))
    first = next(command for command in laws if command.law is Law.LINE_OF_SIGHT)
    # Joined to those before it would look like a leap.
    assert not is_set or first.rates.yaw == pytest.approx(-KP * RIGHT, rel=0.02)


@pytest.mark.parametrize("clock_rate", [0.0, 1.0])
def test_an_attitude_grows_old_also_while_the_images_clock_stands_still(clock_rate):
    made = following(attitude_age=0.1, silence=2.0)
    made.attitude = None
    laws = []
    for _ in range(20):
        made.jump_s -= 0.02 * (1.0 - clock_rate)
        laws.append(made.step().law)
    assert laws[0] is Law.LINE_OF_SIGHT
    assert laws[-1] is Law.IMAGE_ONLY


@pytest.mark.parametrize("clock_hz", [2, 4])
def test_a_clock_that_comes_rarely_is_not_taken_for_one_that_is_set(clock_hz):
    """Simulated time is as coarse as its messages (/clock)."""
    made = following()
    for _ in range(100):
        made.jump_s = math.floor(made.t * clock_hz) / clock_hz - made.t
        assert made.step().phase in (Phase.FOLLOWING, Phase.PREDICTING)
    made.jump_s += 1.0
    assert made.step().phase is Phase.WAITING


def test_attitude_from_the_future_and_no_rotation_are_refused():
    control = GimbalControl()
    now = Instant(EPOCH_NS, 0.0)
    good = AttitudeSample(EPOCH_NS, (1.0, 0.0, 0.0, 0.0), YawFrame.EARTH)
    assert control.on_attitude(good, now)
    for bad in (
        replace(good, stamp_ns=EPOCH_NS + NS),
        replace(good, q=(math.nan,) * 4),
        replace(good, q=(0.0, 0.0, 0.0, 0.0)),
        replace(good, q=(1.0, math.inf, 0.0, 0.0)),
    ):
        assert not control.on_attitude(bad, now)
    for heading in ((math.nan, 0.0), (0.0, math.inf)):
        assert not control.on_vehicle(VehicleSample(EPOCH_NS, *heading))


def test_why_attitudes_are_not_used_is_said_also_where_none_was_ever_taken():
    made = bench()
    for _ in range(SETTLED):
        q, now = from_yaw_pitch(0.0, 0.0), made.instant()
        assert not made.control.on_attitude(AttitudeSample(now.stamp_ns + 10 * NS, q, YawFrame.EARTH), now)
        made.attitude = None
        command = made.step()
    assert command.law is Law.IMAGE_ONLY
    assert "10.00 s ahead" in command.reason
    # Without a source of attitudes there is nothing to be mended.
    silent = bench()
    silent.attitude = None
    assert silent.step(SETTLED).reason == ""
    silent.attitude = (0.0, 0.0)
    assert silent.step(10).law is Law.LINE_OF_SIGHT  # at once: nothing failed


def test_attitude_and_heading_from_a_little_ahead_count_until_there_are_older_ones():
    """At nadir, where the yaw is held."""
    made = bench(cautious_time=0.0).given(azimuth=0.5)
    made.frame, made.attitude, made.vehicle = YawFrame.VEHICLE, (0.0, math.radians(-89.0)), (0.3, 0.0)
    made.late_s = 0.04
    command = made.step(2)
    assert (command.rates.yaw, command.reason) == (0.0, "")


def test_an_attitude_whose_clock_is_ahead_is_taken_with_the_offset_for_it():
    sample = AttitudeSample(EPOCH_NS + 3 * NS // 10, (1.0, 0.0, 0.0, 0.0), YawFrame.EARTH)
    now = Instant(EPOCH_NS, 0.0)
    assert GimbalControl(ControlConfig(attitude_offset=-0.3)).on_attitude(sample, now)
    assert not GimbalControl(ControlConfig(attitude_offset=-0.1)).on_attitude(sample, now)
    # Images that are stamped late need attitudes from ahead.
    sample = replace(sample, stamp_ns=EPOCH_NS)
    assert GimbalControl(ControlConfig(attitude_offset=0.3)).on_attitude(sample, now)


def test_headings_too_large_for_differences_do_not_end_the_controller():
    made = following()
    made.frame = YawFrame.VEHICLE
    for heading in (1.7e308, -1.7e308, 1.7e308):
        made.vehicle = (heading, 0.0)
        assert made.step(2).rates.is_finite


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=200, deadline=None)
@given(
    azimuth=NUMBERS,
    elevation=NUMBERS,
    azimuth_rate=NUMBERS,
    elevation_rate=NUMBERS,
    age_s=NUMBERS,
    state=st.sampled_from(TrackState),
    measured=st.booleans(),
    attitude=st.booleans(),
)
def test_whatever_the_answer_the_rates_are_finite_and_bounded(attitude, **fields):
    made = bench()
    made.attitude = (0.1, -0.2) if attitude else None
    made.step(5)
    made.given(**fields)
    for _ in range(10):
        command = made.step()
        assert command.rates.is_finite
        assert abs(command.rates.yaw) <= math.radians(90) + 1e-9
        assert abs(command.rates.pitch) <= math.radians(90) + 1e-9
