"""Definition of the six exported graphs: function, tensor names, shapes, dynamic axes (docs/bundle.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from efftam_ros.model.common.layers import boxes_and_areas
from efftam_ros.model.common.network import Network, NetworkSpec

Shape = tuple[int | str, ...]
"""Sizes of a tensor's axes; a string names a dynamic one."""

CANDIDATES = 4
"""Masks of the decoder: the single-mask output and three multimask outputs."""


class GraphModule(nn.Module):
    """Wraps a function of a network as a module, so that the exporter names weights ``network.<name>``."""

    def __init__(self, network: Network, function: Callable[..., tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.network = network
        self.function = function

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.function(self.network, *inputs)


@dataclass(frozen=True)
class ExportGraph:
    """A graph to trace: ``function`` of the network and the inputs (example tensors by name, in order),
    ``outputs`` (shapes by name, in order) and ``axes``, the names of each input's dynamic axes by number."""

    name: str
    function: Callable[..., tuple[Tensor, ...]]
    inputs: Mapping[str, Tensor]
    outputs: Mapping[str, Shape]
    axes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


def build_graphs(network: Network) -> Iterator[ExportGraph]:
    """The graphs of ``network`` in the order of a frame."""
    yield _image_encoder(network)
    yield _prompt_encoder(network)
    yield _memory_attention(network)
    yield _memory_attention_fixed(network)
    yield _mask_decoder(network)
    yield _memory_encoder(network)


def _image_encoder(network: Network) -> ExportGraph:
    spec = network.spec
    outputs = {"features": _features_shape(spec)} | _skip_shapes(spec)

    def encode_image(network: Network, image: Tensor) -> tuple[Tensor, ...]:
        encoded = network.encode_image(image)
        return tuple(encoded[name] for name in outputs)

    inputs = {"image": torch.zeros(1, 3, spec.side, spec.side)}
    return ExportGraph("image_encoder", encode_image, inputs, outputs)


def _prompt_encoder(network: Network) -> ExportGraph:
    spec = network.spec
    features = _features_shape(spec)
    outputs: dict[str, Shape] = {
        "conditioned": features,
        "sparse": (1, _prompt_tokens(network), spec.channels),
        "dense": features,
    }
    if spec.prompt_raster:
        outputs["prompt_raster"] = (1, 1, spec.low_side, spec.low_side)

    def encode_prompt(network: Network, *inputs: Tensor) -> tuple[Tensor, ...]:
        encoded = network.encode_prompt(*inputs)
        return tuple(encoded[name] for name in outputs)

    inputs = _prompt_inputs(spec, points=2)
    axes = {"points": {1: "n"}, "labels": {1: "n"}}
    return ExportGraph("prompt_encoder", encode_prompt, inputs, outputs, axes)


def _memory_attention(network: Network) -> ExportGraph:
    spec = network.spec

    def attend(
        network: Network, features: Tensor, maps: Tensor, rows: Tensor, pointers: Tensor
    ) -> tuple[Tensor, ...]:
        return (network.attend(features, maps, rows, pointers),)

    inputs = {
        "features": torch.zeros(_features_shape(spec)),
        "maps": torch.zeros(2, spec.grid * spec.grid, spec.memory_channels),
        "rows": torch.arange(2),
        "pointers": torch.zeros(3, spec.channels),
    }
    outputs = {"conditioned": _features_shape(spec)}
    axes = {"maps": {0: "T"}, "rows": {0: "T"}, "pointers": {0: "P"}}
    return ExportGraph("memory_attention", attend, inputs, outputs, axes)


def _memory_attention_fixed(network: Network) -> ExportGraph:
    spec = network.spec
    rows = torch.arange(spec.temporal_rows)

    def attend(
        network: Network, features: Tensor, maps: Tensor, pointers: Tensor, key_bias: Tensor
    ) -> tuple[Tensor, ...]:
        return (network.attend(features, maps, rows, pointers, key_bias),)

    inputs = {
        "features": torch.zeros(_features_shape(spec)),
        "maps": torch.zeros(spec.temporal_rows, spec.grid * spec.grid, spec.memory_channels),
        "pointers": torch.zeros(spec.max_pointers, spec.channels),
        "key_bias": torch.zeros(1, 1, 1, key_count(spec)),
    }
    outputs = {"conditioned": _features_shape(spec)}
    return ExportGraph("memory_attention_fixed", attend, inputs, outputs)


def _mask_decoder(network: Network) -> ExportGraph:
    spec = network.spec
    skips = _skip_shapes(spec)

    def decode(
        network: Network, conditioned: Tensor, sparse: Tensor, dense: Tensor, *skip_features: Tensor
    ) -> tuple[Tensor, ...]:
        decoded = network.decode(conditioned, sparse, dense, dict(zip(skips, skip_features, strict=True)))
        logits = decoded["masks"].reshape(CANDIDATES, spec.low_side, spec.low_side)
        boxes, areas = boxes_and_areas(logits)
        return decoded["masks"], decoded["ious"], decoded["presence"], decoded["pointers"], boxes, areas

    tokens = _prompt_tokens(network)
    inputs = {
        "conditioned": torch.zeros(_features_shape(spec)),
        "sparse": torch.zeros(1, 3 if isinstance(tokens, str) else tokens, spec.channels),
        "dense": torch.zeros(_features_shape(spec)),
    } | {name: torch.zeros(shape) for name, shape in skips.items()}
    outputs: dict[str, Shape] = {
        "masks": (1, CANDIDATES, spec.low_side, spec.low_side),
        "ious": (CANDIDATES,),
        "presence": (1,),
        "pointers": (CANDIDATES, spec.channels),
        "boxes": (CANDIDATES, 4),
        "areas": (CANDIDATES,),
    }
    axes = {"sparse": {1: tokens}} if isinstance(tokens, str) else {}
    return ExportGraph("mask_decoder", decode, inputs, outputs, axes)


def _memory_encoder(network: Network) -> ExportGraph:
    spec = network.spec

    def encode_memory(network: Network, *inputs: Tensor) -> tuple[Tensor, ...]:
        return network.encode_memory(*inputs)

    low = (1, 1, spec.low_side, spec.low_side)
    inputs = {
        "features": torch.zeros(_features_shape(spec)),
        "mask_logits": torch.zeros(low),
        "present": torch.ones(1),
        "binarize": torch.zeros(1),
        "pointer": torch.zeros(1, spec.channels),
    }
    if spec.prompt_raster:
        inputs["prompt_raster"] = torch.zeros(low)
    outputs: dict[str, Shape] = {
        "map": (1, spec.grid * spec.grid, spec.memory_channels),
        "stored_pointer": (1, spec.channels),
    }
    return ExportGraph("memory_encoder", encode_memory, inputs, outputs)


def _features_shape(spec: NetworkSpec) -> tuple[int, ...]:
    return 1, spec.channels, spec.grid, spec.grid


def _skip_shapes(spec: NetworkSpec) -> dict[str, tuple[int, ...]]:
    return {
        name: (1, channels, spec.side // stride, spec.side // stride) for name, channels, stride in spec.skips
    }


def _prompt_inputs(spec: NetworkSpec, points: int) -> dict[str, Tensor]:
    return {
        "features": torch.zeros(_features_shape(spec)),
        "points": torch.zeros(1, points, 2),
        "labels": torch.ones(1, points, dtype=torch.int64),
        "mask": torch.zeros(1, 1, spec.side, spec.side),
        "has_mask": torch.zeros(1),
    }


def _prompt_tokens(network: Network) -> int | str:
    """Number of prompt tokens: fixed in some families, else the dynamic axis "t"."""
    with torch.no_grad():
        one, two = (
            network.encode_prompt(*_prompt_inputs(network.spec, points).values())["sparse"].shape[1]
            for points in (1, 2)
        )
    return one if one == two else "t"


def key_count(spec: NetworkSpec) -> int:
    """K, the keys of the fixed memory attention and the length of its ``key_bias`` (docs/bundle.md)."""
    tokens = spec.grid * spec.grid
    pointers = spec.max_pointers * spec.pointer_tokens
    if spec.key_layout == "plain":
        return spec.temporal_rows * tokens + pointers
    return tokens + spec.temporal_rows * tokens // 4 + pointers
