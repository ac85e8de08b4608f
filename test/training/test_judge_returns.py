"""Recorded misses, judged by the policy as it is now."""

from pathlib import Path

import numpy as np
import pytest
from support.scripted_looks import vector

from efftam_ros.core.geometry import Box
from efftam_ros.core.types import TrackState
from training.judge.record import OWN_VIEW
from training.judge.replay import Recording
from training.judge.returns import HEADERS, misses, outcome_rows

HOME, OTHER = Box(100, 80, 24, 20), Box(160, 80, 24, 20)
SEEN_FOR, GONE_FOR, IMAGES = 20, 6, 40
NOTHING = (np.nan,) * 4
SECOND = 1_000_000_000


def edges(box: Box) -> tuple[float, ...]:
    return box.x, box.y, box.width, box.height


def recording(shown: Box, likeness: float, is_visible: bool = True) -> Recording:
    """Of a tracker that never claims again what it missed: a target at rest goes for some images, then a box
    is seen that is so much like it. ``is_visible``: the target is back at its place then."""
    frames: dict[str, list] = {
        name: []
        for name in ("stamp_ns", "state", "measured", "truth", "box", "estimate", "velocity", "camera")
    }
    found: dict[str, list] = {
        name: [] for name in ("frame", "window", "view", "box", "area", "quality", "logit", "vector")
    }
    for row in range(IMAGES):
        is_gone, is_back = row >= SEEN_FOR, row >= SEEN_FOR + GONE_FOR
        frames["stamp_ns"].append(row * SECOND // 30)
        frames["state"].append(int(TrackState.COASTING if is_gone else TrackState.TRACKING))
        frames["measured"].append(not is_gone)
        frames["truth"].append(NOTHING if is_gone and not (is_back and is_visible) else edges(HOME))
        frames["box"].append(edges(HOME))
        frames["estimate"].append(edges(HOME))
        frames["velocity"].append((0.0, 0.0))
        frames["camera"].append(np.eye(3))
        if row and (is_back or not is_gone):
            box, alike = (shown, likeness) if is_back else (HOME, 0.8)
            found["frame"].append(row)
            found["window"].append(OWN_VIEW)
            found["view"].append((0.0, 0.0, 320.0, 240.0))
            found["box"].append(edges(box))
            found["area"].append(box.area)
            found["quality"].append(0.9)
            found["logit"].append(4.0)
            found["vector"].append(vector(alike))
    columns = {f"frame_{name}": np.array(values) for name, values in frames.items()}
    columns |= {f"candidate_{name}": np.array(values) for name, values in found.items()}
    columns |= {
        "frame_size": np.array([(320, 240)] * IMAGES),
        "frame_prompt": np.array([vector(1.0)]),
        "half": np.array("choosing"),
    }
    return Recording(Path("made_up.npz"), columns)


@pytest.mark.parametrize(
    ("shown", "likeness", "is_visible", "outcome"),
    [
        (HOME, 0.8, True, "the target first"),
        (OTHER, 0.8, True, "something else"),
        (HOME, 0.8, False, "something else"),  # the target is not in view
        (HOME.moved(11, 0), 0.8, True, "a part"),
        (HOME, 0.2, True, "nothing"),
    ],
)
def test_each_miss_has_what_the_policy_accepts_first(shown, likeness, is_visible, outcome):
    (miss,) = misses(recording(shown, likeness, is_visible))
    assert (miss.row, miss.outcome) == (SEEN_FOR, outcome)


def test_images_are_waited_while_the_target_is_among_the_candidates():
    waited = [misses(recording(HOME, likeness))[0].waited for likeness in (0.8, 0.2)]
    assert waited == [0, IMAGES - SEEN_FOR - GONE_FOR]


def test_the_table_counts_the_misses_by_half():
    found = [*misses(recording(HOME, 0.8)), *misses(recording(OTHER, 0.8)), *misses(recording(HOME, 0.2))]
    (row,) = outcome_rows(found)
    assert dict(zip(HEADERS, row, strict=True)) | {"images waited": 0} == {
        "half": "choosing",
        "misses": 3,
        "the target first": 1,
        "something else": 1,
        "a part": 0,
        "nothing": 1,
        "images waited": 0,
    }
