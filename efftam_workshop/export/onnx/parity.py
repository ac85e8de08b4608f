"""Compares a bundle's graphs with PyTorch, graph by graph on generated inputs.

Both sides get the same inputs for a graph. Boxes and areas are compared with those that PyTorch computes from
the graph's own masks. Otherwise a logit close to zero could have another sign on the other side; that would
move an area by a whole pixel although the graph is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import View
from efftam_ros.core.types import Image
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.device.memory import MemoryLayout
from efftam_ros.runtime.preprocess import EncodedPrompt, Preprocessor, no_prompt
from efftam_ros.runtime.verify import moving_disc, picture
from efftam_workshop.agreement.compare import GraphDeviation, deviations, laid_out, prompt_inputs
from efftam_workshop.agreement.runners import Arrays, CpuRunner, Runner
from efftam_workshop.export.onnx.graphs import ExportGraph, build_graphs
from efftam_workshop.model.common.layers import boxes_and_areas, boxes_at_levels
from efftam_workshop.model.common.network import Network


def network_runners(network: Network) -> dict[str, Runner]:
    """Return by graph name a runner that computes the graph with PyTorch.

    A runner ignores inputs that the graph does not have.
    """
    return {graph.name: _runner(network, graph) for graph in build_graphs(network)}


def _runner(network: Network, graph: ExportGraph) -> Runner:
    @torch.inference_mode()
    def run(inputs: Mapping[str, NDArray[Any]], /) -> Arrays:
        outputs = graph.function(network, *(torch.from_numpy(inputs[name]) for name in graph.inputs))
        return {name: value.numpy() for name, value in zip(graph.outputs, outputs, strict=True)}

    return run


LIMIT = 1e-3
_SEED = 20240712


class ParityError(InputError):
    """An output of a graph differs too much from PyTorch's; the message names graph, output and case."""


def compare_with_network(bundle: Bundle, network: Network) -> list[GraphDeviation]:
    """Compare every graph of ``bundle`` on the CPU with ``network``; return each output's worst case."""
    reference = network_runners(network)
    candidate: dict[str, Runner] = {name: CpuRunner(graph.path) for name, graph in bundle.graphs.items()}
    worst: dict[tuple[str, str], GraphDeviation] = {}
    for found in _Comparison(bundle, reference, candidate).graphs():
        known = worst.get((found.graph, found.output))
        if known is None or not found.max_abs <= known.max_abs:
            worst[found.graph, found.output] = found
    return list(worst.values())


def require_parity(found: Sequence[GraphDeviation], limit: float = LIMIT) -> None:
    """Raise ParityError, naming the worst output, if an output differs by more than ``limit`` or is NaN."""
    failed = [one for one in found if not one.max_abs <= limit]
    if failed:
        worst = max(failed, key=lambda one: (np.isnan(one.max_abs), one.max_abs))
        raise ParityError(
            f"{worst.graph}: output {worst.output} differs from PyTorch's by {worst.max_abs:.3g}"
            f" ({worst.case}); at most {limit:g} is allowed: the bundle was not written"
        )


