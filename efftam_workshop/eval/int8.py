"""Measures the loss of accuracy by INT8 on sequences, with quantised graphs (Q/DQ nodes) on the CPU."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from efftam_ros.core.config import TrackerConfig
from efftam_ros.core.errors import InputError
from efftam_ros.runtime.bundle import Bundle
from efftam_ros.runtime.opening import open_pipeline
from efftam_ros.tools.common.terminal import progress_bar
from efftam_workshop.eval.command import OwnTracker, one_pass
from efftam_workshop.eval.metrics import mean_scores
from efftam_workshop.eval.sequences import find_sequences
from efftam_workshop.export.int8 import CalibrationClip, write_quantized_bundle

MAX_AO_DROP = 0.005
MAX_NEW_FALSE_CLAIMS = 0.0


@dataclass(frozen=True)
class Int8Cost:
    """Scores before and after quantisation, as pairs (FP32, INT8). Each is a mean over ``sequences``
    sequences.

    ``ao``: average overlap. ``false_claims``: share of frames with a false claim.
    """

    sequences: int
    ao: tuple[float, float]
    false_claims: tuple[float, float]

    @property
    def text(self) -> str:
        count = f"{self.sequences} sequence{'s' if self.sequences > 1 else ''}"
        return (
            f"INT8 with Q/DQ on the CPU, {count}: AO {self.ao[0]:.4f} -> {self.ao[1]:.4f},"
            f" false claims {self.false_claims[0]:.4f} -> {self.false_claims[1]:.4f}"
        )

    def require_small(self) -> None:
        """Raise InputError if AO drops by more than `MAX_AO_DROP` or the share of false claims grows."""
        drop = self.ao[0] - self.ao[1]
        new = self.false_claims[1] - self.false_claims[0]
        if not (drop <= MAX_AO_DROP and new <= MAX_NEW_FALSE_CLAIMS):
            raise InputError(
                f"INT8 costs {drop:.4f} of AO ({MAX_AO_DROP} is the limit) and adds false claims in"
                f" {new:.4f} of the frames ({MAX_NEW_FALSE_CLAIMS:g} is the limit); calibrate on other"
                " footage, or build in fp16"
            )


def cost_of_int8(bundle: Bundle, clip: CalibrationClip, folders: list[Path], quiet: bool) -> Int8Cost:
    """Return the scores over every sequence in ``folders``, before and after quantisation.

    The tracker has the default policy. ``clip``: calibrates INT8.
    """
    sequences = [sequence for folder in folders for sequence in find_sequences(folder)]
    total = 2 * sum(len(sequence) for sequence in sequences)
    with (
        tempfile.TemporaryDirectory(prefix="efftam-int8-") as folder,
        progress_bar(total, "accuracy", quiet=quiet) as bar,
    ):
        quantized = Path(folder) / "bundle"
        write_quantized_bundle(bundle, clip, quantized)
        found = []
        for network in (bundle, Bundle.load(quantized)):
            with closing(OwnTracker(open_pipeline(bundle=network), TrackerConfig())) as tracker:
                found.append([one_pass(tracker, [one], 0, bar.update)[0].scores for one in sequences])
    before, after = map(mean_scores, found)
    claims = before.false_claims, after.false_claims
    return Int8Cost(len(sequences), (before.ao, after.ao), claims)
