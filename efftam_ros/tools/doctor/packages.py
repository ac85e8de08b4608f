"""Report sections on Python packages."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import efftam_ros
from efftam_ros.core.errors import one_line
from efftam_ros.tools.doctor.finding import Finding


def python_findings() -> Iterator[Finding]:
    """Findings on packages that all commands need."""
    version = platform.python_version()
    supported = sys.version_info >= (3, 10)
    yield Finding(
        "Python",
        "python",
        "ok" if supported else "wrong",
        f"{version} ({sys.executable})",
        "" if supported else "install Python 3.10 or newer",
    )
    yield Finding(
        "Python", "efftam_ros", "ok", f"{efftam_ros.__version__} ({Path(efftam_ros.__file__).parent})"
    )
    yield _importable("Python", "numpy", "numpy", needed=True)
    yield _importable("Python", "OpenCV", "cv2", needed=True, package="opencv-contrib-python-headless")


def tool_findings() -> Iterator[Finding]:
    """Findings on packages that single commands need."""
    for name, module, package, purpose in (
        ("PyAV", "av", "av", "track, eval: reading and writing videos"),
        ("rosbags", "rosbags", "rosbags", "replay: bags without ROS"),
        ("tqdm", "tqdm", "tqdm", "progress bars"),
        ("matplotlib", "matplotlib", "matplotlib", "eval --plot, bench --plot"),
        ("huggingface_hub", "huggingface_hub", "huggingface_hub", "fetch"),
        ("onnx", "onnx", "onnx", "export"),
    ):
        yield _present(name, module, package, purpose)


def _importable(section: str, name: str, module: str, *, needed: bool, package: str = "") -> Finding:
    try:
        version = getattr(importlib.import_module(module), "__version__", "unknown version")
    except Exception as error:  # a broken binary package may raise anything
        state = "wrong" if needed else "absent"
        return Finding(section, name, state, one_line(error), f"pip install {package or module}")
    return Finding(section, name, "ok", str(version))


def _present(name: str, module: str, package: str, purpose: str) -> Finding:
    """Whether a package is installed, without importing it, which can take seconds."""
    try:
        found = importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        found = False
    if not found:
        return Finding("tools", name, "absent", f"needed by {purpose}", f"pip install {package}")
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = "unknown version"
    return Finding("tools", name, "ok", version)


def loads(module: str) -> str | None:
    """Import a module; returns the error text, None if it succeeds."""
    try:
        importlib.import_module(module)
    except Exception as error:  # a broken binary package may raise anything
        return one_line(error)
    return None
