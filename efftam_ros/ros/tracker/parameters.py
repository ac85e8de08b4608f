"""The node's parameters: declared from dataclasses, checked, and told apart by when they may change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, TypeVar

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.node import Node

from efftam_ros.core.config import TrackerConfig, check_setting, setting
from efftam_ros.core.errors import InputError, shown
from efftam_ros.core.tracker import FIXED_SETTINGS
from efftam_ros.runtime.image.limits import MOST_PIXELS
from efftam_ros.runtime.pipeline import BACKENDS, DEFAULT_BACKEND, VERIFY

TRANSPORTS = ("raw", "compressed")


@dataclass(frozen=True)
class NodeConfig:
    """The node's own settings. Times in seconds. Raises InputError naming the field, the value and the
    range."""

    bundle: str = setting("", "folder of the network bundle; empty: the one that ships")
    backend: str = setting(DEFAULT_BACKEND, "what computes the network", choices=BACKENDS)
    threads: int = setting(
        0, "CPU threads of the network; 0: one per physical core, four at most", low=0, high=256
    )
    verify: str = setting(
        "quick",
        "what is compared with the CPU before a GPU is trusted: every graph (quick), a clip too (full)",
        choices=VERIFY,
    )
    image_transport: str = setting(
        "raw", "type of the topic image: sensor_msgs/Image or CompressedImage", choices=TRANSPORTS
    )
    max_image_pixels: int = setting(
        MOST_PIXELS,
        "most pixels of an image, raw, compressed or a selection's mask; larger ones are refused unread",
        low=1024,
        high=2**30,
    )
    rectified: bool = setting(False, "images are rectified: camera_info counts by its P, without distortion")
    image_timeout: float = setting(
        0.25,
        "time without an image after which the velocity is published as not valid, s",
        low=0.02,
        high=60.0,
    )
    selection_buffer: float = setting(
        1.5, "how old the image of a selection may be: images of this span are kept, s", low=0.0, high=60.0
    )
    selection_buffer_bytes: int = setting(
        256 * 2**20, "most memory for kept images, bytes", low=2**20, high=2**36
    )
    publish_detections: bool = setting(
        True, "publish vision_msgs on detections, where vision_msgs is installed"
    )
    diagnostics_period: float = setting(1.0, "time between two diagnostics, s", low=0.1, high=60.0)
    autostart: bool = setting(True, "configure and activate when the node starts")

    def __post_init__(self) -> None:
        for f in fields(self):
            check_setting(f.name, getattr(self, f.name), f.metadata)


# Read once, when the node starts.
READ_ONLY = ("autostart",)
# Read when the node is configured: a running network or its subscriptions can't be exchanged under it.
FIXED = ("bundle", "backend", "threads", "image_transport", "publish_detections", *FIXED_SETTINGS)

Config = TypeVar("Config", NodeConfig, TrackerConfig)


def declare_parameters(node: Node, config_type: type[Any]) -> None:
    """Declare one parameter per field, with description, range and choices.

    Raises InputError when a value given at the start (file, command line) has the wrong type or lies
    outside its range.
    """
    for f in fields(config_type):
        try:
            node.declare_parameter(f.name, f.default, _descriptor(f))
        except (InvalidParameterTypeException, InvalidParameterValueException) as error:
            raise InputError(f"parameter {f.name}: {error}; it is {_allowed(f)}") from error


def read_parameters(node: Node, config_type: type[Config]) -> Config:
    """The dataclass with the parameters' values. Raises InputError when one is not allowed."""
    return config_type(**{f.name: node.get_parameter(f.name).value for f in fields(config_type)})


def refusals(changes: Mapping[str, Any], configured: bool) -> list[str]:
    """Why these changes can't be made, one line for each; empty when they can. Unknown names are nobody's
    business.

    ``configured``: the node is, so settings that are read at that time may not change.
    """
    reasons = []
    for config_type in (NodeConfig, TrackerConfig):
        for f in fields(config_type):
            if f.name not in changes:
                continue
            if configured and f.name in FIXED:
                reasons.append(
                    f"{f.name} can't become {shown(changes[f.name])} while the node is configured; deactivate and"
                    " clean it up first (ros2 lifecycle set)"
                )
                continue
            try:
                check_setting(f.name, changes[f.name], f.metadata)
            except InputError as refusal:
                reasons.append(str(refusal))
    return reasons


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """The configuration with those of the changes that concern it."""
    values = {f.name: changes.get(f.name, getattr(config, f.name)) for f in fields(config)}
    return type(config)(**values)


def as_yaml() -> str:
    """Every parameter with its default, described, as a parameter file."""
    lines = [
        "# Every parameter of efftam_tracker, with its default. Written by:",
        "# python -m efftam_ros.ros.tracker.parameters",
        "# For one platform: copy the lines that differ, as desktop.yaml and jetson.yaml do.",
        "/**:",
        "  ros__parameters:",
    ]
    for config_type, title in ((NodeConfig, "The node"), (TrackerConfig, "Tracking")):
        lines += ["", f"    # {title}"]
        for f in fields(config_type):
            when = {True: "; read at the start", False: ""}[f.name in READ_ONLY]
            when = "; read when configured" if f.name in FIXED else when
            lines += ["", f"    # {f.metadata['text']}", f"    # {_allowed(f)}{when}"]
            lines += [f"    {f.name}: {json.dumps(f.default)}"]
    return "\n".join(lines) + "\n"


def _descriptor(f: Field[Any]) -> ParameterDescriptor:
    meta = f.metadata
    constraints = []
    if meta["choices"]:
        constraints.append(f"one of {', '.join(meta['choices'])}")
    if f.name in FIXED:
        constraints.append("read when the node is configured")
    descriptor = ParameterDescriptor(
        description=meta["text"],
        additional_constraints="; ".join(constraints),
        read_only=f.name in READ_ONLY,
    )
    if meta["low"] is not None:
        if isinstance(f.default, int):
            limits = IntegerRange(from_value=int(meta["low"]), to_value=int(meta["high"]), step=1)
            descriptor.integer_range = [limits]
        else:
            limits = FloatingPointRange(from_value=float(meta["low"]), to_value=float(meta["high"]), step=0.0)
            descriptor.floating_point_range = [limits]
    return descriptor


def _allowed(f: Field[Any]) -> str:
    kinds = {
        bool: "true or false",
        int: "a whole number",
        float: "a number with a decimal point",
        str: "a text",
    }
    kind = kinds[type(f.default)]
    if f.metadata["choices"]:
        return f"one of {', '.join(f.metadata['choices'])}"
    if f.metadata["low"] is not None:
        return f"{kind} from {f.metadata['low']:.12g} to {f.metadata['high']:.12g}"
    return kind


if __name__ == "__main__":
    print(as_yaml(), end="")
