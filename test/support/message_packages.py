"""Message packages that the nodes use where they are installed; generated for the tests elsewhere."""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from efftam_ros.images.coded_video import DEFINITIONS

# Kept between test runs: generating and compiling takes half a minute.
KEPT = Path(__file__).parents[2] / "build" / "test_messages"
PACKAGE = """<package format="3"><name>{0}</name><version>0.0.0</version><description>For tests</description>
<maintainer email="nobody@example.invalid">nobody</maintainer><license>Apache-2.0</license>
<member_of_group>rosidl_interface_packages</member_of_group>
<export><build_type>ament_cmake</build_type></export></package>"""
BUILD = """cmake_minimum_required(VERSION 3.16)
project({0})
find_package(ament_cmake REQUIRED)
find_package(rosidl_default_generators REQUIRED)
find_package(std_msgs REQUIRED)
rosidl_generate_interfaces(${{PROJECT_NAME}} {1} DEPENDENCIES builtin_interfaces std_msgs)
ament_package()
"""


def missing() -> dict[str, str]:
    """The definitions by type, of packages that are not installed."""
    packages = {kind.split("/")[0] for kind in DEFINITIONS}
    absent = {name for name in packages if importlib.util.find_spec(name) is None}
    return {kind: text for kind, text in DEFINITIONS.items() if kind.split("/")[0] in absent}


def generated(definitions: dict[str, str]) -> Path:
    """The prefix that these messages are installed in; skips where a compiler is missing."""
    for tool in ("colcon", "cmake", "c++"):
        if shutil.which(tool) is None:
            pytest.skip(f"the messages can't be generated: {tool} is not installed")
    key = hashlib.sha256(repr((definitions, BUILD, sys.prefix, sys.version)).encode()).hexdigest()[:16]
    folder = KEPT / key
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            _generate(folder, definitions)
            (folder / "done").touch()
    return folder / "install"


def _generate(folder: Path, definitions: dict[str, str]) -> None:
    files: dict[str, list[str]] = {}
    for kind, text in definitions.items():
        package, _, name = kind.split("/")
        file = folder / "src" / package / "msg" / f"{name}.msg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        files.setdefault(package, []).append(f'"msg/{name}.msg"')
    for package, names in files.items():
        (folder / "src" / package / "package.xml").write_text(PACKAGE.format(package))
        (folder / "src" / package / "CMakeLists.txt").write_text(BUILD.format(package, " ".join(names)))
    options = ["--merge-install", "--install-base", "install", "--build-base", "build", "--base-paths", "src"]
    # The libraries find each other without LD_LIBRARY_PATH.
    given = [f"-DPython3_EXECUTABLE={sys.executable}", f"-DCMAKE_INSTALL_RPATH={folder}/install/lib"]
    command = ["colcon", "--log-base", "log", "build", *options, "--cmake-args", *given]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def environment(prefix: Path) -> dict[str, str]:
    """With this a process finds the messages."""
    places = {
        "PYTHONPATH": python_folder(prefix),
        "LD_LIBRARY_PATH": prefix / "lib",
        "AMENT_PREFIX_PATH": prefix,
    }
    return {name: os.pathsep.join([str(place), os.environ.get(name, "")]) for name, place in places.items()}


def python_folder(prefix: Path) -> Path:
    return next(prefix.rglob("*-packages"))


def load(prefix: Path) -> None:
    """Have this process find the messages, whose LD_LIBRARY_PATH was read at its start."""
    sys.path.insert(0, str(python_folder(prefix)))
    for library in sorted((prefix / "lib").glob("*.so")):
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
