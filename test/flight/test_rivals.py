"""Whoever else moves the gimbal ends our steering: ArduPilot obeys who spoke last, and we speak at 50 Hz."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from flight.rig import Rig

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.mavlink.dialect import mav
from efftam_flight.mavlink.framing import Decoder, Encoder
from efftam_flight.mavlink.gimbal.holder import GimbalHolder
from efftam_flight.mavlink.gimbal.rivals import Rivals
from efftam_flight.mavlink.gimbal.stop_sequence import KINDS
from efftam_flight.values import Control, Rates
from efftam_ros.core.reasons import ReasonCode

NAN = math.nan
TAKEN = ReasonCode.TAKEN_BY_OTHER.reason(name="the pilot")


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
    sent = len(rig.wishes())
    assert rig.yaw_rate() == pytest.approx(-0.3, rel=0.05)
    assert len(rig.wishes()) == sent
    assert rig.said(f"255/190 ({what}) took control") == 1
    assert Control.OTHER in rig.log.controls
    assert rig.autopilot.primary == (0, 0)


def test_another_that_moves_the_gimbal_before_it_stands_after_our_end_has_it():
    rig = steered()
    rig.rates = lambda t: None
    rig.bridge.take_control(False)
    for _ in range(20):
        pitchyaw(rig)
        rig.run(0.1)
    assert rig.yaw_rate() == pytest.approx(-0.3, rel=0.05)


def mount_control(rig: Rig) -> None:
    rig.station.command(mav.MAV_CMD_DO_MOUNT_CONTROL, -20.0, 0.0, -30.0, target=(1, 0))


def point_of_interest(rig: Rig) -> None:
    rig.station.command(mav.MAV_CMD_DO_SET_ROI_LOCATION, target=(1, 0))


def old_point_of_interest(rig: Rig) -> None:
    rig.station.command(mav.MAV_CMD_DO_SET_ROI, 3.0, target=(1, 0))


def angles(rig: Rig) -> None:
    rig.station.command(mav.MAV_CMD_DO_GIMBAL_MANAGER_PITCHYAW, -20.0, -30.0, NAN, NAN, target=(1, 0))


def retract_switch(rig: Rig) -> None:
    rig.autopilot.retract()
    rig.run(0.1)
    rig.autopilot.retract()  # overridden by our rates until the channel arrives


THERE = (math.radians(-20.0), math.radians(-30.0))
ANYWHERE = [mount_control, point_of_interest, old_point_of_interest]


@pytest.mark.parametrize("device", [True, False], ids=["device", "servo"])
@pytest.mark.parametrize("is_ended", [False, True], ids=["steering", "stopping"])
@pytest.mark.parametrize(
    ("flavour", "take"),
    [
        *(("ardupilot", take) for take in (*ANYWHERE, angles, retract_switch)),
        *(("px4", take) for take in ANYWHERE),  # obeyed also while we are in control
    ],
)
@pytest.mark.parametrize("ours", [0.1, 0.0], ids=["moving", "creeping"])
def test_what_another_commanded_is_obeyed_and_never_undone(flavour, take, device, is_ended, ours):
    """Also once the gimbal stands where it was sent. ``ours``: amplitude of our rates, rad/s."""
    rig = Rig(flavour, device, config=BridgeConfig(rc_channels="8")).steer()
    rig.rates = lambda t: Rates(0.02, ours * math.sin(3 * t))
    rig.run(4)
    rig.station.heartbeat()
    rig.run(0.508)  # between two of our rates: one that crosses the command would win
    if is_ended:
        rig.rates = lambda t: None
        rig.bridge.take_control(False)
        rig.run(0.05)
    take(rig)
    rig.run(0.1)
    sent = len(rig.wishes())
    rig.run(10)
    where = (math.radians(-80.0), 0.0) if take is retract_switch else THERE
    assert (rig.mount.pitch, rig.mount.yaw) == pytest.approx(where, abs=0.01)
    assert len(rig.wishes()) == sent
    assert rig.autopilot.primary == (0, 0)
    # Somebody who enables steering gets the gimbal back.
    rig.bridge.take_control(True)
    rig.rates = lambda t: Rates(0.0, 0.1)
    rig.run(2)
    assert rig.yaw_rate() == pytest.approx(0.1, rel=0.05)


def test_a_command_that_has_arrived_ends_steering_before_the_next_rate_goes_out():
    """The controller's rate comes between two readings of the links."""
    rig = steered()
    sent = len(rig.wishes())
    pitchyaw(rig)
    rig.time.t += 0.004
    rig.autopilot.step()
    rig.time.t += 0.004
    rig.bridge.set_rates(Rates(0.0, 0.5))
    assert len(rig.wishes()) == sent
    assert rig.log.controls[-1] is Control.OTHER


