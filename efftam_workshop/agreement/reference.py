"""Checks whether a GPU computes what the CPU computes: a short check at each start, a full one on request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.device.memory import GRAPHS
from efftam_ros.runtime.verify import DISC_BOX, moving_disc, picture
from efftam_workshop.agreement.compare import (
    Chain,
    ClipAgreement,
    GraphDeviation,
    compare_clip,
    compare_graphs,
    seeded_chain,
)
from efftam_workshop.agreement.runners import CpuRunner, Runner

MAX_DEVIATION = 0.02
"""Largest allowed relative error of any output of a graph.

FP16 with FP32 sums has a tenth of this error (1.6e-3, measured in an interpreter); a wrong engine has ten
times this error. TF32 stays below the limit too.
"""
MIN_OVERLAP, MIN_WORST = 0.98, 0.9
"""Smallest allowed IoU of the masks over a clip: mean of all frames, and worst frame.

With a wrong image encoder the IoU fell to 0.12.
"""
CLIP_FRAMES = 30


@dataclass(frozen=True)
class Tolerance:
    """The limits within which two networks agree.

    ``deviation``: largest relative error of any output. ``overlap`` and ``worst``: smallest IoU of the masks
    over a clip, as the mean of all frames and in the worst frame.
    """

    deviation: float
    overlap: float
    worst: float


STRICT = Tolerance(MAX_DEVIATION, MIN_OVERLAP, MIN_WORST)
INT8_LIMITS = Tolerance(0.1, 0.97, 0.85)
"""Limits for INT8, which has a precision of about two digits.

Accuracy on sequences is measured separately (docs/benchmarks.md).
"""


@dataclass(frozen=True)
class GraphAgreement:
    """The differences between a back end and the CPU; ``clip`` is None if no clip was run."""

    deviations: tuple[GraphDeviation, ...]
    clip: ClipAgreement | None = None
    limits: Tolerance = STRICT

    @property
    def fault(self) -> str:
        """One line that names the worst output beyond the limits; "" if all outputs are within the limits."""
        limits = self.limits
        # "not <=" instead of ">": NaN is beyond the limit too.
        beyond = [found for found in self.deviations if not found.relative <= limits.deviation]
        if beyond:
            worst = max(beyond, key=lambda found: found.relative)
            return (
                f"{worst.graph} computes {worst.output} with a relative error of {worst.relative:.2g}; the"
                f" limit is {limits.deviation}"
            )
        if self.clip is not None and (self.clip.mean < limits.overlap or self.clip.worst < limits.worst):
            return (
                f"masks of {len(self.clip.overlaps)} frames overlap with the CPU's by {self.clip.mean:.3f} in"
                f" the mean and {self.clip.worst:.3f} at worst; at least {limits.overlap} and {limits.worst}"
                " are required"
            )
        return ""


class GraphReference:
    """A bundle's graphs in FP32 on the CPU, with inputs as in tracking."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.runners: dict[str, Runner] = {name: CpuRunner(bundle.graphs[name].path) for name in GRAPHS}
        self.chain: Chain = seeded_chain(bundle, self.runners)

    def judge(
        self, candidate: Mapping[str, Runner], clip: bool, limits: Tolerance = STRICT
    ) -> GraphAgreement:
        """Compare the graphs in ``candidate`` with the reference's, graph by graph on the same inputs.

        ``clip``: also compare the graphs together over a clip. If ``candidate`` lacks a graph, its chain over
        the clip contains the reference's graph instead.
        """
        deviations = tuple(compare_graphs(self.chain, candidate))
        if not clip:
            return GraphAgreement(deviations, limits=limits)
        mixed = {**self.runners, **candidate}
        agreement = compare_clip(self.bundle, self.runners, mixed, seeded_clip(), DISC_BOX)
        return GraphAgreement(deviations, agreement, limits)


def seeded_clip() -> Iterator[NDArray[np.uint8]]:
    """Return `CLIP_FRAMES` pictures uint8 [360,480,3]: a striped disc that moves over a coarse pattern.

    The box of the disc in the first picture is `verify.DISC_BOX`.
    """
    return (picture(moving_disc(number)) for number in range(CLIP_FRAMES))
