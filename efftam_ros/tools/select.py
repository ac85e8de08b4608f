"""Select the target of a running tracker, or clear it.

The command needs ROS 2 in the environment, like the node. It prints the node's response. The exit code is 0
if the node accepted the selection, 1 if it refused, and 2 if no node was found or an option is wrong.
"""

from __future__ import annotations

import argparse
import importlib
import re

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError, shown
from efftam_ros.core.targets import NEXT_FREE, STEERED
from efftam_ros.images.source import NS
from efftam_ros.images.stills.folder import read_bgr
from efftam_ros.messages.reports import Selection
from efftam_ros.tools.common.prompts import add_target_arguments, read_box, read_points

CLIENT = "efftam_ros.ros.select_client"
# The names that ROS 2 accepts: no part of a name is empty or begins with a digit.
NAME = r"[A-Za-z_]\w*"
NAMESPACE = rf"({NAME}(/{NAME})*)?"
MAX_SECONDS = 2**31 - 1
"""Largest number of seconds that a builtin_interfaces/Time message can hold."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("target (exactly one)")
    add_target_arguments(what, "the camera image")
    what.add_argument("--clear", action="store_true", help="clear the target")
    parser.add_argument(
        "--target",
        type=int,
        default=STEERED,
        metavar="ID",
        help=f"id of the target to select, add or clear (default {STEERED}: the only or the steered one);"
        f" {NEXT_FREE}: add a target with the next free id, or clear all",
    )
    parser.add_argument(
        "--stamp",
        default="0",
        metavar="S",
        help="stamp of the marked image in s, with all digits of its header (default: the newest image)",
    )
    parser.add_argument("--namespace", default="", metavar="NS", help="namespace of the node")
    parser.add_argument(
        "--node", default="efftam_tracker", metavar="NAME", help="the node's name (default efftam_tracker)"
    )
    parser.add_argument(
        "--wait", type=float, default=5.0, metavar="S", help="time to wait for the node, s (default 5)"
    )


def run(args: argparse.Namespace) -> int:
    namespace = args.namespace.strip("/")
    if not re.fullmatch(NAMESPACE, namespace, re.ASCII):
        raise InputError(
            f"--namespace is {shown(args.namespace)}; give a name of letters, digits and _ such as drone1 or"
            " fleet/drone1"
        )
    if not re.fullmatch(NAME, args.node, re.ASCII):
        raise InputError(
            f"--node is {shown(args.node)}; give a name of letters, digits and _, and its namespace by"
            " --namespace"
        )
    selection, mask = read_selection(args)
    if not 0 <= args.target <= NEXT_FREE:
        raise InputError(
            f"--target is {args.target}; give 0 to {NEXT_FREE - 1}, or {NEXT_FREE}: the next free id, or with"
            " --clear all targets"
        )
    try:
        client = importlib.import_module(CLIENT)  # this import loads ROS 2
    except ImportError as error:
        raise InputError(
            f"ROS 2 or the built messages are not in this environment ({error}); source .venv/setup.bash, or"
            " your ROS 2 and install/setup.bash"
        ) from None
    return int(client.ask(selection, mask, args.target, args.node, namespace, args.wait))


def read_selection(args: argparse.Namespace) -> tuple[Selection | None, NDArray[np.uint8] | None]:
    """Return the selection that the options describe (None: clear the target), and the mask of the selection
    or None.

    The mask is uint8 [H, W]. Raises InputError: none or several of the options, invalid numbers, an
    unreadable mask.
    """
    given = [f"--{name}" for name in ("box", "point", "mask", "clear") if getattr(args, name)]
    if len(given) != 1:
        got = " and ".join(given) or "nothing"
        raise InputError(f"{got} was given; give one of --box, --point, --mask, --clear")
    if not re.fullmatch(r"\d{1,10}(\.\d{1,9})?", args.stamp):
        raise InputError(f"--stamp {shown(args.stamp)} is not in seconds, such as 1700000000.123456789")
    whole, _, fraction = args.stamp.partition(".")
    if int(whole) > MAX_SECONDS:
        raise InputError(f"--stamp is {args.stamp} s; a stamp has at most {MAX_SECONDS} s")
    if args.clear:
        return None, None
    points, labels = read_points(args.point)
    selection = Selection(
        stamp_ns=int(whole) * NS + int(fraction.ljust(9, "0")),
        target_id=args.target,
        box=read_box(args.box) if args.box else None,
        points=tuple(points),
        labels=tuple(labels),
    )
    return selection, read_bgr(args.mask).max(axis=2) if args.mask else None
