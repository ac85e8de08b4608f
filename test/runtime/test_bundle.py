"""Bundles: what is read, what is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import Bundle, Tensor, external_files, file_sha256
from efftam_ros.runtime.onnxruntime.cpu import OrtPipeline

Manifest = dict[str, Any]
Spoil = Callable[[Callable[[Manifest], None]], Path]


def one_line(refusal: pytest.ExceptionInfo[InputError]) -> str:
    text = str(refusal.value)
    assert "\n" not in text
    return text


def test_the_network_that_ships_fits_in_ten_megabytes(shipped: Bundle) -> None:
    assert sum(path.stat().st_size for path in shipped.folder.iterdir()) < 10e6


def test_what_is_no_bundle_is_named_and_the_network_that_ships_where_its_name_was_given(
    tmp_path: Path, shipped: Bundle
) -> None:
    for folder, said in (
        (tmp_path, r"is not a bundle: it has no bundle\.json; give a folder made by"),
        (tmp_path / "nowhere", "does not exist; give a folder made by"),
        (tmp_path / shipped.folder.name, f"does not exist; the network that ships is {shipped.folder}$"),
    ):
        with pytest.raises(InputError, match=said) as refusal:
            Bundle.load(folder)
        assert str(folder) in one_line(refusal)


@pytest.mark.parametrize("text", ["{", "[1]", "{}", '{"format": "1"}'])
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bundle.json").write_text(text)
    with pytest.raises(
        InputError, match=r"bundle\.json (is not JSON|has no format number).*again"
    ) as refusal:
        Bundle.load(tmp_path)
    one_line(refusal)


@pytest.mark.parametrize(
    ("number", "remedy"), [(2, "update efftam_ros"), (0, "export or fetch the bundle again")]
)
def test_a_newer_format_asks_for_a_newer_program_and_an_older_one_for_a_newer_bundle(
    spoiled: Spoil, number: int, remedy: str
) -> None:
    with pytest.raises(InputError, match=f"has format {number}; this version reads format 1: {remedy}"):
        Bundle.load(spoiled(lambda manifest: manifest.update(format=number)))


MISSING = object()
OTHER_GRAPH = {"file": "image_encoder.onnx", "inputs": {}, "outputs": {}}
OTHER_TENSOR = {"dtype": "float32", "shape": [1]}
ENCODER, DECODER = "graphs/image_encoder", "graphs/mask_decoder"
ATTENTION, POINTER = "graphs/memory_attention/inputs", "graphs/memory_encoder/outputs/stored_pointer"


@pytest.mark.parametrize(
    ("entry", "value", "said"),
    [
        ("name", MISSING, "name is missing; it must be present"),
        ("protocol/max_pointers", MISSING, "protocol.max_pointers is missing"),
        ("image/side", "192", "image.side is '192'; it must be of type int"),
        ("image/side", True, "image.side is True; it must be of type int"),
        ("image/side", 100, "image.side is 100; it must be a positive multiple of 16"),
        ("image/mean", [0.5, 0.5], r"image.mean is \[0.5, 0.5\]; it must be three numbers"),
        ("protocol/memory_dtype", "float8", "'float8'; it must be one of float32, bfloat16"),
        ("protocol/default_view", "zoom", "'zoom'; it must be one of auto, full, window"),
        ("protocol/window_factor", "wide", "window_factor is 'wide'; it must be of type int or float"),
        (f"{DECODER}/file", MISSING, "graphs.mask_decoder.file is missing"),
        (DECODER, MISSING, "has no graph mask_decoder"),
        ("graphs/extra", OTHER_GRAPH, "unknown graph extra"),
        (f"{DECODER}/outputs/ious", MISSING, "mask_decoder lacks output ious"),
        (f"{DECODER}/outputs/depth", OTHER_TENSOR, "mask_decoder has an unknown output depth"),
        (
            f"{ENCODER}/outputs/features_s8",
            MISSING,
            "decoder needs features_s8, which image_encoder does not",
        ),
        ("files/mask_decoder.onnx", MISSING, "graph file mask_decoder.onnx is not listed under files"),
        ("files/mask_decoder.onnx/sha256", MISSING, "files/mask_decoder.onnx/sha256 is missing"),
        # Tensors that do not fit together.
        (
            f"{ENCODER}/outputs/features/shape",
            [1, 128, 13, 12],
            r"output features is float32 \[1, 128, 13, 12\]; it must be float32 \[1, 128, 12, 12\]",
        ),
        (f"{ENCODER}/outputs/features/shape", [1, 3, 12.5], r"is \[1, 3, 12.5\]; .* sizes or axis names"),
        (f"{POINTER}/shape", [1, 64], r"pointer is float32 \[1, 64\]; it must be float32 \[1, 128\]"),
        (f"{ATTENTION}/rows/dtype", "float32", r"rows is float32 \[T\]; it must be int64 \[T\]"),
        (f"{ATTENTION}/maps/shape", [7, 144, 64], r"maps is .*; it must be float32 \[T, 144, M\]"),
        (f"{ATTENTION}/maps/shape", ["T", 144, "M"], r"maps is float32 \[T, 144, M\]; it must be"),
        # What leads elsewhere or asks for too much.
        ("name", "x/../../engine", "name is 'x/../../engine'; it must be letters"),
        ("name", "x" * 1000, "name is 'xxx"),
        (
            f"{DECODER}/file",
            "x/../../y.onnx",
            "is 'x/../../y.onnx'; it must be .* in the bundle's own folder",
        ),
        ("files", {"x/../../y": {}}, "files is 'x/../../y'; it must be names .* in the bundle's own folder"),
        ("image/std", [0.5, 0.5, 0.0], "image.std is .* three numbers from 0.001 to 10"),
        ("image/mean", [0.5, -0.5, 0.5], "image.mean is .* from 0 to 1"),
        ("image/mean", [0.5, 0.5, True], "image.mean is"),
        ("protocol/max_pointers", -3, "max_pointers is -3; it must be from 1 to 64"),
        ("protocol/temporal_rows", 10**400, "temporal_rows is 1000.* from 2 to 64"),
        ("protocol/recent_maps", -1, "recent_maps is -1"),
        ("protocol/max_maps", 0, "max_maps is 0"),
        ("protocol/window_factor", 10**400, "window_factor is 1000.* from 1 to 100"),
        ("protocol/window_factor", 0, "window_factor is 0"),
        ("image/side", 1 << 20, "image.side is 1048576; it must be .* up to 4096"),
        ("files/mask_decoder.onnx/bytes", -1, "bytes is -1; it must be 0 or more"),
        ("files/mask_decoder.onnx/sha256", "00", "must be 64 hexadecimal digits"),
        (f"{ENCODER}/outputs/features/shape", [1, 10**12], "features.shape is .* positive sizes"),
        ("box_head/level_share", 1.5, "box_head.level_share is 1.5; it must be from 0 to 1"),
        ("box_head/prompt_share", MISSING, "box_head.prompt_share is missing"),
        ("box_head", MISSING, "box_head and mask_decoder's output levels need each other"),
    ],
)
def test_a_faulty_manifest_is_refused_naming_the_entry(
    spoiled: Spoil, entry: str, value: Any, said: str
) -> None:
    def change(manifest: Manifest) -> None:
        *path, last = entry.split("/")
        for key in path:
            manifest = manifest[key]
        manifest[last] = value
        if value is MISSING:
            del manifest[last]

    folder = spoiled(change)
    with pytest.raises(InputError, match=said) as refusal:
        Bundle.load(folder)
    assert str(folder) in one_line(refusal)
    assert len(str(refusal.value)) < 400 + len(str(folder))


@pytest.mark.parametrize(
    "limits",
    [
        {"temporal_rows": 2, "max_maps": 1, "max_pointers": 1, "recent_maps": 0, "window_factor": 1},
        {"default_view": "full", "max_maps": 3, "max_pointers": 4, "recent_maps": 5},
        {"temporal_rows": 64, "max_maps": 64, "max_pointers": 64, "recent_maps": 64, "window_factor": 100.0},
        {"max_maps": None},
    ],
)
def test_the_limits_themselves_are_taken(spoiled: Spoil, limits: Manifest) -> None:
    def change(manifest: Manifest) -> None:
        manifest["protocol"].update(limits)
        manifest["image"].update(mean=[0, 0.5, 1], std=[0.001, 0.5, 10])

    bundle = Bundle.load(spoiled(change))
    assert {key: getattr(bundle.spec, key) for key in limits} == limits
    assert (bundle.spec.name, bundle.spec.image_side, bundle.spec.slots) == ("compact_192", 192, 24)
    assert (bundle.mean, bundle.std) == ((0.0, 0.5, 1.0), (0.001, 0.5, 10.0))


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", "[" * 100_000 + "]" * 100_000, " " * 2**21]
)
def test_a_manifest_with_what_no_json_should_hold_is_refused(spoiled: Spoil, value: str) -> None:
    path = spoiled(unchanged) / "bundle.json"
    path.write_text(re.sub(r'"window_factor": [0-9.]+', f'"window_factor": {value}', path.read_text()))
    assert value in path.read_text()
    with pytest.raises(InputError, match="is not JSON that can be read") as refusal:
        Bundle.load(path.parent)
    one_line(refusal)


def with_file(folder: Path, name: str, content: bytes) -> Path:
    """The bundle with one file replaced, and a manifest that agrees with it."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "bundle.json").read_text())
    manifest["files"][name] = {
        "sha256": file_sha256(folder / name),
        "bytes": (folder / name).stat().st_size,
    }
    (folder / "bundle.json").write_text(json.dumps(manifest))
    return folder


