"""The parameters of the node `efftam_operator`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from efftam_operator.settings import Settings
from efftam_ros.core.config import setting
from efftam_ros.ros.common.parameters import ParameterSet
from efftam_ros.ros.tracker.parameters import NodeConfig


def _trackers(name: str) -> Any:
    """Return a dataclass field with default, text and limits of the tracker's parameter ``name``."""
    (found,) = (f for f in fields(NodeConfig) if f.name == name)
    return field(default=found.default, metadata=found.metadata)


@dataclass(frozen=True)
class OperatorConfig(Settings):
    """The node's parameters. All are read once, when the node starts.

    Parameters that the tracker has too have the same names, so that one parameter file fits both nodes.
    """

    tracker: str = setting("efftam_tracker", "name of the tracker's node, whose services are called")
    gimbal: str = setting("efftam_gimbal", "name of the gimbal controller's node, whose services are called")
    mavlink: str = setting("efftam_mavlink", "name of the MAVLink bridge's node, whose services are called")
    image_transport: str = _trackers("image_transport")
    image_reliability: str = _trackers("image_reliability")
    max_image_pixels: int = _trackers("max_image_pixels")
    diagnostics_period: float = _trackers("diagnostics_period")


PARAMETERS = ParameterSet((("The page", OperatorConfig),), tuple(f.name for f in fields(OperatorConfig)))
