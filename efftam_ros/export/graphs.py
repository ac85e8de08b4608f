"""The six graphs of a network as traceable modules, with names, example tensors and dynamic axes
(docs/bundle.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from efftam_ros.export.fixed_form import key_count
from efftam_ros.model.boxes import boxes_and_areas
from efftam_ros.model.network import Network, NetworkSpec

Axes = dict[str, dict[int, str]]

MASK_CANDIDATES = 4


class GraphModule(nn.Module):
    """One function of a network as a module, so that the exporter finds the weights under
    ``network.<name>``."""

    def __init__(self, network: Network, function: Callable[..., tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.network = network
        self.function = function

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.function(self.network, *inputs)


@dataclass(frozen=True)
class Graph:
    """What is traced. ``inputs`` are example tensors by name, in the order of ``module``'s arguments;
    ``axes`` names the dynamic axes of inputs and outputs."""

    name: str
    module: GraphModule
    inputs: dict[str, Tensor]
    outputs: tuple[str, ...]
    axes: Axes = field(default_factory=dict)


def build_graphs(network: Network) -> Iterator[Graph]:
    """The graphs of ``network`` in the order of a frame."""
    spec = network.spec
    yield _image_encoder(network, spec)
    yield _prompt_encoder(network, spec)
    yield _memory_attention(network, spec)
    yield _memory_attention_fixed(network, spec)
    yield _mask_decoder(network, spec)
    yield _memory_encoder(network, spec)


def _image_encoder(network: Network, spec: NetworkSpec) -> Graph:
    outputs = ("features", *(name for name, _, _ in spec.skips))

    def encode_image(network: Network, image: Tensor) -> tuple[Tensor, ...]:
        encoded = network.encode_image(image)
        return tuple(encoded[name] for name in outputs)

    module = GraphModule(network, encode_image)
    return Graph("image_encoder", module, {"image": torch.zeros(1, 3, spec.side, spec.side)}, outputs)


def _prompt_encoder(network: Network, spec: NetworkSpec) -> Graph:
    outputs = ("conditioned", "sparse", "dense") + (("prompt_raster",) if spec.prompt_raster else ())

    def encode_prompt(network: Network, *inputs: Tensor) -> tuple[Tensor, ...]:
        encoded = network.encode_prompt(*inputs)
        return tuple(encoded[name] for name in outputs)

    inputs = {
        "features": torch.zeros(1, spec.channels, spec.grid, spec.grid),
        "points": torch.zeros(1, 2, 2),
        "labels": torch.tensor([[2, 3]]),
        "mask": torch.zeros(1, 1, spec.side, spec.side),
        "has_mask": torch.zeros(1),
    }
    axes: Axes = {"points": {1: "n"}, "labels": {1: "n"}} | _sparse_axes(network)
    return Graph("prompt_encoder", GraphModule(network, encode_prompt), inputs, outputs, axes)


def _memory_attention(network: Network, spec: NetworkSpec) -> Graph:
    def attend(
        network: Network, features: Tensor, maps: Tensor, rows: Tensor, pointers: Tensor
    ) -> tuple[Tensor, ...]:
        return (network.attend(features, maps, rows, pointers),)

    inputs = {
        "features": torch.zeros(1, spec.channels, spec.grid, spec.grid),
        "maps": torch.zeros(2, spec.grid * spec.grid, spec.memory_channels),
        "rows": torch.arange(2),
        "pointers": torch.zeros(3, spec.channels),
    }
    axes: Axes = {"maps": {0: "T"}, "rows": {0: "T"}, "pointers": {0: "P"}}
    return Graph("memory_attention", GraphModule(network, attend), inputs, ("conditioned",), axes)


def _memory_attention_fixed(network: Network, spec: NetworkSpec) -> Graph:
    rows = torch.arange(spec.temporal_rows)

    def attend(
        network: Network, features: Tensor, maps: Tensor, pointers: Tensor, key_bias: Tensor
    ) -> tuple[Tensor, ...]:
        return (network.attend(features, maps, rows, pointers, key_bias),)

    inputs = {
        "features": torch.zeros(1, spec.channels, spec.grid, spec.grid),
        "maps": torch.zeros(spec.temporal_rows, spec.grid * spec.grid, spec.memory_channels),
        "pointers": torch.zeros(spec.max_pointers, spec.channels),
        "key_bias": torch.zeros(1, 1, 1, key_count(spec)),
    }
    return Graph("memory_attention_fixed", GraphModule(network, attend), inputs, ("conditioned",))


def _mask_decoder(network: Network, spec: NetworkSpec) -> Graph:
    names = tuple(name for name, _, _ in spec.skips)

    def decode(
        network: Network, conditioned: Tensor, sparse: Tensor, dense: Tensor, *skips: Tensor
    ) -> tuple[Tensor, ...]:
        decoded = network.decode(conditioned, sparse, dense, dict(zip(names, skips, strict=True)))
        boxes, areas = boxes_and_areas(
            decoded["masks"].reshape(MASK_CANDIDATES, spec.low_side, spec.low_side)
        )
        return decoded["masks"], decoded["ious"], decoded["presence"], decoded["pointers"], boxes, areas

    grid = torch.zeros(1, spec.channels, spec.grid, spec.grid)
    inputs = {"conditioned": grid, "sparse": _sparse(network, 2), "dense": grid.clone()}
    for name, channels, stride in spec.skips:
        inputs[name] = torch.zeros(1, channels, spec.side // stride, spec.side // stride)
    outputs = ("masks", "ious", "presence", "pointers", "boxes", "areas")
    return Graph("mask_decoder", GraphModule(network, decode), inputs, outputs, _sparse_axes(network))


def _memory_encoder(network: Network, spec: NetworkSpec) -> Graph:
    def encode_memory(network: Network, *inputs: Tensor) -> tuple[Tensor, ...]:
        return network.encode_memory(*inputs)

    low = torch.zeros(1, 1, spec.low_side, spec.low_side)
    inputs = {
        "features": torch.zeros(1, spec.channels, spec.grid, spec.grid),
        "mask_logits": low,
        "present": torch.ones(1),
        "binarize": torch.zeros(1),
        "pointer": torch.zeros(1, spec.channels),
    }
    if spec.prompt_raster:
        inputs["prompt_raster"] = low.clone()
    return Graph("memory_encoder", GraphModule(network, encode_memory), inputs, ("map", "stored_pointer"))


def _sparse(network: Network, points: int) -> Tensor:
    """Zeros in the shape of the prompt tokens of that many points."""
    spec = network.spec
    with torch.no_grad():
        encoded = network.encode_prompt(
            torch.zeros(1, spec.channels, spec.grid, spec.grid),
            torch.zeros(1, points, 2),
            torch.ones(1, points, dtype=torch.int64),
            torch.zeros(1, 1, spec.side, spec.side),
            torch.zeros(1),
        )
    return torch.zeros_like(encoded["sparse"])


def _sparse_axes(network: Network) -> Axes:
    """The prompt tokens' axis is dynamic unless the family has a fixed number of them."""
    fixed = _sparse(network, 1).shape == _sparse(network, 2).shape
    return {} if fixed else {"sparse": {1: "t"}}
