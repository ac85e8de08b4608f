"""Whether a GPU computes what the CPU computes: a short check at every start, a full one on request."""

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
"""Relative, of any output: ten times what FP16 with FP32 sums leaves (1.6e-3, measured in an interpreter), a
tenth of what a wrong engine shows. TF32 stays below it too."""
MIN_OVERLAP, MIN_WORST = 0.98, 0.9
"""Of masks over a clip, in the mean and in the worst frame. A wrong image encoder fell to 0.12."""
CLIP_FRAMES = 30


@dataclass(frozen=True)
class Tolerance:
    """What counts as agreeing: at most this ``deviation`` of any output; at least this ``overlap`` of masks
    in the mean over a clip, and ``worst`` in any of its frames."""

    deviation: float
    overlap: float
    worst: float


STRICT = Tolerance(MAX_DEVIATION, MIN_OVERLAP, MIN_WORST)
INT8_LIMITS = Tolerance(0.1, 0.97, 0.85)
"""Eight bits keep two digits. Accuracy on sequences is measured apart, with Q/DQ on the CPU
(docs/benchmarks.md)."""


@dataclass(frozen=True)
class GraphAgreement:
    """How far a back end is from the CPU; ``clip`` is None where only single graphs were compared."""

    deviations: tuple[GraphDeviation, ...]
    clip: ClipAgreement | None = None
    limits: Tolerance = STRICT

    @property
    def fault(self) -> str:
        """What is wrong in one line, naming the worst output; "" when all is well."""
        # Not above the limit: a deviation that is no number is beyond it too.
        limits = self.limits
        beyond = [found for found in self.deviations if not found.relative <= limits.deviation]
        if beyond:
            worst = max(beyond, key=lambda found: found.relative)
            return (
                f"{worst.graph} computes {worst.output} with a relative error of {worst.relative:.2g},"
                f" {limits.deviation} is the limit"
            )
        if self.clip is not None and (self.clip.mean < limits.overlap or self.clip.worst < limits.worst):
            return (
                f"masks of {len(self.clip.overlaps)} frames overlap with the CPU's by {self.clip.mean:.3f}"
                f" (worst {self.clip.worst:.3f}), {limits.overlap} ({limits.worst}) is the limit"
            )
        return ""


class GraphReference:
    """A bundle in FP32 on the CPU, with the inputs that its graphs get in use."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.runners: dict[str, Runner] = {name: CpuRunner(bundle.graphs[name].path) for name in GRAPHS}
        self.chain: Chain = seeded_chain(bundle, self.runners)

    def judge(
        self, candidate: Mapping[str, Runner], clip: bool, limits: Tolerance = STRICT
    ) -> GraphAgreement:
        """Compare the graphs that ``candidate`` has; with ``clip`` also a chained run, the others' graphs
        being the reference's."""
        deviations = tuple(compare_graphs(self.chain, candidate))
        if not clip:
            return GraphAgreement(deviations, limits=limits)
        mixed = {**self.runners, **candidate}
        agreement = compare_clip(self.bundle, self.runners, mixed, seeded_clip(), DISC_BOX)
        return GraphAgreement(deviations, agreement, limits)


def seeded_clip() -> Iterator[NDArray[np.uint8]]:
    """`CLIP_FRAMES` pictures uint8 [360,480,3] of a striped disc that moves over a coarse pattern, from
    `verify.DISC_BOX` on."""
    return (picture(moving_disc(number)) for number in range(CLIP_FRAMES))
