"""Keeps a new node from becoming the Fast DDS participant whose number a killed process had.

Other participants may still send to the memory of the killed process, and a new participant with its number
then receives nothing from them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from efftam_ros.package_files import FAST_DDS, middleware
from efftam_ros.ros.common.dead_ports import dead_participants, domain, remove_dead_ports

# Largest number of participant numbers that are occupied at once. To occupy one takes about 0.1 s.
MAX_HELD = 4
RENEWED = "EFFTAM_RENEWED"
"""The environment variable that marks a process which `renew` has started again."""


def may_renew() -> bool:
    """Return whether `renew` can help: the middleware is Fast DDS, and `renew` was not called before."""
    return RENEWED not in os.environ and middleware().startswith(FAST_DDS)


def renew() -> None:
    """Start this program again as another participant, with the same process id and arguments.

    ROS must have been shut down before. This function does not return.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[RENEWED] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


@contextmanager
def apart_from_the_dead(name: str) -> Iterator[None]:
    """Occupy the numbers of killed participants, so that a node made in this context gets another number.

    After `renew`, the number that this process had before is occupied as well. ``name``: name of the node.
    """
    with ExitStack() as held:
        if middleware().startswith(FAST_DDS):
            remove_dead_ports(domain())
            if RENEWED in os.environ:
                held.enter_context(_held(name))
            for _ in range(MAX_HELD):
                if not dead_participants(domain()):
                    break
                held.enter_context(_held(name))  # a new participant takes the lowest free number
        yield


@contextmanager
def _held(name: str) -> Iterator[None]:
    """Occupy the lowest free participant number while the context lasts, by an extra node of this process."""
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
