"""Whoever else moves the gimbal ends our steering: ArduPilot obeys who spoke last, and we speak at 50 Hz."""

from __future__ import annotations

import math

import pytest
from flight.rig import Rig

from efftam_ros.core.errors import InputError
from efftam_ros.flight.bridge_config import BridgeConfig
from efftam_ros.flight.mavlink.dialect import mav
from efftam_ros.flight.values import Control, Rates

NAN = math.nan


def steered(**config: object) -> Rig:
    rig = Rig("ardupilot", config=BridgeConfig(**config)).steer()
    rig.rates = lambda t: Rates(0.0, 0.1 * math.sin(3 * t))
    rig.run(4)
    rig.station.heartbeat()
    return rig


def pitchyaw(rig: Rig) -> None:
    message = mav.MAVLink_gimbal_manager_set_pitchyaw_message
    rig.station.send(message(1, 0, 12, 0, NAN, NAN, 0.0, -0.3))


def command_1000(rig: Rig) -> None:
    number = mav.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW
    rig.station.command(number, NAN, NAN, 0.0, math.degrees(-0.3), target=(1, 0))


@pytest.mark.parametrize(("take", "what"), [(pitchyaw, "message 287"), (command_1000, "command 1000")])
def test_another_component_that_moves_the_gimbal_has_it(take, what):
    rig = steered()
    for _ in range(10):
        take(rig)
        rig.run(0.1)
    sent = len(rig.sent("GIMBAL_MANAGER_SET_ATTITUDE"))
    assert rig.yaw_rate() == pytest.approx(-0.3, rel=0.05)
    assert len(rig.sent("GIMBAL_MANAGER_SET_ATTITUDE")) == sent
    assert rig.said(f"taken by 255/190 ({what})") == 1
    assert Control.OTHER in rig.log.controls
    assert rig.autopilot.primary == (0, 0)


def test_a_last_rate_of_ours_that_arrives_after_anothers_word_is_stopped():
    rig = steered()
    rig.rates = lambda t: Rates(0.0, 0.2)
    rig.run(0.5)
    pitchyaw(rig)
    rig.run(0.002)
    rig.autopilot._wish = (0.0, 0.2, 0)
    rig.run(3)
    assert rig.yaw_rate() == pytest.approx(0.0, abs=1e-3)


def test_steering_that_is_enabled_again_takes_the_gimbal_back():
    rig = steered()
    pitchyaw(rig)
    rig.run(1)
    rig.rates = lambda t: Rates(0.0, 0.2)
    rig.bridge.take_control(True)
    rig.run(3)
    assert rig.log.controls[-1] is Control.HELD
    assert rig.yaw_rate() == pytest.approx(0.2, rel=0.05)


def test_a_command_for_the_mount_or_a_region_of_interest_ends_steering():
    numbers = (195, 196, 197, 198, 201, 204, 205)  # ROI of each kind, mount configure and control
    for number in numbers:
        rig = steered()
        rig.station.command(number, target=(1, 0))
        rig.run(0.5)
        assert rig.said(f"taken by 255/190 (command {number})") == 1


RETRACT = mav.GIMBAL_MANAGER_FLAGS_RETRACT


@pytest.mark.parametrize(
    "message",
    [
        mav.MAVLink_gimbal_manager_set_attitude_message(1, 0, RETRACT, 0, (NAN,) * 4, NAN, NAN, NAN),
        mav.MAVLink_gimbal_manager_set_manual_control_message(1, 0, 12, 0, NAN, NAN, 0.0, 0.5),
    ],
    ids=["retract", "manual"],
)
def test_a_retraction_and_a_station_s_stick_end_steering(message):
    rig = steered()
    rig.station.send(message)
    rig.run(0.5)
    assert rig.said(f"taken by 255/190 (message {message.get_msgId()})") == 1


def test_the_pilots_stick_has_the_gimbal():
    rig = steered(rc_channels="6 7")
    rig.autopilot.stick(-0.6)
    rig.run(0.05)
    rig.autopilot.stick(-0.6)
    rig.run(0.5)
    rig.autopilot.stick(-0.6)
    assert rig.yaw_rate() == pytest.approx(-0.3, rel=0.05)
    assert rig.said("taken by RC channel 7") == 1


def test_the_pilots_retract_switch_has_the_gimbal():
    rig = steered(rc_channels="8")
    rig.autopilot.channels[7] = 1900
    rig.run(0.5)
    assert rig.said("taken by RC channel 8") == 1
    assert rig.autopilot.primary == (0, 0)


def test_a_channel_within_its_dead_band_and_one_that_is_not_named_end_nothing():
    rig = steered(rc_channels="6 7")
    rig.autopilot.channels[6] = 1590
    rig.autopilot.channels[2] = 2000
    rig.run(1)
    assert rig.log.controls[-1] is Control.HELD
    assert rig.said("taken by") == 0


def test_commands_for_others_and_our_own_end_nothing():
    rig = steered()
    rig.station.command(mav.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW, target=(2, 0))
    rig.station.command(mav.MAV_CMD_DO_SET_MODE, target=(1, 0))
    rig.run(1)
    assert rig.log.controls[-1] is Control.HELD


@pytest.mark.parametrize("channels", ["0", "19", "6,7", "x"])
def test_channels_that_do_not_exist_are_refused(channels):
    with pytest.raises(InputError, match="1 to 18"):
        BridgeConfig(rc_channels=channels)
