"""Parameters of nodes, made from dataclasses whose fields are declared with `setting`.

ROS is imported only when a node declares its parameters. So their names, ranges and meanings can be read
where ROS is not installed.
"""

from __future__ import annotations

import difflib
import json
import textwrap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, TypeVar

from efftam_ros.core.config import check_setting
from efftam_ros.core.errors import InputError, shown

Config = TypeVar("Config")

HELP_WIDTH, INDENT = 94, 6 * " "


@dataclass(frozen=True)
class ParameterSet:
    """All parameters of one node.

    ``sections``: title and dataclass of each section. ``read_only``: names of the parameters that are read
    once, at start-up. ``fixed``: names of those that are read when the node is configured.
    """

    sections: tuple[tuple[str, type[Any]], ...]
    read_only: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()

    def _fields(self) -> Iterator[Field[Any]]:
        for _, config_type in self.sections:
            yield from _parameters(config_type)

    def declare(self, node: Any, others: Collection[str] = ()) -> None:
        """Declare one parameter per field, with description, range and choices.

        Warns of unknown names that were given at start-up. ``others``: names that cause no warning, because
        they are parameters of other nodes that read the same file. Raises InputError when a value given at
        start-up (by a file or the command line) has the wrong type or is out of range.
        """
        from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException

        for f in self._fields():
            try:
                node.declare_parameter(f.name, f.default, self._descriptor(f))
            except (InvalidParameterTypeException, InvalidParameterValueException) as error:
                text = f"parameter {f.name}: {error}; give {_allowed(f)}"
                if isinstance(f.default, str) and isinstance(node._parameter_overrides[f.name].value, bool):
                    text += '. YAML reads off, no, on and yes without quotes as false and true: write "off"'
                raise InputError(text) from error
        self._warn_of_unknown(node, others)

    def refusals(self, changes: Mapping[str, Any], configured: bool) -> list[str]:
        """Return one line for each change that can't be made, with the reason; an empty list if all can.

        ``changes``: new values by name; unknown names are ignored. ``configured``: the node is configured, so
        the parameters in ``fixed`` can't change.
        """
        reasons = []
        for f in self._fields():
            if f.name not in changes:
                continue
            if configured and f.name in self.fixed:
                reasons.append(
                    f"{f.name} can't become {shown(changes[f.name])} while the node is configured; deactivate"
                    " and clean up the node first (ros2 lifecycle set)"
                )
                continue
            try:
                check_setting(f.name, changes[f.name], f.metadata)
            except InputError as refusal:
                reasons.append(str(refusal))
        return reasons

    def names(self) -> list[str]:
        return [f.name for f in self._fields()]

    def _warn_of_unknown(self, node: Any, others: Collection[str]) -> None:
        known = self.names()
        for name in node._parameter_overrides:
            if name in known or name in others or name == "use_sim_time" or name.startswith("qos_overrides."):
                continue
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else "; the files in config/ contain all parameters"
            node.get_logger().warning(f"parameter {shown(name)} is not known and has no effect{hint}")

    def as_help(self) -> str:
        """Return every parameter with its default, range and meaning, for ``--help``."""
        lines = []
        for title, config_type in self.sections:
            lines += ["", f"{title}:"]
            for f in _parameters(config_type):
                lines += [f"  {f.name}:={json.dumps(f.default)}"]
                for text in (f.metadata["text"], _allowed(f) + self._when(f)):
                    lines += [INDENT + line for line in textwrap.wrap(text, HELP_WIDTH)]
        return "\n".join(lines)

    def as_markdown(self) -> str:
        """Return one Markdown table per section, with every parameter, for docs/parameters.md."""
        lines = []
        for title, config_type in self.sections:
            lines += [
                "",
                f"### {title}",
                "",
                "| parameter | default | allowed | meaning |",
                "|---|---|---|---|",
            ]
            for f in _parameters(config_type):
                when = self._when(f).removeprefix("; ")
                meaning = f.metadata["text"] + (f". *{when.capitalize()}*" if when else "")
                cells = f"`{f.name}`", f"`{json.dumps(f.default)}`", _allowed(f), meaning.replace("|", "\\|")
                lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)

    def as_yaml(self, nodes: str = "/**") -> str:
        """Return a parameter file with every parameter, its description and its default.

        ``nodes``: the key of the file that names the nodes, such as ``/**`` or ``/**/efftam_gimbal``.
        """
        lines = [f"{nodes}:", "  ros__parameters:"]
        for title, config_type in self.sections:
            lines += ["", f"    # {title}"]
            for f in _parameters(config_type):
                lines += ["", f"    # {f.metadata['text']}", f"    # {_allowed(f)}{self._when(f)}"]
                lines += [f"    {f.name}: {json.dumps(f.default)}"]
        return "\n".join(lines) + "\n"

    def _when(self, f: Field[Any]) -> str:
        """Return when the parameter is read; empty if a change at run time takes effect."""
        if f.name in self.fixed:
            return "; read when configured"
        return "; read at the start" if f.name in self.read_only else ""

    def _descriptor(self, f: Field[Any]) -> Any:
        from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor

        meta = f.metadata
        constraints = []
        if meta["choices"]:
            constraints.append(f"one of {', '.join(meta['choices'])}")
        if f.name in self.fixed:
            constraints.append("read when the node is configured")
        descriptor = ParameterDescriptor(
            description=meta["text"],
            additional_constraints="; ".join(constraints),
            read_only=f.name in self.read_only,
        )
        if meta["within"] is not None:
            low, high = meta["within"]
            if isinstance(f.default, int):
                whole = IntegerRange(from_value=int(low), to_value=int(high), step=1)
                descriptor.integer_range = [whole]
            else:
                limits = FloatingPointRange(from_value=float(low), to_value=float(high), step=0.0)
                descriptor.floating_point_range = [limits]
        return descriptor


def read_parameters(node: Any, config_type: type[Config]) -> Config:
    """Return ``config_type`` filled with the current values of the node's parameters.

    Raises InputError when a value is not allowed.
    """
    return config_type(**{f.name: node.get_parameter(f.name).value for f in _parameters(config_type)})


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return a copy of the settings with new values (by name). Names of other settings are ignored."""
    values = {f.name: changes.get(f.name, getattr(config, f.name)) for f in fields(config)}  # type: ignore[arg-type]
    return type(config)(**values)


def _parameters(config_type: type[Any]) -> list[Field[Any]]:
    """Return the fields that were declared with `setting`: only these are parameters."""
    return [f for f in fields(config_type) if f.metadata]


def _allowed(f: Field[Any]) -> str:
    """Return the allowed values of a parameter as text: its choices, its range, or its type."""
    kinds = {
        bool: "true or false",
        int: "a whole number",
        float: "a number with a decimal point",
        str: "a text",
    }
    kind = kinds[type(f.default)]
    if f.metadata["choices"]:
        return f"one of {', '.join(f.metadata['choices'])}"
    if f.metadata["within"] is not None:
        low, high = f.metadata["within"]
        return f"{kind} from {low:.12g} to {high:.12g}"
    return kind