def test_a_last_rate_of_ours_that_arrives_after_anothers_word_is_stopped():
    rig = steered()
    rig.rates = lambda t: Rates(0.0, 0.2)
    rig.run(0.5)
    pitchyaw(rig)
    rig.run(0.002)
    rig.autopilot._wish = (0.0, 0.2, 0)
    rig.run(3)
    assert rig.yaw_rate() == pytest.approx(0.0, abs=1e-3)


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
        *(((1, 1), channels(chan7_raw=none), False) for none in (0, 65535)),  # there is none
        ((1, 1), channels(chan3_raw=2000), False),  # it is not named
        ((1, 191), channels(chan7_raw=2000), False),
    ],
)
def test_who_else_moves_the_gimbal(sender, message, is_rival):
    rivals = Rivals((1, 100), 1, (6, 7), 100, lambda number: number == 0)

    def name(sent: object, of: tuple[int, int]) -> str:
        (heard,) = Decoder(True).feed(Encoder(*of).encode(sent))
        rival = rivals.find(heard, KINDS[mav.MAV_AUTOPILOT_ARDUPILOTMEGA])
        return "" if rival is None else rival.name

    assert name(channels(), (1, 1)) == ""
    assert bool(name(message, sender)) is is_rival
    rivals.begin()
    assert bool(name(message, sender)) is (is_rival and sender != (1, 1))  # a stick rests where it is then


def test_the_pilots_stick_has_the_gimbal():
    rig = steered(rc_channels="6 7")
    rig.autopilot.stick(-0.6)
    rig.run(0.05)
    rig.autopilot.stick(-0.6)
    rig.run(0.5)
    rig.autopilot.stick(-0.6)
    assert rig.yaw_rate() == pytest.approx(-0.3, rel=0.05)
    assert rig.said("RC channel 7 took control") == 1


def test_a_stick_that_rests_elsewhere_when_steering_is_enabled_again_does_not_end_it():
    rig = steered(rc_channels="7")
    rig.autopilot.stick(-0.6)
    rig.run(1)
    assert rig.log.controls[-1] is not Control.HELD
    rig.bridge.take_control(True)
    rig.run(2)
    assert rig.log.controls[-1] is Control.HELD
    assert rig.said("RC channel 7 took control") == 1


