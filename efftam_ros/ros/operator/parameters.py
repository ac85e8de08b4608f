"""The parameters of the page's node; those that the tracker has too carry the same names, so that one
parameter file serves both."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from efftam_ros.core.config import CheckedSettings, setting
from efftam_ros.operator.settings import Settings
from efftam_ros.ros.common.parameters import ParameterSet
from efftam_ros.ros.tracker.parameters import NodeConfig


def _as_in(config_type: type[Any], name: str, default: Any = None) -> Any:
    """A field as another dataclass has it; ``default`` where its own is nothing that a parameter can be."""
    (found,) = (f for f in fields(config_type) if f.name == name)
    return field(default=found.default if default is None else default, metadata=found.metadata)


@dataclass(frozen=True)
class OperatorConfig(CheckedSettings):
    """Everything is read when the node starts."""

    tracker: str = setting("efftam_tracker", "name of the tracker's node, whose services are called")
    gimbal: str = setting("efftam_gimbal", "name of the gimbal controller's node, whose services are called")
    image_transport: str = _as_in(NodeConfig, "image_transport")
    image_reliability: str = _as_in(NodeConfig, "image_reliability")
    max_image_pixels: int = _as_in(NodeConfig, "max_image_pixels")
    diagnostics_period: float = _as_in(NodeConfig, "diagnostics_period")
    address: str = _as_in(Settings, "address")
    port: int = _as_in(Settings, "port")
    token: str = setting("", "what a page must send; empty: a new one where one is needed")
    hosts: str = setting("", "further names of this computer, with commas between; empty: none")
    certificate: str = setting("", "certificate for https, PEM file; empty: http")
    key: str = setting("", "key of the certificate, PEM file")
    on_operator_lost: str = _as_in(Settings, "on_operator_lost")
    jpeg_quality: int = _as_in(Settings, "jpeg_quality")
    lease_s: float = _as_in(Settings, "lease_s")
    answer_s: float = _as_in(Settings, "answer_s")
    silent_s: float = _as_in(Settings, "silent_s")
    most_viewers: int = _as_in(Settings, "most_viewers")

    def settings(self) -> Settings:
        """What the server takes. Raises InputError where certificate and key don't go together."""
        return Settings(
            **{f.name: getattr(self, f.name) for f in fields(Settings) if f.metadata},
            token=self.token or None,
            hosts=tuple(name.strip() for name in self.hosts.split(",") if name.strip()),
            certificate=_path(self.certificate),
            key=_path(self.key),
        )


PARAMETERS = ParameterSet((("The page", OperatorConfig),), tuple(f.name for f in fields(OperatorConfig)))


def _path(text: str) -> Path | None:
    return Path(text).expanduser() if text else None
