"""What each CUDA kernel takes: its PTX file, its parameters in order, the records that it reads.

Threads that a launch must have; surplus ones return:

| kernel | threads |
|---|---|
| `preprocess_float`, `preprocess_half` | (x, y): side, side |
| `mask_upsample` | (x, y): image width, image height |
| `mask_boxes` | x: count |
| `gather_memory` | x: rows * tokens * channels + pointer_slots * pointer_channels + keys |
| `choose_candidate` | x: cells + channels + 2 |
| `store_memory` | x: map_size + channels |

Sizes of arrays are those of the kernels' comments in ``kernels/*.cu``.
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

KERNEL_FOLDER = Path(__file__).parent / "kernels"
"""Sources, PTX, and ``kernels.json`` with the hashes of both."""

PICTURE: np.dtype[Any] = np.dtype(
    [
        ("width", "<i4"),
        ("height", "<i4"),
        ("step", "<i4"),
        ("encoding", "<i4"),
        ("side", "<i4"),
        ("fine", "<i4"),
        ("x", "<f4"),
        ("y", "<f4"),
        ("scale_x", "<f4"),
        ("scale_y", "<f4"),
        ("gain", "<f4", 3),
        ("shift", "<f4", 3),
        ("full_view", "<i4"),
    ]
)
"""``struct Picture`` of preprocess.cu."""

MASK_VIEW: np.dtype[Any] = np.dtype(
    [
        ("width", "<i4"),
        ("height", "<i4"),
        ("low", "<i4"),
        ("x0", "<i4"),
        ("y0", "<i4"),
        ("x1", "<i4"),
        ("y1", "<i4"),
        ("start_x", "<f4"),
        ("start_y", "<f4"),
        ("cells_x", "<f4"),
        ("cells_y", "<f4"),
    ]
)
"""``struct MaskView`` of masks.cu."""

Access = Literal["in", "out", "inout", "value"]
Argument = type[ctypes.c_void_p] | type[ctypes.c_int]


@dataclass(frozen=True)
class Parameter:
    """One parameter: a device pointer that the kernel reads ("in"), fills ("out") or partly overwrites
    ("inout"), or a number ("value")."""

    name: str
    ctype: Argument
    access: Access


@dataclass(frozen=True)
class KernelSignature:
    """``file``: name of the source and PTX without suffix; ``parameters`` in the order of the launch."""

    file: str
    parameters: tuple[Parameter, ...]

    @property
    def types(self) -> tuple[Argument, ...]:
        """The parameters' ctypes, for `KernelModule.kernel`."""
        return tuple(parameter.ctype for parameter in self.parameters)


def _arrays(access: Access, names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, ctypes.c_void_p, access) for name in names.split())


def _numbers(names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, ctypes.c_int, "value") for name in names.split())


_PREPROCESS = KernelSignature("preprocess", _arrays("in", "picture pixels") + _arrays("out", "out"))

KERNELS: dict[str, KernelSignature] = {
    "preprocess_float": _PREPROCESS,
    "preprocess_half": _PREPROCESS,
    "mask_upsample": KernelSignature("masks", _arrays("in", "view logits") + _arrays("out", "mask")),
    "mask_boxes": KernelSignature(
        "masks", _arrays("in", "logits") + _arrays("out", "boxes areas") + _numbers("count low")
    ),
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
"""Every kernel by name."""


def load_ptx(file: str, folder: Path = KERNEL_FOLDER) -> bytes:
    """The PTX of ``kernels/<file>.ptx``, as committed (no NUL at its end).

    Raises InputError when it is missing, not what ``kernels.json`` names, or older than its source.
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
