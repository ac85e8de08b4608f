"""Reads bundles (docs/bundle.md), which are folders with the files of one network.

`Bundle.load` reads ``bundle.json``, and checks the files, the table of tensors, and which further files the
graphs read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from efftam_ros.core.errors import InputError, shown
from efftam_ros.core.types import BoxHead, PipelineSpec

Shape = tuple[int | str, ...]


@dataclass(frozen=True)
class Tensor:
    """Type and shape of an input or output of a graph.

    Attributes:
        dtype: Name of the numpy type.
        shape: Size of each axis; a string for an axis of any size.
    """

    dtype: str
    shape: Shape

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join(str(axis) for axis in self.shape)}]"

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape as numbers. Raises ValueError if an axis may have any size."""
        return tuple(map(int, self.shape))

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Return whether an array of this shape can be used for this input or output."""
        return len(shape) == len(self.shape) and all(
            size > 0 and (isinstance(axis, str) or size == axis)
            for size, axis in zip(shape, self.shape, strict=True)
        )


Tensors = Mapping[str, Tensor]
Shapes = Mapping[str, Shape]

# The shapes below have three kinds of axes:
# - A number is the size itself.
# - A symbol stands for one size, which is the same in every graph. S, G, 2G, 4G and N follow from the side of
#   the image. The size of every other symbol is the one with which it first occurs.
# - A symbol in `DYNAMIC` is an axis of any size.
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
    "mask_decoder": (_FINE_FEATURES, {"levels": (4, 2, 4)}),
    "memory_encoder": (_RASTER, {}),
}
GRAPHS = tuple(REQUIRED)
NEEDED = ("image_encoder", "prompt_encoder", "memory_attention", "mask_decoder", "memory_encoder")


def check_signatures(bundle: str, side: int, graphs: Mapping[str, tuple[Tensors, Tensors]]) -> None:
    """Check that a bundle has all graphs and tensors, and that their types and sizes fit together.

    Args:
        bundle: Name or folder of the bundle, for errors.
        side: Side of the network's input image, px.
        graphs: By name of the graph, the tables of its inputs and outputs.

    Raises:
        InputError: A graph or tensor is missing, unknown, or of a wrong type or shape. The error names it.
    """
    for name in NEEDED:
        if name not in graphs:
            raise InputError(f"bundle {bundle} has no graph {name}; export the bundle again")
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
                f"bundle {bundle}: {user} needs {tensor}, which {maker} does not output; export the bundle"
                " again"
            )


def _check_table(
    where: str, kind: str, table: Tensors, required: Shapes, optional: Shapes, sizes: dict[str, int]
) -> None:
    missing = [name for name in required if name not in table]
    unknown = [name for name in table if name not in required and name not in optional]
    if missing or unknown:
        wrong = f"lacks {kind} {missing[0]}" if missing else f"has an unknown {kind} {unknown[0]}"
        raise InputError(f"{where} {wrong}; export the bundle again")
    for name, tensor in table.items():
        shape = required[name] if name in required else optional[name]
        dtype = "int64" if name in INTEGERS else "float32"
        fits = len(tensor.shape) == len(shape) and all(map(_fits, tensor.shape, shape, [sizes] * len(shape)))
        if not fits or tensor.dtype != dtype:
            known = tuple(sizes.get(axis, axis) if isinstance(axis, str) else axis for axis in shape)
            raise InputError(
                f"{where} {kind} {name} is {tensor}; it must be {Tensor(dtype, known)}; export the bundle"
                " again"
            )


def _fits(axis: int | str, expected: int | str, sizes: dict[str, int]) -> bool:
    if expected in DYNAMIC:
        return isinstance(axis, str) or expected == "t"  # some networks have a fixed number of prompt tokens
    if isinstance(axis, str):
        return False
    return axis == (expected if isinstance(expected, int) else sizes.setdefault(expected, axis))


def table_fault(kind: str, found: Tensors, table: Tensors) -> str:
    """Return how the tensors of an opened graph differ from the bundle's table; "" if they agree.

    Args:
        kind: "input" or "output", whichever the two tables list.
        found: The tensors as a library reports them; a string is an axis of a size that it does not know.
        table: The tensors as the bundle declares them.
    """
    if set(found) != set(table):
        return f"has {kind}s {', '.join(sorted(found))}; the bundle declares {', '.join(sorted(table))}"
    for name, tensor in table.items():
        real = found[name]
        # Exporters can't always infer the size of an output's axis, so an unknown size is accepted here. An
        # output of a wrong size is detected when memory is bound to it.
        fits = len(real.shape) == len(tensor.shape) and all(
            (kind == "output" or isinstance(wanted, str)) if isinstance(axis, str) else axis == wanted
            for axis, wanted in zip(real.shape, tensor.shape, strict=True)
        )
        if not fits or real.dtype != tensor.dtype:
            return f"has {kind} {name} {real}; the bundle declares {tensor}"
    return ""


# In the file of a graph, which is a protocol buffer, an entry of "external_data" names each further file that
# the graph reads. Exporters encode this entry as: tag of external_data, its length; tag of the key, its
# length, "location"; tag of the value, its length, the name of the file. Both strings are stored as plain
# bytes.
_LOCATION = re.compile(rb"\x6a([\x00-\x7f])\x0a\x08location\x12([\x00-\x7f])")
# A node of this operator names a file that an execution provider loads as code.
_CONTEXT = b"EPContext"


def external_files(path: Path) -> frozenset[str]:
    """Return the names of the further files, with weights, that the graph in this file reads.

    They must be checked, because onnxruntime before 1.24 reads any path that a graph names. Raises InputError
    if the file is empty, if it encodes such a name in another way than exporters do, or if the graph loads
    compiled code.
    """
    data = path.read_bytes()
    if not data:
        raise InputError(f"{path} is empty; export or fetch the bundle again")
    if _CONTEXT in data:
        raise InputError(f"{path} has a node EPContext, which loads compiled code; export the bundle again")
    entries = list(_LOCATION.finditer(data))
    is_plain = all(entry[1][0] == len(b"__location__") + entry[2][0] for entry in entries)
    if not is_plain or len(entries) != data.count(b"location"):
        raise InputError(f"{path} names files in a way that can't be read; export or fetch the bundle again")
    names = (data[entry.end() : entry.end() + entry[2][0]] for entry in entries)
    return frozenset(name.decode(errors="replace") for name in names)


FORMAT = 1
MANIFEST = "bundle.json"
MODELS = Path(__file__).resolve().parent.parent / "models"
DEFAULT_BUNDLE = "compact_192"
RING_SLOTS = 24
MAX_MANIFEST_BYTES = 2**20
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Pattern of the names of bundles and of their files.

It excludes folders, because the names become parts of paths.
"""
SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_SIDE, MAX_ROWS, MAX_AXIS = 4096, 64, 2**20
HEAD_SHARES = ("level_share", "prompt_share")
"""The two entries of ``box_head`` in the manifest. They have the names of `BoxHead`'s attributes."""


