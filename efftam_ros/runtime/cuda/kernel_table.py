"""Signatures of the CUDA kernels: PTX file, parameters in order, and layout of the structs that they read.

A launch needs at least the number of threads in this table. Surplus threads return at once.

| kernel | threads |
|---|---|
| `preprocess` | (x, y): side, side |
| `mask_upsample` | (x, y): image width, image height |
| `gather_memory` | x: rows * tokens * channels + pointer_slots * pointer_channels + keys |
| `choose_candidate` | x: cells + channels + 2 |
| `store_memory` | x: map_size + channels |

The shapes of the arrays are stated with the kernels in ``kernels/*.cu``.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.cuda.memory import aligned

KERNEL_FOLDER = Path(__file__).parent / "kernels"
"""Folder of the CUDA sources, of the PTX made from them, and of ``kernels.json`` with the hashes of both."""


def _struct(*fields: tuple[str, str]) -> np.dtype[Any]:
    """Return the numpy type of a C struct of numbers without padding.

    ``fields``: pairs of a type and the names of its numbers, in order. "name[3]" is an array of three.
    """
    numbers = [(name, kind) for kind, names in fields for name in names.split()]
    return np.dtype([(n[:-3], kind, 3) if n.endswith("[3]") else (n, kind) for n, kind in numbers])


PREPROCESS_PARAMS = _struct(
    ("<i4", "width height step encoding side fine"),
    ("<f4", "x y scale_x scale_y gain[3] shift[3]"),
    ("<i4", "full_view"),
)
"""Type of ``struct PreprocessParams`` in preprocess.cu."""

MASK_VIEW = _struct(("<i4", "width height low x0 y0 x1 y1"), ("<f4", "start_x start_y cells_x cells_y"))
"""Type of ``struct MaskView`` in masks.cu."""

MASK = "mask_view"
"""Name of the tensor with the mask kernel's parameters."""

VIEW_BYTES = aligned(PREPROCESS_PARAMS.itemsize)
"""Distance from the parameters of one view to those of the next, bytes."""

Access = Literal["in", "out", "inout", "value"]
Argument = type[ctypes.c_void_p] | type[ctypes.c_int]


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel.

    ``access``: "in", "out" and "inout" are for device addresses of arrays, which the kernel reads ("in"),
    writes completely ("out") or writes partly ("inout"). "value" is for an integer.
    """

    name: str
    ctype: Argument
    access: Access


@dataclass(frozen=True)
class KernelSignature:
    """Where a kernel is, and its parameters.

    ``file``: name of its source and of its PTX file, without suffix. ``parameters``: in the order of the
    kernel's arguments.
    """

    file: str
    parameters: tuple[Parameter, ...]

    @property
    def types(self) -> tuple[Argument, ...]:
        """The ctypes types of the parameters, for `KernelModule.kernel`."""
        return tuple(parameter.ctype for parameter in self.parameters)


def _arrays(access: Access, names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, ctypes.c_void_p, access) for name in names.split())


def _numbers(names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, ctypes.c_int, "value") for name in names.split())


KERNELS: dict[str, KernelSignature] = {
    "preprocess": KernelSignature("preprocess", _arrays("in", "params pixels") + _arrays("out", "out")),
    "mask_upsample": KernelSignature("masks", _arrays("in", "view logits") + _arrays("out", "mask")),
    "gather_memory": KernelSignature(
        "memory",
        _arrays("in", "plan ring_maps ring_pointers")
        + _arrays("out", "maps pointers key_bias")
        + _numbers("rows tokens channels pointer_slots pointer_channels pointer_tokens pooled"),
    ),
    "choose_candidate": KernelSignature(
        "memory",
        _arrays("in", "decision logits pointers")
        + _arrays("out", "mask_logits pointer present binarize")
        + _numbers("cells channels"),
    ),
    "store_memory": KernelSignature(
        "memory",
        _arrays("in", "decision map pointer")
        + _arrays("inout", "ring_maps ring_pointers")
        + _numbers("map_size channels rounds"),
    ),
}
"""The signatures of all kernels by name."""


def load_ptx(file: str, folder: Path = KERNEL_FOLDER) -> bytes:
    """Return the content of the PTX file ``<file>.ptx`` in the folder, without a terminating NUL.

    Raises InputError if a file is missing, or if source or PTX do not have the hashes in ``kernels.json``.
    """
    remedy = "install efftam_ros again, or run scripts/build_ptx where the source was changed"
    try:
        hashes = json.loads((folder / "kernels.json").read_text(encoding="utf-8"))[file]
        ptx = (folder / f"{file}.ptx").read_bytes()
        source = (folder / f"{file}.cu").read_bytes()
        expected = {"ptx_sha256": hashes["ptx_sha256"], "source_sha256": hashes["source_sha256"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"no usable kernels for {file!r} in {folder}: {error}; {remedy}") from None
    for kind, content in (("source", source), ("ptx", ptx)):
        found = hashlib.sha256(content).hexdigest()
        if found != expected[f"{kind}_sha256"]:
            suffix = "cu" if kind == "source" else kind
            raise InputError(
                f"{folder / file}.{suffix} has sha256 {found[:12]}...,"
                f" kernels.json names {expected[f'{kind}_sha256'][:12]}...: {remedy}"
            )
    return ptx
