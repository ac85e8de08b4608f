"""Whatever was sent before and whatever restarted: where we do not steer, the gimbal stands and is free.

ArduPilot keeps the last rate for ever, so that a zero which was lost, or never sent, is a gimbal that runs to
its stop. PX4 stops by itself and would keep us in control.
"""

from __future__ import annotations

import math

import pytest
from flight.rig import FLAVOURS, Chase, Peer, Rig

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import Phase
from efftam_flight.mavlink.dialect import mav
from efftam_flight.values import Control, Rates

both = pytest.mark.parametrize("flavour", list(FLAVOURS))
any_gimbal = pytest.mark.parametrize("device", [True, False], ids=["device", "servo"])
# After a boot; until then ArduPilot keeps rates and does not obey them, s.
MOUNT_AWAKE_S = {"ardupilot": 12.0, "px4": 0.0}


def left_in_motion(flavour: str, yaw: float) -> Rig:
    """Steered at this rate, rad/s, until the controller is gone."""
    rig = Rig(flavour).steer(yaw=yaw).run(3)
    rig.rates = lambda t: None
    return rig


def assert_stands(rig: Rig) -> None:
    """Within its stops, and we send it nothing any more."""
    assert abs(rig.mount.yaw) < 0.9 * rig.mount.limits.yaw_max
    assert rig.yaw_rate() == pytest.approx(0.0, abs=1e-3)
    sent = len(rig.wishes())
    rig.run(1.0)
    assert len(rig.wishes()) == sent


def cut(rig: Rig, to_autopilot: bool, from_autopilot: bool) -> None:
    rig.bridge_end.cut, rig.bridge_port.cut = to_autopilot, from_autopilot


@both
@any_gimbal
@pytest.mark.parametrize("away_s", [0.5, 1.0, 2.0])
def test_an_autopilot_that_is_back_soon_is_stopped_and_steering_ends(flavour, device, away_s):
    rig = Rig(flavour, device).steer()
    rig.control.set_enabled(True)
    rig.rates = lambda t: Rates(0.0, 0.05 + 0.1 * math.sin(5 * t))
    rig.run(4)
    rig.autopilot_runs = False
    rig.run(away_s)
    rig.autopilot.restart()
    rig.autopilot_runs = True
    before = len(rig.wishes())
    rig.run(MOUNT_AWAKE_S[flavour] + 3)
    assert sum(yaw != 0.0 for _, yaw in rig.wishes()[before:]) <= 1
    assert rig.control.enabled is False
    assert rig.log.controls[-1] is Control.NOBODY
    assert "restarted" in rig.log.reasons[-1]
    assert_stands(rig)


@both
def test_a_boot_time_that_goes_back_stops_the_gimbal_at_once_and_ends_steering(flavour):
    """Also where the manager of the restarted autopilot says nothing."""
    rig = Rig(flavour).steer(yaw=0.2)
    rig.control.set_enabled(True)
    rig.run(3)
    rig.autopilot.default_intervals = dict
    rig.autopilot.set_interval = lambda *_: mav.MAV_RESULT_DENIED
    rig.autopilot.restart()
    vehicle = Peer(rig.bridge_port, rig.time, (1, 1))
    for boot_ms in (10, 60):
        vehicle.send(mav.MAVLink_global_position_int_message(boot_ms, 0, 0, 0, 0, 0, 0, 0, 0))
        rig.run(0.05)
    assert rig.wishes()[-1] == (0.0, 0.0)
    assert rig.log.controls[-1] is Control.NOBODY
    assert rig.control.enabled is False


@both
def test_a_gimbal_that_we_hold_and_nobody_steers_is_stopped_and_given_back(flavour):
    """Bridge and controller were killed and started again: 281 says that it is ours."""
    rig = left_in_motion(flavour, 0.1)
    rig.begin_bridge_anew()
    rig.run(8)
    assert_stands(rig)
    assert rig.autopilot.primary == (0, 0)


@both
def test_a_gimbal_that_another_takes_and_moves_is_left_to_it(flavour):
    rig = Rig(flavour).steer(yaw=0.1).run(3)
    rig.station_takes()
    wish = mav.MAVLink_gimbal_manager_set_attitude_message(1, 1, 12, 0, (math.nan,) * 4, 0.0, 0.0, -0.15)
    for _ in range(40):
        rig.station.send(wish)
        rig.run(0.1)
    sent = len(rig.wishes())
    for _ in range(10):
        rig.station.send(wish)
        rig.run(0.1)
    assert len(rig.wishes()) == sent
    assert rig.yaw_rate() == pytest.approx(-0.15, rel=0.05)
    assert rig.log.controls[-1] is Control.OTHER
    assert rig.autopilot.primary == (255, 190)
    assert rig.said("steering ends: 255/190 is in control of the gimbal") == 1