@dataclass(frozen=True)
class BundleGraph:
    """One ONNX graph of a bundle, as its manifest describes it."""

    name: str
    path: Path
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Tensor]


class SessionTensor(Protocol):
    """An item of the lists that onnxruntime's ``get_inputs`` and ``get_outputs`` return."""

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class Bundle:
    """A network on disk, with files that were checked against its manifest.

    Attributes:
        folder: Folder of the bundle.
        spec: The network's constants that the tracker needs.
        family: Name of the network's architecture.
        mean: Mean of the R, G and B channels, 0..1.
        std: Standard deviation of the R, G and B channels, 0..1.
        memory_dtype: Type to which maps are rounded when they are stored: "float32" or "bfloat16".
        key_layout: Order of the keys in the memory attention.
        graphs: The graphs by name.
        source: The entry ``source`` of the manifest.
        exporter: The entry ``exporter`` of the manifest.
    """

    folder: Path
    spec: PipelineSpec
    family: str
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    memory_dtype: str
    key_layout: str
    graphs: Mapping[str, BundleGraph]
    source: Mapping[str, Any]
    exporter: Mapping[str, Any]

    @classmethod
    def load(cls, folder: str | Path) -> Bundle:
        """Read a bundle and check its files and its table of tensors.

        The hashes detect damage, but not forgery, because whoever changes a file can change its hash in the
        manifest too.

        Raises:
            InputError: The folder is no bundle or has another format, an entry of the manifest is missing or
                wrong, a file is missing or has another size or hash, a graph reads a file that the manifest
                does not list, or the tensors do not fit together.
        """
        folder = Path(folder)
        manifest = _read_manifest(folder)
        bundle = _Manifest(folder, manifest).bundle()
        # Only files that the manifest lists are checked by their hash. So no other file may be read.
        for graph in bundle.graphs.values():
            if graph.path.name not in manifest["files"]:
                raise InputError(
                    f"bundle {folder}: graph file {graph.path.name} is not listed under files; {_AGAIN}"
                )
        for name, entry in manifest["files"].items():
            _check_file(folder / name, entry["sha256"], entry["bytes"])
        for graph in bundle.graphs.values():
            for location in sorted(_locations(graph.path) - set(manifest["files"])):
                raise InputError(
                    f"bundle {folder}: {graph.path.name} reads {shown(location)}, which is not listed under"
                    f" files; {_AGAIN}"
                )
        # Checked here, because a tensor of a wrong size would otherwise be noticed only during tracking.
        check_signatures(
            str(folder),
            bundle.spec.image_side,
            {name: (graph.inputs, graph.outputs) for name, graph in bundle.graphs.items()},
        )
        if (bundle.spec.box_head is None) == ("levels" in bundle.graphs["mask_decoder"].outputs):
            raise InputError(
                f"bundle {folder}: box_head and mask_decoder's output levels need each other, and one is"
                f" missing; {_AGAIN}"
            )
        return bundle

    def check_session(
        self, name: str, inputs: Iterable[SessionTensor], outputs: Iterable[SessionTensor]
    ) -> None:
        """Raise InputError if an opened graph has other tensors than the manifest declares.

        ``name`` is the graph's name, ``inputs`` and ``outputs`` are the tensors as onnxruntime reports them.
        """
        graph = self.graphs[name]
        for kind, table, found in (("input", graph.inputs, inputs), ("output", graph.outputs, outputs)):
            real = {
                tensor.name: Tensor(
                    _ONNX_DTYPES.get(tensor.type, tensor.type),
                    tuple("?" if axis is None else axis for axis in tensor.shape),
                )
                for tensor in found
            }
            if fault := table_fault(kind, real, table):
                raise InputError(f"bundle {self.folder}: {graph.path.name} {fault}; {_AGAIN}")


