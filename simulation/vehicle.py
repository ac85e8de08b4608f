"""Simulates the camera, the vehicle and the ground station of a flight in one process, for the real nodes.

Tracker, gimbal controller and bridge run as processes of their own. The ground station selects the target and
enables steering; with --manual somebody else does both, for example on the operator's page. This process
prints its phase as lines of JSON. After the flight it sends messages until a signal, so that the nodes can be
ended first. Exit codes: 0; 2 with one line on stderr after an error; 130 after a signal during the flight.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from efftam_ros.ros.common.process import StopFlag
from simulation.autopilots.command import COMPANION, FLAVOURS
from simulation.flight import add_scene_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("flavour", choices=FLAVOURS, help="whose behaviour the autopilot has")
    parser.add_argument("--companion", help="link to the bridge; default: as the real autopilot's")
    text = "folder for pictures and record; default: they are not kept"
    parser.add_argument("--folder", type=Path, metavar="DIR", help=text)
    parser.add_argument(
        "--manual",
        action="store_true",
        help="wait for somebody to select the target and to enable steering; the camera is pointed at the"
        " target until then, and again when steering has been off for 5 s",
    )
    add_scene_arguments(parser)
    parser.add_argument("--namespace", default="", help="namespace of the node")


def run(args: argparse.Namespace) -> int:
    """Fly one flight. Return the exit code 0."""
    with StopFlag() as stop:
        _fly(args, stop)
    return 0


def _fly(args: argparse.Namespace, stop: StopFlag) -> None:
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    from efftam_flight.mavlink.links.opening import connect
    from simulation.autopilots.memory_link import memory_link
    from simulation.autopilots.station import Station
    from simulation.node import SimulationNode
    from simulation.processes import spinning
    from simulation.record import RecordWriter
    from simulation.rendered_flight import RenderedFlight
    from simulation.scenario import Scenario
    from simulation.world import World, WorldConfig

    width, height = args.size
    # The focal length grows with the width, so that the field of view is the same for each size.
    config = WorldConfig(width, height, 450.0 * width / 640, args.renderer, args.seed)
    companion = connect(args.companion or COMPANION[args.flavour])
    # Ground station and autopilot run in this process, so their link is in memory. The bridge is another
    # process, so its link is a socket.
    here, there = memory_link("station", time.monotonic)
    world = World(config)
    record = RecordWriter(args.folder)
    flight = RenderedFlight(world, FLAVOURS[args.flavour], companion, time.monotonic, there, began_s=None)
    rclpy.init(
        args=["--ros-args", "-r", f"__ns:=/{args.namespace}"] if args.namespace else None,
        signal_handler_options=SignalHandlerOptions.NO,
    )
    node = SimulationNode(record, world.intrinsics, width, height)
    try:
        with spinning(node):
            scenario = Scenario(
                flight,
                Station(here, time.monotonic),
                node,
                args.folder,
                args.fps,
                lambda phase, s: print(json.dumps({"phase": phase, "seconds": s}), flush=True),
                lambda: stop.asked,
            )
            if args.manual:
                scenario.run_for_operator(args.seconds)
            else:
                scenario.run(args.seconds)
    finally:
        rclpy.try_shutdown()
        record.close()
        companion.close()
        world.close()
