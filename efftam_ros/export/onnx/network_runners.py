"""The modules of a PyTorch network as runners of graphs, to be compared with the graphs exported from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from efftam_ros.model.common.boxes import boxes_and_areas
from efftam_ros.model.common.network import Network
from efftam_ros.runtime.verify.runners import Arrays, Runner

Tensors = dict[str, Tensor]


def network_runners(network: Network) -> dict[str, Runner]:
    """A runner for every graph of the network's bundle; inputs that a graph lacks are ignored."""
    skips = [name for name, _, _ in network.spec.skips]

    def encode_prompt(x: Tensors) -> Tensors:
        return network.encode_prompt(x["features"], x["points"], x["labels"], x["mask"], x["has_mask"])

    def attend(x: Tensors) -> Tensors:
        return {"conditioned": network.attend(x["features"], x["maps"], x["rows"], x["pointers"])}

    def attend_fixed(x: Tensors) -> Tensors:
        rows = torch.arange(len(x["maps"]))
        return {"conditioned": network.attend(x["features"], x["maps"], rows, x["pointers"], x["key_bias"])}

    def decode(x: Tensors) -> Tensors:
        decoded = network.decode(x["conditioned"], x["sparse"], x["dense"], {name: x[name] for name in skips})
        boxes, areas = boxes_and_areas(decoded["masks"][0])
        return decoded | {"boxes": boxes, "areas": areas}

    def encode_memory(x: Tensors) -> Tensors:
        raster = x.get("prompt_raster") if network.spec.prompt_raster else None
        map_, pointer = network.encode_memory(
            x["features"], x["mask_logits"], x["present"], x["binarize"], x["pointer"], raster
        )
        return {"map": map_, "stored_pointer": pointer}

    modules: dict[str, Callable[[Tensors], Tensors]] = {
        "image_encoder": lambda x: network.encode_image(x["image"]),
        "prompt_encoder": encode_prompt,
        "memory_attention": attend,
        "memory_attention_fixed": attend_fixed,
        "mask_decoder": decode,
        "memory_encoder": encode_memory,
    }
    return {name: _runner(module) for name, module in modules.items()}


def _runner(module: Callable[[Tensors], Tensors]) -> Runner:
    @torch.inference_mode()
    def run(inputs: Mapping[str, NDArray[Any]], /) -> Arrays:
        outputs = module({name: torch.from_numpy(value) for name, value in inputs.items()})
        return {name: value.numpy() for name, value in outputs.items()}

    return run
