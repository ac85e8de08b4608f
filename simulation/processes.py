"""Starts and ends the processes of a simulated flight: tracker, gimbal controller, bridge and simulation."""

from __future__ import annotations

import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.package_files import PROFILE_VARIABLES, package_file
from efftam_ros.tools.common.interruption import SIGNALS

NAMESPACE = "flight_demo"
SIMULATION = "simulation"
END_S = 20.0
LOOK_S = 0.2
# For each autopilot, the kind of the bridge's link and of the autopilot's link. PX4 sends to the bridge's UDP
# port; ArduPilot listens at a TCP port.
LINKS = {"px4": ("udpin", "udpout"), "ardupilot": ("tcp", "tcpin")}


def free_port(flavour: str) -> int:
    """Return a UDP port (PX4) or TCP port (ArduPilot) of this computer that is not in use."""
    kind = socket.SOCK_DGRAM if flavour == "px4" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


PACKAGES = {
    "gimbal": "efftam_flight",
    "mavlink": "efftam_flight",
    "position": "efftam_flight",
    "operator": "efftam_operator",
}
"""The Python package of each node that is not in efftam_ros."""


def node_words(name: str, parameters: Mapping[str, object], file: str) -> list[str]:
    """Return the command line that starts the node efftam_NAME in the namespace `NAMESPACE`. ``file``: name
    of a file of parameters in the folder ``config``."""
    # Values are written as JSON, which quotes texts. Without quotes ROS would read "off" as false.
    given = [word for key, value in parameters.items() for word in ("-p", f"{key}:={json.dumps(value)}")]
    package = PACKAGES.get(name, "efftam_ros")
    code = f"import sys; from {package}.ros.main import main; sys.exit(main('efftam_{name}'))"
    shipped = package_file(f"config/{file}")
    files = ["--params-file", str(shipped)] if shipped is not None else []
    return [sys.executable, "-c", code, "--ros-args", *files, "-r", f"__ns:=/{NAMESPACE}", *given]


def ros_environment() -> dict[str, str]:
    """Return environment variables with which processes discover one another, but no others on the network.
    Variables that are set already are kept."""
    profile = package_file("config/fastdds_images.xml")
    defaults = {
        "ROS_DOMAIN_ID": str(random.SystemRandom().randrange(1, 100)),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        **({} if profile is None else dict.fromkeys(PROFILE_VARIABLES, str(profile))),
    }
    return defaults | dict(os.environ)


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used so far, s."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Processes:
    """The processes of a flight. Their output is written to files in the folder ``logs``."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[str]] = {}
        root = str(Path(__file__).resolve().parents[1])
        self._environment = ros_environment()
        self._environment["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])

    def start(self, name: str, command: Sequence[str]) -> None:
        # Each child process gets a session of its own. So Ctrl-C reaches only the parent, which ends the
        # children.
        with self._log(name).open("w") as log:
            self._running[name] = subprocess.Popen(
                command,
                stdout=subprocess.PIPE if name == SIMULATION else log,
                stderr=log,
                text=True,
                env=self._environment,
                start_new_session=True,
            )

    def cpu_s(self) -> dict[str, float]:
        """Return the processor time that each process has used so far, s."""
        return {name: cpu_s(process.pid) for name, process in self._running.items()}

    def words(self) -> Iterator[tuple[str, float]]:
        """Yield each phase that the simulation prints, with the seconds in it, until the simulation has
        ended. Raise InputError if it fails, or if another process ends before it."""
        simulation = self._running[SIMULATION]
        assert simulation.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(simulation.stdout, selectors.EVENT_READ)
            while True:
                if ready.select(LOOK_S):
                    line = simulation.stdout.readline()
                    if not line:
                        break
                    word = json.loads(line)
                    yield word["phase"], word["seconds"]
                    if word["phase"] == "starting":
                        self._check_start()
                    if word["phase"] == "ended":
                        break
                self._check()
        # First those that would report the silence of the simulation.
        self._end([name for name in self._running if name != SIMULATION])
        self._end([SIMULATION])
        if simulation.wait():
            raise InputError(self._why(SIMULATION))

    def close(self) -> None:
        """End all processes."""
        self._end(list(self._running))

    def _end(self, names: Sequence[str]) -> None:
        """End these processes: send SIGINT to all, and SIGKILL to those that still run after 20 s."""
        for number, patience_s in ((signal.SIGINT, END_S), (signal.SIGKILL, END_S)):
            left = [self._running[name] for name in names if self._running[name].poll() is None]
            for process in left:
                process.send_signal(number)
            end_s = time.monotonic() + patience_s
            for process in left:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(end_s - time.monotonic(), 0.1))

    def _check(self) -> None:
        for name, process in self._running.items():
            if name != SIMULATION and process.poll() is not None:
                raise InputError(self._why(name))

    def _check_start(self) -> None:
        """Raise InputError if a node has logged an error. Such a node keeps running and waits for other
        parameters, which it does not get here."""
        for name in self._running:
            for line in self._log(name).read_text(errors="replace").splitlines():
                if line.startswith("[ERROR]"):
                    raise InputError(f"{name}: {line.rpartition(']: ')[2]} (its log: {self._log(name)})")

    def _why(self, name: str) -> str:
        """Return a text with the exit code and the last output of a process that has ended."""
        lines = self._log(name).read_text(errors="replace").strip().splitlines()
        said = lines[-1].strip() if lines else "it printed nothing"
        return f"{name} ended with code {self._running[name].returncode}: {said} (its log: {self._log(name)})"

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"


@contextmanager
def ended_together(processes: Processes) -> Iterator[Processes]:
    """Close the processes when the block ends, even by an exception. Further signals are ignored meanwhile,
    so that no process is left running."""
    try:
        yield processes
    finally:
        before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
        processes.close()
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def spinning(node: Any) -> Iterator[None]:
    """Run a node's callbacks in a thread until the block ends, then destroy the node. The main thread is free
    for other work."""
    from rclpy.executors import SingleThreadedExecutor

    executor = SingleThreadedExecutor()
    executor.add_node(node)
    ended = threading.Event()

    def spin() -> None:
        while not ended.is_set():
            executor.spin_once(timeout_sec=0.1)

    thread = threading.Thread(target=spin, name="ros", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        executor.shutdown()
        node.destroy_node()
