"""Rules that work with both autopilots, each against the stand-ins that would show a breach."""

from __future__ import annotations

import math

import pytest
from flight.rig import CONFIGURE, EPOCH_NS, FLAVOURS, Peer, Rig

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.mavlink.dialect import mav
from efftam_flight.values import NS, Control, Rates, YawFrame

both = pytest.mark.parametrize("flavour", list(FLAVOURS))
NAN = math.nan
any_gimbal = pytest.mark.parametrize("device", [True, False], ids=["device", "servo"])


@both
@any_gimbal
def test_1_the_wish_is_obeyed(flavour, device):
    """0.2 rad/s turns the gimbal by 11.5 degrees in a second; PX4 has no receiver for message 287."""
    rig = Rig(flavour, device).steer(pitch=-0.1, yaw=0.2).run(3)
    before = rig.mount.pitch
    assert rig.yaw_rate() == pytest.approx(0.2, rel=0.03)
    assert rig.mount.pitch - before == pytest.approx(-0.1, rel=0.03)


@both
def test_2_all_rates_are_finite_and_no_quaternion_is_sent(flavour):
    """ArduPilot drops a wish with both, and throws the mount when one rate is missing."""
    rig = Rig(flavour).steer(yaw=0.2).run(2)
    for wish in rig.sent("GIMBAL_MANAGER_SET_ATTITUDE"):
        assert all(map(math.isnan, wish.q))
        rates = (wish.angular_velocity_x, wish.angular_velocity_y, wish.angular_velocity_z)
        assert all(map(math.isfinite, rates))
        assert wish.flags in (12, 28)
    rig.rates = lambda t: Rates(math.nan, 0.2) if t < 2.5 else Rates(0.0, math.nan)
    assert abs(rig.yaw_rate(1.0)) < 0.03
    assert all(map(math.isfinite, rig.wishes()[-1]))
    assert rig.yaw_rate(1.0) == pytest.approx(0.0, abs=1e-3)
    assert rig.said("not finite") == 2


@both
def test_3_control_is_taken_with_explicit_ids_and_given_back(flavour):
    """PX4 reads -2 as the autopilot itself."""
    rig = Rig(flavour).steer().run(3)
    assert rig.autopilot.primary == (1, 100)
    assert rig.log.controls[-1] is Control.HELD
    sent = len(rig.wishes())
    rig.bridge.take_control(False)
    assert rig.wishes()[sent:] == [(0.0, 0.0)] * 3  # at once: a packet may be lost
    rig.run(1.5)
    assert rig.autopilot.primary == (0, 0)
    rig.bridge.set_rates(Rates(0.0, 0.5))
    assert rig.yaw_rate() == pytest.approx(0.0, abs=1e-3)
    asked = [(c.param1, c.param2, c.param3, c.param4) for c in rig.commands(CONFIGURE)]
    # Who is second in control stays: -1 leaves it, -2 would take it, -3 gives back what is ours.
    assert set(asked) == {(1, 100, -1, -1), (-3, -3, -1, -1)}
    assert asked[-1] == (-3, -3, -1, -1)


@both
@any_gimbal
def test_4_no_command_to_an_autopilot_has_a_nan(flavour, device):
    """ArduPilot's simulator ends on some; the stand-in raises CrashError."""
    rig = Rig(flavour, device).steer().run(3)
    rig.autopilot.restart()
    rig.run(3)
    rig.end_bridge()
    commands = rig.sent("COMMAND_LONG")
    assert len(commands) > 5
    for command in commands:
        assert all(math.isfinite(getattr(command, f"param{i}")) for i in range(1, 8))


@both
@any_gimbal
def test_5_attitude_and_control_are_asked_for_also_after_a_restart(flavour, device):
    """A fresh link to ArduPilot carries nothing but heartbeats, one to PX4 the attitude once a second."""
    rig = Rig(flavour, device).run(4)
    seen = len(rig.log.samples)
    rig.run(2)
    assert len(rig.log.samples) - seen > 90
    assert rig.log.controls
    assert len(rig.log.headings) > 90
    rig.autopilot.restart()
    rig.run(4)
    seen, headings = len(rig.log.samples), len(rig.log.headings)
    rig.run(2)
    assert len(rig.log.samples) - seen > 90
    assert len(rig.log.headings) - headings > 90


def test_5_a_link_too_slow_for_what_was_asked_is_named():
    rig = Rig("px4", device=False, budget_bytes_s=400.0).run(12)
    assert rig.said("whether the link is fast enough")


