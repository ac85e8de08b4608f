"""Inputs of a bundle's graphs over a tracked clip, from which activations are quantised."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.device.memory import ATTENTION
from efftam_ros.runtime.verify.compare import run_clip
from efftam_ros.runtime.verify.runners import Arrays, Runner
from efftam_ros.runtime.verify.verify import seeded_clip, seeded_clip_box

LEAST_FRAMES = 2
METHOD = "extremes, symmetric, weights per channel"
"""How ranges follow from the inputs; part of the hash."""


@dataclass(frozen=True)
class CalibrationClip:
    """Pictures uint8 [H,W,3] BGR of one size, and the target's box (px) on the first."""

    name: str
    frames: tuple[NDArray[np.uint8], ...]
    box: Box

    def __post_init__(self) -> None:
        if len(self.frames) < LEAST_FRAMES:
            raise InputError(
                f"calibration clip {self.name} has {len(self.frames)} frames, and memory attention first"
                f" runs in the second; give at least {LEAST_FRAMES}"
            )

    @cached_property
    def sha256(self) -> str:
        """Hash of pixels, box and `METHOD`."""
        digest = hashlib.sha256(json.dumps([METHOD, *self.box.xywh()]).encode())
        for frame in self.frames:
            digest.update(repr(frame.shape).encode())
            digest.update(frame.tobytes())
        return digest.hexdigest()


def default_clip() -> CalibrationClip:
    """The seeded clip that engines are compared on."""
    return CalibrationClip("the seeded clip", tuple(seeded_clip()), seeded_clip_box())


def recorded_inputs(
    bundle: Bundle, runners: Mapping[str, Runner], clip: CalibrationClip, modules: Collection[str]
) -> dict[str, list[Arrays]]:
    """What these modules get in each frame of a chained run over the clip; memory attention has no inputs in
    the first."""
    found: dict[str, list[Arrays]] = {name: [] for name in modules}
    for number, (chain,) in enumerate(run_clip(bundle, [runners], clip.frames, clip.box)):
        for name in modules:
            if number > 0 or name != ATTENTION:
                found[name].append({key: np.array(value) for key, value in chain.inputs[name].items()})
    return found


def dynamic_inputs(samples: Sequence[Arrays]) -> list[Arrays]:
    """Inputs of `ATTENTION` as inputs of the dynamic form of memory attention, which the CPU runs: without
    the places that nothing was laid into."""
    found = []
    for sample in samples:
        rows = np.flatnonzero(sample["maps"].any(axis=(1, 2)))
        pointers = np.flatnonzero(sample["pointers"].any(axis=1))
        found.append(
            {
                "features": sample["features"],
                "maps": sample["maps"][rows],
                "rows": rows.astype(np.int64),
                "pointers": sample["pointers"][pointers],
            }
        )
    return found
