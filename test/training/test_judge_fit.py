"""The claims of recordings, and the fit of the confidence to them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from support.scripted_looks import vector

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from training.judge.fit import Claims, claims_of, fitted, probability
from training.judge.record import OWN_VIEW
from training.judge.replay import Recording

HOME, OTHER, PART = Box(100, 80, 24, 20), Box(160, 80, 24, 20), Box(100, 80, 12, 8)
NOTHING = (np.nan,) * 4
IMAGES, SECOND = 40, 1_000_000_000


def numbers(box: Box) -> tuple[float, ...]:
    return box.x, box.y, box.width, box.height


def recording(
    claimed: dict[int, Box | None], likeness: dict[int, float], absent: range = range(0)
) -> Recording:
    """A target at rest that is claimed in each image.

    ``claimed``: what is claimed from an image on, None: nothing; ``likeness``: of what is claimed, likewise;
    ``absent``: images without the target.
    """
    frames: dict[str, list] = {
        name: [] for name in ("stamp_ns", "state", "measured", "truth", "box", "estimate")
    }
    found: dict[str, list] = {
        name: [] for name in ("frame", "window", "view", "box", "area", "quality", "logit", "vector")
    }
    for row in range(IMAGES):
        box = claimed[max(start for start in claimed if start <= row)]
        alike = likeness[max(start for start in likeness if start <= row)]
        frames["stamp_ns"].append(row * SECOND // 5)  # each image is a look
        frames["state"].append(int(TrackState.COASTING if box is None else TrackState.TRACKING))
        frames["measured"].append(box is not None)
        frames["truth"].append(NOTHING if row in absent else numbers(HOME))
        frames["box"].append(numbers(box or HOME))
        frames["estimate"].append(numbers(HOME))
        if row and box is not None:
            values = (
                row,
                OWN_VIEW,
                (0.0, 0.0, 320.0, 240.0),
                numbers(box),
                box.area,
                0.9,
                4.0,
                vector(alike),
            )
            for name, value in zip(found, values, strict=True):
                found[name].append(value)
    columns = {f"frame_{name}": np.array(values) for name, values in frames.items()}
    columns |= {f"candidate_{name}": np.array(values) for name, values in found.items()}
    columns |= {
        "frame_size": np.array([(320, 240)] * IMAGES),
        "frame_prompt": np.array([vector(1.0)]),
        "name": np.array("made_up.sequence"),
        "half": np.array("choosing"),
    }
    return Recording(Path("made_up.npz"), columns)


def test_a_claim_is_right_on_the_target_wrong_beside_it_and_left_out_on_a_part_of_it():
    found = claims_of(recording({0: HOME, 20: OTHER, 30: PART}, {0: 0.9}))
    assert [claim.right for claim in found] == [1.0] * 19 + [0.0] * 10
    gone = claims_of(recording({0: HOME}, {0: 0.9}, absent=range(30, 40)))
    assert [claim.right for claim in gone] == [1.0] * 29 + [0.0] * 10
    missed = claims_of(recording({0: HOME, 20: None}, {0: 0.9}))
    assert len(missed) == 19


def test_a_claim_has_what_its_look_misses_of_the_usual_likeness_one_look_late():
    """As in the tracker, which looks at the target after it has answered."""
    found = claims_of(recording({0: HOME}, {0: 0.9, 20: 0.6}))
    assert found[18].deficit == pytest.approx(0.0, abs=0.01)
    assert found[19].deficit == pytest.approx(0.0, abs=0.01)
    assert found[20].deficit == pytest.approx(0.3, abs=0.01)


def test_a_claim_has_the_change_of_its_area():
    larger = Box(94, 75, 36, 30)
    found = claims_of(recording({0: HOME, 20: larger}, {0: 0.9}))
    assert found[10].change == pytest.approx(0.0)
    assert found[19].change == pytest.approx(math.log(2.25))


def test_the_fit_finds_the_numbers_that_made_the_claims():
    rng, true = np.random.default_rng(0), (3.0, 8.0, 1.5)
    x = np.stack([rng.uniform(0, 0.6, 20_000), rng.uniform(0, 1.5, 20_000)], axis=1)
    right = rng.random(20_000) < 1 / (1 + np.exp(-(true[0] - x @ np.array(true[1:]))))
    claims = Claims(x, right.astype(float), rng.integers(0, 16, 20_000))
    assert fitted(claims) == pytest.approx(true, rel=0.1)
    assert probability(claims, true).mean() == pytest.approx(right.mean(), abs=0.01)
