"""Gimbal node and bridge as processes, between a stand-in tracker and a stand-in autopilot: who may move the
gimbal, and what the last rate on the wire is when something ends."""

from __future__ import annotations

import math
import re
import signal
import socket
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("pymavlink", reason="needs MAVLink: pip install 'efftam_ros[flight]'")
from efftam_ros.msg import GimbalManager, GimbalStatus, TargetSelection, TargetVelocity
from flight_rig import ROOT, Rig, node_command, wait
from free_ports import free_port
from lifecycle_msgs.msg import Transition
from ros_helpers import Process, new_namespace

from efftam_flight.mavlink.dialect import mav
from efftam_flight.mavlink.framing import Decoder
from efftam_flight.mavlink.links.opening import connect
from efftam_flight.mavlink.signing import Signer
from efftam_flight.ros.gimbal.node import GimbalNode
from efftam_flight.ros.mavlink import MavlinkNode
from efftam_ros.core.errors import InputError
from efftam_ros.images.message import stamp_ns
from efftam_ros.package_files import PROFILE_VARIABLES


@pytest.fixture
def rig(processes):
    made = Rig(new_namespace(), processes)
    try:
        yield made.ready()
    finally:
        made.close()


def tracker_silent(rig):
    rig.tracker.speaks = False


def target_lost(rig):
    rig.tracker.state = TargetVelocity.LOST


def gimbal_deactivated(rig):
    rig.tracker.change_state(Transition.TRANSITION_DEACTIVATE)


def gimbal_terminated(rig):
    rig.gimbal.send(signal.SIGTERM)


def gimbal_hung_up(rig):
    """As the terminal goes, mostly with a broken connection to the companion computer."""
    rig.gimbal.send(signal.SIGHUP)


def gimbal_killed(rig):
    rig.gimbal.send(signal.SIGKILL)


def bridge_terminated(rig):
    rig.bridge.send(signal.SIGTERM)


ENDINGS = [gimbal_deactivated, gimbal_terminated, gimbal_hung_up, gimbal_killed, bridge_terminated]


@pytest.mark.parametrize("end", ENDINGS, ids=lambda f: f.__name__)
def test_the_last_rate_on_the_wire_is_zero(rig, end, record_property):
    stops(rig, end, record_property)


def stops(rig, end, record_property):
    rig.follow()
    before = time.monotonic()
    end(rig)
    wait(rig.wire.stands, "zero on the wire")
    stood = next(at for at, rate in rig.wire.rates() if at >= before and rate == 0.0)
    record_property("seconds_until_zero", round(stood - before, 3))
    print(f"{end.__name__}: zero on the wire after {stood - before:.3f} s")
    time.sleep(1.0)
    assert rig.wire.stands()
    assert not any(rate for at, rate in rig.wire.rates() if at > stood)
    if end not in (gimbal_killed, bridge_terminated):  # said by the controller, not by the bridge's watchdog
        wait(lambda: rig.tracker.rates[-1][1] == 0.0, "the controller's zero")
    if end in (gimbal_deactivated, gimbal_terminated, gimbal_hung_up):  # what is read last is true
        wait(lambda: rig.tracker.statuses[-1].phase == GimbalStatus.OFF, "the controller's last word")
        assert not rig.tracker.statuses[-1].enabled
    if end is target_lost:
        assert "the target is lost" in {status.reason for status in rig.tracker.statuses}
    if end in (gimbal_terminated, gimbal_hung_up, bridge_terminated):
        assert (rig.bridge if end is bridge_terminated else rig.gimbal).wait() == 0
    for process in (rig.gimbal, rig.bridge):
        assert "Traceback" not in process.output


def test_a_killed_bridge_is_noticed(rig):
    rig.follow()
    rig.bridge.send(signal.SIGKILL)
    wait(lambda: "bridge is silent" in rig.tracker.statuses[-1].reason, "the bridge's silence")
    assert rig.tracker.statuses[-1].phase == GimbalStatus.HOLDING
    assert not rig.tracker.statuses[-1].sending


@pytest.mark.parametrize(("make", "line"), [(GimbalNode, "kp: 7.0"), (MavlinkNode, "system_id: 1")])
@pytest.mark.parametrize("namespace", ["drone", ""])
def test_the_shipped_parameter_file_reaches_its_nodes(ros, tmp_path, make, line, namespace):
    name, _, value = line.partition(": ")
    file, text = tmp_path / "flight.yaml", (ROOT / "config" / "flight.yaml").read_text()
    file.write_text(text.replace(f"    {line}\n", f"    {name}: {'-1.0' if '.' in value else '-1'}\n"))
    with pytest.raises(InputError, match=f"parameter {name}: "):
        make(namespace=namespace, cli_args=["--ros-args", "--params-file", str(file)])


