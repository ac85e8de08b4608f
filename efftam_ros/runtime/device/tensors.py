"""The memory of a pipeline: tensors on the GPU, parameters of its kernels, and answers for the host.

A lane is the part of this memory that belongs to one target.
"""

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
"""First part of the names of the tensors that contain an encoded prompt.

Tensors whose names begin with `TRACKING` belong to tracked frames, and are computed once. Tensors whose names
begin with `PROMPTED` belong to the last prompted frame.
"""
OUTPUTS = ("masks", "candidate_pointers")
"""Names of the decoder's outputs from which the memory encoder's input and the masks are made."""
DECISION_BYTES = 16
MAX_VIEWS = 16
"""Largest number of views of an image that are enqueued before the host waits."""


class Parameters:
    """Parameters of kernels, in blocks of pinned host memory.

    Each block is copied to the tensor on the GPU that has the block's name.
    """

    def __init__(self, cuda: Cuda, arena: Arena, sizes: Mapping[str, int]) -> None:
        """Allocate the blocks in host memory.

        ``arena``: has the tensors on the GPU. ``sizes``: by name, the size of each block, bytes. Raises
        CudaError if the system has too little memory to pin.
        """
        self._arena, self._sizes = arena, sizes
        self._host = HostBuffer(cuda, sum(map(aligned, sizes.values())))
        self._offsets, self._views = {}, {}
        offset = 0
        for name, nbytes in sizes.items():
            self._offsets[name] = offset
            self._views[name] = self._host.view(np.uint8, (nbytes,), offset)
            offset += aligned(nbytes)

    def view(self, name: str) -> NDArray[np.uint8]:
        """Return the bytes of a block on the host, uint8. They must not change while a copy of them is
        pending."""
        return self._views[name]

    def pointer(self, name: str, offset: int = 0) -> int:
        """Return the device address of byte ``offset`` of a block."""
        return self._arena.pointer(name) + offset

    def upload(self, stream: Stream, name: str, nbytes: int | None = None, offset: int = 0) -> None:
        """Enqueue a copy of a block to the GPU, or of ``nbytes`` of it from byte ``offset`` on."""
        size = self._sizes[name] if nbytes is None else nbytes
        stream.copy_in(self.pointer(name, offset), self._host, size, self._offsets[name] + offset)

    def uploading(self, stream: Stream, name: str, nbytes: int, offset: int) -> Callable[[], None]:
        """Return a function that calls `upload` with these arguments, as a step of a `Section`."""
        return lambda: self.upload(stream, name, nbytes, offset)

    def free(self) -> None:
        self._views = {}
        self._host.free()