@both
def test_6_of_two_attitudes_the_gimbals_own_is_believed(flavour):
    """The copy carries another clock: mixed, the stamps would jump back and forth."""
    rig = Rig(flavour).steer(yaw=0.3)
    rig.autopilot.ports["companion"].intervals[mav.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS] = 0.02
    rig.run(4)
    steps = [
        b.stamp_ns - a.stamp_ns for a, b in zip(rig.log.samples[50:], rig.log.samples[51:], strict=False)
    ]
    assert min(steps) > 15e6
    assert max(steps) < 25e6
    assert len(rig.log.samples) == pytest.approx(200, abs=10)


def test_6_a_copy_that_goes_on_or_moves_after_the_gimbal_died_is_not_believed():
    rig = Rig("ardupilot").steer(yaw=0.3).run(3)
    rig.autopilot.ports["companion"].intervals[mav.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS] = 0.02
    rig.run(2)
    rig.device.powered = False
    rig.run(1.5)
    seen = len(rig.log.samples)
    rig.run(1)
    for i in range(20):
        rig.autopilot.attitude = ((math.cos(i / 99), 0.0, 0.0, math.sin(i / 99)), 12)
        rig.run(0.05)
    assert len(rig.log.samples) == seen
    assert rig.log.alive == [False]
    assert rig.wishes()[-1] == (0.0, 0.0)
    assert rig.said("silent") == 1
    rig.device.powered = True
    rig.run(1)
    assert rig.log.alive == [False, True]
    assert len(rig.log.samples) > seen


@pytest.mark.parametrize(
    ("flavour", "lock", "frame"),
    [
        ("ardupilot", True, YawFrame.VEHICLE),
        ("ardupilot", False, YawFrame.VEHICLE),
        ("px4", True, YawFrame.EARTH),
        ("px4", False, YawFrame.VEHICLE),
    ],
)
def test_7_the_frame_of_yaw_is_what_the_attitude_says_not_what_was_wished(flavour, lock, frame):
    rig = Rig(flavour, device=False, config=BridgeConfig(yaw_lock=lock))
    rig.steer(yaw=0.1).run(3)
    assert rig.log.samples[-1].yaw_frame is frame


def test_7_the_vehicles_heading_comes_at_50_hz_where_the_yaw_counts_from_it_and_else_at_20():
    rig = Rig("px4")
    for lock, interval_us in ((False, 20_000), (True, 50_000), (False, 20_000)):
        rig.after_step = lambda lock=lock: setattr(rig.mount, "lock", lock)
        rig.run(3)
        asked = [c.param2 for c in rig.commands(mav.MAV_CMD_SET_MESSAGE_INTERVAL) if c.param1 == 30]
        assert asked[-1] == interval_us


@both
def test_8_a_wish_that_holds_is_repeated(flavour):
    """PX4 stops the gimbal two seconds after the last one."""
    rig = Rig(flavour).steer(yaw=0.1).run(3)
    rig.rates = lambda t: Rates(0.0, 0.1)
    rig.run(3)
    sent = len(rig.wishes())
    assert rig.yaw_rate(3.0) == pytest.approx(0.1, rel=0.03)
    assert 5 <= (len(rig.wishes()) - sent) / 3.0 <= 10


@both
@pytest.mark.parametrize("axis", ["pitch", "yaw"])
def test_8_a_wish_that_changes_goes_out_at_once_whichever_way(flavour, axis):
    rig = Rig(flavour).steer(**{axis: 0.1}).run(3)
    before = len(rig.wishes())
    for rate in (0.2, 0.2008, 0.1, 0.0992, -0.1, -0.2, -0.1, 0.1):
        rig.bridge.set_rates(Rates(**{axis: rate}))
    asked = [pitch if axis == "pitch" else yaw for pitch, yaw in rig.wishes()[before:]]
    assert asked == pytest.approx([0.2, 0.1, -0.1, -0.2, -0.1, 0.1])  # without what is below 0.05 degrees/s


@both
@pytest.mark.parametrize("still_s", [0.0, 0.5, 2.0, 10.0])
def test_8_a_controller_that_ended_also_while_the_bridge_stood_still_stops_the_gimbal(flavour, still_s):
    """ArduPilot goes on for ever with the last wish. A suspended or starved bridge notices it late, also
    later than zeros are repeated for."""
    rig = Rig(flavour).steer(yaw=0.2).run(3)
    rig.rates, step = lambda t: None, rig.bridge.step
    rig.bridge.step = lambda: None
    rig.run(still_s)
    assert rig.wishes()[-1] != (0.0, 0.0)
    rig.bridge.step = step
    rig.run(0.5)
    assert rig.wishes()[-1] == (0.0, 0.0)
    rig.run(0.5)
    assert rig.yaw_rate() == pytest.approx(0.0, abs=1e-3)
    assert rig.said("no rates") == 1


