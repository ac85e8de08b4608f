"""What is checked of a bundle's graphs: their inputs and outputs (docs/bundle.md), and which other files they
read.

The latter is read from the bytes, without the onnx package. The parser only follows lengths (protocol
buffers' wire format, onnx.proto3's field numbers), so that a graph of hundreds of megabytes takes
milliseconds.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from efftam_ros.core.errors import InputError

Shape = tuple[int | str, ...]


@dataclass(frozen=True)
class Tensor:
    """dtype (numpy name) and shape of a graph's input or output; a dynamic axis is a string."""

    dtype: str
    shape: Shape

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(str(axis) for axis in self.shape)}]"


Tensors = Mapping[str, Tensor]
Shapes = Mapping[str, Shape]

# Axes: a number; a symbol that is the same in every graph (S, G, 2G, 4G and N follow from the image side, the
# others from their first use); or, in lower-case or T and P, an axis that is dynamic.
INTEGERS = ("labels", "rows")
DYNAMIC = ("T", "P", "n", "t")
_FEATURES: Shape = (1, "C", "G", "G")
_FINE_FEATURES: dict[str, Shape] = {
    "features_s8": (1, "C8", "2G", "2G"),
    "features_s4": (1, "C4", "4G", "4G"),
}
_RASTER: dict[str, Shape] = {"prompt_raster": (1, 1, "4G", "4G")}

REQUIRED: dict[str, tuple[dict[str, Shape], dict[str, Shape]]] = {
    "image_encoder": ({"image": (1, 3, "S", "S")}, {"features": _FEATURES}),
    "prompt_encoder": (
        {
            "features": _FEATURES,
            "points": (1, "n", 2),
            "labels": (1, "n"),
            "mask": (1, 1, "S", "S"),
            "has_mask": (1,),
        },
        {"conditioned": _FEATURES, "sparse": (1, "t", "C"), "dense": _FEATURES},
    ),
    "memory_attention": (
        {"features": _FEATURES, "maps": ("T", "N", "M"), "rows": ("T",), "pointers": ("P", "C")},
        {"conditioned": _FEATURES},
    ),
    "memory_attention_fixed": (
        {"features": _FEATURES, "maps": ("R", "N", "M"), "pointers": (16, "C"), "key_bias": (1, 1, 1, "K")},
        {"conditioned": _FEATURES},
    ),
    "mask_decoder": (
        {"conditioned": _FEATURES, "sparse": (1, "t", "C"), "dense": _FEATURES},
        {
            "masks": (1, 4, "4G", "4G"),
            "ious": (4,),
            "presence": (1,),
            "pointers": (4, "C"),
            "boxes": (4, 4),
            "areas": (4,),
        },
    ),
    "memory_encoder": (
        {
            "features": _FEATURES,
            "mask_logits": (1, 1, "4G", "4G"),
            "present": (1,),
            "binarize": (1,),
            "pointer": (1, "C"),
        },
        {"map": (1, "N", "M"), "stored_pointer": (1, "C")},
    ),
}
OPTIONAL: dict[str, tuple[dict[str, Shape], dict[str, Shape]]] = {
    "image_encoder": ({}, _FINE_FEATURES),
    "prompt_encoder": ({}, _RASTER),
    "mask_decoder": (_FINE_FEATURES, {}),
    "memory_encoder": (_RASTER, {}),
}
GRAPHS = tuple(REQUIRED)
NEEDED = ("image_encoder", "prompt_encoder", "memory_attention", "mask_decoder", "memory_encoder")


def check_signatures(bundle: str, side: int, graphs: Mapping[str, tuple[Tensors, Tensors]]) -> None:
    """Check a bundle's tables of (inputs, outputs): no graph or tensor is missing, and all sizes fit
    together.

    Raises InputError naming the graph, the tensor and the two shapes.
    """
    for name in NEEDED:
        if name not in graphs:
            raise InputError(f"bundle {bundle} has no graph {name}; export it again")
    grid = side // 16
    sizes: dict[str, int] = {"S": side, "G": grid, "2G": 2 * grid, "4G": 4 * grid, "N": grid * grid}
    for name, tables in graphs.items():
        if name not in REQUIRED:
            raise InputError(f"bundle {bundle} has an unknown graph {name}; known are {', '.join(GRAPHS)}")
        for kind, table, required, optional in zip(
            ("input", "output"), tables, REQUIRED[name], OPTIONAL.get(name, ({}, {})), strict=True
        ):
            _check_table(f"bundle {bundle}: {name}", kind, table, required, optional, sizes)
    for tensor, maker, user in (
        ("features_s8", "image_encoder", "mask_decoder"),
        ("features_s4", "image_encoder", "mask_decoder"),
        ("prompt_raster", "prompt_encoder", "memory_encoder"),
    ):
        if tensor in graphs[user][0] and tensor not in graphs[maker][1]:
            raise InputError(
                f"bundle {bundle}: {user} wants {tensor}, which {maker} does not give; export it again"
            )