class _Comparison:
    def __init__(
        self, bundle: Bundle, reference: Mapping[str, Runner], candidate: Mapping[str, Runner]
    ) -> None:
        self._bundle, self._reference, self._candidate = bundle, reference, candidate
        self._side = bundle.spec.image_side
        self._random = np.random.default_rng(_SEED)

    def graphs(self) -> Iterator[GraphDeviation]:
        noise = self._noise(1, 3, self._side, self._side)
        yield from self._compare("image_encoder", "noise", {"image": noise})
        preprocess = Preprocessor(self._side, self._bundle.mean, self._bundle.std)
        image = preprocess(Image.from_array(picture(moving_disc(0))), View.window(160, 150, 220, self._side))
        yield from self._compare("image_encoder", "scene", {"image": image})
        encoded = self._reference["image_encoder"]({"image": image})
        decoded: Arrays = {}
        for case, prompt in self._prompts().items():
            inputs = encoded | prompt_inputs(prompt)
            yield from self._compare("prompt_encoder", case, inputs)
            inputs = encoded | self._reference["prompt_encoder"](inputs)
            yield from self._compare("mask_decoder", case, inputs)
            decoded = self._reference["mask_decoder"](inputs)
        yield from self._memory_encoder(encoded["features"], decoded)
        yield from self._memory_attention(encoded["features"])

    def _compare(
        self, graph: str, case: str, inputs: Arrays, expected: Arrays | None = None
    ) -> list[GraphDeviation]:
        got = self._candidate[graph]({name: inputs[name] for name in self._bundle.graphs[graph].inputs})
        wanted = self._reference[graph](inputs) if expected is None else expected
        if graph == "mask_decoder":
            logits = torch.from_numpy(got["masks"][0])
            boxes, areas = boxes_and_areas(logits)
            wanted = wanted | {"boxes": boxes.numpy(), "areas": areas.numpy()}
            levels = boxes_at_levels(logits.amax(dim=1), logits.amax(dim=2))
            wanted |= {"levels": levels[:, ::2].numpy()}
        return deviations(graph, wanted, got, case)

    def _memory_encoder(self, features: NDArray[np.float32], decoded: Arrays) -> Iterator[GraphDeviation]:
        low = decoded["masks"].shape[-1]
        for case, present, prompted in (("tracked", 1, 0), ("prompted", 1, 1), ("absent", 0, 0)):
            inputs = {
                "features": features,
                "mask_logits": np.ascontiguousarray(decoded["masks"][:, :1]),
                "present": np.array([present], np.float32),
                "binarize": np.array([prompted], np.float32),
                "pointer": decoded["pointers"][:1],
                "prompt_raster": self._random.random((1, 1, low, low), np.float32),
            }
            yield from self._compare("memory_encoder", case, inputs)

    def _memory_attention(self, features: NDArray[np.float32]) -> Iterator[GraphDeviation]:
        """Compare the dynamic and the fixed form of memory attention with the network's dynamic form."""
        layout = MemoryLayout.of(self._bundle)
        last = layout.rows - 1
        for rows, count in (([last], 1), ([last, 1, 0], 3), ([last, *range(last)], layout.pointers)):
            maps = self._noise(len(rows), layout.tokens, layout.channels)
            pointers = self._noise(count, layout.pointer_channels)
            case = f"{len(rows)} maps, {count} pointers"
            inputs = {"features": features, "maps": maps, "rows": np.array(rows), "pointers": pointers}
            expected = self._reference["memory_attention"](inputs)
            yield from self._compare("memory_attention", case, inputs, expected)
            fixed = {"features": features, **laid_out(layout, rows, maps, pointers)}
            yield from self._compare("memory_attention_fixed", case, fixed, expected)

    def _prompts(self) -> dict[str, EncodedPrompt]:
        side = self._side
        box = [[0.36 * side, 0.32 * side], [0.64 * side, 0.6 * side]]
        points = [[0.5 * side, 0.45 * side], [0.1 * side, 0.8 * side], [0.45 * side, 0.5 * side]]
        mask = np.zeros((1, 1, side, side), np.float32)
        mask[..., side // 3 : side * 2 // 3, side * 3 // 8 : side * 5 // 8] = 1.0
        nothing = np.zeros_like(mask)
        return {
            "tracking": no_prompt(side),
            "click": _prompt(points[:1], [1], nothing),
            "box": _prompt(box, [2, 3], nothing),
            "box and clicks": _prompt(box + points, [2, 3, 1, 0, 1], nothing),
            "mask": _prompt([[0.0, 0.0]], [-1], mask),
        }

    def _noise(self, *shape: int) -> NDArray[np.float32]:
        return self._random.standard_normal(shape, np.float32)


def _prompt(points: list[list[float]], labels: list[int], mask: NDArray[Any]) -> EncodedPrompt:
    return EncodedPrompt(
        points=np.array([points], np.float32),
        labels=np.array([labels], np.int64),
        mask=mask,
        has_mask=mask.max().reshape(1),
        multimask=False,
    )