def default_bundle() -> Bundle:
    """Return the bundle that is installed with the package."""
    return Bundle.load(MODELS / DEFAULT_BUNDLE)


_AGAIN = "export or fetch the bundle again"
_ONNX_DTYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(int64)": "int64"}
_checked: set[tuple[str, int, int, str]] = set()
_located: dict[tuple[str, int, int], frozenset[str]] = {}


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        what = f"is not a bundle: it has no {MANIFEST}" if folder.exists() else "does not exist"
        remedy = "give a folder made by efftam export or efftam fetch"
        if folder.name == DEFAULT_BUNDLE:
            remedy = f"the network that ships is {MODELS / DEFAULT_BUNDLE}"
        raise InputError(f"bundle {folder} {what}; {remedy}")
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise ValueError(
                f"the file has {path.stat().st_size} bytes, at most {MAX_MANIFEST_BYTES} are read"
            )
        manifest = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON that can be read ({shown(error)}); {_AGAIN}") from error
    if not isinstance(manifest, dict) or type(manifest.get("format")) is not int:
        raise InputError(f"{path} has no format number; {_AGAIN}")
    if manifest["format"] != FORMAT:
        remedy = "update efftam_ros" if manifest["format"] > FORMAT else _AGAIN
        raise InputError(
            f"{path} has format {manifest['format']}; this version reads format {FORMAT}: {remedy}"
        )
    return manifest


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not allowed in JSON")


