"""Where nodes run, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import onnxruntime
import pytest

from efftam_ros.core.errors import BackendError
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.onnxruntime.graph import (
    Node,
    check_placement,
    read_assignment,
)

CPU, CUDA, TENSORRT = "CPUExecutionProvider", "CUDAExecutionProvider", "TensorrtExecutionProvider"


@pytest.mark.parametrize("op_type", ["Conv", "MatMul", "Softmax", "Resize", "Cast", "MemcpyToHost", "Concat"])
@pytest.mark.parametrize("provider", [CPU, CUDA])
def test_work_on_another_provider_is_refused_and_shape_arithmetic_is_told(
    op_type: str, provider: str
) -> None:
    shapes = [Node(provider, kind, "") for kind in ("Gather", "Range", "Shape")]
    nodes = [Node(TENSORRT, "Conv", "first"), *shapes]
    assert check_placement(nodes, TENSORRT, "g") == tuple(shapes)
    with pytest.raises(BackendError) as refused:
        check_placement([*nodes, Node(provider, op_type, "")], TENSORRT, "memory_attention_fixed")
    assert refused.value.reason == (
        f"memory_attention_fixed: node without a name ({op_type}) would run on {provider}, not on {TENSORRT}"
    )


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


def test_what_can_not_be_told_is_told_apart_from_nodes_on_the_cpu_which_have_an_empty_name() -> None:
    assert read_assignment(SimpleNamespace()) is None
    node = SimpleNamespace(op_type="Conv", name="a")
    parts = [SimpleNamespace(ep_name="", get_nodes=lambda: [node])]
    session = SimpleNamespace(get_provider_graph_assignment_info=lambda: parts)
    assert read_assignment(session) == [Node(CPU, "Conv", "a")]
    parts.clear()
    assert read_assignment(session) is None
