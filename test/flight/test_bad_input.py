"""What goes wrong on the links and in the vehicle: one line, zero rates where it matters, and on it goes."""

from __future__ import annotations

import math
import re

import pytest
from flight.rig import CONFIGURE, FLAVOURS, Chase, Peer, Rig, in_yaw
from hypothesis import given, settings
from hypothesis import strategies as st

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import Instant, Phase
from efftam_flight.mavlink.dialect import mav
from efftam_flight.mavlink.framing import Decoder, Encoder
from efftam_flight.mavlink.gimbal.attitude_sources import AttitudeSources
from efftam_flight.values import Control
from efftam_ros.core.errors import InputError

both = pytest.mark.parametrize("flavour", list(FLAVOURS))
HANDLED = [
    mav.MAVLink_command_long_message,
    mav.MAVLink_command_int_message,
    mav.MAVLink_command_ack_message,
    mav.MAVLink_heartbeat_message,
    mav.MAVLink_attitude_message,
    mav.MAVLink_distance_sensor_message,
    mav.MAVLink_gimbal_device_attitude_status_message,
    mav.MAVLink_gimbal_manager_status_message,
    mav.MAVLink_gimbal_manager_information_message,
]
WHOLE = {"int8_t": 8, "int16_t": 16, "int32_t": 32, "int64_t": 64}


def a_number(kind: str) -> st.SearchStrategy[float]:
    if kind in ("float", "double"):
        return st.one_of(
            st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e30, -1.0, 275.0, 259.0]),
            st.floats(width=32),
        )
    signed = kind in WHOLE
    bits = WHOLE[kind] if signed else WHOLE[kind.replace("uint", "int").replace("_mavlink_version", "")]
    low = -(2 ** (bits - 1)) if signed else 0
    return st.integers(low, low + 2**bits - 1)


@st.composite
def any_message(draw: st.DrawFn) -> object:
    kind = draw(st.sampled_from(HANDLED))
    values = {}
    for name, field_type in zip(kind.fieldnames, kind.fieldtypes, strict=True):
        length = kind.array_lengths[kind.ordered_fieldnames.index(name)]
        number = a_number(field_type)
        values[name] = draw(st.lists(number, min_size=length, max_size=length) if length else number)
    for name, ours in (("target_system", 1), ("target_component", 100)):
        if name in values and draw(st.booleans()):
            values[name] = ours
    if "command" in values:
        values["command"] = draw(st.sampled_from([511, 512, 521, 1001, 2004, 2005, 2010, 31999]))
    return kind(**values)


@given(
    messages=st.lists(
        st.tuples(any_message(), st.sampled_from([1, 100, 154, 190]), st.sampled_from([1, 255]))
    ),
    cut=st.integers(0, 30),
)
@settings(max_examples=150, deadline=None)
def test_no_message_whatever_its_fields_stops_the_bridge_or_moves_the_gimbal_wildly(messages, cut):
    rig = Rig("px4", device=False)
    rig.steer(yaw=0.1).run(0.1)
    for message, component, system in messages:
        frame = Encoder(system, component).encode(message)
        rig.bridge_end.other.send(frame[: len(frame) - cut] if cut % 3 == 0 else frame)
        rig.run(0.02)
        rig.control.tick(rig.time.instant())
    rig.run(0.1)
    assert all(abs(pitch) + abs(yaw) < 0.11 for pitch, yaw in rig.wishes())
    before = len(rig.sent("HEARTBEAT"))
    rig.run(1.1, step_s=0.02)
    # One a second: 1.1 s may begin just before one.
    assert len(rig.sent("HEARTBEAT")) - before in (1, 2)


def test_an_autopilot_that_falls_silent_is_not_said_to_be_followed():
    """Long before it is given up: since when nothing was heard."""
    rig = Rig("ardupilot")
    Chase(rig, in_yaw)
    rig.run(4)
    rig.autopilot_runs = False
    rig.run(0.6)
    rig.autopilot_runs = True
    rig.run(3.4)  # heard again
    assert rig.control.tick(rig.time.instant()).phase is Phase.FOLLOWING
    rig.autopilot_runs = False
    for silent_s in (0.6, 1.5, 2.5, 4.5):
        rig.run(8 + silent_s - rig.time.t)
        command = rig.control.tick(rig.time.instant())
        assert command.phase is Phase.HOLDING
        (said_s,) = re.findall(r"the autopilot is silent for (\S+) s", command.reason)
        assert silent_s - 1.1 <= float(said_s) <= silent_s + 0.05
    rig.autopilot_runs = True
    rig.run(2)
    told = len(rig.log.controls)
    rig.run(2)
    assert len(rig.log.controls) == told
    assert rig.control.tick(rig.time.instant()).phase is Phase.FOLLOWING