def put_elsewhere(tensor: Any, location: str) -> None:
    tensor.ClearField("raw_data")
    tensor.data_location = 1
    for key, value in (("location", location), ("offset", "0"), ("length", "4")):
        tensor.external_data.add(key=key, value=value)


@pytest.mark.parametrize("location", ["../elsewhere/net.weights", "unlisted_network.weights"])
def test_weights_that_no_entry_covers_are_refused(spoiled: Spoil, location: str) -> None:
    """Also in a graph that was read before, is as long as it was, and whose neighbour is there."""
    folder, listed = spoiled(unchanged), "memory_attention.weights"
    Bundle.load(folder)
    (folder / location).parent.mkdir(exist_ok=True)
    shutil.copy(folder / listed, folder / location)
    graph = (folder / "memory_attention.onnx").read_bytes().replace(listed.encode(), location.encode())
    with_file(folder, "memory_attention.onnx", graph)
    with pytest.raises(InputError, match=f"attention.onnx reads '{re.escape(location)}', which is not"):
        Bundle.load(folder)


def test_weights_hidden_in_a_node_or_a_graph_within_are_found_too(spoiled: Spoil) -> None:
    onnx = pytest.importorskip("onnx")
    folder, name = spoiled(unchanged), "mask_decoder.onnx"
    model = onnx.load(folder / name, load_external_data=False)
    constant = onnx.helper.make_node("Constant", [], ["hidden"], value=onnx.TensorProto(data_type=1))
    put_elsewhere(constant.attribute[0].t, "in_a_node.bin")
    inner = onnx.helper.make_graph([constant], "inner", [], [])
    model.graph.node.append(onnx.helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner))
    with pytest.raises(InputError, match=r"reads 'in_a_node\.bin'"):
        Bundle.load(with_file(folder, name, model.SerializeToString()))


