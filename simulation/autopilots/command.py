"""Runs a stand-in autopilot with a gimbal in real time, on the ports that the real autopilots use.

PX4 sends to a ground station on UDP port 14550 and to a companion computer on UDP port 14540. ArduPilot sends
to a ground station on UDP port 14550 and listens for a companion computer on TCP port 5762.
"""

from __future__ import annotations

import argparse
import math
import signal
import time

from efftam_flight.mavlink.links.connection import Connection, Piece
from efftam_flight.mavlink.links.opening import connect
from efftam_flight.mavlink.links.tcp import TcpIn
from efftam_ros.tools.common.interruption import SIGNALS
from simulation.autopilots.ardupilot import ArduPilot
from simulation.autopilots.autopilot import Autopilot, CrashError, Port
from simulation.autopilots.gimbal import GimbalDevice, Mount
from simulation.autopilots.memory_link import memory_link
from simulation.autopilots.px4 import PX4

FLAVOURS: dict[str, type[Autopilot]] = {"ardupilot": ArduPilot, "px4": PX4}
COMPANION = {"ardupilot": "tcpin:127.0.0.1:5762", "px4": "udpout:127.0.0.1:14540"}
STEP_S = 0.002
# Exit code of a process that a floating point exception has killed.
CRASHED = 136


class Hasty(TcpIn):
    """ArduPilot's TCP port. When a peer closes the connection, bytes that ArduPilot has not read are lost."""

    def receive(self) -> list[Piece]:
        return [piece for piece in super().receive() if piece[0] in self._streams]


def companion_link(address: str) -> Connection:
    """Open the link to the bridge with this address."""
    kind, host, port = (address.split(":") + [""] * 2)[:3]
    return Hasty(address, (host, int(port)), time.monotonic) if kind == "tcpin" else connect(address)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flavour", choices=FLAVOURS, help="whose behaviour")
    parser.add_argument(
        "--station", default="udpout:127.0.0.1:14550", help="link to a ground station; default %(default)s"
    )
    parser.add_argument("--companion", help="link to the bridge; default: as the real autopilot's")
    parser.add_argument("--servo", action="store_true", help="a servo mount instead of a MAVLink gimbal")
    parser.add_argument("--print", action="store_true", help="print the gimbal's angles twice a second")


def run(options: argparse.Namespace) -> int:
    """Run until a signal. Return the exit code: 0, or 136 if a message crashed the autopilot."""
    companion = options.companion or COMPANION[options.flavour]
    ports = {"station": Port(connect(options.station)), "companion": Port(companion_link(companion))}
    mount = Mount(lag_s=0.0 if options.servo else 0.05)
    device = None
    if not options.servo:
        device_end, port_end = memory_link("gimbal", time.monotonic)
        ports["gimbal"] = Port(port_end)
        device = GimbalDevice(mount, device_end, time.monotonic, booted_s=time.monotonic() - 40.0)
    autopilot = FLAVOURS[options.flavour](ports, time.monotonic, mount, None if options.servo else "gimbal")
    stopped: list[int] = []
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda n, _: stopped.append(n))
    next_print_s = time.monotonic()
    while not stopped:
        if device is not None:
            device.step()
        try:
            autopilot.step()
        except CrashError as crash:
            print(f"the autopilot crashed: {crash}")
            return CRASHED
        if options.print and time.monotonic() >= next_print_s:
            next_print_s += 0.5
            pitch, yaw = math.degrees(mount.pitch), math.degrees(mount.yaw)
            print(f"pitch {pitch:6.1f} yaw {yaw:6.1f} deg", flush=True)
        time.sleep(STEP_S)
    return 0