@both
@pytest.mark.parametrize("meanwhile", ["another took it", "restarted"])
def test_control_that_was_lost_while_the_link_was_cut_is_not_taken_back(flavour, meanwhile):
    rig = Rig(flavour).steer(yaw=0.05).run(3)
    rig.bridge_end.cut = rig.bridge_port.cut = True
    rig.run(1)
    if meanwhile == "restarted":
        rig.autopilot.restart()
    else:
        rig.station_takes()
    rig.run(3)
    holder = rig.autopilot.primary
    assert holder == ((0, 0) if meanwhile == "restarted" else (255, 190))
    sent = len(rig.wishes())
    rig.bridge_end.cut = rig.bridge_port.cut = False
    rig.run(14)
    assert rig.autopilot.primary == holder
    assert rig.log.controls[-1] is (Control.NOBODY if meanwhile == "restarted" else Control.OTHER)
    after = rig.wishes()[sent:]
    # To PX4 a zero of one who is not in control is nothing: it stopped by itself.
    assert after or flavour == "px4"
    assert set(after) <= {(0.0, 0.0)}
    assert rig.yaw_rate() == pytest.approx(0.0, abs=1e-3)
    assert rig.said("steering ends") == 1
    rig.bridge.take_control(True)
    rig.run(3)
    assert rig.autopilot.primary == (1, 100)


def test_control_that_is_wanted_anew_during_a_silence_is_taken_after_it():
    """Whoever held the gimbal before."""
    rig = Rig("ardupilot").steer().run(3)
    rig.autopilot_runs = False
    rig.run(4, 0.02)
    rig.bridge.take_control(False)
    rig.bridge.take_control(True)
    rig.autopilot.primary = (0, 0)
    rig.autopilot_runs = True
    rig.run(4, 0.02)
    assert rig.autopilot.primary == (1, 100)


@both
@pytest.mark.parametrize("holder", ["ours", "another's", "nobody's"])
def test_a_bridge_that_was_restarted_takes_the_gimbal_from_nobody(flavour, holder):
    """What says that steering is enabled is latched: it reaches the new bridge, however old it is."""
    rig = Rig(flavour).steer(yaw=0.2).run(3)
    if holder == "nobody's":
        rig.bridge.take_control(False)
        rig.run(1.5)
    elif holder == "another's":
        rig.station_takes()
    rig.run(0.02)
    before = rig.autopilot.primary
    sent = len(rig.wishes())
    rig.begin_bridge_anew()
    rig.bridge.take_control(True, fresh=False)
    rig.run(2)
    assert rig.autopilot.primary == before
    assert (len(rig.wishes()) > sent) is (holder == "ours")
    rig.run(4)
    if holder == "another's":
        assert rig.autopilot.primary == (255, 190)
        assert len(rig.wishes()) == sent
        assert rig.said("255/190 is in control of the gimbal: steering was enabled before") == 1
        rig.bridge.take_control(True)
        rig.run(3)
    assert rig.autopilot.primary == (1, 100)
    assert rig.yaw_rate() == pytest.approx(0.2, rel=0.05)


def other_mount(rig: Rig, number: int) -> None:
    """ArduPilot sends status, limits and attitude of every mount, all from component 1: here those of one
    that nobody moves."""
    step = rig.after_step
    peer = Peer(rig.bridge_port, rig.time, (1, 1))

    def send() -> None:
        step()
        boot_ms = rig.autopilot.boot_ms(rig.time.t)
        q = (math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))
        if round(rig.time.t * 500) % 10 == 0:
            peer.send(
                mav.MAVLink_gimbal_device_attitude_status_message(
                    0, 0, boot_ms, 44, q, math.nan, math.nan, math.nan, 0, gimbal_device_id=number
                )
            )
        if round(rig.time.t * 500) % 100 == 0:
            peer.send(mav.MAVLink_gimbal_manager_status_message(boot_ms, 12, number, 0, 0, 0, 0))
            peer.send(
                mav.MAVLink_gimbal_manager_information_message(
                    boot_ms, 0, number, 0.0, 0.0, -0.1, 0.1, -0.1, 0.1
                )
            )

    rig.after_step = send


