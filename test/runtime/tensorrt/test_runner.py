"""Engines on a stream: right numbers, right order, one graph launch per run, and faults that are told."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from runtime.cuda.fake_cuda import FakeGpu
from runtime.tensorrt.fake_tensorrt import VERSIONS, make_fake
from support.bound_graphs import Bound, Device
from support.gpu_rig import built

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.bundle import Bundle, Tensor, default_bundle
from efftam_ros.runtime.cuda.api import Cuda, CudaError, DeviceFacts
from efftam_ros.runtime.cuda.memory import DeviceBuffer
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.tensorrt.engine_set import profiles_of
from efftam_ros.runtime.tensorrt.library import Library, TensorRTError
from efftam_ros.runtime.tensorrt.runner import TrtGraphs
from efftam_workshop.export.tensorrt.builder import build_engine

TABLES = {name: (graph.inputs, graph.outputs) for name, graph in default_bundle().graphs.items()}
CAPTURE_UNSUPPORTED, LOST = 900, 999


@pytest.fixture
def device(cuda: Cuda, stream: Stream) -> Device:
    return Device(cuda, stream)


@pytest.fixture
def plans(library: Library, shipped: Bundle, facts: DeviceFacts) -> Callable[[str], bytes]:
    return partial(built, library, shipped)


@pytest.fixture
def graphs(library: Library, stream: Stream, plans: Callable[[str], bytes]) -> TrtGraphs:
    return TrtGraphs(library, stream, TABLES, plans)


@pytest.fixture
def decoder(graphs: TrtGraphs, device: Device, shipped: Bundle) -> Bound:
    """The mask decoder in a fixed binding, bound."""
    return bound(graphs, device, shipped, "mask_decoder", fixed=True)


def bound(graphs: TrtGraphs, device: Device, shipped: Bundle, name: str, fixed: bool, **axes: int) -> Bound:
    made = Bound(device, graphs.open(name).binding(fixed), shipped.graphs[name].path, **axes)
    made.bind()
    return made


# What is told.


@pytest.mark.parametrize("version", VERSIONS)
def test_every_recorded_version_tells_its_layers_and_memory(
    version: str, gpu: FakeGpu, facts: DeviceFacts, device: Device, shipped: Bundle
) -> None:
    library = Library.of(make_fake(version, gpu))
    graphs = TrtGraphs(library, device.stream, TABLES, partial(built, library, shipped))
    assert graphs.open("memory_encoder").layers()[0]["Name"] == "whole_graph"
    assert graphs.device_bytes > 1 << 20
    graphs.close()


# What a run costs.


def test_after_its_first_run_a_fixed_binding_is_one_graph_launch_and_nothing_of_tensorrt(
    trt: Any, gpu: FakeGpu, decoder: Bound
) -> None:
    decoder.binding.run()
    trt.fake.told.clear()
    mark = gpu.mark("steady")
    for _ in range(5):
        decoder.binding.run()
    assert [call.name for call in gpu.since(mark)] == ["cuGraphLaunch"] * 5
    assert trt.fake.told == []


def test_a_free_binding_tells_tensorrt_only_what_changed(
    trt: Any, graphs: TrtGraphs, device: Device, shipped: Bundle
) -> None:
    one = bound(graphs, device, shipped, "mask_decoder", fixed=False)
    one.binding.run()
    trt.fake.told.clear()
    one.bind()
    one.binding.run()
    assert trt.fake.told == ["execute_async_v3"]
    trt.fake.told.clear()
    moved = device.put(one.feeds["dense"])
    one.binding.bind("dense", moved.pointer, one.feeds["dense"].shape)
    one.binding.run()
    assert trt.fake.told == ["set_tensor_address dense", "execute_async_v3"]
    one.check()


# Where capture can't be.


def test_work_that_can_not_be_captured_runs_plainly_and_says_why(trt: Any, decoder: Bound) -> None:
    trt.fake.faults.add("capture")
    decoder.binding.run()
    assert decoder.binding.launch.startswith("plain launches: mask_decoder: execute_async_v3 failed (Cask")
    trt.fake.told.clear()
    for seed in range(2):
        decoder.feed(seed)
        decoder.binding.run()
        decoder.check()
    assert trt.fake.told == ["execute_async_v3"] * 2


@pytest.mark.parametrize("call", ["cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate"])
def test_a_capture_that_cuda_refuses_is_told_and_the_runs_go_on(
    gpu: FakeGpu, decoder: Bound, call: str
) -> None:
    gpu.fail(call, CAPTURE_UNSUPPORTED)
    decoder.binding.run()
    assert decoder.binding.launch.startswith(f"plain launches: {call} failed")
    if call != "cuStreamEndCapture":  # where the fake still captures, as nothing ended it
        decoder.feed(3)
        decoder.binding.run()
        decoder.check()


def test_a_device_that_is_lost_during_capture_is_no_reason_to_go_on(gpu: FakeGpu, decoder: Bound) -> None:
    gpu.fail("cuStreamBeginCapture", LOST)
    with pytest.raises(CudaError, match="restart it"):
        decoder.binding.run()


# Faults.


@pytest.mark.parametrize("call", ["set_input_shape", "set_tensor_address", "execute_async_v3"])
@pytest.mark.parametrize("fixed", [True, False])
def test_every_false_of_tensorrt_is_an_error_with_its_reason(
    trt: Any, graphs: TrtGraphs, device: Device, shipped: Bundle, call: str, fixed: bool
) -> None:
    one = bound(graphs, device, shipped, "memory_encoder", fixed)
    trt.fake.faults.add(call)
    with pytest.raises(TensorRTError) as refused:
        one.binding.run()
    assert f"memory_encoder: {call}" in str(refused.value)
    assert f"({call} was told to fail)" in str(refused.value)
    trt.fake.faults.clear()
    one.binding.run()
    one.check()


def test_shapes_outside_the_profile_are_an_error_with_tensorrts_reason(
    graphs: TrtGraphs, device: Device, shipped: Bundle
) -> None:
    one = bound(graphs, device, shipped, "prompt_encoder", fixed=False, n=257)
    with pytest.raises(TensorRTError, match=r"set_input_shape of \w+ .* is outside its profile"):
        one.binding.run()


def test_a_shape_that_tensorrt_still_misses_is_named(
    trt: Any, graphs: TrtGraphs, device: Device, shipped: Bundle
) -> None:
    one = bound(graphs, device, shipped, "prompt_encoder", fixed=False, n=2)
    trt.fake.faults.add("infer_shapes")
    raising = trt.__version__.startswith("10.3")  # as pyCore.cpp does there
    said = r"infer_shapes failed \(inferShapes: error" if raising else "infer_shapes without points failed"
    with pytest.raises(TensorRTError, match=said):
        one.binding.run()


def test_an_output_that_comes_out_larger_than_bound_is_refused_not_overrun(
    trt: Any, library: Library, facts: DeviceFacts, device: Device, tmp_path: Path
) -> None:
    doubled = {name: Tensor("float32", (1, "n")) for name in "xy"}
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, "n"]) for name in "xy"]
    node = onnx.helper.make_node("Add", ["x", "x"], ["y"])
    graph = onnx.helper.make_graph([node], "twice", tensors[:1], tensors[1:])
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
    plan = build_engine(library, model, profiles=profiles_of({"x": doubled["x"]}))
    tables = {"twice": ({"x": doubled["x"]}, {"y": doubled["y"]})}
    graphs = TrtGraphs(library, device.stream, tables, lambda name: plan)
    binding = graphs.open("twice").binding(False)
    x, y = (device.put(np.ones((1, 64), np.float32)) for _ in "xy")
    binding.bind("x", x.pointer, (1, 64))
    binding.bind("y", y.pointer, (1, 60))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"y has the shape \[1, 64\], but is bound as \[1, 60\]"):
            binding.run()
    assert "execute_async_v3" not in trt.fake.told
    binding.bind("y", y.pointer, (1, 64))
    binding.run()
    assert (device.get(y, (1, 64)) == 2).all()
    binding.bind("x", x.pointer, (1, 32))  # the output is as it was
    for _ in range(2):
        with pytest.raises(ValueError, match=r"y has the shape \[1, 32\], but is bound as \[1, 64\]"):
            binding.run()


def test_too_little_memory_for_a_context_is_refused(trt: Any, graphs: TrtGraphs) -> None:
    graph = graphs.open("mask_decoder")
    trt.fake.faults.add("context")
    with pytest.raises(BackendError, match=r"can't run mask_decoder \(context was told.*smaller bundle"):
        graph.binding(True)


def test_too_little_memory_for_the_engines_work_is_refused(
    gpu: FakeGpu, graphs: TrtGraphs, device: Device, shipped: Bundle
) -> None:
    one = bound(graphs, device, shipped, "memory_attention_fixed", fixed=True)
    taken = DeviceBuffer(device.cuda, gpu.memory.free_bytes - (1 << 20))
    with pytest.raises(BackendError, match=r"TensorRT needs \d+ MB of working memory .*smaller bundle") as no:
        one.binding.run()
    assert "\n" not in str(no.value)
    taken.free()
    one.binding.run()
    one.check()


def test_engines_of_one_stream_share_their_working_memory(
    trt: Any, gpu: FakeGpu, graphs: TrtGraphs, device: Device, shipped: Bundle
) -> None:
    opened = [graphs.open(name) for name in ("mask_decoder", "memory_attention_fixed", "memory_encoder")]
    bindings = [graph.binding(fixed) for graph in opened for fixed in (True, False)]
    ones = []
    for index, binding in enumerate(bindings):
        name = opened[index // 2].name
        ones.append(Bound(device, binding, shipped.graphs[name].path, seed=index))
        ones[-1].bind()
    before = len(gpu.calls("cuMemAlloc"))
    for one in (*ones, *ones):
        one.binding.run()
    for one in ones:
        one.check()
    assert len(gpu.calls("cuMemAlloc")) - before == 1


def test_an_engine_that_needs_more_and_comes_later_leaves_the_captured_ones_alone(
    graphs: TrtGraphs, device: Device, shipped: Bundle
) -> None:
    small = bound(graphs, device, shipped, "mask_decoder", fixed=True)
    small.binding.run()
    large = bound(graphs, device, shipped, "memory_attention_fixed", fixed=True)
    for seed in (1, 2):
        for one in (small, large):
            one.feed(seed)
            one.binding.run()
            one.check()


def test_a_driver_that_is_older_than_tensorrts_cuda_is_named(
    trt: Any, library: Library, facts: DeviceFacts, stream: Stream, shipped: Bundle
) -> None:
    trt.fake.faults.add("driver")
    for start in (
        lambda: TrtGraphs(library, stream, TABLES, lambda name: b""),
        lambda: built(library, shipped, "mask_decoder"),
    ):
        with pytest.raises(
            BackendError, match=r"does not start \(.*error: 35\); update the NVIDIA"
        ) as refused:
            start()
        assert "\n" not in str(refused.value)


# Engines that don't belong here.


OLD = b'fake engine\n{"version": "9.0"}\n'


@pytest.mark.parametrize(
    ("plan", "changed", "said"),
    [
        *((plan, {}, "can't load the engine of mask_decoder (") for plan in (b"", b"not an engine", OLD)),
        ("memory_encoder", {}, "the engine of mask_decoder has inputs binarize, "),
        *(
            ("mask_decoder", {name: tensor}, f"; the bundle declares {tensor}; build")
            for name, tensor in (
                ("sparse", Tensor("float32", (1, 4, 128))),
                ("sparse", Tensor("float16", (1, 3, 128))),
                ("sparse", Tensor("float32", (1, "t", 128))),  # buffers are made for the table's sizes
                ("areas", Tensor("float32", (5,))),
                ("areas", Tensor("int64", (4,))),
            )
        ),
    ],
)
def test_an_engine_that_does_not_load_or_is_another_is_refused(
    library: Library, stream: Stream, plans: Any, plan: Any, changed: dict[str, Tensor], said: str
) -> None:
    inputs, outputs = (
        {name: changed.get(name, tensor) for name, tensor in table.items()}
        for table in TABLES["mask_decoder"]
    )
    tables = {"mask_decoder": (inputs, outputs)}
    graphs = TrtGraphs(library, stream, tables, lambda name: plan if isinstance(plan, bytes) else plans(plan))
    with pytest.raises(BackendError) as refused:
        graphs.open("mask_decoder")
    text = str(refused.value)
    assert said in text
    assert all(f" {name} {tensor}" in text for name, tensor in was(changed).items())


def was(changed: dict[str, Tensor]) -> dict[str, Tensor]:
    """What these tensors are in the bundle."""
    inputs, outputs = TABLES["mask_decoder"]
    return {name: {**inputs, **outputs}[name] for name in changed}


def test_a_tensor_that_must_lie_in_host_memory_is_refused(trt: Any, graphs: TrtGraphs) -> None:
    trt.fake.faults.add("host points")
    with pytest.raises(BackendError, match="needs input points in host memory"):
        graphs.open("prompt_encoder")


# Opening and closing.


def test_contexts_go_before_engines_and_engines_before_the_runtime(
    trt: Any, gpu: FakeGpu, graphs: TrtGraphs, device: Device, shipped: Bundle
) -> None:
    held = gpu.driver.functions.held
    for name, fixed in (("mask_decoder", True), ("memory_encoder", False), ("mask_decoder", False)):
        one = bound(graphs, device, shipped, name, fixed)
        one.binding.run()
    device.stream.synchronize()
    assert gpu.driver.functions.held > held
    graphs.close()
    graphs.close()
    with pytest.raises(RuntimeError, match="closed"):
        graphs.open("mask_decoder")
    assert gpu.driver.functions.held == held
    gc.collect()
    order = trt.fake.gone
    assert sorted(order) == ["context"] * 3 + ["engine"] * 3 + ["runtime"]
    assert order[-1] == "runtime"
    assert all(
        order[:i].count("context") > order[:i].count("engine") for i, g in enumerate(order) if g == "engine"
    )


def test_what_a_pipeline_is_made_of_names_each_engine(graphs: TrtGraphs, library: Library) -> None:
    """A check at start-up is for these very engines."""
    told = [graphs.made_of]
    for name in ("mask_decoder", "memory_encoder"):
        graphs.open(name)
        told.append(graphs.made_of)
    assert told[0] == f"TensorRT {library.dotted}"
    assert len(set(told)) == 3
    assert all(later.startswith(earlier) for earlier, later in pairwise(told))


def test_held_memory_is_that_of_the_weights_and_one_working_memory(
    graphs: TrtGraphs, device: Device, shipped: Bundle
) -> None:
    assert graphs.device_bytes == 0
    graph = graphs.open("mask_decoder")
    one_engine = graphs.device_bytes
    for fixed in (True, False):
        graph.binding(fixed)
    assert graphs.device_bytes == one_engine
    graphs.open("mask_decoder")
    assert one_engine < graphs.device_bytes < 2 * one_engine
    one = bound(graphs, device, shipped, "memory_encoder", fixed=False)
    before = graphs.device_bytes
    one.binding.run()
    assert graphs.device_bytes == before, "what it will allocate counts before"
    device.stream.synchronize()
    graphs.close()
    assert graphs.device_bytes == 0