@pytest.mark.parametrize(
    ("make", "argument", "words"),
    [
        (MavlinkNode, "links:=udpot:127.0.0.1:14550", "is no MAVLink address"),
        (MavlinkNode, "links:=udpin:127.0.0.1:{taken}", "is another program listening there?"),
        (MavlinkNode, "system_id:=0", "parameter system_id"),
        (MavlinkNode, f"signing_key:={ROOT / 'README.md'}", "chmod 600"),
        (GimbalNode, "kp:=-1.0", "parameter kp"),
    ],
)
def test_a_wrong_parameter_is_refused_at_the_start(ros, make, argument, words):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        taken = free_port()
        sock.bind(("127.0.0.1", taken))
        given = argument.replace("{taken}", str(taken))
        with pytest.raises(InputError, match=re.escape(words)):
            make(namespace=new_namespace(), cli_args=["--ros-args", "-p", given])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", ["efftam_gimbal", "efftam_mavlink"])
def test_with_the_profile_for_flight_a_node_has_no_shared_memory(processes, monkeypatch, name):
    """A process that was killed can't hold it up then."""
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")  # else the profile has no effect
    for variable in PROFILE_VARIABLES:
        monkeypatch.setenv(variable, str(ROOT / "config" / "fastdds_flight.xml"))
    process = processes(node_command(name, new_namespace()))
    wait(lambda: "active" in process.output or "MAVLink on" in process.output, "the node")
    threads = {path.read_text().strip() for path in Path(f"/proc/{process.pid}/task").glob("*/comm")}
    assert any(thread.startswith("dds.udp") for thread in threads), threads
    assert not any("shm" in thread for thread in threads), threads


def test_a_serial_device_that_is_not_there_is_a_warning_and_not_called_open(processes, tmp_path):
    links = f"serial:{tmp_path}/ttyNONE:57600 udpout:127.0.0.1:{free_port()}"
    process = processes(node_command("efftam_mavlink", new_namespace(), "-p", f"links:={links}"))
    wait(lambda: "ttyNONE:57600 can't be opened: No such file" in process.output, "the warning")
    (line,) = [line for line in process.output.splitlines() if "MAVLink on" in line]
    assert "ttyNONE" not in line
    (line,) = [line for line in process.output.splitlines() if "ttyNONE" in line]
    assert "WARN" in line
    process.send(signal.SIGTERM)
    assert process.wait() == 0


