"""The whole chain as processes, camera and tracker too: what the gimbal does when one of them is killed."""

from __future__ import annotations

import math
import signal
import sys
import time
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pymavlink", reason="needs MAVLink: pip install 'efftam_ros[flight]'")
from efftam_ros.msg import BoundingBox, GimbalStatus
from flight_rig import Listener, Rig, wait
from level_pipeline import BRIGHT, HEIGHT, WIDTH
from ros_helpers import new_namespace, tracker_command
from sensor_msgs.msg import Image

from efftam_flight.mavlink.dialect import mav
from efftam_ros.images.message import image_from_message

CAMERA = str(Path(__file__).parent / "level_camera.py")
# PX4 stops a gimbal that nobody speaks for by itself after so long, s.
PX4_SILENCE_S = 2.0


class Operator(Listener):
    """Sees the pictures and the boxes, enables steering."""

    def __init__(self, namespace: str) -> None:
        super().__init__("operator", namespace)
        self.boxes: list[BoundingBox] = []
        self.edges: tuple[float, float, float, float] | None = None  # of what is bright, 0..1
        self.node.create_subscription(BoundingBox, "bbox", self.boxes.append, 10)
        self.node.create_subscription(Image, "image", self._on_image, 1)
        self.start()

    def _on_image(self, message: Image) -> None:
        grey = image_from_message(message).rows.reshape(HEIGHT, WIDTH, 3)[..., 1]
        rows, columns = np.nonzero(grey > BRIGHT - 30)
        self.edges = None
        if columns.size:
            self.edges = (
                columns.min() / WIDTH,
                rows.min() / HEIGHT,
                (columns.max() + 1) / WIDTH,
                (rows.max() + 1) / HEIGHT,
            )


class Chain(Rig):
    """With the tracker's node, whose network is replaced, and a camera that the gimbal turns."""

    def __init__(self, namespace: str, start, flavour: str) -> None:
        # The operator sees the picture at once.
        super().__init__(namespace, start, Operator, flavour, ("-p", "video_latency:=0.0"))
        self.camera = start([sys.executable, CAMERA, "--ros-args", "-r", f"__ns:=/{namespace}"])
        self.tracker_process = start(tracker_command(namespace))

    def follow(self) -> Chain:
        """Draw a box at the station, enable steering, wait until the gimbal turns after the target."""
        operator = self.tracker
        wait(lambda: operator.boxes, "the tracker's boxes")

        def tracked():
            idle = operator.boxes[-1].state in (BoundingBox.IDLE, BoundingBox.LOST)
            if idle and operator.edges is not None:
                self.station.command(mav.MAV_CMD_CAMERA_TRACK_RECTANGLE, *operator.edges)
                time.sleep(0.3)
            return operator.boxes[-1].state == BoundingBox.TRACKING

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


def stands_since(chain: Chain) -> float:
    """When the first of the last zero rates came; infinity while the last rates are others."""
    zeros = list(takewhile(lambda rate: rate[1] == 0.0, reversed(chain.wire.rates())))
    return zeros[-1][0] if len(zeros) > 1 else math.inf


def seconds_until_zero(chain: Chain, before: float) -> float:
    """Time to the zeros that last for a second. On a loaded machine boxes may be late when the process is
    killed: the controller holds, and goes on once."""
    wait(lambda: stands_since(chain) < time.monotonic() - 1.0, "zero on the wire for a second")
    return max(0.0, stands_since(chain) - before)


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


def test_px4_stops_by_its_own_time_out_when_nothing_arrives_any_more(chain):
    chain.bridge.send(signal.SIGKILL)
    wait(chain.wire.gimbal_stands, "the gimbal to stand", 2 * PX4_SILENCE_S + 1.0)
    # Nobody asked it to.
    assert chain.wire.turns()


@pytest.mark.parametrize("chain", ["ardupilot"], indirect=True)
def test_ardupilot_goes_on_with_the_last_rate_when_nothing_arrives_any_more(chain):
    """The reason for the mount's limits: only they end it."""
    chain.wire.cut = True
    time.sleep(1.5 * PX4_SILENCE_S)
    yaws = [yaw for _, yaw in list(chain.wire.yaws)]
    at_its_stop = abs(yaws[-1]) > 2.0
    assert at_its_stop or abs(yaws[-1] - yaws[-10]) > 1e-3