class DeviceTensors:
    """All tensors of a pipeline, in one allocation on the GPU, and pinned host memory for copies.

    If there are several lanes, each has a copy of the decoder's last outputs, because the graph's output is
    overwritten for the next target. Each also has a buffer for the features that the memory encoder will
    need, because the shared features may be overwritten before.

    Attributes:
        shapes: Shape of each tensor by name.
        plans: Memory plans on the host, int32 [lanes, rows + pointers]; see `MemoryLayout.write_plan`.
        decisions: Choices to remember on the host, int32 [lanes, 4]: row of the decoder's output, slot in the
            rings, whether the target is present, whether the frame is prompted.
        layout: Sizes of the memory.
        lanes: Number of lanes.
        plan_bytes: Size of a plan, bytes.
    """

    def __init__(self, bundle: Bundle, cuda: Cuda, closing: ExitStack, lanes: int) -> None:
        """Allocate all tensors.

        ``closing`` frees them. ``lanes``: number of targets. Raises CudaError if there is too little memory.
        """
        self.layout = MemoryLayout.of(bundle, lanes)
        self.lanes = lanes
        self.low = int(bundle.graphs["mask_decoder"].outputs["masks"].shape[-1])
        """Number of rows and of columns of the mask logits."""
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
        """Names of the tensors of which each lane has a copy, if there are several lanes."""
        self.shapes = self._network_shapes(bundle) | {name: (size // 4,) for name, size in blocks.items()}
        # One allocation, so that neighbouring tensors can be copied or cleared by one call.
        self._arena = Arena(cuda, self.shapes)
        closing.callback(self._arena.free)
        self.parameters = Parameters(cuda, self._arena, blocks)
        closing.callback(self.parameters.free)
        self.plans, self.decisions = (
            self.parameters.view(name).view(np.int32).reshape(lanes, -1) for name in (PLAN, DECISION)
        )
        # The decoder's outputs that `ANSWERS` names are neighbours on the GPU, so that one copy of a few
        # hundred bytes brings them to the host. The host's buffer has one part for each lane, and one for
        # each view of a search.
        self._answer_names = [name for name in ANSWERS if name in self.shapes]
        self._answers_bytes = self._arena.span("boxes", self._answer_names[-1])
        places = lanes + MAX_VIEWS
        self._answers = HostBuffer(cuda, places * aligned(self._answers_bytes))
        closing.callback(self._answers.free)
        self.answer_views = [self._answers_at(index) for index in range(places)]
        # Pinned memory for prompts, with a part for each tensor that is copied from it.
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
        """How much memory of the GPU each lane needs, bytes."""
        own = (*RINGS, *(f"{name} by lane" for name in self._own))
        return sum(4 * math.prod(self.shapes[name]) for name in own if name in self.shapes) // self.lanes

    def at(self, name: str) -> int:
        """Return the device address of a tensor."""
        return self._arena.pointer(name)

    def of_lane(self, name: str, lane: int) -> int:
        """Return the device address of a lane's copy of a tensor. A single lane uses the tensor itself."""
        if self.lanes == 1:
            return self.at(name)
        return self.at(f"{name} by lane") + lane * 4 * math.prod(self.shapes[name])

    def keep_output(self, stream: Stream, lane: int) -> None:
        """Enqueue copies of the decoder's masks and pointers to the lane's own tensors.

        With a single lane nothing is copied.
        """
        for name in OUTPUTS if self.lanes > 1 else ():
            stream.copy(self.of_lane(name, lane), self.at(name), 4 * math.prod(self.shapes[name]))

    def keep_features(self, stream: Stream, lane: int) -> None:
        """Enqueue copies of the memory encoder's input features from the shared to the lane's own buffer."""
        for name in self._own[len(OUTPUTS) :]:
            stream.copy(self.of_lane(name, lane), self.at(name), 4 * math.prod(self.shapes[name]))

    def restore_features(self, stream: Stream, lane: int) -> None:
        """Enqueue copies of the features in the lane's own buffer back to the shared features."""
        for name in self._own[len(OUTPUTS) :]:
            stream.copy(self.at(name), self.of_lane(name, lane), 4 * math.prod(self.shapes[name]))

    def zero(self, stream: Stream) -> None:
        stream.zero(self.at("boxes"), self._arena.total_bytes)

    def tokens(self, encoded: EncodedPrompt) -> int:
        """Return the number of tokens that the prompt has in the tensor ``sparse``.

        This is the number of points and one for padding, unless the network has a fixed number of tokens.
        """
        return encoded.points.shape[1] + 1 if self._sparse_tokens is None else self._sparse_tokens

    def stage(self, stream: Stream, name: str, values: NDArray[Any], lane: int | None = None) -> None:
        """Enqueue a copy of an array to the tensor ``name``, or to a lane's copy of this tensor.

        The array is copied to pinned memory first. That memory must not be used again before the copy ended.
        """
        offset = self._staged[name]
        self._prompts.view(values.dtype, values.shape, offset)[:] = values
        pointer = self.at(name) if lane is None else self.of_lane(name, lane)
        stream.copy_in(pointer, self._prompts, values.nbytes, offset)

    def copy_answers_out(self, stream: Stream, index: int) -> None:
        """Enqueue a copy of the decoder's outputs that `ANSWERS` names, from the GPU to the host's buffer.

        ``index``: number of the part of the buffer that receives them. Parts 0 to `lanes` - 1 are for the
        lanes. The `MAX_VIEWS` further parts are for views of a search.
        """
        nbytes = self._answers_bytes
        stream.copy_out(self._answers, self.at("boxes"), nbytes, index * aligned(nbytes))

    def answers_of(self, index: int) -> Decoded:
        boxes, areas, ious, presence, *levels = self.answer_views[index]
        return Decoded(boxes, areas, ious, float(presence[0]), *levels)

    def _answers_at(self, index: int) -> list[NDArray[np.float32]]:
        """Return the arrays of part ``index`` of the host's buffer: one per output, in the order of
        `ANSWERS`."""
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
            # These outputs come first and are neighbours, so that one copy brings all of them to the host.
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