@pytest.mark.parametrize("lock", [True, False])
def test_a_gimbal_that_stands_under_a_turning_vehicle_stands(lock):
    """With yaw_lock it stands towards north, without towards the nose; the other angle turns."""
    config = BridgeConfig(yaw_lock=lock)
    turn = 0.3
    rig = Rig("ardupilot", device=False, config=config, vehicle=lambda t: (turn * t, turn))
    rig.steer(yaw=0.1).run(3)
    rig.bridge.take_control(False)
    rig.rates = lambda t: None
    rig.run(2)
    assert rig.autopilot.primary == (0, 0)


@both
def test_the_bridge_ends_when_the_gimbal_stands_and_the_last_bytes_were_read(flavour):
    """ArduPilot drops what it has not read when a TCP connection is closed."""
    rig = left_in_motion(flavour, 0.4)
    rig.end_bridge()
    rig.bridge.step = lambda: None
    rig.run(0.1)
    assert rig.yaw_rate() == pytest.approx(0.0, abs=1e-3)
    assert rig.autopilot.primary == (0, 0)


def test_a_bridge_that_can_not_stop_the_gimbal_ends_nevertheless_and_says_so():
    rig = Rig("ardupilot").steer(yaw=0.1).run(3)
    cut(rig, True, False)
    rig.end_bridge()
    assert rig.said("has not stopped") == 1


def test_a_chase_after_another_enabling_goes_on():
    """Nothing that was left to do from the last time holds up the next."""
    rig = Rig("ardupilot").steer(yaw=0.1).run(3)
    rig.bridge.take_control(False)
    rig.run(0.2)
    chase = Chase(rig, lambda t: (0.2 * math.sin(t), 0.0))
    rig.run(6)
    assert rig.control.tick(rig.time.instant()).phase is Phase.FOLLOWING
    assert rig.autopilot.primary == (1, 100)
    assert chase.figures(after_s=rig.time.t - 2.0)[0] < 1.0


@both
def test_a_gimbal_that_fell_silent_is_not_steered_while_it_is_silent(flavour):
    """PX4 repeats message 281 with a time that stands still: no restart of the autopilot."""
    rig = Rig(flavour)
    chase = Chase(rig, lambda t: (0.2 * math.sin(t), 0.0))
    rig.run(6)
    rig.device.powered = False
    rig.run(0.7)
    sent = len(rig.wishes())
    rig.run(5)
    assert set(rig.wishes()[sent:]) == {(0.0, 0.0)}
    assert rig.said("restarted") == 0
    assert rig.log.alive == [False]
    assert len(rig.sent("COMMAND_LONG")) < 40
    rig.device.powered = True
    rig.run(4)
    assert rig.control.tick(rig.time.instant()).phase is Phase.FOLLOWING
    assert chase.figures(after_s=rig.time.t - 1.0)[0] < 1.0


def device_intervals(rig: Rig) -> list[tuple[int, float]]:
    """Intervals of the attitude that were asked for: of which component, us."""
    asked = [m for m in rig.commands(mav.MAV_CMD_SET_MESSAGE_INTERVAL) if m.param1 == 285]
    return [(m.target_component, m.param2) for m in asked]


def copies_of(rig: Rig) -> dict[int, float]:
    """What the autopilot sends the bridge by itself, with its intervals, s."""
    return rig.autopilot.ports["companion"].intervals


@both
def test_an_obedient_gimbal_keeps_its_rate_and_the_autopilots_copy_is_cancelled(flavour):
    rig = Rig(flavour).run(4)
    before = len(rig.log.samples)
    rig.run(2)
    assert len(rig.log.samples) - before == pytest.approx(100, abs=2)
    copy = mav.MAVLINK_MSG_ID_GIMBAL_DEVICE_ATTITUDE_STATUS
    assert copy not in copies_of(rig)
    rig.autopilot.restart()
    rig.device.powered = False
    rig.run(2)
    assert copies_of(rig)[copy] == pytest.approx(0.02)
    rig.device.powered = True
    rig.run(3)
    assert copy not in copies_of(rig)
    before = len(rig.log.samples)
    rig.run(2)
    assert len(rig.log.samples) - before == pytest.approx(100, abs=2)
    assert {interval for component, interval in device_intervals(rig) if component == 154} == {20_000}


@both
def test_a_gimbal_that_tells_no_time_is_followed_by_its_arrivals_and_not_called_silent(flavour):
    rig = Rig(flavour)
    rig.device.tells_time = False
    chase = Chase(rig, lambda t: (0.2 * math.sin(t), 0.0))
    rig.run(9)
    assert chase.figures()[0] < 1.0
    assert rig.control.tick(rig.time.instant()).phase is Phase.FOLLOWING
    assert rig.said("silent") == 0
    assert rig.said("carries no time") == 1
    rig.device.powered = False
    rig.run(1)
    assert rig.log.alive == [False]