def test_with_a_signing_key_what_the_bridge_sends_is_signed_by_it(processes, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for key in (ours, theirs):
        key.write_text("ab" * 32)
        key.chmod(0o600)
    address = f"127.0.0.1:{free_port()}"
    given = ("-p", f"links:=udpout:{address}", "-p", f"signing_key:={theirs}")
    with closing(connect(f"udpin:{address}")) as link:
        process = processes(node_command("efftam_mavlink", new_namespace(), *given))
        decoder = Decoder(True, Signer(ours))
        wait(lambda: [m for _, data in link.receive() for m in decoder.feed(data)], "a signed message")
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    assert int((tmp_path / "theirs.time").read_text()) > 0


# One rig for all tests that end none of its processes. They come last, as it computes while it runs.


@pytest.fixture(scope="module")
def _lasting_rig(ros, tmp_path_factory):
    started: list[Process] = []

    def start(command, **environment):
        started.append(Process(command, tmp_path_factory.mktemp("process") / "log", **environment))
        return started[-1]

    made = Rig(new_namespace(), start)
    try:
        yield made.ready()
    finally:
        made.close()
        for process in started:
            process.end()


@pytest.fixture
def lasting_rig(_lasting_rig):
    """To start its processes costs more than such a test."""
    return _lasting_rig.begin_anew()


@pytest.mark.parametrize("end", [tracker_silent, target_lost], ids=lambda f: f.__name__)
def test_without_a_target_the_last_rate_on_the_wire_is_zero(lasting_rig, end, record_property):
    stops(lasting_rig, end, record_property)


def test_rates_come_at_50_hz_once_enabled_and_not_before(lasting_rig):
    rig = lasting_rig
    time.sleep(1.0)
    assert not any(rate for _, rate in rig.tracker.rates + rig.wire.rates())
    assert rig.tracker.statuses[-1].phase == GimbalStatus.OFF
    rig.follow()
    first = len(rig.tracker.rates)
    wait(lambda: len(rig.tracker.rates) > first + 100, "a hundred rates")
    stamps = [stamp for stamp, _ in rig.tracker.rates[first:]]
    # On a busy machine they come less often, and in bursts.
    assert 0.018 < (stamps[-1] - stamps[0]) / (len(stamps) - 1) < 0.035
    # It follows: the target stays near the axis although it swings by 34 degrees to either side.
    wait(lambda: max(map(abs, rig.tracker.off_axis[-30:])) < math.radians(6), "the gimbal to follow")
    assert rig.tracker.managers[-1].control == GimbalManager.HELD
    assert rig.tracker.managers[-1].pitch_min == pytest.approx(math.radians(-135))
    assert rig.tracker.enable(False).success
    wait(rig.wire.stands, "zero on the wire")


def test_a_box_drawn_at_the_station_reaches_the_tracker_and_its_decision_returns(lasting_rig):
    rig = lasting_rig
    rig.station.command(mav.MAV_CMD_SET_MESSAGE_INTERVAL, 275, 1e5)
    wait(lambda: rig.station.messages("CAMERA_TRACKING_IMAGE_STATUS"), "the tracking status")
    command, stamp = mav.MAV_CMD_CAMERA_TRACK_RECTANGLE, rig.tracker.node.get_clock().now().nanoseconds
    rig.station.command(command, 0.2, 0.3, 0.4, 0.6)
    wait(lambda: rig.station.answers(command), "the station's answer")
    assert rig.station.answers(command)[-1] == mav.MAV_RESULT_ACCEPTED
    (selection,) = rig.tracker.selections
    assert (selection.kind, selection.units) == (TargetSelection.BOX, TargetSelection.NORMALIZED)
    drawn = (selection.x, selection.y, selection.width, selection.height)
    assert drawn == pytest.approx((0.2, 0.3, 0.2, 0.3), abs=1e-6)
    # The picture that was drawn on is 0.2 s older than the command.
    assert stamp - 200_000_000 <= stamp_ns(selection.header.stamp)
    assert stamp_ns(selection.header.stamp) <= rig.tracker.node.get_clock().now().nanoseconds - 200_000_000

    def shown():
        last = rig.station.messages("CAMERA_TRACKING_IMAGE_STATUS")[-1]
        return last.rec_top_x == pytest.approx(0.2, abs=1e-3)

    wait(shown, "the box back at the station")


def station_takes_the_gimbal(rig):
    rig.station.send(
        mav.MAVLink_command_long_message(
            1, 1, mav.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE, 0, 255.0, 190.0, -1.0, -1.0, 0.0, 0.0, 0.0
        )
    )


def test_another_component_that_takes_the_gimbal_ends_steering_until_the_next_yes(lasting_rig):
    rig = lasting_rig
    rig.follow()
    station_takes_the_gimbal(rig)
    wait(lambda: rig.tracker.statuses[-1].phase == GimbalStatus.CONTROL_LOST, "control lost")
    last = rig.tracker.statuses[-1]
    assert not last.enabled
    assert not last.sending
    assert rig.tracker.managers[-1].control == GimbalManager.OTHER
    answer = rig.tracker.enable()
    assert answer.success
    assert answer.message.startswith(
        "enabled; the gimbal turns once control is granted: 255/190 is in control"
    )
    rig.follow()
    wait(lambda: rig.tracker.managers[-1].control == GimbalManager.HELD, "control again")
    assert rig.tracker.enable().message == "steering"


def test_a_bridge_that_comes_back_does_not_take_the_gimbal_from_who_took_it_meanwhile(lasting_rig):
    """The controller's yes is latched: the new bridge hears it before it hears who is in control."""
    rig = lasting_rig
    rig.follow()
    rig.bridge.end()
    station_takes_the_gimbal(rig)
    rig.wire.deaf = True
    rig.bridge = rig.start_bridge()
    wait(lambda: "no message of an autopilot" in rig.bridge.output, "the controller's yes at the new bridge")
    rig.wire.sent.clear()
    rig.wire.deaf = False
    wait(lambda: rig.tracker.statuses[-1].phase == GimbalStatus.CONTROL_LOST, "control lost")
    assert rig.wire.rates() == []
    commands = [m for _, m in rig.wire.sent if m.get_type() == "COMMAND_LONG"]
    assert [m for m in commands if m.command == mav.MAV_CMD_DO_GIMBAL_MANAGER_CONFIGURE] == []
    rig.follow()
    wait(lambda: rig.tracker.managers[-1].control == GimbalManager.HELD, "control again")
