"""Device memory of a pipeline: named tensors, the numbers that steer its kernels, and what the host reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.types import MAX_POINTS
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.cuda.api import Cuda
from efftam_ros.runtime.cuda.kernel_table import MASK, MASK_VIEW, VIEW_BYTES
from efftam_ros.runtime.cuda.memory import Arena, HostBuffer, aligned
from efftam_ros.runtime.cuda.stream import Stream
from efftam_ros.runtime.device.memory import RINGS, MemoryLayout
from efftam_ros.runtime.frame_state import ANSWERS, Decoded
from efftam_ros.runtime.preprocess import EncodedPrompt

VIEWS, PLAN, DECISION = "views", "plan", "decision"
TRACKING, PROMPTED = "tracking", "prompted"
"""Prompt tensors: those that tracked frames are decoded with, made once, and the last prompted frame's."""
OUTPUTS = ("masks", "candidate_pointers")
"""Of the decoder: what the memory encoder and masks are made from."""
DECISION_BYTES = 16
MAX_VIEWS = 16
"""Most views of an image that are looked at with one wait."""


class Parameters:
    """Numbers for kernels: blocks of pinned memory, each with its tensor of the same name in an arena."""

    def __init__(self, cuda: Cuda, arena: Arena, sizes: Mapping[str, int]) -> None:
        """``sizes``: bytes of each block. Raises CudaError when the system has too little memory to pin."""
        self._arena, self._sizes = arena, sizes
        self._host = HostBuffer(cuda, sum(map(aligned, sizes.values())))
        self._offsets, self._views = {}, {}
        offset = 0
        for name, nbytes in sizes.items():
            self._offsets[name] = offset
            self._views[name] = self._host.view(np.uint8, (nbytes,), offset)
            offset += aligned(nbytes)

    def view(self, name: str) -> NDArray[np.uint8]:
        """Return the bytes of a block on the host; they must not change while a copy is on its way."""
        return self._views[name]

    def pointer(self, name: str, offset: int = 0) -> int:
        """Device address of a block."""
        return self._arena.pointer(name) + offset

    def upload(self, stream: Stream, name: str, nbytes: int | None = None, offset: int = 0) -> None:
        """Copy a block, or ``nbytes`` of it from ``offset`` on, to the device."""
        size = self._sizes[name] if nbytes is None else nbytes
        stream.copy_in(self.pointer(name, offset), self._host, size, self._offsets[name] + offset)

    def uploading(self, stream: Stream, name: str, nbytes: int, offset: int) -> Callable[[], None]:
        """`upload`, as a step of a `Section`."""
        return lambda: self.upload(stream, name, nbytes, offset)

    def free(self) -> None:
        self._views = {}
        self._host.free()


