"""SAMURAI's reference, frame by frame, against a recorded run of it (test/golden/samurai_trace.json).

The trace: boxes are corner numbers of inclusive pixel indices in a 1024 x 1024 network image, used as they
are; velocities are per frame. Which frames are attended to is compared through the tracker (test_tracker).
"""

import json
from pathlib import Path

import numpy as np
import pytest

from efftam_ros.core.memory import MemoryBank, Record
from efftam_workshop.policies.reference import SamuraiFrames
from efftam_workshop.policies.samurai_filter import (
    ReferenceSelector,
    SamuraiConfig,
    reference_iou,
)

TRACE = json.loads((Path(__file__).parent.parent / "golden" / "samurai_trace.json").read_text())
SEQUENCES = {s["name"]: s for s in TRACE["sequences"]}


def config_of(sequence) -> SamuraiConfig:
    c = sequence["config"]
    return SamuraiConfig(
        motion_weight=c["kf_score_weight"],
        stable_frames=c["stable_frames_threshold"],
        stable_iou=c["stable_ious_threshold"],
        min_presence_logit=c["min_obj_score_logits"],
    )


def edges_of(frame):
    return np.array([box or (0, 0, 0, 0) for box in frame["boxes"]], float)


def test_the_overlap_alone():
    for case in TRACE["iou_unit"]:
        cx, cy, aspect, height = case["pred_xyah"]
        predicted = np.array(
            [cx - aspect * height / 2, cy - height / 2, cx + aspect * height / 2, cy + height / 2]
        )
        got = [reference_iou(predicted, np.array(box, float)) for box in case["boxes"]]
        assert got == pytest.approx(case["iou"], rel=1e-9)


@pytest.mark.parametrize("name", SEQUENCES)
def test_choice_filter_and_counter_of_every_frame(name):
    sequence = SEQUENCES[name]
    selector = ReferenceSelector(config_of(sequence))
    for frame in sequence["frames"]:
        want = frame["out"]
        if want["branch"] == "prompt":
            continue
        got = selector.choose(edges_of(frame), np.array(frame["ious"]), frame["object_score_logit"])
        assert (got.branch, got.index, selector.stable) == (
            want["branch"],
            want["chosen"],
            want["stable_frames"],
        )
        assert selector.filter.mean == pytest.approx(want["mean"], rel=1e-9, abs=1e-9)
        assert np.diag(selector.filter.covariance) == pytest.approx(want["cov_diag"], rel=1e-9)
        for value, key in (
            (got.predicted, "predicted_box_xyxy"),
            (got.motion_ious, "kf_ious"),
            (got.weighted, "weighted_scores"),
            (got.updated_with, "updated_with_xyah"),
        ):
            assert (value is None) == (want[key] is None), key
            if value is not None:
                assert value == pytest.approx(want[key], rel=1e-9, abs=1e-9), key


def test_twenty_two_slots_are_enough_and_twenty_one_are_not():
    """1 prompt + 15 pointers + 6 older valid frames: valid frames first, then a long run of poor ones."""

    def run(slots):
        bank = MemoryBank(SamuraiFrames(), slots)
        for t in range(60):
            bank.plan_of(t)
            bank.add(Record(t, t == 0, quality=0.9 if t < 20 else 0.1, presence_logit=3.0))

    run(22)
    with pytest.raises(ValueError, match="slots"):
        run(21)
