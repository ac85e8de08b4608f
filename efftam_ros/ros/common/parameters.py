"""Parameters of a node from the fields of a dataclass: declared, read, and shown."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import Field, fields
from typing import Any, TypeVar

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.node import Node

from efftam_ros.core.errors import InputError

Config = TypeVar("Config")


def declare_parameters(
    node: Node, config_type: type[Any], read_only: Collection[str] = (), fixed: Collection[str] = ()
) -> None:
    """Declare one parameter per field, with description, range and choices. Those of ``read_only`` are read
    when the node starts, those of ``fixed`` when it is configured.

    Raises InputError when a value given at the start (file, command line) has the wrong type or lies
    outside its range.
    """
    for f in fields(config_type):
        try:
            node.declare_parameter(f.name, f.default, _descriptor(f, f.name in read_only, f.name in fixed))
        except (InvalidParameterTypeException, InvalidParameterValueException) as error:
            raise InputError(f"parameter {f.name}: {error}; it is {allowed(f)}") from error


def read_parameters(node: Node, config_type: type[Config]) -> Config:
    """The dataclass with the parameters' values. Raises InputError when one is not allowed."""
    names = [f.name for f in fields(config_type)]  # type: ignore[arg-type]
    return config_type(**{name: node.get_parameter(name).value for name in names})


def _descriptor(f: Field[Any], read_only: bool, fixed: bool) -> ParameterDescriptor:
    meta = f.metadata
    constraints = []
    if meta["choices"]:
        constraints.append(f"one of {', '.join(meta['choices'])}")
    if fixed:
        constraints.append("read when the node is configured")
    descriptor = ParameterDescriptor(
        description=meta["text"],
        additional_constraints="; ".join(constraints),
        read_only=read_only,
    )
    if meta["low"] is not None:
        if isinstance(f.default, int):
            limits = IntegerRange(from_value=int(meta["low"]), to_value=int(meta["high"]), step=1)
            descriptor.integer_range = [limits]
        else:
            limits = FloatingPointRange(from_value=float(meta["low"]), to_value=float(meta["high"]), step=0.0)
            descriptor.floating_point_range = [limits]
    return descriptor


def allowed(f: Field[Any]) -> str:
    """What a field may be, in words."""
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
