"""The live demo: one command sends the clip as a camera's stream, and starts the ROS 2 nodes and the page."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NoReturn

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.images.camera import open_source
from efftam_ros.package_files import PROFILE_VARIABLES, package_file
from efftam_ros.tools.common.clip_sender import ClipSender
from efftam_ros.tools.common.options import report
from efftam_ros.tools.common.page import show_in_browser

# The nodes of the demo have this namespace, so that they do not disturb a tracker that runs on this computer.
NAMESPACE = "/efftam_demo"
END_S = 10.0  # a node that has not ended this long after SIGINT is killed, s
RUN = "import sys; from {module} import main; sys.exit(main({name!r}, [{name!r}, *sys.argv[1:]]))"
MODULES = {
    "efftam_camera": "efftam_ros.ros.main",
    "efftam_tracker": "efftam_ros.ros.main",
    "efftam_operator": "efftam_operator.ros.main",
}


class Nodes:
    """Starts nodes, each in a process, and ends all of them together. A context manager."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[str]] = {}
        # With this variable ROS discovers nodes on this computer only. The Fast DDS profile enlarges the
        # shared memory of Fast DDS, so that whole images fit.
        self._environment = {"ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST", **os.environ}
        profile = package_file("config/fastdds_images.xml")
        if profile is not None:
            for name in PROFILE_VARIABLES:
                self._environment.setdefault(name, str(profile))

    def __enter__(self) -> Nodes:
        return self

    def start(self, name: str, *parameters: str) -> IO[str]:
        """Start a node and return its standard output.

        ``name``: key of `MODULES`; ``parameters``: NAME:=VALUE each.
        """
        command = [sys.executable, "-c", RUN.format(module=MODULES[name], name=name), "--ros-args"]
        command += ["-r", f"__ns:={NAMESPACE}", "--log-level", "warn"]
        for parameter in parameters:
            command += ["-p", parameter]
        # With a session of its own the node does not receive Ctrl-C. This command receives it and ends all
        # nodes.
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=self._environment, start_new_session=True
        )
        self._running[name] = process
        assert process.stdout is not None
        return process.stdout

    def watch(self) -> NoReturn:
        """Wait for ever. Raises InputError as soon as a node has ended by itself."""
        while True:
            for name, process in self._running.items():
                if process.poll() is not None:
                    raise InputError(
                        f"{name} has ended with code {process.returncode}; see its last lines above"
                    )
            time.sleep(0.2)

    def __exit__(self, *exception: object) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGINT)
        for process in self._running.values():
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def run_live(clip: Path, box: Box, address: str, port: int) -> NoReturn:
    """Run the live demo until Ctrl-C, which raises KeyboardInterrupt.

    Args:
        clip: Folder with video.mp4.
        box: The target in the clip's first frame, px. The page proposes the object at the centre of this box.
        address: IP address that the page's server listens on.
        port: Port of the page; 0: any free port.

    Raises:
        InputError: ROS 2 or the page is not installed, or a node ends by itself.
    """
    _check_packages(clip)
    with ExitStack() as stack:
        nodes = stack.enter_context(Nodes())
        stream = _free_udp_port()
        health = _Health()
        sender = ClipSender(clip / "video.mp4", stream, lambda: health.get("has_target"))
        sender.start()
        stack.callback(sender.close)
        nodes.start("efftam_camera", f"stream:=udp://127.0.0.1:{stream}")
        nodes.start("efftam_tracker")
        output = nodes.start("efftam_operator", f"address:={address}", f"port:={port}")
        _announce(output, health, _point(clip, box))
        nodes.watch()


def _check_packages(clip: Path) -> None:
    for module, what in (("rclpy", "ROS 2"), ("efftam_ros.msg", "the built messages of efftam_ros")):
        if find_spec(module) is None:
            raise InputError(
                f"--live runs nodes and needs {what}: in a checkout run ./scripts/setup_env and then"
                f" `source .venv/setup.bash`; without ROS 2: efftam track {clip / 'video.mp4'} --page"
            )
    if find_spec("aiohttp") is None:
        raise InputError("--live shows the page and needs aiohttp; run: pip install aiohttp")


def _announce(output: IO[str], health: _Health, point: str) -> None:
    """Print the output of the page's node, and explain the demo as soon as the page can be opened.

    ``output``: the node's standard output; ``point``: the parameter from `_point`, which is added to the
    page's address before the address is printed; ``health``: its ``url`` is set to the address of the page's
    status.
    """
    first = ""
    for line in output:
        found = re.search(r"https?://\S+", line)
        if found is not None:
            url = found.group(0)
            proposing = f"{url}{'&' if '#' in url else '#'}{point}"
            line, first = line.replace(url, proposing), first or proposing
            health.url = health.url or url.partition("#")[0] + "health"
            break
        print(line, end="", file=sys.stderr, flush=True)
    if not first:
        return  # the node has ended, which `Nodes.watch` reports
    print(line, end="", file=sys.stderr, flush=True)
    threading.Thread(target=_pass_on, args=(output,), daemon=True).start()
    shown = " in the browser" if show_in_browser(first) else ""
    report(
        f"demo: the page opens{shown} with a car in a dashed box: press Follow. Then the car drives off,"
        " another car that looks the same passes it, and a bridge hides the car. Ctrl-C ends everything."
    )


def _pass_on(output: IO[str]) -> None:
    """Print all further lines of a node's standard output to stderr."""
    for line in output:
        print(line, end="", file=sys.stderr, flush=True)


class _Health:
    """Reads the status (/health) that the server of the page offers. ``url``: its address, "" until known."""

    url = ""

    def get(self, name: str) -> bool:
        """Return one value of the status, converted to bool; False if the server does not answer."""
        if not self.url:
            return False
        try:
            with urllib.request.urlopen(self.url, timeout=1.0) as answer:
                return bool(json.load(answer).get(name))
        except (OSError, ValueError):
            return False


def _point(clip: Path, box: Box) -> str:
    """Return the parameter of the page's address that makes the page propose the object at the centre of
    ``box``.

    The point is given as shares of the image's width and height.
    """
    source = open_source(clip / "video.mp4")
    return f"point={box.cx / source.width:.3f},{box.cy / source.height:.3f}"


def _free_udp_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
