"""Runs the bridge with a tracker that finds whatever it is told to follow: for clients in other processes.

python3 test/flight/scripted_bridge.py udpout:127.0.0.1:14550
python3 test/flight/scripted_bridge.py udpin:127.0.0.1:14540     # behind PX4
python3 test/flight/scripted_bridge.py tcp:127.0.0.1:5762        # behind ArduPilot
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from unittest.mock import Mock

from efftam_flight.bridge_config import BridgeConfig
from efftam_flight.control_config import Instant
from efftam_flight.mavlink.bridge import Bridge
from efftam_flight.mavlink.links.opening import connect
from efftam_flight.values import Rates
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from efftam_ros.messages.bearing import CameraModel, Intrinsics
from efftam_ros.messages.fields import Outcome
from efftam_ros.messages.reports import BoxReport, ResultReport, Selection

WIDTH, HEIGHT = 1280, 720


class ScriptedTracker:
    """Decides 50 ms after a request, then says at 30 Hz that the target is where it was selected."""

    def __init__(self) -> None:
        self.requests: list[tuple[float, Selection]] = []
        self.following: Selection | None = None
        self.selection = 0
        self.due_s = 0.0

    def select(self, request: Selection) -> str | None:
        self.requests.append((time.monotonic(), request))
        return None

    def step(self, bridge: Bridge) -> None:
        if time.monotonic() < self.due_s:
            return
        self.due_s = time.monotonic() + 1 / 30
        due = [r for taken, r in self.requests if time.monotonic() - taken > 0.05]
        self.requests = [(taken, r) for taken, r in self.requests if r not in due]
        for request in due:
            outcome = Outcome.CLEARED
            self.following = None
            if request.box is not None or request.points:
                self.selection += 1
                self.following, outcome = request, Outcome.ACCEPTED
            bridge.selection_result(ResultReport(request.stamp_ns, outcome))
        bridge.track(self.status())

    def status(self) -> BoxReport:
        request, now = self.following, time.time_ns()
        if request is None:
            return BoxReport(now, image_size=(WIDTH, HEIGHT))
        box = request.box or Box.from_centre(*request.points[0], 0.05, 0.05)
        px = Box(box.x * WIDTH, box.y * HEIGHT, box.width * WIDTH, box.height * HEIGHT)
        tracking, size = TrackState.TRACKING, (WIDTH, HEIGHT)
        return BoxReport(now, state=tracking, selection=self.selection, image_size=size, box=px)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", nargs="+", help="links, as efftam_ros writes them")
    parser.add_argument("--yaw-rate", type=float, help="take the gimbal and turn it, rad/s")
    options = parser.parse_args()
    tracker, ended = ScriptedTracker(), threading.Event()
    bridge = Bridge(
        BridgeConfig(),
        [connect(address) for address in options.address],
        tracker,
        Mock(),  # nobody wants to know of the gimbal
        lambda: Instant(time.time_ns(), time.monotonic()),
        lambda severity, text: print(f"{severity.name}: {text}", flush=True),
    )
    bridge.set_camera(CameraModel(Intrinsics(900.0, 900.0, 639.5, 359.5), WIDTH, HEIGHT))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    if options.yaw_rate is not None:
        bridge.take_control(True)
    while not ended.is_set():
        if options.yaw_rate is not None:
            bridge.set_rates(Rates(0.0, options.yaw_rate))
        tracker.step(bridge)
        bridge.poll()
    bridge.close()


if __name__ == "__main__":
    main()
