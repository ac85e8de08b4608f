"""The ends of steering that real ArduPilot and PX4 showed, each against the stand-in that shows a breach."""

from __future__ import annotations

import math
from typing import Any

import pytest
from flight.rig import FLAVOURS, Chase, Rig

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import Phase
from efftam_flight.mavlink.dialect import mav
from efftam_flight.values import Control, GimbalLimits

both = pytest.mark.parametrize("flavour", list(FLAVOURS))
NAN = math.nan
MANUAL = mav.MAVLink_gimbal_manager_set_manual_control_message(1, 0, 12, 0, NAN, NAN, 0.0, 0.5)


def rates_sent(rig: Rig, since: int = 0) -> list[float]:
    return [yaw for _, yaw in rig.wishes()[since:]]


def denied_1000(rig: Rig) -> None:
    """PX4 denies it while we are in control; ArduPilot passes over a rate of one axis alone."""
    number = mav.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW
    if rig.autopilot.kind == mav.MAV_AUTOPILOT_PX4:
        rig.station.command(number, NAN, NAN, 0.0, -10.0, target=(1, 0))
    else:
        message = mav.MAVLink_gimbal_manager_set_pitchyaw_message
        rig.station.send(message(1, 0, 12, 0, NAN, NAN, NAN, -0.2))


def manual_control(rig: Rig) -> None:
    rig.station.send(MANUAL)


def channel_without_function(rig: Rig) -> None:
    rig.autopilot.channels[5] = 1900


@both
@pytest.mark.parametrize("take", [denied_1000, manual_control, channel_without_function])
def test_a_word_that_moves_nothing_leaves_no_swing(flavour, take):
    """PX4 obeys zeros only before the release, and turned on for 2 s."""
    rig = Rig(flavour, config=BridgeConfig(rc_channels="6")).steer(yaw=0.4).run(3)
    rig.station.heartbeat()
    rig.run(1)
    before = rig.mount.yaw
    take(rig)
    rig.rates = lambda t: None
    rig.run(3)
    # PX4 is told at once; of ArduPilot the gimbal's attitude tells within half a second that it turns on.
    assert abs(rig.mount.yaw - before) < 0.4 * (0.2 if flavour == "px4" else 0.75)
    assert rig.yaw_rate() == pytest.approx(0.0, abs=1e-3)
    assert rig.autopilot.primary == (0, 0)
    assert rig.log.controls[-1] is Control.NOBODY
    last = rig.log.reasons[-1]  # all that a slow reader gets
    assert "took control" in last


def test_px4_is_not_given_back_before_its_gimbal_stands():
    """The first zeros are lost: those of one who is not in control any more are nothing to it."""
    rig = Rig("px4").steer(yaw=0.4).run(3)
    rig.station.heartbeat()
    rig.run(1)
    before, send = rig.mount.yaw, rig.bridge.send
    lost_until_s = rig.time.t + 0.5

    def lossy(message: Any, link: str | None = None) -> None:
        if message.get_type() != "GIMBAL_MANAGER_SET_ATTITUDE" or rig.time.t > lost_until_s:
            send(message, link)

    rig.bridge.send = lossy
    denied_1000(rig)
    rig.rates = lambda t: None
    rig.run(3)
    assert rig.mount.yaw - before < 0.4 * 0.8
    assert rig.autopilot.primary == (0, 0)


def test_steering_can_be_enabled_after_px4_was_restarted():
    """Its first messages 281 name gimbal 0, which is none yet, and then 154."""
    rig = Rig("px4").steer(yaw=0.1).run(3)
    rig.bridge.take_control(False)
    rig.autopilot.restart()
    rig.run(4)
    rig.bridge.take_control(True)
    rig.run(3)
    assert rig.log.controls[-1] is Control.HELD
    assert rig.yaw_rate() == pytest.approx(0.1, rel=0.05)
    assert rig.said("several gimbals") == 0


def test_the_stops_are_asked_for_until_they_come_five_times_at_most_and_anew_after_a_restart():
    rig = Rig("ardupilot", device=False)
    answer, asked = rig.autopilot._request, []
    # Perhaps once more, before it is seen that the autopilot was restarted.
    for lost, tries, is_told in ((2, {3}, True), (99, {5, 6}, False), (0, {1, 2}, True)):

        def lossy(port: object, message: Any, lost: int = lost) -> object:
            asked.append(message.param1)
            return answer(port, message) if len(asked) > lost else None

        rig.autopilot._request = lossy
        asked.clear()
        rig.log.limits_seen.clear()
        rig.run(8)
        assert set(asked) == {mav.MAVLINK_MSG_ID_GIMBAL_MANAGER_INFORMATION}
        assert len(asked) in tries
        assert bool(rig.log.limits_seen) is is_told
        rig.mount.limits = GimbalLimits(-0.5, 0.5, -1.0, 1.0)
        rig.autopilot.restart()
    assert rig.log.limits_seen[-1].yaw_max == 1.0


def chase(rig: Rig, yaw: float = 0.4) -> Chase:
    return Chase(rig, lambda t: (yaw, 0.0))


def phase(rig: Rig) -> tuple[Phase, str]:
    command = rig.control.tick(rig.time.instant())
    return command.phase, command.reason


@pytest.mark.parametrize("device", [True, False], ids=["device", "servo"])
def test_rates_do_not_grow_against_a_mount_that_sleeps_and_it_is_followed_when_it_wakes(device):
    """ArduPilot drives its mount 9 s after its boot; the target is 23 degrees from the axis."""
    rig = Rig("ardupilot", device)
    rig.autopilot.booted_s = rig.time.t
    loop = chase(rig)
    rig.run(6)
    assert 0.03 < max(map(abs, rates_sent(rig))) <= 0.0501
    held, why = phase(rig)
    assert held is Phase.HOLDING
    assert "9 s" in why
    assert rates_sent(rig).count(0.0) > 20
    rig.run(12)
    assert phase(rig)[0] is Phase.FOLLOWING
    assert loop.figures(after_s=rig.time.t - 1.0)[0] < 1.0


def test_a_manager_that_has_found_no_gimbal_is_what_steering_waits_for():
    rig = Rig("px4")
    rig.autopilot.gimbal_number = lambda: 0
    chase(rig)
    rig.run(3)
    assert "no gimbal yet" in rig.control.waits_for
    assert rates_sent(rig) == []
    del rig.autopilot.gimbal_number
    rig.run(4)
    assert rig.control.waits_for == ""
    assert phase(rig)[0] is Phase.FOLLOWING
