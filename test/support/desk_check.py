"""A frame on boards that are not at hand: estimated durations, run by the clock of the fake GPU.

For ti_512x512 with a 1280x720 image in full view. The stages of the H100 were measured (docs/benchmarks.md);
all other durations are estimates of a desk check, of the order of +-40 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from efftam_ros.runtime.bundle import Bundle
from support.gpu_rig import Rig


@dataclass(frozen=True)
class Board:
    """Estimates: ``durations``, ms of GPU work by name; ``bytes_per_ms`` of copies; ``python_ms`` of the host
    beside the GPU in a tracked frame; ``copy_ms`` of an image into pinned memory by the host."""

    durations: Mapping[str, float]
    bytes_per_ms: float
    python_ms: float
    copy_ms: float


def _durations(
    encoder: float, attention: float, decoder: float, memory: float, kernel: float
) -> dict[str, float]:
    kernels = ("preprocess", "gather_memory", "choose_candidate", "store_memory")
    return {
        "TensorRT image_encoder": encoder,
        "TensorRT memory_attention_fixed": attention,
        "TensorRT mask_decoder": decoder,
        "TensorRT memory_encoder": memory,
        **dict.fromkeys(kernels, kernel),
    }


H100 = Board(_durations(1.73, 1.48, 0.87, 0.46, 0.01), 25e6, 0.9, 0.08)
ORIN_NX = Board(_durations(5.5, 14.0, 1.0, 1.3, 0.05), 12e6, 1.2, 0.25)
# How a step's Python is spread over the frame: estimated shares.
BEFORE_ENCODE, BEFORE_DECODE, CHOICE, UPDATE = 0.15, 0.35, 0.3, 0.2


def estimated_rig(bundle: Bundle, board: Board, monkeypatch: Any, lanes: int) -> Rig:
    """A pipeline on TensorRT whose clock runs as a board is estimated to."""
    monkeypatch.setattr("runtime.cuda.fake_streams.BYTES_PER_MS", board.bytes_per_ms)
    rig = Rig(bundle, tensorrt=True, lanes=lanes)
    scheduler, pipeline = rig.gpu.scheduler, rig.pipeline
    scheduler.durations |= board.durations

    def costing(function: Any, before_ms: float, after_ms: float) -> Any:
        def called(*arguments: Any) -> Any:
            scheduler.host_ms += before_ms
            answer = function(*arguments)
            scheduler.host_ms += after_ms
            return answer

        return called

    costs = (("encode", BEFORE_ENCODE, 0.0), ("decode", BEFORE_DECODE, CHOICE), ("remember", 0.0, UPDATE))
    for lane, (name, before, after) in product(map(pipeline.lane, range(lanes)), costs):
        made = costing(getattr(lane, name), before * board.python_ms, after * board.python_ms)
        monkeypatch.setattr(lane, name, made)
    # An image that was fetched ahead was copied by another thread.
    monkeypatch.setattr(pipeline._image, "_copy", _copying(rig, board))
    return rig


def _copying(rig: Rig, board: Board) -> Any:
    image = rig.pipeline._image
    copy = image._copy

    def copied(given: Any, parts: Any, index: int) -> None:
        copy(given, parts, index)
        if index == image._using:
            rig.gpu.scheduler.host_ms += board.copy_ms

    return copied
