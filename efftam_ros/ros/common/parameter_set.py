"""All parameters of one node together: declared, compared with changes, written as a parameter file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields
from typing import Any

from rclpy.node import Node

from efftam_ros.core.config import check_setting
from efftam_ros.core.errors import InputError, shown
from efftam_ros.ros.common.parameters import allowed, declare_parameters


@dataclass(frozen=True)
class ParameterSet:
    """``sections``: title and dataclass; ``read_only``: names that are read when the node starts; ``fixed``:
    names that are read when it is configured."""

    sections: tuple[tuple[str, type[Any]], ...]
    read_only: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()

    def _fields(self) -> Iterator[Field[Any]]:
        for _, config_type in self.sections:
            yield from fields(config_type)

    def declare(self, node: Node) -> None:
        """Declare them all. Raises InputError as `declare_parameters` does."""
        for _, config_type in self.sections:
            declare_parameters(node, config_type, self.read_only, self.fixed)

    def refusals(self, changes: Mapping[str, Any], configured: bool) -> list[str]:
        """Why these changes can't be made, one line for each; empty when they can. Unknown names are nobody's
        business.

        ``configured``: the node is, so settings that are read at that time may not change.
        """
        reasons = []
        for f in self._fields():
            if f.name not in changes:
                continue
            if configured and f.name in self.fixed:
                reasons.append(
                    f"{f.name} can't become {shown(changes[f.name])} while the node is configured; deactivate"
                    " and clean it up first (ros2 lifecycle set)"
                )
                continue
            try:
                check_setting(f.name, changes[f.name], f.metadata)
            except InputError as refusal:
                reasons.append(str(refusal))
        return reasons

    def as_yaml(self, nodes: str = "/**") -> str:
        """Every parameter with its default, described, for the nodes of this name in a parameter file."""
        lines = [f"{nodes}:", "  ros__parameters:"]
        for title, config_type in self.sections:
            lines += ["", f"    # {title}"]
            for f in fields(config_type):
                when = "; read at the start" if f.name in self.read_only else ""
                when = "; read when configured" if f.name in self.fixed else when
                lines += ["", f"    # {f.metadata['text']}", f"    # {allowed(f)}{when}"]
                lines += [f"    {f.name}: {json.dumps(f.default)}"]
        return "\n".join(lines) + "\n"
