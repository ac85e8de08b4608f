"""The node as a process: from the command line to an orderly end.

SIGINT and SIGTERM end it with code 0; pages that are open are told.
"""

from __future__ import annotations

import sys

from efftam_ros.ros.common.signals import StopFlag

# Longest time until a signal is noticed while nothing arrives, s.
PATIENCE_S = 0.1
NAME = "efftam_operator"


def main(args: list[str] | None = None) -> int:
    """Serve the page until a signal; returns the exit code (2: something that the user can mend, named in
    one line)."""
    with StopFlag() as stop:
        try:
            return _run(stop, args)
        except ModuleNotFoundError as error:
            if error.name != "aiohttp":
                raise
            print(f"{NAME}: aiohttp is not installed; apt install python3-aiohttp", file=sys.stderr)
            return 2


def _run(stop: StopFlag, args: list[str] | None) -> int:
    import rclpy
    from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
    from rclpy.signals import SignalHandlerOptions

    from efftam_ros.core.errors import InputError
    from efftam_ros.operator.serving import serving
    from efftam_ros.ros.operator.node import OperatorNode

    try:
        rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:  # a parameter file or an argument that rcl can't read
        print(f"{NAME}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    node = None
    executor = SingleThreadedExecutor()
    try:
        node = OperatorNode()
        executor.add_node(node)
        with serving(node.server) as server:
            # Not logged: the address holds the token, and the log is a topic.
            print(f"{NAME}: open {server.url}", flush=True)
            while not stop.asked:
                executor.spin_once(timeout_sec=PATIENCE_S)
    except InputError as refusal:
        print(f"{NAME}: {refusal}", file=sys.stderr)
        return 2
    except ExternalShutdownException:
        pass
    finally:
        executor.shutdown()
        if node is not None:
            node.destroy_node()
        rclpy.try_shutdown()
    return 0