class Held:
    """Who holds the gimbal, second by second; ``asked``: the primary controllers that were asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.told: list[tuple[Control, str]] = []
        self.now_s = 0.0
        self.lines: list[str] = []
        self.holder = GimbalHolder(
            (1, 100),
            self.asked.append,
            lambda *word: self.told.append(word),
            lambda severity, line: self.lines.append(line),
        )
        self.holder.ask(0.0)

    def run(self, seconds: int, by: tuple[int, int] | None = None) -> Held:
        """``by``: whom the manager names each second; None: it says nothing."""
        for _ in range(seconds):
            if by is not None:
                word = SimpleNamespace(primary_control_sysid=by[0], primary_control_compid=by[1])
                self.holder.read(word, self.now_s)
            for _ in range(4):
                self.now_s += 0.25
                self.holder.tick(False, self.now_s)
                self.holder.give_back(self.now_s)
        return self

    def want(self, wanted: bool = True, fresh: bool = True) -> Held:
        self.holder.want(wanted, fresh, self.now_s)
        return self


OURS, THEIRS, NOBODYS = (1, 100), (255, 190), (0, 0)


def test_control_is_asked_for_five_times_each_time_it_is_wanted():
    held = Held()
    assert held.run(8, NOBODYS).asked == []
    for times in (1, 2):
        assert len(held.want().run(2, THEIRS).asked) == 5 * times - 3  # once a second
        assert held.run(7, THEIRS).asked == [OURS] * 5 * times
        assert held.lines == ["the gimbal's manager leaves control with 255/190 after 5 requests"] * times
        held.want(False)


def test_why_steering_ended_is_told_until_it_is_wanted_again():
    held = Held().want().run(2, OURS)
    held.holder.yield_to("the pilot", held.now_s)
    assert held.run(3, OURS).told[-1] == (Control.OTHER, TAKEN)  # whatever the manager says
    assert held.asked[-1] == (-3, -3)
    assert not held.holder.wanted
    control, why = held.run(1, NOBODYS).told[-1]
    assert control is Control.NOBODY
    assert "the pilot" in why
    assert held.want().run(1, OURS).told[-1] == (Control.HELD, "")
    assert "the pilot" not in held.run(1, NOBODYS).told[-1][1]
    assert not held.holder.wanted  # what was held is not taken back
    assert OURS not in held.run(5, NOBODYS).asked[-1:]
    for then in (lambda: held.want(), lambda: held.run(1, NOBODYS)):
        held.want().run(2, OURS).holder.yield_to("the pilot", held.now_s)
        then()
        assert held.run(1, OURS).told[-1] == (Control.HELD, "")


def test_who_took_the_gimbal_has_it_also_once_steering_is_disabled():
    held = Held().want().run(2, OURS)
    held.holder.yield_to("the pilot", held.now_s)
    assert held.want(False).run(2, OURS).told[-1] == (Control.OTHER, TAKEN)


def test_what_is_ours_and_not_wanted_is_given_back_until_the_manager_says_so_or_was_restarted():
    held = Held().want().run(2, OURS).want(False).run(3, OURS)
    assert held.asked.count((-3, -3)) == 3
    assert held.run(3, NOBODYS).asked.count((-3, -3)) == 3
    held.run(1, OURS).holder.on_restart()
    before = len(held.asked)
    assert len(held.run(5).asked) == before
    assert held.told[-1][0] is Control.NOBODY
    assert (held.holder.in_control, held.holder.another) == (False, False)


def test_what_was_asked_for_is_given_back_also_where_the_manager_never_said_who_has_it():
    assert Held().want().run(2).want(False).run(3).asked == [OURS, OURS, (-3, -3)]
    held = Held().want().run(2)
    held.holder.yield_to("the pilot", held.now_s)
    assert not held.holder.wanted


@pytest.mark.parametrize(("by", "is_asked"), [(THEIRS, False), (NOBODYS, True), (OURS, False)])
def test_an_old_wish_waits_for_the_managers_word_and_takes_the_gimbal_from_nobody(by, is_asked):
    held = Held().want(fresh=False).run(2)
    assert held.asked == []
    assert (OURS in held.run(5, by).asked) is is_asked
    assert held.holder.wanted is (by != THEIRS)


@pytest.mark.parametrize(
    ("wanted", "by", "may_steer", "in_control", "another"),
    [
        *((True, OURS, True, True, False), (False, OURS, False, True, False)),
        *((wanted, THEIRS, False, False, True) for wanted in (True, False)),
        *((wanted, NOBODYS, False, False, False) for wanted in (True, False)),
        *((True, None, True, True, False), (False, None, False, True, False)),  # it says nothing
    ],
)
def test_who_is_in_control_by_the_managers_word(wanted, by, may_steer, in_control, another):
    held = Held().want(wanted).run(8, by)
    holder = held.holder
    assert holder.may_steer(False, held.now_s) is may_steer
    assert (holder.in_control, holder.another) == (in_control, another)
    assert bool(held.lines) is (wanted and by in (THEIRS, NOBODYS))  # who says nothing refuses nothing
    told = list(held.told)
    holder.ask(held.now_s)
    assert held.told == told
    released = held.asked.count((-3, -3))
    held.want(False).run(4, by)
    assert (held.asked.count((-3, -3)) > released) is (by == OURS or (by is None and wanted))


@pytest.mark.parametrize(("wanted", "then"), [(True, Control.SILENT), (False, Control.UNKNOWN)])
def test_what_is_held_is_not_asked_for_during_a_silence_and_waited_for_after_it(wanted, then):
    held = Held().want().run(2, OURS).want(wanted)
    held.holder.silent()
    assert OURS not in held.run(3).asked
    held.holder.ask(held.now_s)
    assert held.told[-1][0] is then


@pytest.mark.parametrize("gates", [True, False])
@pytest.mark.parametrize("was_silent", [True, False])
def test_after_a_pause_nothing_moves_before_the_managers_word(gates, was_silent):
    held = Held().want().run(2, OURS)
    assert held.holder.may_steer(gates, held.now_s)
    if was_silent:
        held.holder.silent()
    held.holder.ask(held.now_s)
    assert not held.run(4).holder.may_steer(gates, held.now_s)
    assert held.run(1, OURS).holder.may_steer(gates, held.now_s)


def test_a_manager_that_never_says_who_holds_the_gimbal_is_waited_for_three_seconds_and_not_anew():
    held = Held().want()
    for second in range(1, 6):
        held.run(1).holder.ask(held.now_s)
        assert held.holder.may_steer(False, held.now_s) is (second >= 3)
        assert not held.holder.may_steer(True, held.now_s)


@pytest.mark.parametrize("is_taken", [False, True])
def test_what_is_not_wanted_any_more_or_taken_by_another_is_given_back_at_once(is_taken):
    held = Held().want()
    held.holder.tick(False, 0.1)
    if is_taken:
        held.holder.read(SimpleNamespace(primary_control_sysid=1, primary_control_compid=100), 0.11)
        held.holder.yield_to("the pilot", 0.12)
    else:
        held.want(False)
    held.holder.give_back(0.12)
    assert held.asked == [OURS, (-3, -3)]
