"""The system's clock is set by years, forth and back: every node goes on, and ends when it is told to."""

from __future__ import annotations

import shutil
import signal
import struct
import subprocess
from pathlib import Path

import pytest
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from efftam_ros.msg import GimbalManager, GimbalStatus
from flight_rig import node_command, wait
from free_ports import free_port
from operator_page import operator_command
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile
from ros_helpers import new_namespace, tracker_command

YEAR_S = 365 * 86_400
SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    """What shifts the clock of a process that is started with it."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: cc")
    made = tmp_path_factory.mktemp("clock") / "clock_shift.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, SUPPORT / "clock_shift.c", "-ldl"], check=True)
    return made


class Signs:
    """Counts the signs of life of the nodes of a namespace."""

    def __init__(self, namespace: str) -> None:
        self.count, self._namespace = 0, namespace
        self.node = rclpy.create_node("listener", namespace=namespace)
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.node)
        lasting = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)
        self.node.create_subscription(GimbalStatus, "gimbal_status", self._on_sign, 10)
        self.node.create_subscription(GimbalManager, "gimbal_manager", self._on_sign, lasting)

    def _on_diagnostics(self, message) -> None:
        self.count += message.status[0].name.startswith(f"{self._namespace}/")

    def _on_sign(self, message) -> None:
        self.count += 1

    def see(self, more: int) -> None:
        before = self.count

        def seen() -> bool:
            self.executor.spin_once(timeout_sec=0.05)
            return self.count >= before + more

        wait(seen, f"{more} more signs of life")

    def close(self) -> None:
        self.executor.shutdown()
        self.node.destroy_node()


def camera_command(namespace: str) -> list[str]:
    stream = f"stream:=udp://127.0.0.1:{free_port()}"
    return node_command("efftam_camera", namespace, "-p", stream, "-p", "diagnostics_period:=0.2")


COMMANDS = {
    "efftam_tracker": lambda namespace: tracker_command(namespace, "-p", "diagnostics_period:=0.2"),
    "efftam_camera": camera_command,
    "efftam_operator": lambda namespace: operator_command(namespace, "-p", "diagnostics_period:=0.2"),
    "efftam_gimbal": lambda namespace: node_command("efftam_gimbal", namespace),
    "efftam_mavlink": lambda namespace: node_command(
        "efftam_mavlink", namespace, "-p", f"links:=udpin:127.0.0.1:{free_port()}"
    ),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_node_goes_on_and_ends_on_a_signal_whatever_the_clock_is_set_to(processes, library, tmp_path, name):
    namespace, shift = new_namespace(), tmp_path / "shift"
    shift.write_bytes(struct.pack("q", 0))
    signs = Signs(namespace)
    try:
        process = processes(
            COMMANDS[name](namespace), LD_PRELOAD=str(library), CLOCK_SHIFT=str(shift), PYTHONUNBUFFERED="1"
        )
        signs.see(2)
        for years in (5, -5, 0):
            with shift.open("r+b") as file:
                file.write(struct.pack("q", years * YEAR_S))
            signs.see(3)
        with shift.open("r+b") as file:
            file.write(struct.pack("q", 5 * YEAR_S))
        process.send(signal.SIGINT)
        assert process.wait() == 0
        assert "Traceback" not in process.output
    finally:
        signs.close()
