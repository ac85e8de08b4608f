"""A network's graphs in turn, frame after frame, each chain feeding on its own memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.device.memory import ATTENTION, MemoryLayout, laid_out
from efftam_ros.runtime.frame_state import round_bfloat16
from efftam_ros.runtime.image.prompts import EncodedPrompt, no_prompt
from efftam_ros.runtime.verify.runners import Arrays, Runner


class Chain:
    """The five graphs of `device.memory.GRAPHS`, with the latest frames as memory.

    `inputs` and `results` hold what each graph got and gave last, by graph name; `choice` is the row of the
    decoder's output that was remembered last.
    """

    def __init__(self, bundle: Bundle, graphs: Mapping[str, Runner]) -> None:
        self._bundle, self._graphs = bundle, graphs
        self._layout = MemoryLayout.of(bundle)
        self._rounds = bundle.memory_dtype == "bfloat16"
        self._memory: list[Arrays] = []
        self._tracking = no_prompt(bundle.spec.image_side)
        self.inputs: dict[str, dict[str, NDArray[Any]]] = {}
        self.results: dict[str, Arrays] = {}
        self.choice = 0

    def decode(self, image: NDArray[np.float32], prompt: EncodedPrompt | None) -> Arrays:
        """The mask decoder's outputs for an image [1,3,S,S] as the network wants it; ``prompt`` starts a new
        memory, None attends to the memory there is."""
        encoded = self._run("image_encoder", {"image": image})
        if prompt is not None:
            self._memory.clear()
        prompted = self._run("prompt_encoder", encoded | prompt_inputs(prompt or self._tracking))
        if prompt is None:
            prompted = prompted | self._run(ATTENTION, {"features": encoded["features"], **self._attended()})
        return self._run("mask_decoder", encoded | prompted)

    def remember(self, choice: int, prompted: bool) -> None:
        """Store the frame with the mask and pointer of this row of the decoder's."""
        self.choice = choice
        decoded, encoded = self.results["mask_decoder"], self.results["image_encoder"]
        stored = self._run(
            "memory_encoder",
            encoded
            | self.results["prompt_encoder"]
            | {
                "mask_logits": decoded["masks"][:, choice : choice + 1],
                "pointer": decoded["pointers"][choice : choice + 1],
                "present": np.ones(1, np.float32),
                "binarize": np.full(1, float(prompted), np.float32),
            },
        )
        stored = {name: np.array(value) for name, value in stored.items()}
        if self._rounds:
            round_bfloat16(stored["map"])
        self._memory.append(stored)

    def _run(self, name: str, tensors: Mapping[str, NDArray[Any]]) -> Arrays:
        wanted = self._bundle.graphs[name].inputs
        self.inputs[name] = {key: np.ascontiguousarray(tensors[key]) for key in wanted}
        self.results[name] = self._graphs[name](self.inputs[name])
        return dict(self.results[name])

    def _attended(self) -> Arrays:
        """The first frame in the last row, the latest others newest first in the rows from 0
        (docs/bundle.md)."""
        layout = self._layout
        latest = [self._memory[0], *reversed(self._memory[1:])]
        rows = [layout.rows - 1, *range(min(len(latest), layout.rows) - 1)]
        maps = np.concatenate([memory["map"] for memory in latest[: len(rows)]])
        pointers = np.concatenate([memory["stored_pointer"] for memory in latest[: layout.pointers]])
        return laid_out(layout, rows, maps, pointers)


def prompt_inputs(prompt: EncodedPrompt) -> Arrays:
    """The prompt encoder's inputs besides the features, by name."""
    return {
        "points": prompt.points,
        "labels": prompt.labels,
        "mask": prompt.mask,
        "has_mask": prompt.has_mask,
    }