class _Manifest:
    """Reads entries from a bundle's manifest and checks their types and values.

    An entry that is missing or wrong raises InputError with the entry's name.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self._folder = folder
        self._manifest = manifest

    def bundle(self) -> Bundle:
        files = self._get("files", dict)
        for file in files:
            self._require(
                PLAIN_NAME.fullmatch(file), "files", file, "names of files in the bundle's own folder"
            )
            at = f"files/{file}"
            digest, size = (
                self._get(f"{at}/sha256", str, separator="/"),
                self._get(f"{at}/bytes", int, separator="/"),
            )
            self._require(SHA256.fullmatch(digest), f"{at}/sha256", digest, "64 hexadecimal digits")
            self._require(size >= 0, f"{at}/bytes", size, "0 or more")
        side, name = self._get("image.side", int), self._get("name", str)
        fits = 16 <= side <= MAX_SIDE and side % 16 == 0
        self._require(fits, "image.side", side, f"a positive multiple of 16 up to {MAX_SIDE}")
        plain = "letters, digits, dots, dashes and underscores"
        self._require(PLAIN_NAME.fullmatch(name), "name", name, plain)
        spec = PipelineSpec(
            name=name,
            image_side=side,
            temporal_rows=self._number("protocol.temporal_rows", 2, MAX_ROWS, int),
            max_maps=self._number("protocol.max_maps", 1, MAX_ROWS, (int, type(None))),
            max_pointers=self._number("protocol.max_pointers", 1, MAX_ROWS, int),
            slots=RING_SLOTS,
            recent_maps=self._number("protocol.recent_maps", 0, MAX_ROWS, int),
            default_view=self._one_of("protocol.default_view", ("auto", "full", "window")),
            window_factor=float(self._number("protocol.window_factor", 1.0, 100.0)),
            box_head=self._box_head(),
        )
        return Bundle(
            folder=self._folder,
            spec=spec,
            family=self._get("family", str),
            mean=self._triple("image.mean", 0.0, 1.0),
            std=self._triple("image.std", 1e-3, 10.0),
            memory_dtype=self._one_of("protocol.memory_dtype", ("float32", "bfloat16")),
            key_layout=self._get("protocol.key_layout", str),
            graphs={name: self._graph(name) for name in self._get("graphs", dict)},
            source=self._get("source", dict),
            exporter=self._get("exporter", dict),
        )

    def _box_head(self) -> BoxHead | None:
        if "box_head" not in self._manifest:
            return None
        level, prompt = (float(self._number(f"box_head.{name}", 0.0, 1.0)) for name in HEAD_SHARES)
        return BoxHead(level, prompt)

    def _graph(self, name: str) -> BundleGraph:
        file = self._get(f"graphs.{name}.file", str)
        own = "the name of a file in the bundle's own folder"
        self._require(PLAIN_NAME.fullmatch(file), f"graphs.{name}.file", file, own)
        inputs, outputs = (self._tensors(f"graphs.{name}.{kind}") for kind in ("inputs", "outputs"))
        return BundleGraph(name, self._folder / file, inputs, outputs)

    def _tensors(self, where: str) -> dict[str, Tensor]:
        tensors = {}
        for name in self._get(where, dict):
            shape = self._get(f"{where}.{name}.shape", list)
            fits = all(isinstance(a, str) or (type(a) is int and 0 < a <= MAX_AXIS) for a in shape)
            self._require(fits, f"{where}.{name}.shape", shape, "positive sizes or axis names")
            tensors[name] = Tensor(self._get(f"{where}.{name}.dtype", str), tuple(shape))
        return tensors

    def _triple(self, where: str, low: float, high: float) -> tuple[float, float, float]:
        values = self._get(where, list)
        fits = len(values) == 3 and all(type(v) in (int, float) and low <= v <= high for v in values)
        self._require(fits, where, values, f"three numbers from {low:g} to {high:g}")
        return float(values[0]), float(values[1]), float(values[2])

    def _number(self, where: str, low: float, high: float, kind: Any = (int, float)) -> Any:
        value = self._get(where, kind)
        self._require(value is None or low <= value <= high, where, value, f"from {low:g} to {high:g}")
        return value

    def _one_of(self, where: str, allowed: tuple[str, ...]) -> str:
        value = self._get(where, str)
        self._require(value in allowed, where, value, f"one of {', '.join(allowed)}")
        return value

    def _get(self, where: str, kind: Any, *, separator: str = ".") -> Any:
        value: Any = self._manifest
        for key in where.split(separator):
            self._require(isinstance(value, dict) and key in value, where, None, "present")
            value = value[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        expected = f"of type {' or '.join(k.__name__ for k in kinds)}"
        self._require(isinstance(value, kinds) and not isinstance(value, bool), where, value, expected)
        return value

    def _require(self, holds: Any, where: str, value: Any, expected: str) -> None:
        if not holds:
            found = "missing" if expected == "present" else shown(value)
            raise InputError(
                f"{self._folder / MANIFEST}: {where} is {found}; it must be {expected}; {_AGAIN}"
            )


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _check_file(path: Path, sha256: str, size: int) -> None:
    """Raise InputError if a file has another size or hash than the manifest states.

    The hash is computed only once in a process, unless the file's size or modification time differs.
    """
    if not path.is_file():
        raise InputError(f"bundle file {path} is missing; {_AGAIN}")
    stat = path.stat()
    if stat.st_size != size:
        raise InputError(f"bundle file {path} has {stat.st_size} bytes, the manifest names {size}; {_AGAIN}")
    key = (str(path.resolve()), stat.st_mtime_ns, stat.st_size, sha256)
    if key in _checked:
        return
    found = file_sha256(path)
    if found != sha256:
        raise InputError(
            f"bundle file {path} has sha256 {found[:12]}..., the manifest names {sha256[:12]}...; {_AGAIN}"
        )
    _checked.add(key)


def _locations(path: Path) -> frozenset[str]:
    """Return the same as `external_files`, but read the graph only once in a process.

    The graph is read again if the file's size or modification time differs.
    """
    stat = path.stat()
    key = (str(path.resolve()), stat.st_mtime_ns, stat.st_size)
    if key not in _located:
        _located[key] = external_files(path)
    return _located[key]
