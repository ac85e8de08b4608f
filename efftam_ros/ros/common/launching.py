"""Code that the launch files share: the tracker's arguments, parameter files, and nodes of this package."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from ament_index_python.packages import get_package_share_directory
from launch.actions import (
    DeclareLaunchArgument,
    IncludeLaunchDescription,
    LogInfo,
    OpaqueFunction,
    TimerAction,
)
from launch.launch_description import LaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

from efftam_ros.core.config import expanded
from efftam_ros.ros.common.process import DEVICE_LOST, Restarts
from efftam_ros.ros.common.transports import TRANSPORTS
from efftam_ros.ros.common.turn_limit import HUNG
from efftam_ros.runtime.backends import PipelineConfig

SHARE = Path(get_package_share_directory("efftam_ros"))
CONFIG = SHARE / "config"


class Argument(NamedTuple):
    """An argument of a launch file.

    ``default``: None if the user must give a value. ``text``: the description. ``choices``: the allowed
    values, None for any text.
    """

    name: str
    default: str | None
    text: str
    choices: tuple[str, ...] | None = None


YES_NO = ("true", "false")
LEVELS = ("debug", "info", "warn", "error")
LOOK = "look at nvidia-smi and sudo dmesg, then launch again"
# What is reported of a node that ended with one of these exit codes. Of other codes the number is reported.
ENDS = {DEVICE_LOST: "lost its GPU", -HUNG: "hung at the place that it printed above"}
# The tracker's arguments. An argument with an empty value leaves the setting to the parameter file.
_TRACKER = (
    Argument("image", "/camera/image_raw", "topic of the images to track in"),
    Argument("camera_info", "", "topic of the calibration; empty: camera_info beside the images"),
    Argument(
        "image_transport", "", "type of the image topic; empty: from the parameter file", ("", *TRANSPORTS)
    ),
    Argument("stream", "", "rtsp://..., udp://@:PORT, /dev/video0 or a file, published as image; empty: no"),
    Argument("calibration", "", "calibration file of the stream's camera (YAML); empty: none"),
    *(
        Argument(f.name, "", f"{f.metadata['text']} ({' '.join(f.metadata['choices']) or 'a path'})")
        for f in fields(PipelineConfig)
        if f.name in ("bundle", "backend", "precision")
    ),
    Argument(
        "camera_motion",
        "",
        "source of the camera's motion; empty: from the parameter file",
        ("", "auto", "off"),
    ),
    Argument(
        "params",
        "tracker",
        "the tracker's parameter file: tracker, desktop, jetson (shipped; onnxruntime-cuda"
        " where it is installed, unless backend:= is given), or a path",
    ),
    Argument("namespace", "", "namespace of the nodes and their topics"),
    Argument("operator", "false", "serve the operator's page beside the tracker", YES_NO),
    Argument("operator_port", "8080", "port of the operator's page; 0: a free one"),
    Argument(
        "operator_address",
        "127.0.0.1",
        "address that the operator's page is served on: this computer alone, or 0.0.0.0 with a token",
    ),
    Argument("use_sim_time", "false", "follow /clock, for bags and simulators", YES_NO),
    Argument("log_level", "info", "log level of the nodes", LEVELS),
)
TRACKER = {argument.name: argument for argument in _TRACKER}
"""The arguments of tracker.launch.py by name."""


def described(
    arguments: Collection[Argument], start: Callable[[Any, dict[str, str]], list[Any]], *before: Any
) -> LaunchDescription:
    """Return a launch description that declares ``arguments``.

    It executes the actions ``before``, then the actions that ``start`` returns. ``start`` is called with the
    launch context and the values of the arguments by name.
    """
    declared = [
        DeclareLaunchArgument(
            name, default_value=default, description=text, choices=list(choices) if choices else None
        )
        for name, default, text, choices in arguments
    ]

    def started(context: Any) -> list[Any]:
        return start(context, {one.name: LaunchConfiguration(one.name).perform(context) for one in arguments})

    return LaunchDescription([*declared, *before, OpaqueFunction(function=started)])


def passed_over(context: Any) -> list[LogInfo]:
    """Return a warning for each NAME:=VALUE of the launch command that is a misspelt argument or a parameter.

    These have no effect, because ROS launch ignores unknown names. Other unknown names cause no warning: they
    may be arguments of a launch file that includes the tracker's.
    """
    parameters = yaml.safe_load((CONFIG / "tracker.yaml").read_text(encoding="utf-8"))["/**"][
        "ros__parameters"
    ]
    notes = []
    for name in (text.partition(":=")[0] for text in context.argv if ":=" in text):
        near = difflib.get_close_matches(name, TRACKER, 1, 0.8)
        if name in TRACKER or not (near or name in parameters):
            continue
        remedy = f"did you mean {near[0]}?" if near else "it is a parameter: set it in a file, params:=FILE"
        notes.append(
            LogInfo(msg=f"{name}:= is not an argument of the launch file and has no effect; {remedy}")
        )
    return notes


def parameter_file(name: str) -> str | None:
    """Return the path of a parameter file; None if there is no such file.

    ``name``: name of a shipped parameter file, without .yaml; else a path.
    """
    shipped = CONFIG / f"{name}.yaml"
    path = shipped if shipped.is_file() else expanded(name)
    return str(path) if path.is_file() else None


def node(name: str, value: Mapping[str, str], **more: Any) -> Node:
    """Return the launch action of a node of this package.

    ``name``: name of the executable and of the node. ``value``: values of the launch arguments by name, with
    namespace and log_level. ``more``: further arguments of launch_ros's Node. `Restarts` decides whether and
    when the node is started again after it ended.
    """
    restarts = Restarts()

    def on_exit(event: Any, context: Any) -> list[Any]:
        code = event.returncode
        if context.is_shutdown or code == 0:
            return []
        wait_s = restarts.wait_s(code, time.monotonic())
        why = f"{name} {ENDS.get(code, f'ended with code {code}')}"
        if wait_s is None:
            remedy = LOOK if code == DEVICE_LOST else "correct what it reported above and launch again"
            return [LogInfo(msg=f"{why} and is not started again: {remedy}")]
        again = LogInfo(msg=f"{why} and is started again in {wait_s:g} s")
        return [again, TimerAction(period=wait_s, actions=[start()])]

    def start() -> Node:
        return Node(
            package="efftam_ros",
            executable=name,
            name=name,
            namespace=value["namespace"],
            output="screen",
            ros_arguments=["--log-level", value["log_level"]],
            on_exit=on_exit,
            **more,
        )

    return start()


def tracker_launch(arguments: Iterable[Argument], **fixed: str) -> IncludeLaunchDescription:
    """Return the action that includes tracker.launch.py.

    ``arguments``: arguments of the including launch file whose values are passed on. ``fixed``: values of
    other arguments by name.
    """
    source = PythonLaunchDescriptionSource(str(SHARE / "launch" / "tracker.launch.py"))
    values = {argument.name: LaunchConfiguration(argument.name) for argument in arguments} | fixed
    return IncludeLaunchDescription(source, launch_arguments=values.items())
