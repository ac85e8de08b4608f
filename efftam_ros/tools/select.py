"""Select the target of a running tracker, or clear it.

Needs ROS 2 in the environment, as the node does, and prints the node's response. Exit code 0: accepted; 1:
the node refused; 2: no node was found.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

from efftam_ros.core.errors import InputError, shown
from efftam_ros.interop.video import read_bgr
from efftam_ros.tools.common.interruption import SIGNALS
from efftam_ros.tools.common.prompts import add_target_arguments, numbers

CLIENT = "efftam_ros.ros.select_client"
# As ROS 2 takes names: no part is empty or begins with a digit.
NAME = r"[A-Za-z_]\w*"
NAMESPACE = rf"({NAME}(/{NAME})*)?"
MOST_SECONDS = 2**31 - 1
"""Largest number of seconds in a stamp."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    what = parser.add_argument_group("target (exactly one)")
    add_target_arguments(what, "the camera image")
    what.add_argument("--clear", action="store_true", help="clear the target")
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
    """Carry out the command; returns the exit code."""
    request = read_request(args)
    # The client unblocks them once it handles them: Ctrl-C reaches it too, even while it is being loaded.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    client = subprocess.Popen([sys.executable, "-m", CLIENT], stdin=subprocess.PIPE, text=True)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        client.communicate(json.dumps(request))
    except KeyboardInterrupt:
        client.terminate()  # the signal may have come to this process alone
        assert client.stdin is not None
        with suppress(OSError):
            client.stdin.close()  # it may be waiting for the request
        client.wait()
        raise
    return client.returncode


def read_request(args: argparse.Namespace) -> dict[str, Any]:
    """The client's request. Raises InputError: not exactly one target, bad numbers or names, an unreadable
    mask."""
    given = [
        name
        for name, value in (
            ("--box", args.box),
            ("--point", args.point),
            ("--mask", args.mask),
            ("--clear", args.clear),
        )
        if value
    ]
    if len(given) != 1:
        got = " and ".join(given) or "nothing"
        raise InputError(f"{got} was given; give one of --box, --point, --mask, --clear")
    if not re.fullmatch(r"\d{1,10}(\.\d{1,9})?", args.stamp):
        raise InputError(f"--stamp {shown(args.stamp)} is not in seconds, such as 1700000000.123456789")
    whole, _, fraction = args.stamp.partition(".")
    if int(whole) > MOST_SECONDS:
        raise InputError(f"--stamp is {args.stamp} s; a stamp has at most {MOST_SECONDS} s")
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
    request: dict[str, Any] = {
        "sec": int(whole),
        "nanosec": int(fraction.ljust(9, "0") or 0),
        "namespace": namespace,
        "node": args.node,
        "wait_s": args.wait,
        "clear": args.clear,
    }
    if args.box:
        request["box"] = numbers("--box", args.box, "X,Y,W,H", (4,))
    if args.point:
        points = [numbers("--point", text, "X,Y or X,Y,0", (2, 3)) for text in args.point]
        request["points"] = [point[:2] for point in points]
        request["labels"] = [int(point[2]) if len(point) == 3 else 1 for point in points]
        if not set(request["labels"]) <= {0, 1}:
            raise InputError(f"--point labels are {request['labels']}; use 1 on the target, 0 off it")
    if args.mask:
        marked = read_bgr(args.mask).max(axis=2)
        request["mask"] = base64.b64encode(marked.tobytes()).decode()
        request["height"], request["width"] = marked.shape
    return request