def assert_one_of_two_is_steered(rig: Rig, other: int) -> None:
    loop = Chase(rig, in_yaw)
    other_mount(rig, other)
    rig.run(14)
    assert rig.control.tick(rig.time.instant()).phase is Phase.FOLLOWING
    assert loop.figures(after_s=8.0)[0] < 2.0
    assert all(limits.yaw_max > 1.0 for limits in rig.log.limits_seen)


def test_of_two_gimbals_behind_one_autopilot_the_first_is_steered_and_believed():
    rig = Rig("ardupilot", device=False)
    assert_one_of_two_is_steered(rig, other=2)
    assert Control.NOBODY not in rig.log.controls[1:]
    assert rig.sent("GIMBAL_MANAGER_SET_ATTITUDE")[-1].gimbal_device_id == 1
    assert rig.said("number 1 is steered") == 1


def be_second(rig: Rig) -> None:
    """From now on the autopilot's mount has the number 2."""
    send, obey = rig.autopilot.send, rig.autopilot.on_gimbal_wish

    def send_as_second(port, message):
        if hasattr(message, "gimbal_device_id"):
            message.gimbal_device_id = 2
        return send(port, message)

    def obey_as_second(message):
        if message.gimbal_device_id in (0, 2):
            message.gimbal_device_id = 1
            obey(message)

    rig.autopilot.send, rig.autopilot.on_gimbal_wish = send_as_second, obey_as_second


@pytest.mark.parametrize("number", [2, 171])
def test_of_two_gimbals_the_chosen_one_is_steered_and_believed(number):
    """By its number or by its component. Nothing goes to the other, also before both were heard."""
    rig = Rig("ardupilot", device=False, config=BridgeConfig(gimbal_device_id=number))
    be_second(rig)
    assert_one_of_two_is_steered(rig, other=1)
    assert {m.gimbal_device_id for m in rig.sent("GIMBAL_MANAGER_SET_ATTITUDE")} == {2}
    assert {m.param7 for m in rig.commands(CONFIGURE)} == {2.0}
    assert rig.said("several gimbals") == 0


def test_a_gimbal_that_has_another_number_after_a_restart_is_steered_and_believed():
    rig = Rig("ardupilot", device=False).run(3)
    be_second(rig)
    rig.autopilot.restart()
    rig.run(12, 0.02)  # until it drives its mount
    seen = len(rig.log.samples)
    rig.steer(yaw=0.2).run(3)
    assert rig.log.controls[-1] is Control.HELD
    assert rig.yaw_rate() == pytest.approx(0.2, rel=0.05)
    assert len(rig.log.samples) > seen + 100
    assert rig.said("several gimbals") == 0


@pytest.mark.parametrize("number", range(256))
def test_a_gimbal_device_id_is_one_whose_attitude_can_be_believed_or_is_refused(number):
    if number in (*range(7), 154, *range(171, 176)):
        sources = AttitudeSources(1, BridgeConfig(gimbal_device_id=number).gimbal_device_id)
        component = {0: 154, 1: 154, 2: 171, 6: 175}.get(number, number)
        message = mav.MAVLink_gimbal_device_attitude_status_message(
            0, 0, 10, 44, (1, 0, 0, 0), math.nan, math.nan, math.nan, 0
        )
        if component > 6:
            (heard,) = Decoder(True).feed(Encoder(1, component).encode(message))
            assert sources.take(heard, Instant(0, 0.0)) is not None
        return
    with pytest.raises(InputError) as refused:
        BridgeConfig(gimbal_device_id=number)
    for allowed in (str(number), "154", "171 to 175", "1 to 6"):
        assert allowed in str(refused.value)


