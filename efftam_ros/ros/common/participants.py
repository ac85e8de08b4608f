"""Chooses the DDS participant that a node becomes: with Fast DDS none whose number a killed process had.

Others may go on sending to the memory of the killed process, and the new one then gets nothing from them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from efftam_ros.package_files import FAST_DDS, middleware
from efftam_ros.ros.common.dead_ports import dead_participants, domain, remove_dead_ports

# Most numbers that are held at a time: each takes a tenth of a second.
MAX_HELD = 4
RENEWED = "EFFTAM_RENEWED"
"""Set in the environment of a process that has taken another participant's number already."""


def may_renew() -> bool:
    """Return whether another number is worth a try: once, and where the middleware has numbers."""
    return RENEWED not in os.environ and middleware().startswith(FAST_DDS)


def renew() -> None:
    """Start this process again, with its number and arguments, as another participant. ROS must have been
    shut down. Does not return."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[RENEWED] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


@contextmanager
def apart_from_the_dead(name: str) -> Iterator[None]:
    """While a node is made in this context, it does not take the number of a killed process, nor the one that
    this process had before `renew`. ``name``: of the node."""
    with ExitStack() as held:
        if middleware().startswith(FAST_DDS):
            remove_dead_ports(domain())
            if RENEWED in os.environ:
                held.enter_context(_held(name))
            for _ in range(MAX_HELD):
                if not dead_participants(domain()):
                    break
                held.enter_context(_held(name))  # it takes the lowest number
        yield


@contextmanager
def _held(name: str) -> Iterator[None]:
    """Be one participant more."""
    import rclpy
    from rclpy.signals import SignalHandlerOptions

    context = rclpy.Context()
    rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node(
        f"{name}_number", context=context, enable_rosout=False, start_parameter_services=False
    )
    try:
        yield
    finally:
        node.destroy_node()
        rclpy.shutdown(context=context)
