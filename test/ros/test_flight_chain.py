"""The whole chain as processes, camera and tracker too: what the gimbal does when one of them is killed."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="ROS 2 is not installed")
pytest.importorskip("pymavlink", reason="needs MAVLink: pip install 'efftam_ros[mavlink]'")
pytest.importorskip("efftam_ros.msg", reason="the messages are not built")

from efftam_ros.msg import BoundingBox, GimbalStatus
from flight_rig import Listener, Rig, wait
from level_pipeline import HEIGHT, WIDTH
from ros_helpers import new_namespace, tracker_command

from efftam_ros.flight.mavlink.dialect import mav

pytestmark = pytest.mark.ros

CAMERA = str(Path(__file__).parent / "level_camera.py")
# PX4 stops a gimbal that nobody speaks for by itself after so long, s.
PX4_SILENCE_S = 2.0


class Operator(Listener):
    """Sees the boxes, enables steering."""

    def __init__(self, namespace: str) -> None:
        super().__init__("operator", namespace)
        self.boxes: list[BoundingBox] = []
        self.node.create_subscription(BoundingBox, "bbox", self.boxes.append, 10)
        self.start()


class Chain(Rig):
    """With the tracker's node, whose network is replaced, and a camera that the gimbal turns."""

    def __init__(self, namespace: str, start, flavour: str) -> None:
        super().__init__(namespace, start, Operator, flavour)
        self.camera = start([sys.executable, CAMERA, "--ros-args", "-r", f"__ns:=/{namespace}"])
        self.tracker_process = start(tracker_command(namespace))

    def follow(self) -> Chain:
        """Draw a box at the station, enable steering, wait until the gimbal turns after the target."""
        boxes = self.tracker.boxes
        wait(lambda: boxes, "the tracker's boxes")
        command = mav.MAV_CMD_CAMERA_TRACK_RECTANGLE
        # The target swings: it is where one looks for it now and then.
        middle = (0.5 - 30 / WIDTH, 0.5 - 30 / HEIGHT, 0.5 + 30 / WIDTH, 0.5 + 30 / HEIGHT)

        def tracked():
            if boxes[-1].state in (BoundingBox.IDLE, BoundingBox.LOST) and not self.wire.turns():
                self.station.command(command, *middle)
                time.sleep(0.3)
            return boxes[-1].state == BoundingBox.TRACKING

        wait(tracked, "the state TRACKING")
        super().follow()
        wait(lambda: abs(self.wire.rates()[-1][1]) > 0.2, "a gimbal that turns")
        return self


@pytest.fixture
def chain(processes, request):
    made = Chain(new_namespace(), processes, getattr(request, "param", "px4"))
    try:
        yield made.ready().follow()
    finally:
        made.close()


def seconds_until_zero(chain: Chain, before: float) -> float:
    wait(chain.wire.stands, "zero on the wire")
    stood = next(at for at, rate in chain.wire.rates() if at >= before and rate == 0.0)
    assert not any(rate for at, rate in chain.wire.rates() if at > stood)
    return stood - before


@pytest.mark.parametrize("victim", ["camera", "tracker_process"])
def test_zero_rates_follow_when_it_is_killed(chain, victim, record_property):
    before = time.monotonic()
    getattr(chain, victim).send(signal.SIGKILL)
    seconds = seconds_until_zero(chain, before)
    record_property("seconds_until_zero", round(seconds, 3))
    print(f"{victim} killed: zero on the wire after {seconds:.3f} s")
    assert chain.tracker.statuses[-1].phase == GimbalStatus.HOLDING
    wait(chain.wire.gimbal_stands, "the gimbal to stand")
    for process in (chain.gimbal, chain.bridge):
        assert "Traceback" not in process.output


def bridge_killed(chain):
    chain.bridge.send(signal.SIGKILL)


def link_cut(chain):
    chain.wire.cut = True


@pytest.mark.parametrize("end", [bridge_killed, link_cut], ids=lambda f: f.__name__)
def test_px4_stops_by_its_own_time_out_when_nothing_arrives_any_more(chain, end):
    end(chain)
    before = time.monotonic()
    wait(chain.wire.gimbal_stands, "the gimbal to stand", 2 * PX4_SILENCE_S + 1.0)
    assert time.monotonic() - before > 0.5 * PX4_SILENCE_S


@pytest.mark.parametrize("chain", ["ardupilot"], indirect=True)
def test_ardupilot_goes_on_with_the_last_rate_when_nothing_arrives_any_more(chain):
    """The reason for the mount's limits: only they end it."""
    chain.wire.cut = True
    time.sleep(1.5 * PX4_SILENCE_S)
    yaws = list(chain.wire.yaws)
    assert abs(yaws[-1][1] - yaws[-10][1]) > 1e-3 or abs(yaws[-1][1]) > 2.0