def test_a_command_for_the_other_of_two_gimbals_does_not_end_steering():
    rig = Rig("ardupilot", device=False)
    loop = Chase(rig, in_yaw)
    other_mount(rig, 2)
    rig.run(6)
    rig.station.heartbeat()
    rig.run(1)
    for number in (2.0, 171.0):
        rig.station.command(1000, math.nan, math.nan, 0.0, 10.0, 0.0, 0.0, number, target=(1, 0))
        rig.run(0.5)
    rig.run(3)
    assert rig.said("took control") == 0
    assert loop.figures(after_s=rig.time.t - 3.0)[0] < 2.0
    rig.station.command(1000, math.nan, math.nan, 0.0, 10.0, 0.0, 0.0, 1.0, target=(1, 0))
    rig.run(0.5)
    assert rig.said("255/190 (command 1000) took control") == 1


@pytest.mark.parametrize(
    ("value", "reports"), [(4, 0), (0, 1), (-1, 1), (None, 0)], ids=["right", "sticks", "off", "silent"]
)
@pytest.mark.parametrize("is_early", [True, False], ids=["enabled at once", "enabled later"])
def test_a_parameter_of_px4_that_breaks_a_promise_is_named_when_steering_is_enabled(value, reports, is_early):
    rig = Rig("px4")
    if value is not None:
        rig.autopilot.parameters["MNT_MODE_IN"] = value
    if not is_early:
        rig.run(3)
        assert rig.said("MNT_MODE_IN") == 0
    rig.steer().run(3)
    lines = [text for _, text in rig.lines if "MNT_MODE_IN" in text]
    assert len(lines) == reports
    for line in lines:
        assert f"is {value}" in line
        assert "param set MNT_MODE_IN 4" in line
    asked = rig.sent("PARAM_REQUEST_READ")
    rig.run(6)
    assert len(rig.sent("PARAM_REQUEST_READ")) - len(asked) <= (5 if value is None else 0)


def test_no_parameter_is_asked_of_ardupilot():
    assert Rig("ardupilot").steer().run(3).sent("PARAM_REQUEST_READ") == []


def second_bridge(rig: Rig) -> None:
    """Another bridge of our ids, heard by way of the autopilot."""
    beat = mav.MAVLink_heartbeat_message(mav.MAV_TYPE_CAMERA, mav.MAV_AUTOPILOT_INVALID, 0, 77, 4, 3)
    Peer(rig.bridge_port, rig.time, (1, 100)).send(beat)
    rig.run(0.1)


def test_the_later_of_two_bridges_of_one_id_ends_and_sends_the_gimbal_nothing():
    rig = Rig("px4").run(1)
    second_bridge(rig)
    for part in ("1/100", "component_id", "100 to 105"):
        assert part in rig.bridge.refusal
    sent = len(rig.wishes()) + len(rig.commands(CONFIGURE))
    rig.end_bridge()
    assert len(rig.wishes()) + len(rig.commands(CONFIGURE)) == sent


def test_the_earlier_of_two_bridges_of_one_id_goes_on_and_names_the_other_once():
    rig = Rig("px4").steer().run(6)
    for _ in range(3):
        second_bridge(rig)
    assert rig.bridge.refusal == ""
    assert rig.said("another camera has the ids 1/100") == 1
    assert rig.yaw_rate() == pytest.approx(0.2, rel=0.05)


def test_a_link_that_returns_what_is_sent_is_no_second_bridge():
    rig = Rig("px4").run(1)
    for data in list(rig.bridge_end.sent):
        rig.bridge_port.send(data)
    rig.run(0.1)
    assert rig.bridge.refusal == ""
    assert rig.said("returns the messages that this bridge sends") == 1


@pytest.mark.parametrize(("is_signed", "reports"), [(True, 1), (False, 0)])
def test_a_bridge_without_a_key_says_that_the_autopilot_signs(is_signed, reports):
    rig = Rig("ardupilot")
    for port in rig.autopilot.ports.values():
        port.encoder._mav.signing.secret_key = bytes(32)
        port.encoder._mav.signing.sign_outgoing = is_signed
    rig.run(3, 0.02)
    assert rig.said("signing_key") == reports


@pytest.mark.parametrize(
    ("flavour", "channels", "reports"), [("ardupilot", "", 1), ("ardupilot", "6 7", 0), ("px4", "", 0)]
)
def test_a_stick_that_the_rates_override_is_named_when_steering_is_enabled(flavour, channels, reports):
    rig = Rig(flavour, config=BridgeConfig(rc_channels=channels))
    rig.run(3)
    assert rig.said("rc_channels is empty") == 0
    rig.steer().run(3)
    assert rig.said("rc_channels is empty") == reports