def test_a_graph_that_loads_compiled_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / "graph.onnx").write_bytes(b"before EPContext behind")
    with pytest.raises(InputError, match=r"graph\.onnx has a node EPContext, which loads compiled code"):
        external_files(tmp_path / "graph.onnx")


ENTRY = b"\x0a\x08location\x12\x03a.b"


@pytest.mark.parametrize(
    "entry",
    [
        b"\x6a\x14" + ENTRY + b"\x12\x03c.d",  # of two values the last one counts
        b"\x6a\x0f\x12\x03a.b\x0a\x08location",
        b"\x6a\x10" + ENTRY.replace(b"\x08", b"\x88\x00"),
        b"\x6a\x90\x01" + ENTRY.replace(b"\x03a.b", b"\x84\x01" + b"a" * 132),
        b"\x6a\x0f" + ENTRY + b"the location",
    ],
)
def test_a_name_that_is_written_in_another_way_than_exporters_do_is_refused(
    tmp_path: Path, entry: bytes
) -> None:
    path = tmp_path / "graph.onnx"
    path.write_bytes(b"before" + b"\x6a\x0f" + ENTRY + b"behind")
    assert external_files(path) == {"a.b"}
    path.write_bytes(b"before" + entry)
    with pytest.raises(InputError, match="can't be read"):
        external_files(path)


