"""Build options of an engine, which are part of its key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.signatures import Tensor

PRECISIONS = ("fp32", "fp16", "int8")
AXES: Mapping[str, tuple[int, int, int]] = {
    "n": (1, 1, 256),  # prompt points
    "t": (1, 2, 257),  # prompt tokens: tracked frames have two
    "T": (1, 7, 24),  # maps attended, at most the ring's slots
    "P": (1, 16, 24),  # pointers attended
}
"""Smallest, usual and largest size of each dynamic axis of a bundle's graphs."""


@dataclass(frozen=True)
class ShapeRange:
    """Range of shapes of a dynamic input, and the shape that the engine is tuned for."""

    name: str
    smallest: tuple[int, ...]
    usual: tuple[int, ...]
    largest: tuple[int, ...]


@dataclass(frozen=True)
class BuildOptions:
    """Build options; all of them belong to the engine's key.

    Attributes:
        precision: "fp32", "fp16" or "int8"; a label, because the types in the graph decide.
        tf32: Whether FP32 products may round their factors to 10 bits; the builder sets it where no product
            of the graph changes by it.
        workspace_bytes: Scratch memory that a layer may use.
        optimization_level: 0 (fast build) to 5.
        max_aux_streams: 0 keeps all work on one stream.
        profiles: Shape ranges of the dynamic inputs.
        target: Such as "SM86", to build for that GPU ahead of time (TensorRT-RTX only); "" for the installed
            GPU.
    """

    precision: str = "fp32"
    tf32: bool = False
    workspace_bytes: int = 1 << 30
    optimization_level: int = 3
    max_aux_streams: int = 0
    profiles: tuple[ShapeRange, ...] = ()
    target: str = ""

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise InputError(
                f"precision {self.precision!r} is unknown; choose one of {', '.join(PRECISIONS)}"
            )
        if not 0 <= self.optimization_level <= 5:  # TensorRT clamps silently
            raise InputError(f"optimization level {self.optimization_level} is not one of 0 to 5")
        for wanted in self.profiles:
            shapes = (wanted.smallest, wanted.usual, wanted.largest)
            if len({len(shape) for shape in shapes}) > 1 or any(
                not 1 <= low <= usual <= high for low, usual, high in zip(*shapes, strict=True)
            ):
                raise InputError(
                    f"shapes of {wanted.name} must grow from smallest over usual to largest, from 1 on:"
                    f" {wanted.smallest}, {wanted.usual}, {wanted.largest}"
                )

    @property
    def parts(self) -> dict[str, Any]:
        """For `EngineKey.options`; without the precision, which is a separate part of the key."""
        parts = asdict(self)
        del parts["precision"]
        return parts


def profiles_of(
    inputs: Mapping[str, Tensor], axes: Mapping[str, tuple[int, int, int]] = AXES
) -> tuple[ShapeRange, ...]:
    """The shape ranges of a graph's dynamic inputs. Raises InputError for an axis without sizes."""
    ranges = []
    for name, tensor in inputs.items():
        unknown = [axis for axis in tensor.shape if isinstance(axis, str) and axis not in axes]
        if unknown:
            raise InputError(
                f"axis {unknown[0]} of input {name} has no sizes; known are {', '.join(sorted(axes))}"
            )
        if any(isinstance(axis, str) for axis in tensor.shape):
            smallest, usual, largest = (
                tuple(axes[axis][which] if isinstance(axis, str) else axis for axis in tensor.shape)
                for which in range(3)
            )
            ranges.append(ShapeRange(name, smallest, usual, largest))
    return tuple(ranges)
