"""Whoever else moves the gimbal ends our steering: ArduPilot obeys who spoke last, and we speak at 50 Hz."""

from __future__ import annotations

import math

import pytest
from flight.rig import Rig

from efftam_ros.flight.bridge_config import BridgeConfig
from efftam_ros.flight.mavlink.dialect import mav
from efftam_ros.flight.mavlink.framing import Decoder, Encoder
from efftam_ros.flight.mavlink.gimbal_holder import Rivals
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


WISH, MANUAL = (
    mav.MAVLink_gimbal_manager_set_attitude_message,
    mav.MAVLink_gimbal_manager_set_manual_control_message,
)
RETRACTED = (mav.GIMBAL_MANAGER_FLAGS_RETRACT, 0, (NAN,) * 4, NAN, NAN, NAN)


def command(number: int, target: tuple[int, int] = (1, 0)) -> object:
    return mav.MAVLink_command_long_message(*target, number, 0, *[0.0] * 7)


def channels(**moved: int) -> object:
    values = {f"chan{number}_raw": 1500 for number in range(1, 19)}
    return mav.MAVLink_rc_channels_message(0, 18, **{**values, **moved}, rssi=0)


@pytest.mark.parametrize(
    ("sender", "message", "is_rival"),
    [
        # ROI of each kind, mount configure and control
        *(((255, 190), command(number), True) for number in (195, 196, 197, 198, 201, 204, 205)),
        ((255, 190), WISH(1, 0, *RETRACTED), True),
        ((255, 190), MANUAL(1, 0, 12, 0, NAN, NAN, 0.0, 0.5), True),
        ((255, 190), WISH(1, 1, *RETRACTED), True),
        ((255, 190), WISH(2, 0, *RETRACTED), False),  # to another vehicle
        ((255, 190), command(1000, (1, 154)), False),
        ((255, 190), command(mav.MAV_CMD_DO_SET_MODE), False),
        ((1, 100), command(1000), False),  # ours
        ((1, 1), command(1000), False),  # the manager's own
        ((1, 1), channels(chan7_raw=1600), False),  # within the dead band
        ((1, 1), channels(chan7_raw=1601), True),
        ((1, 1), channels(chan7_raw=1399), True),
        ((1, 1), channels(chan7_raw=65535), False),  # there is none
        ((1, 1), channels(chan3_raw=2000), False),  # it is not named
        ((1, 191), channels(chan7_raw=2000), False),
    ],
)
def test_who_else_moves_the_gimbal(sender, message, is_rival):
    rivals = Rivals((1, 100), 1, (6, 7), 100)

    def name(sent: object, of: tuple[int, int]) -> str:
        (heard,) = Decoder(True).feed(Encoder(*of).encode(sent))
        return rivals.name(heard)

    assert name(channels(), (1, 1)) == ""
    assert bool(name(message, sender)) is is_rival


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
