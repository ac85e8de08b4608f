"""Where nodes run, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import onnxruntime
import pytest

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.onnxruntime.graph import (
    SHAPE_OPERATORS,
    Node,
    check_placement,
    check_provider,
    read_assignment,
)

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"


@pytest.mark.parametrize("op_type", ["Conv", "MatMul", "Softmax", "Resize", "Cast", "MemcpyToHost", "Concat"])
@pytest.mark.parametrize("provider", [CPU, CUDA])
def test_work_on_another_provider_is_refused_naming_graph_node_type_and_provider(
    op_type: str, provider: str
) -> None:
    nodes = [
        Node(TENSORRT, "Conv", "first"),
        Node(provider, op_type, "/block/7"),
        Node(provider, op_type, ""),
    ]
    with pytest.raises(BackendError) as refused:
        check_placement(nodes, TENSORRT, "memory_attention_fixed")
    assert refused.value.reason == (
        f"memory_attention_fixed: node /block/7 ({op_type}) and 1 more would run on {provider},"
        f" not on {TENSORRT}"
    )
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("op_type", sorted(SHAPE_OPERATORS))
def test_arithmetic_on_shapes_may_stay_on_the_cpu(op_type: str) -> None:
    nodes = [Node(CUDA, "Conv", "a"), Node(CPU, op_type, "b")]
    assert check_placement(nodes, CUDA, "g") == (nodes[1],)


def test_a_replaced_provider_is_refused_whatever_follows_it() -> None:
    check_provider([CUDA, CPU], CUDA, "g")
    for registered in ([CPU], [CPU, CUDA], []):
        with pytest.raises(BackendError, match="could not start its CUDAExecutionProvider and opened g on"):
            check_provider(registered, CUDA, "g")


def test_a_real_session_tells_every_node(shipped: Bundle) -> None:
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = onnxruntime.InferenceSession(
        str(shipped.graphs["image_encoder"].path), options, providers=[CPU]
    )
    nodes = read_assignment(session)
    assert nodes is not None
    assert check_placement(nodes, CPU, "image_encoder") == ()
    assert sum(node.op_type in ("Conv", "FusedConv") for node in nodes) == 52
    with pytest.raises(BackendError, match=r"image_encoder: node /image_encoder/.* \(Conv\) and \d+ more"):
        check_placement(nodes, CUDA, "image_encoder")


def test_a_version_that_cant_tell_is_told_apart_from_one_that_found_nothing_elsewhere() -> None:
    assert read_assignment(SimpleNamespace()) is None
    nothing = SimpleNamespace(get_provider_graph_assignment_info=list)
    assert read_assignment(nothing) is None


def test_an_empty_provider_name_is_the_cpu() -> None:
    node = SimpleNamespace(op_type="Conv", name="a")
    part = SimpleNamespace(ep_name="", get_nodes=lambda: [node])
    session = SimpleNamespace(get_provider_graph_assignment_info=lambda: [part])
    assert read_assignment(session) == [Node(CPU, "Conv", "a")]
