"""The bridge as a process of its own, behind stand-in autopilots as processes, seen by MAVSDK."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from free_ports import free_port

from simulation.autopilots.autopilot import CrashError

ROOT = Path(__file__).parents[2]
BRIDGE = [sys.executable, str(ROOT / "test/flight/scripted_bridge.py")]
AUTOPILOT = [sys.executable, "-m", "simulation", "autopilot"]
Start = Callable[..., subprocess.Popen]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen] = []

    def run(*command: str) -> subprocess.Popen:
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield run
    for process in reversed(started):
        process.terminate()
        process.wait(10)


def links(route: str, station: int) -> tuple[list[str], str]:
    """Arguments of the autopilot (none: straight) and the bridge's address."""
    if route == "ardupilot":
        port = free_port(socket.SOCK_STREAM)
        return [route, "--companion", f"tcpin:127.0.0.1:{port}"], f"tcp:127.0.0.1:{port}"
    if route == "px4":
        port = free_port(socket.SOCK_DGRAM)
        return [route, "--companion", f"udpout:127.0.0.1:{port}"], f"udpin:127.0.0.1:{port}"
    return [], f"udpout:127.0.0.1:{station}"


@pytest.mark.parametrize("route", ["straight", "ardupilot", "px4"])
def test_mavsdk_finds_the_camera_and_tracks(start: Start, route: str):
    mavsdk = pytest.importorskip("mavsdk", reason="needs MAVSDK: pip install mavsdk")
    from mavsdk.plugins.camera import Camera

    station = free_port(socket.SOCK_DGRAM)
    autopilot, address = links(route, station)
    if autopilot:
        start(*AUTOPILOT, *autopilot, "--station", f"udpout:127.0.0.1:{station}")
    start(*BRIDGE, address)
    client = mavsdk.Mavsdk(
        mavsdk.Configuration.create_with_component_type(mavsdk.ComponentType.GROUND_STATION)
    )
    try:
        client.add_any_connection(f"udpin://127.0.0.1:{station}")
        camera, found = None, []
        end = time.monotonic() + 30
        while 100 not in found:
            assert time.monotonic() < end, "no camera"
            time.sleep(0.1)
            systems = [s for s in client.get_systems() if s.get_system_id() == 1]
            camera = camera or (Camera(systems[0]) if systems else None)
            found = [c.component_id for c in camera.camera_list().cameras] if camera else []
        # Each raises when it is refused or not answered.
        camera.track_rectangle(100, 0.4, 0.4, 0.6, 0.6)
        camera.track_point(100, 0.5, 0.5, 0.02)
        camera.track_stop(100)
    finally:
        client.destroy()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_bridge_that_ends_over_tcp_leaves_a_gimbal_that_stands(start: Start, number: int):
    """The autopilot drops what it has not read when the connection is closed, and keeps the last rate."""
    autopilot, address = links("ardupilot", 0)
    station = f"udpout:127.0.0.1:{free_port(socket.SOCK_DGRAM)}"
    mount = start(*AUTOPILOT, *autopilot, "--station", station, "--print")
    bridge = start(*BRIDGE, address, "--yaw-rate", "0.2")

    def yaw() -> float:
        return float(mount.stdout.readline().split()[3])

    while yaw() < 5.0:
        pass
    bridge.send_signal(number)
    assert bridge.wait(20) == 0
    yaw()  # perhaps printed before
    assert [yaw() for _ in range(3)] == [yaw()] * 3


def test_the_stand_in_ends_as_the_real_one_does_on_a_nan():
    from flight.rig import Rig

    from efftam_flight.mavlink.dialect import mav

    rig = Rig("ardupilot").run(0.1)
    nan = float("nan")
    rig.station.command(mav.MAV_CMD_SET_MESSAGE_INTERVAL, 285, 1e5, nan, target=(1, 1))
    with pytest.raises(CrashError):
        rig.run(0.1)
