"""How far the exported graphs are from PyTorch: on seeded inputs graph by graph, and over a chained clip.

Both sides get the same inputs for a graph; in the chained clip each side's outputs feed its own next frames.
Boxes and areas are compared with PyTorch's for the graph's own masks: a logit next to zero may fall to either
side, which moves an area by a whole pixel and says nothing about the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import torch.nn.functional as F
from torch import Tensor

from efftam_ros.core.errors import InputError
from efftam_ros.export.onnx.fixed_form import fixed_maps, fixed_pointers, key_bias
from efftam_ros.model.common.boxes import boxes_and_areas
from efftam_ros.model.common.network import Network

LIMIT = 1e-3
CHAINED_CLIP = "chained clip"
_SEED = 20240712
_CLIP_FRAMES = 5

Tensors = dict[str, Tensor]


class ParityError(InputError):
    """A graph's output is further from PyTorch's than allowed; the text names graph, output and case."""


@dataclass(frozen=True)
class Difference:
    """The worst case of one output. ``max_abs``: largest absolute difference; ``largest``: largest
    absolute value of the reference there, for scale."""

    graph: str
    output: str
    case: str
    max_abs: float
    largest: float


def compare_graphs(network: Network, graphs: Mapping[str, Path]) -> list[Difference]:
    """Run every graph (name -> ONNX file) in onnxruntime on the CPU against ``network``; one entry per
    output."""
    with torch.inference_mode():
        comparison = _Comparison(network, {name: GraphSession(path) for name, path in graphs.items()})
        comparison.run_graphs()
        comparison.run_clip()
    return comparison.differences()


def require_parity(differences: Sequence[Difference], limit: float = LIMIT) -> None:
    """Raises ParityError naming the worst output when one is beyond ``limit`` or not a number."""
    failed = [d for d in differences if not d.max_abs <= limit]
    if failed:
        worst = max(failed, key=lambda d: (np.isnan(d.max_abs), d.max_abs))
        raise ParityError(
            f"{worst.graph}: output {worst.output} is {worst.max_abs:.3g} off PyTorch ({worst.case}), "
            f"{limit:g} is allowed; the bundle was not written"
        )


class GraphSession:
    """One graph in onnxruntime on the CPU, tensors in and out by name."""

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = [info.name for info in self._session.get_inputs()]
        self.outputs = [info.name for info in self._session.get_outputs()]

    def __call__(self, inputs: Mapping[str, Tensor]) -> Tensors:
        feeds = {name: np.ascontiguousarray(inputs[name].numpy()) for name in self.inputs}
        results = self._session.run(self.outputs, feeds)
        return {name: torch.from_numpy(value) for name, value in zip(self.outputs, results, strict=True)}


class _Comparison:
    def __init__(self, network: Network, graphs: Mapping[str, GraphSession]) -> None:
        self.network = network
        self.spec = network.spec
        self.graphs = graphs
        self.random = torch.Generator().manual_seed(_SEED)
        self._worst: dict[tuple[str, str], Difference] = {}

    def differences(self) -> list[Difference]:
        return list(self._worst.values())

    def run_graphs(self) -> None:
        spec = self.spec
        noise = torch.randn(1, 3, spec.side, spec.side, generator=self.random)
        self._compare("image_encoder", "noise", {"image": noise}, self.network.encode_image(noise))
        image = self._clip()[0]
        encoded = self.network.encode_image(image)
        self._compare("image_encoder", "scene", {"image": image}, encoded)
        masks, pointers = torch.zeros(0), torch.zeros(0)
        for case, prompt in self._prompts().items():
            inputs = {"features": encoded["features"], **prompt}
            prompted = self.network.encode_prompt(*inputs.values())
            self._compare("prompt_encoder", case, inputs, prompted)
            inputs = self._decoder_inputs(prompted, encoded)
            decoded = self._decode(inputs)
            self._compare("mask_decoder", case, inputs, decoded)
            masks, pointers = decoded["masks"], decoded["pointers"]
        self._compare_memory_encoder(encoded["features"], masks[:, :1], pointers[:1])
        self._compare_memory_attention(encoded["features"])

    def _compare_memory_encoder(self, features: Tensor, logits: Tensor, pointer: Tensor) -> None:
        raster = torch.rand(1, 1, self.spec.low_side, self.spec.low_side, generator=self.random)
        for case, present, prompted in (("tracked", 1, 0), ("prompted", 1, 1), ("absent", 0, 0)):
            flags = {"present": torch.tensor([float(present)]), "binarize": torch.tensor([float(prompted)])}
            inputs = {"features": features, "mask_logits": logits, **flags, "pointer": pointer}
            if self.spec.prompt_raster:
                inputs["prompt_raster"] = raster
            self._compare("memory_encoder", case, inputs, self._remember(inputs))

    def _compare_memory_attention(self, features: Tensor) -> None:
        spec = self.spec
        last = spec.temporal_rows - 1
        for rows, count in (([last], 1), ([last, 1, 0], 3), ([last, *range(last)], spec.max_pointers)):
            shape = (len(rows), spec.grid * spec.grid, spec.memory_channels)
            maps = torch.randn(shape, generator=self.random)
            pointers = torch.randn(count, spec.channels, generator=self.random)
            case = f"{len(rows)} maps, {count} pointers"
            inputs = {"features": features, "maps": maps, "rows": torch.tensor(rows), "pointers": pointers}
            expected = {"conditioned": self.network.attend(*inputs.values())}
            self._compare("memory_attention", case, inputs, expected)
            fixed = {
                "features": features,
                "maps": fixed_maps(spec, maps, rows),
                "pointers": fixed_pointers(spec, pointers),
                "key_bias": key_bias(spec, rows, count),
            }
            self._compare("memory_attention_fixed", case, fixed, expected)

    def run_clip(self) -> None:
        """A box prompt, then tracked frames; memory maps, pointers and masks of each side feed that side."""
        spec = self.spec
        eager: list[Tensors] = []
        exported: list[Tensors] = []
        for number, image in enumerate(self._clip()):
            expected = self.network.encode_image(image)
            got = self.graphs["image_encoder"]({"image": image})
            none = self._prompts()["tracking"]
            prompt = self._prompts()["box"] if number == 0 else none
            expected |= self.network.encode_prompt(expected["features"], *prompt.values())
            got |= self.graphs["prompt_encoder"]({"features": got["features"], **prompt})
            if number > 0:
                rows = [spec.temporal_rows - 1, *range(min(number - 1, spec.temporal_rows - 1))]
                expected["conditioned"] = self.network.attend(expected["features"], *_memory(eager, rows))
                maps, row_tensor, pointers = _memory(exported, rows)
                memory = {"maps": maps, "rows": row_tensor, "pointers": pointers}
                got |= self.graphs["memory_attention"]({"features": got["features"], **memory})
            expected |= self._decode(self._decoder_inputs(expected, expected))
            got |= self.graphs["mask_decoder"](self._decoder_inputs(got, got))
            choice = 0 if number == 0 else 1 + int(expected["ious"][1:].argmax())
            prompted = torch.tensor([float(number == 0)])
            expected |= self._remember(_memory_inputs(expected, choice, prompted))
            got |= self.graphs["memory_encoder"](_memory_inputs(got, choice, prompted))
            for output in ("features", "conditioned", "masks", "ious", "presence", "pointers", "map"):
                self._note(CHAINED_CLIP, output, f"frame {number}", expected[output], got[output])
            eager.append(expected)
            exported.append(got)

    def _decode(self, inputs: Tensors) -> Tensors:
        skips = {name: inputs[name] for name, _, _ in self.spec.skips}
        return self.network.decode(inputs["conditioned"], inputs["sparse"], inputs["dense"], skips)

    def _decoder_inputs(self, prompted: Tensors, encoded: Tensors) -> Tensors:
        skips = {name: encoded[name] for name, _, _ in self.spec.skips}
        return {name: prompted[name] for name in ("conditioned", "sparse", "dense")} | skips

    def _remember(self, inputs: Tensors) -> Tensors:
        memory, pointer = self.network.encode_memory(**inputs)
        return {"map": memory, "stored_pointer": pointer}

    def _compare(self, graph: str, case: str, inputs: Tensors, expected: Tensors) -> None:
        got = self.graphs[graph](inputs)
        if graph == "mask_decoder":
            boxes, areas = boxes_and_areas(got["masks"][0])
            expected = expected | {"boxes": boxes, "areas": areas}
        for output, value in got.items():
            self._note(graph, output, case, expected[output], value)

    def _note(self, graph: str, output: str, case: str, expected: Tensor, got: Tensor) -> None:
        difference = float((expected - got).abs().max()) if expected.shape == got.shape else float("nan")
        entry = Difference(graph, output, case, difference, float(expected.abs().max()))
        known = self._worst.get((graph, output))
        if known is None or not entry.max_abs <= known.max_abs:
            self._worst[graph, output] = entry

    def _prompts(self) -> dict[str, Tensors]:
        side = self.spec.side
        box = [[0.36 * side, 0.32 * side], [0.64 * side, 0.6 * side]]
        points = [[0.5 * side, 0.45 * side], [0.1 * side, 0.8 * side], [0.45 * side, 0.5 * side]]
        mask = torch.zeros(1, 1, side, side)
        mask[..., side // 3 : side * 2 // 3, side * 3 // 8 : side * 5 // 8] = 1.0
        nothing = torch.zeros_like(mask)
        return {
            "tracking": _prompt([[0.0, 0.0]], [-1], nothing),
            "click": _prompt(points[:1], [1], nothing),
            "box": _prompt(box, [2, 3], nothing),
            "box and clicks": _prompt(box + points, [2, 3, 1, 0, 1], nothing),
            "mask": _prompt([[0.0, 0.0]], [-1], mask),
        }

    def _clip(self) -> list[Tensor]:
        """A red disc diverging over a soft background, normalised as the network wants it."""
        side = self.spec.side
        coarse = torch.rand(1, 3, 8, 8, generator=self.random)
        background = 0.6 * F.interpolate(coarse, (side, side), mode="bilinear", align_corners=False)
        y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        red = torch.tensor([0.9, 0.15, 0.15]).reshape(1, 3, 1, 1)
        mean = torch.tensor(self.spec.image_mean).reshape(1, 3, 1, 1)
        std = torch.tensor(self.spec.image_std).reshape(1, 3, 1, 1)
        frames = []
        for number in range(_CLIP_FRAMES):
            centre = (0.5 + 0.02 * number) * side
            disc = torch.sigmoid(0.14 * side - torch.hypot(x - centre, y - 0.46 * side))
            frames.append((background + (red - background) * disc - mean) / std)
        return frames


def _prompt(points: list[list[float]], labels: list[int], mask: Tensor) -> Tensors:
    return {
        "points": torch.tensor([points]),
        "labels": torch.tensor([labels]),
        "mask": mask,
        "has_mask": mask.amax().reshape(1),
    }


def _memory(frames: Sequence[Tensors], rows: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Maps, rows and pointers of the first frame and, newest first, of the latest others."""
    attended = [frames[0], *reversed(frames[1:])][: len(rows)]
    maps = torch.cat([frame["map"] for frame in attended])
    pointers = torch.cat([frame["stored_pointer"] for frame in attended])
    return maps, torch.tensor(rows[: len(attended)]), pointers


def _memory_inputs(frame: Tensors, choice: int, prompted: Tensor) -> Tensors:
    inputs = {
        "features": frame["features"],
        "mask_logits": frame["masks"][:, choice : choice + 1],
        "present": torch.ones(1),
        "binarize": prompted,
        "pointer": frame["pointers"][choice : choice + 1],
    }
    if "prompt_raster" in frame:
        inputs["prompt_raster"] = frame["prompt_raster"]
    return inputs