def _check_table(
    where: str, kind: str, table: Tensors, required: Shapes, optional: Shapes, sizes: dict[str, int]
) -> None:
    missing = [name for name in required if name not in table]
    unknown = [name for name in table if name not in required and name not in optional]
    if missing or unknown:
        wrong = f"lacks {kind} {missing[0]}" if missing else f"has an unknown {kind} {unknown[0]}"
        raise InputError(f"{where} {wrong}; export it again")
    for name, tensor in table.items():
        shape = required[name] if name in required else optional[name]
        dtype = "int64" if name in INTEGERS else "float32"
        fits = len(tensor.shape) == len(shape) and all(map(_fits, tensor.shape, shape, [sizes] * len(shape)))
        if not fits or tensor.dtype != dtype:
            known = tuple(sizes.get(axis, axis) if isinstance(axis, str) else axis for axis in shape)
            raise InputError(
                f"{where} {kind} {name} is {tensor}; it must be {Tensor(dtype, known)}; export it again"
            )


def _fits(axis: int | str, expected: int | str, sizes: dict[str, int]) -> bool:
    if expected in DYNAMIC:
        return isinstance(axis, str) or expected == "t"  # some networks have a fixed number of prompt tokens
    if isinstance(axis, str):
        return False
    return axis == (expected if isinstance(expected, int) else sizes.setdefault(expected, axis))


def table_fault(kind: str, found: Tensors, table: Tensors) -> str:
    """What is wrong with an opened graph's inputs or outputs (``kind``: "input" or "output") against the
    bundle's table; "" where they fit. In ``found`` a string is an axis that the library leaves open."""
    if set(found) != set(table):
        return f"has {kind}s {', '.join(sorted(found))}; the bundle says {', '.join(sorted(table))}"
    for name, tensor in table.items():
        real = found[name]
        # Exporters can not always infer an output's axis; a result that does not fit is refused when it is
        # bound.
        fits = len(real.shape) == len(tensor.shape) and all(
            (kind == "output" or isinstance(wanted, str)) if isinstance(axis, str) else axis == wanted
            for axis, wanted in zip(real.shape, tensor.shape, strict=True)
        )
        if not fits or real.dtype != tensor.dtype:
            return f"has {kind} {name} {real}; the bundle says {tensor}"
    return ""


# onnxruntime before 1.24 reads external weights from any path that a graph names, and TensorRT's parser reads
# the same files: only those that the manifest lists, with their hashes, may be there.
MOST_NESTED = 64
"""Messages within messages; a graph within a node of a graph takes three."""

# Kind of message -> field number -> kind of the message there.
_FIELDS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {
        5: "tensor",
        6: "graph",
        10: "tensor",
        11: "graph",
        22: "sparse tensor",
        23: "sparse tensor",
    },
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {13: "external data"},
}
_OPERATOR = 4  # of a node
_KEY, _VALUE = 1, 2  # of an entry of external data
# A node of this operator names a file that an execution provider loads as code.
_CONTEXT = b"EPContext"


def external_files(path: Path) -> frozenset[str]:
    """The locations of all weights outside the graph's own file, as it names them.

    Raises InputError: no ONNX file, or one whose nodes load compiled code.
    """
    if not path.stat().st_size:
        raise InputError(f"{path} is empty; export or fetch it again")
    with path.open("rb") as file:
        # Not closed here: views into it live on in what is raised below.
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        return frozenset(_locations(memoryview(data), "model"))
    except InputError as refusal:
        raise InputError(f"{path}: {refusal}") from None
    except (IndexError, ValueError):
        raise InputError(f"{path} is not an ONNX graph; export or fetch it again") from None


def _locations(data: memoryview, kind: str, depth: int = 0) -> Iterator[str]:
    if depth > MOST_NESTED:
        raise ValueError("nested too deep")
    if kind == "external data":
        entry = {number: bytes(content) for number, content in _contents(data)}
        if entry.get(_KEY) == b"location":
            yield entry.get(_VALUE, b"").decode()
        return
    inner = _FIELDS[kind]
    for number, content in _contents(data):
        if number in inner:
            yield from _locations(content, inner[number], depth + 1)
        elif kind == "node" and number == _OPERATOR and content == _CONTEXT:
            raise InputError("a graph with a node EPContext loads compiled code; use one without")


def _contents(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and content of the fields that have a length. Raises ValueError, IndexError: no message."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ValueError("a length beyond the end")
            yield number, data[at : at + length]
            at += length
        elif wire == 0:
            _, at = _varint(data, at)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if not number or at > len(data):
            raise ValueError("no field")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number without end")