@both
def test_8_a_bridge_that_is_held_up_again_and_again_sends_more_than_one_zero(flavour):
    """Publishing to a killed process may take Fast DDS a second or two each time."""
    rig = Rig(flavour).steer(yaw=0.2).run(3)
    rig.rates, step = lambda t: None, rig.bridge.step
    rig.bridge.step = lambda: None
    before = len(rig.wishes())
    for _ in range(5):
        rig.run(1.5)
        step()
    assert [yaw for _, yaw in rig.wishes()[before:]] == [0.0] * 5


def test_8_an_autopilot_that_is_not_heard_is_sent_no_rates_whatever_the_controller_wishes():
    rig = Rig("ardupilot", device=False).steer(yaw=0.2).run(3)
    rig.autopilot_runs = False
    rig.run(0.8)
    assert rig.wishes()[-1] == (0.0, 0.0)


def link_cut(rig: Rig, seconds: float) -> None:
    """The autopilot hears nothing and is not heard; what is sent meanwhile is lost."""
    rig.bridge_end.cut = rig.bridge_port.cut = True
    rig.run(seconds)
    assert rig.log.controls[-1] is Control.SILENT
    rig.bridge_end.cut = rig.bridge_port.cut = False


def test_8_an_autopilot_that_is_heard_again_is_told_to_stop():
    """ArduPilot went on with the last wish that it heard, and the zeros of the meantime were lost."""
    rig = Rig("ardupilot").steer(yaw=0.02).run(3)
    rig.rates = lambda t: Rates(0.0, 0.02 if t < 3.2 else 0.0)
    link_cut(rig, 6.0)
    assert rig.wishes()[-1] == (0.0, 0.0)
    rig.run(4.0)
    assert rig.yaw_rate() == pytest.approx(0.0, abs=1e-3)
    assert rig.autopilot.primary == (1, 100)
    sent = len(rig.wishes())
    rig.run(2.0)
    assert len(rig.wishes()) == sent


@both
@pytest.mark.parametrize(
    ("result", "component", "target", "refusals"),
    [
        (mav.MAV_RESULT_ACCEPTED, 1, (1, 100), 0),
        (mav.MAV_RESULT_IN_PROGRESS, 1, (1, 100), 0),
        (mav.MAV_RESULT_DENIED, 1, (1, 100), 1),
        (mav.MAV_RESULT_DENIED, 1, (0, 0), 1),  # without an addressee, as MAVLink 1 has it
        (mav.MAV_RESULT_DENIED, 1, (255, 190), 0),  # to a station
        (mav.MAV_RESULT_DENIED, 191, (1, 100), 0),  # of another component
    ],
)
def test_9_the_managers_refusal_of_control_is_said(flavour, result, component, target, refusals):
    rig = Rig(flavour).steer().run(3)
    ack = mav.MAVLink_command_ack_message(
        CONFIGURE, result, target_system=target[0], target_component=target[1]
    )
    Peer(rig.bridge_port, rig.time, (1, component)).send(ack)
    rig.run(0.1)
    assert rig.said(f"MAV_RESULT {result}") == refusals


ANY = (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("told", "pitch", "yaw"),
    [
        ((-1.5, 0.5, -2.0, 2.5), (-1.5, 0.5), (-2.0, 2.5)),
        ((-1.5, 0.5, -3.139, 3.139), (-1.5, 0.5), ANY),  # all the way round
        ((-1.5, 0.5, -3.13, 3.13), (-1.5, 0.5), (-3.13, 3.13)),
        ((-1.5, 0.5, -360.0, 2.0), (-1.5, 0.5), ANY),
        ((-1.5, 45.0, -2.0, 2.5), ANY, (-2.0, 2.5)),
        ((0.5, -1.5, -2.0, 2.5), ANY, (-2.0, 2.5)),
        ((-1.5, 0.5, NAN, 2.5), (-1.5, 0.5), ANY),
    ],
)
def test_of_the_limits_told_those_that_can_be_stops_count(told, pitch, yaw):
    rig = Rig("ardupilot", device=False)
    rig.autopilot._request = lambda *_: None
    rig.run(1.5, 0.02)
    information = mav.MAVLink_gimbal_manager_information_message(10, 0, 1, 0.0, 0.0, *told)
    Peer(rig.bridge_port, rig.time, (1, 1)).send(information)
    rig.run(0.04)
    (limits,) = rig.log.limits_seen
    found = (limits.pitch_min, limits.pitch_max, limits.yaw_min, limits.yaw_max)
    assert found == pytest.approx((*pitch, *yaw))


