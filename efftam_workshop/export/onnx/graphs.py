"""Defines what each exported graph computes. `runtime.bundle` and docs/bundle.md describe its tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from efftam_ros.runtime.bundle import DYNAMIC, INTEGERS, OPTIONAL, REQUIRED, Shape, Shapes
from efftam_workshop.model.common.layers import boxes_and_areas, boxes_at_levels
from efftam_workshop.model.common.network import Network, NetworkSpec

Tensors = dict[str, Tensor]
Function = Callable[[Network, Tensors], Mapping[str, Tensor]]
EXAMPLE_SIZES = {"T": 2, "P": 3, "n": 2, "t": 3}
"""Sizes of the dynamic axes during tracing, by the axis's name."""
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
    """A graph to trace.

    ``function``: takes the network and the inputs. ``inputs``: example tensors by name, in order.
    ``outputs``: shapes by name, in order. ``axes``: by input name, the names of the dynamic axes by their
    number.
    """

    name: str
    function: Callable[..., tuple[Tensor, ...]]
    inputs: Mapping[str, Tensor]
    outputs: Shapes
    axes: Mapping[str, Mapping[int, str]]


def build_graphs(network: Network) -> Iterator[ExportGraph]:
    """Yield the graphs of ``network`` in the order in which a frame uses them."""
    sizes, rows = _sizes(network), torch.arange(network.spec.temporal_rows)
    functions: dict[str, Function] = {
        "image_encoder": lambda network, given: network.encode_image(**given),
        "prompt_encoder": lambda network, given: network.encode_prompt(**given),
        "memory_attention": lambda network, given: {"conditioned": network.attend(**given)},
        "memory_attention_fixed": lambda network, given: {"conditioned": network.attend(rows=rows, **given)},
        "mask_decoder": _decode,
        "memory_encoder": _encode_memory,
    }
    for name, function in functions.items():
        inputs, outputs = (_with_sizes(table, sizes) for table in _tables(name, network.spec))
        axes = {
            key: {i: axis for i, axis in enumerate(shape) if axis in DYNAMIC} for key, shape in inputs.items()
        }
        yield ExportGraph(name, _called(function, inputs, outputs), _examples(inputs), outputs, axes)


def key_count(spec: NetworkSpec) -> int:
    """Return K, the number of keys of the fixed memory attention (docs/bundle.md)."""
    tokens = spec.grid * spec.grid
    pointers = spec.max_pointers * spec.pointer_tokens
    if spec.key_layout == "plain":
        return spec.temporal_rows * tokens + pointers
    return tokens + spec.temporal_rows * tokens // 4 + pointers


def _decode(network: Network, given: Tensors) -> Mapping[str, Tensor]:
    decoded = network.decode(given.pop("conditioned"), given.pop("sparse"), given.pop("dense"), given)
    side = network.spec.low_side
    logits = decoded["masks"].reshape(CANDIDATES, side, side)
    boxes, areas = boxes_and_areas(logits)
    found = {**decoded, "boxes": boxes, "areas": areas}
    if network.spec.box_head is not None:
        levels = boxes_at_levels(logits.amax(dim=1), logits.amax(dim=2))
        found |= {"boxes": levels[:, 1], "levels": levels[:, ::2]}
    return found


def _encode_memory(network: Network, given: Tensors) -> Mapping[str, Tensor]:
    return dict(zip(("map", "stored_pointer"), network.encode_memory(**given), strict=True))


def _called(function: Function, inputs: Shapes, outputs: Shapes) -> Callable[..., tuple[Tensor, ...]]:
    def call(network: Network, *tensors: Tensor) -> tuple[Tensor, ...]:
        found = function(network, dict(zip(inputs, tensors, strict=True)))
        return tuple(found[name] for name in outputs)

    return call


def _tables(name: str, spec: NetworkSpec) -> Iterator[Shapes]:
    """Yield the inputs, then the outputs of a graph: the required ones and this network's optional ones."""
    has = {skip for skip, _, _ in spec.skips}
    has |= {"prompt_raster"} if spec.prompt_raster else set()
    has |= {"levels"} if spec.box_head is not None else set()
    for required, optional in zip(REQUIRED[name], OPTIONAL.get(name, ({}, {})), strict=True):
        yield required | {key: shape for key, shape in optional.items() if key in has}


def _sizes(network: Network) -> dict[str, int]:
    """Return the sizes of the axes that are not dynamic, by the axis's name.

    "t", the number of prompt tokens, is among them if it does not depend on the number of points.
    """
    spec, grid = network.spec, network.spec.grid
    sizes = {"S": spec.side, "G": grid, "2G": 2 * grid, "4G": 4 * grid, "N": grid * grid, "C": spec.channels}
    sizes |= {"M": spec.memory_channels, "R": spec.temporal_rows, "K": key_count(spec)}
    sizes |= {f"C{stride}": channels for _, channels, stride in spec.skips}
    inputs, _ = _tables("prompt_encoder", spec)
    with torch.no_grad():
        one, two = (
            network.encode_prompt(**_examples(_with_sizes(inputs, sizes | {"n": points})))["sparse"].shape[1]
            for points in (1, 2)
        )
    return sizes | ({"t": one} if one == two else {})


def _with_sizes(table: Shapes, sizes: Mapping[str, int]) -> dict[str, Shape]:
    return {
        name: tuple(axis if isinstance(axis, int) else sizes.get(axis, axis) for axis in shape)
        for name, shape in table.items()
    }


def _examples(inputs: Shapes) -> Tensors:
    return {
        name: torch.zeros(
            [int(axis) for axis in shape], dtype=torch.int64 if name in INTEGERS else torch.float32
        )
        for name, shape in _with_sizes(inputs, EXAMPLE_SIZES).items()
    }
