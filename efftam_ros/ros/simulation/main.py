"""A rendered flight as a process; prints its phase as lines of JSON, leaves pictures and a record.

    python3 -m efftam_ros.ros.simulation.main px4 --companion udpout:127.0.0.1:14540 --folder FOLDER

Pictures and record go to the folder; tracker, gimbal controller and bridge run beside it. Exit codes: 0, 2
with one line on stderr, 130 after a signal.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from efftam_ros.core.errors import InputError
from efftam_ros.flight.simulation.run_autopilot import COMPANION, FLAVOURS
from efftam_ros.ros.common.signals import StopFlag


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("flavour", choices=FLAVOURS, help="whose behaviour the autopilot has")
    parser.add_argument("--companion", help="link to the bridge; default: as the real autopilot's")
    parser.add_argument("--folder", type=Path, required=True, help="takes pictures and record")
    parser.add_argument("--seconds", type=float, default=60.0, help="of following the target")
    parser.add_argument("--fps", type=float, default=30.0, help="pictures per second")
    parser.add_argument("--size", type=int, nargs=2, default=(640, 360), help="of the pictures, px")
    parser.add_argument("--renderer", default="p3tinydisplay", help="panda3d's display module")
    parser.add_argument("--seed", type=int, default=4, help="places houses and trees")
    parser.add_argument("--namespace", default="", help="of the node")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fly once; returns the exit code."""
    args = parse(arguments)
    with StopFlag() as stop:
        try:
            _fly(args, stop)
        except InputError as error:
            print(f"simulation: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 130
    return 0


def _fly(args: argparse.Namespace, stop: StopFlag) -> None:
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    from efftam_ros.flight.mavlink.connection import connect
    from efftam_ros.flight.simulation.memory_link import memory_link
    from efftam_ros.flight.simulation.record import RecordWriter
    from efftam_ros.flight.simulation.rendered_flight import RenderedFlight
    from efftam_ros.flight.simulation.station import Station
    from efftam_ros.flight.simulation.world import World, WorldConfig
    from efftam_ros.ros.common.spinning import spinning
    from efftam_ros.ros.simulation.node import SimulationNode
    from efftam_ros.ros.simulation.scenario import Scenario

    width, height = args.size
    # The field of view stays, whatever the size.
    config = WorldConfig(width, height, 450.0 * width / 640, args.renderer, args.seed)
    companion = connect(args.companion or COMPANION[args.flavour])
    # Ground station and autopilot share this process; the bridge is reached through a socket.
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
            scenario.run(args.seconds)
    finally:
        rclpy.try_shutdown()
        record.close()
        companion.close()
        world.close()


if __name__ == "__main__":
    sys.exit(main())