def unchanged(manifest: Manifest) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (None, r"bundle file .*mask_decoder\.onnx is missing; export or fetch the bundle again"),
        (
            lambda content: content[:1000],
            r"onnx has 1000 bytes, the manifest names \d+; export or fetch",
        ),
        (
            lambda content: content[:-1] + bytes([content[-1] ^ 1]),
            r"has sha256 [0-9a-f]{12}\.\.\., the manifest names [0-9a-f]{12}",
        ),
    ],
    ids=["missing", "truncated", "changed"],
)
def test_a_file_that_is_not_as_listed_is_refused(
    spoiled: Spoil, change: Callable[[bytes], bytes] | None, said: str
) -> None:
    folder = spoiled(unchanged)
    Bundle.load(folder)
    path = folder / "mask_decoder.onnx"
    content = path.read_bytes()
    path.unlink()
    if change is not None:
        path.write_bytes(change(content))
    for _ in range(2):  # what was refused is not known as good afterwards
        with pytest.raises(InputError, match=said):
            Bundle.load(folder)


def test_a_file_is_read_for_its_hash_once(spoiled: Spoil, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = spoiled(unchanged)
    Bundle.load(folder)
    opened = []
    original = Path.open
    monkeypatch.setattr(
        Path, "open", lambda self, *a, **k: opened.append(self.name) or original(self, *a, **k)
    )
    Bundle.load(folder)
    assert not [name for name in opened if name.endswith((".onnx", ".weights"))]
    manifest = json.loads((folder / "bundle.json").read_text())
    manifest["files"]["mask_decoder.onnx"]["sha256"] = "0" * 64
    (folder / "bundle.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match="the manifest names 000000000000"):
        Bundle.load(folder)


class TestGraphsThatAreNotWhatTheTableSays:
    """The hash fits, so the exporter wrote a wrong table or took a wrong file."""

    @staticmethod
    def swap(manifest: Manifest) -> None:
        graphs = manifest["graphs"]
        graphs["mask_decoder"]["file"] = graphs["memory_encoder"]["file"]

    @staticmethod
    def halve(manifest: Manifest) -> None:
        for graph in manifest["graphs"].values():
            for tensor in (*graph["inputs"].values(), *graph["outputs"].values()):
                tensor["shape"] = [32 if axis == 64 else axis for axis in tensor["shape"]]

    @pytest.mark.parametrize(
        ("change", "words"),
        [("swap", ("memory_encoder.onnx", "mask_logits", "conditioned")), ("halve", ("64", "32"))],
    )
    def test_other_tensors(self, spoiled: Spoil, change: str, words: tuple[str, ...]) -> None:
        bundle = Bundle.load(spoiled(getattr(self, change)))
        with pytest.raises(InputError) as e:
            OrtPipeline(bundle, threads=1)
        assert [word for word in words if word not in one_line(e)] == []

    @pytest.mark.parametrize("content", [b"not a graph", b"\x08\x08\x3a\x00"])
    def test_no_graph_at_all(self, spoiled: Spoil, content: bytes) -> None:
        """The last one has a version and a graph without anything."""
        bundle = Bundle.load(with_file(spoiled(unchanged), "mask_decoder.onnx", content))
        with pytest.raises(
            InputError, match=r"onnxruntime can't load .*mask_decoder\.onnx: .*; export the bundle again"
        ) as e:
            OrtPipeline(bundle, threads=1)
        one_line(e)


@pytest.mark.parametrize("left_open", [None, "any_name"])
def test_an_opened_graph_may_leave_axes_open_that_the_table_leaves_open(
    shipped: Bundle, left_open: str | None
) -> None:
    def opened(name: str, tensor: Tensor) -> Any:
        kind = {"float32": "tensor(float)", "int64": "tensor(int64)"}[tensor.dtype]
        shape = [left_open if isinstance(axis, str) else axis for axis in tensor.shape]
        return SimpleNamespace(name=name, type=kind, shape=shape)

    graph = shipped.graphs["prompt_encoder"]
    tables = ([opened(*one) for one in table.items()] for table in (graph.inputs, graph.outputs))
    shipped.check_session("prompt_encoder", *tables)


def test_a_bundle_may_lie_anywhere(shipped: Bundle, tmp_path: Path) -> None:
    folder = tmp_path / "with a space" / "ünicode"
    shutil.copytree(shipped.folder, folder)
    OrtPipeline(Bundle.load(str(folder)), threads=1).close()