def test_attitudes_and_headings_are_of_when_they_were_made_and_not_of_when_they_came():
    rig = Rig("ardupilot", device=False)
    rig.autopilot_runs = False
    vehicle = Peer(rig.bridge_port, rig.time, (1, 1))
    vehicle.send(mav.MAVLink_heartbeat_message(2, mav.MAV_AUTOPILOT_ARDUPILOTMEGA, 0, 0, 0, 3))
    q = (math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))
    for i, late_s in enumerate((0.0, 0.05, 0.1, 0.0, 0.3)):
        rig.time.t, boot_ms = i + late_s, 5000 + 1000 * i
        vehicle.send(mav.MAVLink_attitude_message(boot_ms, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6))
        vehicle.send(
            mav.MAVLink_gimbal_device_attitude_status_message(0, 0, boot_ms, 44, q, NAN, NAN, NAN, 0)
        )
        rig.run(0.01)
    stamps = [EPOCH_NS + i * NS for i in range(5)]
    for told in (rig.log.headings, rig.log.samples):
        assert [each.stamp_ns for each in told] == pytest.approx(stamps, abs=0.01 * NS)
    assert rig.log.headings[-1][1:] == pytest.approx((0.3, 0.6, 0.1, 0.2))
    assert rig.log.samples[-1].q == pytest.approx(q)


def times_of(kind: str, boot_ms: int) -> object:
    """A message of that kind with this time since boot."""
    if kind == "TIMESYNC question":
        return mav.MAVLink_timesync_message(0, boot_ms * 1_000_000)
    if kind == "TIMESYNC answer":  # it names the asker's time
        return mav.MAVLink_timesync_message(7_000_000, boot_ms * 1_000_000)
    if kind == "RC_CHANNELS":
        return mav.MAVLink_rc_channels_message(boot_ms, 8, *[1500] * 8, *[65535] * 10, 255)
    if kind == "MANAGER_INFORMATION":
        return mav.MAVLink_gimbal_manager_information_message(boot_ms, 0, 1, 0, 0, -1, 1, -1, 1)
    # A copy of the gimbal's attitude may have the gimbal's time.
    return mav.MAVLink_gimbal_device_attitude_status_message(
        0, 0, boot_ms, 44, (1, 0, 0, 0), NAN, NAN, NAN, 0
    )


@pytest.mark.parametrize(
    ("kind", "component", "times_ms", "is_restart"),
    [
        ("TIMESYNC question", 1, (10, 110), True),
        ("TIMESYNC answer", 1, (10, 110), False),
        ("TIMESYNC question", 191, (10, 110), False),  # another component's
        ("RC_CHANNELS", 1, (10, 110), True),
        ("GIMBAL_ATTITUDE", 1, (10, 110), False),
        # Sent on request, they are as old as they are.
        ("MANAGER_INFORMATION", 1, (400,), False),
        ("MANAGER_INFORMATION", 1, (400, 400), False),
        ("MANAGER_INFORMATION", 1, (400, 20_000), False),
        # One that is always late is no restarted one's.
        ("RC_CHANNELS", 1, (40_000, 40_100, 40_200), False),
        ("RC_CHANNELS", 1, (43_000, 43_100), False),
    ],
)
def test_streamed_messages_tell_of_a_restart(kind, component, times_ms, is_restart):
    rig = Rig("ardupilot", device=False)
    rig.autopilot._request = lambda *_: None
    rig.run(3, 0.02)  # it has been up for 43 s
    for boot_ms in times_ms:
        Peer(rig.bridge_port, rig.time, (1, component)).send(times_of(kind, boot_ms))
        rig.run(0.1, 0.02)
    assert bool(rig.said("restarted")) is is_restart


def test_messages_that_waited_while_the_bridge_stood_still_are_no_restart():
    """They are read at once, though they were made one after the other."""
    rig = Rig("px4").steer(yaw=0.1).run(3)
    step = rig.bridge.step
    for still_s in (0.4, 1.5, 3.0, 6.0):
        rig.bridge.step = lambda: None
        rig.run(still_s)
        rig.bridge.step = step
        rig.run(1.5)
    assert rig.said("restarted") == 0


def test_a_bridge_that_starts_beside_a_running_autopilot_takes_it_for_no_restarted_one():
    """PX4 answers a request for message 280 with the one that it made after its boot."""
    for first in ("280", "stream"):
        rig = Rig("px4")
        rig.run(2.0)
        if first == "280":
            rig.autopilot.default_intervals = dict
        rig.bridge_port.receive()
        rig.begin_bridge_anew()
        rig.run(6.0)
        assert rig.log.limits_seen
        assert rig.said("restarted") == 0


@pytest.mark.parametrize("device", [True, False], ids=["device", "servo"])
def test_a_bridge_that_was_killed_while_it_steered_goes_on(device):
    rig = Rig("px4", device).steer(yaw=0.2).run(3)
    rig.begin_bridge_anew()
    rig.bridge.take_control(True, fresh=False)  # the controller's latched word
    rig.run(5)
    assert rig.log.controls[-1] is Control.HELD
    assert rig.said("restarted") == 0
    assert rig.yaw_rate() == pytest.approx(0.2, rel=0.05)
