"""What every library that runs graphs promises the device pipeline: right numbers, at the addresses given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from runtime.fake_ort import FakeOrt
from runtime.tensorrt.fake_tensorrt import VERSIONS, make_fake
from support.bound_graphs import Bound, Device
from support.gpu_rig import built, fake_gpu

from efftam_ros.runtime.bundle import Tensor, default_bundle
from efftam_ros.runtime.cuda.api import Cuda, open_device
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device.graph import GraphOpener, Places
from efftam_ros.runtime.onnxruntime.gpu import OrtGraphs
from efftam_ros.runtime.tensorrt.library import Library
from efftam_ros.runtime.tensorrt.runner import TrtGraphs

BUNDLE = default_bundle()
TABLES = {name: (graph.inputs, graph.outputs) for name, graph in BUNDLE.graphs.items()}
WITH_OPEN_AXES = ("prompt_encoder", "memory_attention")


class Opened:
    """A library on a stream of a fake GPU."""

    def __init__(self, name: str) -> None:
        self.gpu = fake_gpu()
        cuda = Cuda(self.gpu.driver)
        open_device(cuda)
        self.stream = Stream(cuda)
        self.device = Device(cuda, self.stream)
        self.captures = name != "onnxruntime tensorrt"
        library, _, version = name.partition(" ")
        self.graphs: GraphOpener
        if library == "tensorrt":
            trt = Library.of(make_fake(version, self.gpu))
            self.graphs = TrtGraphs(trt, self.stream, TABLES, partial(built, trt, BUNDLE))
        else:
            ort = FakeOrt(self.gpu.enqueue, self.gpu.take)
            self.graphs = OrtGraphs(BUNDLE, version, self.stream.handle, ort=ort)  # type: ignore[arg-type]

    def bound(self, name: str, fixed: bool, seed: int = 0, **axes: int) -> Bound:
        binding = self.graphs.open(name).binding(fixed)
        one = Bound(self.device, binding, BUNDLE.graphs[name].path, seed, **axes)
        one.bind()
        return one


@pytest.fixture(params=["onnxruntime cuda", "onnxruntime tensorrt", *(f"tensorrt {v}" for v in VERSIONS)])
def opened(request: pytest.FixtureRequest) -> Opened:
    return Opened(request.param)


@pytest.mark.parametrize("name", BUNDLE.graphs)
def test_every_graph_gives_what_a_plain_session_gives(opened: Opened, name: str) -> None:
    fixed = name not in WITH_OPEN_AXES
    one = opened.bound(name, fixed, n=3, T=4, P=5)
    for seed in (1, 2, 3):  # what lies there changes, where it lies doesn't
        one.feed(seed)
        one.binding.run()
        one.check()
    is_captured = one.binding.launch == "cuda graph"
    assert is_captured == (fixed and opened.captures)
    assert is_captured or one.binding.launch.startswith("plain launches: ")


def test_a_free_binding_follows_shapes_and_addresses_from_run_to_run(opened: Opened) -> None:
    binding, path = opened.graphs.open("prompt_encoder").binding(False), BUNDLE.graphs["prompt_encoder"].path
    for count in (1, 7, 256, 1):
        one = Bound(opened.device, binding, path, seed=count, n=count)
        one.bind()
        binding.run()
        one.check()


def test_bindings_of_one_graph_do_not_disturb_each_other(opened: Opened) -> None:
    graph, path = opened.graphs.open("mask_decoder"), BUNDLE.graphs["mask_decoder"].path
    ones = [
        Bound(opened.device, graph.binding(fixed), path, seed)
        for seed, fixed in enumerate((True, False, True))
    ]
    for one in ones:
        one.bind()
    for seed in (3, 6):
        for number, one in enumerate(ones):
            one.feed(seed + number)
            one.binding.run()
    for one in ones:
        one.check()


def test_an_unbound_tensor_is_named_before_anything_runs(opened: Opened) -> None:
    path = BUNDLE.graphs["mask_decoder"].path
    one = Bound(opened.device, opened.graphs.open("mask_decoder").binding(True), path)
    one.bind("sparse", "ious")
    mark = opened.gpu.mark("run")
    with pytest.raises(ValueError, match="mask_decoder: sparse, ious not bound"):
        one.binding.run()
    assert opened.gpu.since(mark) == []


def test_a_fixed_binding_does_not_move_after_its_first_run(opened: Opened) -> None:
    one = opened.bound("mask_decoder", fixed=True)
    moved, shape = opened.device.put(one.feeds["dense"]), one.feeds["dense"].shape
    one.binding.bind("dense", moved.pointer, shape)  # before it: why not
    one.bind()
    one.binding.run()
    one.bind()  # where it is: nothing moves
    with pytest.raises(ValueError, match="dense can't be bound again"):
        one.binding.bind("dense", moved.pointer, shape)


@pytest.mark.parametrize(
    ("pointer", "shape", "said"),
    [
        *((512, shape, "graph has float32") for shape in ((1,), (1, 4, 1), (2, 4), (1, 0), (0, 4))),
        *((address, (1, 4), "must be a multiple of 256") for address in (0, -256, 513, 640)),
    ],
)
def test_what_can_be_no_tensor_is_refused_and_leaves_what_was_bound(
    pointer: int, shape: tuple[int, ...], said: str
) -> None:
    places = Places("graph", {"x": Tensor("float32", (1, "n"))}, {}, fixed=False)
    assert places.put("x", 256, (1, 4))
    with pytest.raises(ValueError, match=f"graph: x was bound .*{said}"):
        places.put("x", pointer, shape)
    assert places.of == {"x": (256, (1, 4))}
    assert not places.put("x", 256, (1, 4)), "nothing changes"
    assert not places.put("of another graph", pointer, shape)


def test_once_closed_nothing_runs(opened: Opened) -> None:
    one, graph = opened.bound("mask_decoder", fixed=True), opened.graphs.open("memory_encoder")
    one.binding.run()
    opened.stream.synchronize()
    opened.graphs.close()
    opened.graphs.close()
    late: tuple[Callable[[], object], ...] = (one.binding.run, lambda: graph.binding(True))
    for call in late:
        with pytest.raises(RuntimeError, match="closed"):
            call()
