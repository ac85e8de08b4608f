"""docs/cpp.md is built against the messages, and its node makes the three checks: valid, age, steered.

With rclcpp as a package by colcon; ROS 2 from wheels has none, and a stand-in plays messages to the node.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ament_index_python import PackageNotFoundError, get_package_prefix

ROOT = Path(__file__).parents[2]
STOP = "right +0.000 rad, down +0.000 rad"


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs" / "cpp.md").read_text(), re.S | re.M)
    return found


def prefix_of(package: str) -> Path | None:
    try:
        return Path(get_package_prefix(package))
    except PackageNotFoundError:
        return None


def test_the_node_stops_for_what_is_invalid_old_or_of_another_target(tmp_path):
    compiler = shutil.which("c++") or pytest.skip("there is no C++ compiler")
    (tmp_path / "consumer.cpp").write_text(block("cpp"))
    prefixes = {Path(p) for p in os.environ["AMENT_PREFIX_PATH"].split(os.pathsep)}
    headers = [folder for prefix in prefixes for folder in (prefix / "include").glob("*") if folder.is_dir()]
    program = str(tmp_path / "consumer")
    built = subprocess.run(
        [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'test/support/rclcpp_stub'}"]
        + [f"-isystem{folder}" for folder in headers]
        + [str(tmp_path / "consumer.cpp"), "-o", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr[-2000:]
    told = {
        "1 1 1 0.2 -0.1": "right +0.200 rad, down -0.100 rad",
        "0 1 1 0.9 0.9": "right +0.200 rad, down -0.100 rad",  # another target's says nothing
        "0 0 0 0.9 0.9": "right +0.200 rad, down -0.100 rad",
        "1 0 1 0.3 0.3": STOP,
        "1 1 0 0.4 0.4": STOP,
        "1 1 1 0.5 0.1": "right +0.500 rad, down +0.100 rad",
        "wait 600": STOP,
        "0 1 1 0.6 0.6": STOP,
    }
    ran = subprocess.run([program], input="\n".join(told), capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == list(told.values())


@pytest.mark.slow
def test_the_package_is_built_by_colcon(tmp_path):
    if prefix_of("rclcpp") is None or shutil.which("colcon") is None:
        pytest.skip("rclcpp or colcon is not installed")
    (tmp_path / "package.xml").write_text(block("xml"))
    (tmp_path / "consumer.cpp").write_text(block("cpp"))
    (tmp_path / "CMakeLists.txt").write_text(block("cmake"))
    command = ["colcon", "build", "--cmake-args", f"-DPython3_EXECUTABLE={sys.executable}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "install" / "consumer" / "lib" / "consumer" / "consumer").is_file()