class DeviceTensors:
    """All tensors of a network and of its memory in one allocation, and pinned memory for what the host gives
    and gets. `shapes` by name; `plans` and `decisions` are the host's side of these two parameters, by lane.
    Each of several lanes has the decoder's last output for itself, beside the tensor that the graph writes,
    and a place for the features that it will be remembered by, while those of another view are computed.
    """

    def __init__(self, bundle: Bundle, cuda: Cuda, closing: ExitStack, lanes: int) -> None:
        """``closing`` frees it; ``lanes``: memories. Raises CudaError when there is too little memory."""
        self.layout = MemoryLayout.of(bundle, lanes)
        self.lanes = lanes
        self.low = int(bundle.graphs["mask_decoder"].outputs["masks"].shape[-1])
        """Side of the mask logits."""
        self.plan_bytes = 4 * (self.layout.rows + self.layout.pointers)
        tokens = bundle.graphs["prompt_encoder"].outputs["sparse"].shape[1]
        self._sparse_tokens = tokens if isinstance(tokens, int) else None
        blocks = {
            VIEWS: MAX_VIEWS * VIEW_BYTES,
            PLAN: lanes * self.plan_bytes,
            DECISION: lanes * DECISION_BYTES,
            MASK: MASK_VIEW.itemsize,
        }
        graphs = bundle.graphs
        self._own = (*OUTPUTS, *(graphs["image_encoder"].outputs.keys() & graphs["memory_encoder"].inputs))
        """What each of several lanes has for itself."""
        self.shapes = self._network_shapes(bundle) | {name: (size // 4,) for name, size in blocks.items()}
        # One allocation for all: what lies side by side can be copied or cleared at once.
        self._arena = Arena(cuda, self.shapes)
        closing.callback(self._arena.free)
        self.parameters = Parameters(cuda, self._arena, blocks)
        closing.callback(self.parameters.free)
        self.plans, self.decisions = (
            self.parameters.view(name).view(np.int32).reshape(lanes, -1) for name in (PLAN, DECISION)
        )
        # What the host decides by is one copy of a few hundred bytes, also of several views.
        self._answer_names = [name for name in ANSWERS if name in self.shapes]
        self._answers_bytes = self._arena.span("boxes", self._answer_names[-1])
        places = lanes + MAX_VIEWS
        self._answers = HostBuffer(cuda, places * aligned(self._answers_bytes))
        closing.callback(self._answers.free)
        self.answer_views = [self._answers_at(index) for index in range(places)]
        # A prompt comes once per selection: its pinned memory is apart from every frame's.
        self._staged: dict[str, int] = {}
        staging = 0
        for name in ("prompt_mask", "points", "labels", "has_mask", "masks"):
            self._staged[name] = staging
            staging += aligned(self._arena.nbytes(name))
        self._prompts = HostBuffer(cuda, staging)
        closing.callback(self._prompts.free)

    @property
    def device_bytes(self) -> int:
        return self._arena.total_bytes

    @property
    def lane_bytes(self) -> int:
        """Of the device's memory, each lane's part."""
        own = (*RINGS, *(f"{name} by lane" for name in self._own))
        return sum(4 * math.prod(self.shapes[name]) for name in own if name in self.shapes) // self.lanes

    def at(self, name: str) -> int:
        """Device address of a tensor."""
        return self._arena.pointer(name)

    def of_lane(self, name: str, lane: int) -> int:
        """Device address of what a lane has of the tensor ``name``."""
        if self.lanes == 1:
            return self.at(name)
        return self.at(f"{name} by lane") + lane * 4 * math.prod(self.shapes[name])

    def keep_output(self, stream: Stream, lane: int) -> None:
        """Copy what later calls need of the decoder's output to the lane's own, where there are several."""
        for name in OUTPUTS if self.lanes > 1 else ():
            stream.copy(self.of_lane(name, lane), self.at(name), 4 * math.prod(self.shapes[name]))

    def keep_features(self, stream: Stream, lane: int) -> None:
        """Copy the features that the memory encoder reads to the lane's own place."""
        for name in self._own[len(OUTPUTS) :]:
            stream.copy(self.of_lane(name, lane), self.at(name), 4 * math.prod(self.shapes[name]))

    def restore_features(self, stream: Stream, lane: int) -> None:
        """Copy them back."""
        for name in self._own[len(OUTPUTS) :]:
            stream.copy(self.at(name), self.of_lane(name, lane), 4 * math.prod(self.shapes[name]))

    def zero(self, stream: Stream) -> None:
        stream.zero(self.at("boxes"), self._arena.total_bytes)

    def tokens(self, encoded: EncodedPrompt) -> int:
        """Tokens of the prompt in ``sparse``: points and one of padding, unless the network fixes them."""
        return encoded.points.shape[1] + 1 if self._sparse_tokens is None else self._sparse_tokens

    def stage(self, stream: Stream, name: str, values: NDArray[Any], lane: int | None = None) -> None:
        """Copy a small array to the device through pinned memory of its own, or to a lane's part."""
        offset = self._staged[name]
        self._prompts.view(values.dtype, values.shape, offset)[:] = values
        pointer = self.at(name) if lane is None else self.of_lane(name, lane)
        stream.copy_in(pointer, self._prompts, values.nbytes, offset)

    def copy_answers_out(self, stream: Stream, index: int) -> None:
        """Copy the decoder's small outputs to their ``index``-th place on the host: those of a lane to its
        own, those of the views of a search to the `MAX_VIEWS` behind them."""
        nbytes = self._answers_bytes
        stream.copy_out(self._answers, self.at("boxes"), nbytes, index * aligned(nbytes))

    def answers_of(self, index: int) -> Decoded:
        boxes, areas, ious, presence, *levels = self.answer_views[index]
        return Decoded(boxes, areas, ious, float(presence[0]), *levels)

    def _answers_at(self, index: int) -> list[NDArray[np.float32]]:
        """What `ANSWERS` names, as far as the network gives it, at its ``index``-th place on the host."""
        at = index * aligned(self._answers_bytes)
        return [
            self._answers.view(np.float32, self.shapes[name], at + self._arena.offset(name, "boxes"))
            for name in self._answer_names
        ]

    def _network_shapes(self, bundle: Bundle) -> dict[str, tuple[int, ...]]:
        layout, side = self.layout, bundle.spec.image_side
        encoder, prompt = bundle.graphs["image_encoder"].outputs, bundle.graphs["prompt_encoder"].outputs
        decoder = bundle.graphs["mask_decoder"].outputs
        shapes: dict[str, tuple[int, ...]] = {
            # Side by side: what the host wants to know of a frame is one copy.
            **{name: decoder[name].sizes for name in ANSWERS if name in decoder},
            "image": (1, 3, side, side),
            **{name: tensor.sizes for name, tensor in encoder.items()},
            "conditioned": prompt["conditioned"].sizes,
            "masks": decoder["masks"].sizes,
            "candidate_pointers": decoder["pointers"].sizes,
            "points": (1, MAX_POINTS, 2), "labels": (2, MAX_POINTS),
            "prompt_mask": (1, 1, side, side), "has_mask": (1,),
            "mask_logits": (1, 1, self.low, self.low), "pointer": (1, layout.pointer_channels),
            "present": (1,), "binarize": (1,),
            **layout.tensors(),
        }  # fmt: skip
        if self.lanes > 1:
            shapes |= {f"{name} by lane": (self.lanes, *shapes[name]) for name in self._own}
        for which in (TRACKING, PROMPTED):
            channels = int(prompt["sparse"].shape[2])
            shapes[f"{which} sparse"] = (1, self._sparse_tokens or MAX_POINTS + 1, channels)
            shapes[f"{which} dense"] = prompt["dense"].sizes
            if "prompt_raster" in prompt:
                shapes[f"{which} prompt_raster"] = prompt["prompt_raster"].sizes
        return shapes
