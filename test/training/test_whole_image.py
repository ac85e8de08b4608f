"""Looks at whole images with a frozen memory: windows, ranking, and the images that are looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.clip import clip as demo_clip
from support.clip import write_sequence
from support.scripted_pipeline import ScriptedPipeline

from efftam_ros.core.geometry import Box
from efftam_ros.core.tracker import TargetTracker
from efftam_ros.core.types import Candidates, PipelineSpec
from training.reacquisition import whole_image as look
from training.reacquisition.footage import Footage, find_footage

SPEC = PipelineSpec(name="scripted", image_side=192)


def seen(presence_logit: float, *boxes: tuple[Box, float]) -> Candidates:
    edges = np.array([box.edges() for box, _ in boxes], np.float32)
    areas = np.array([box.area for box, _ in boxes], np.float32)
    return Candidates(edges, areas, np.array([iou for _, iou in boxes], np.float32), presence_logit)


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Footage:
    folder: Path = tmp_path_factory.mktemp("clips") / "scene"
    write_sequence(folder, demo_clip(180, (256, 144)))
    (found,) = find_footage([folder.parent])
    return found


def test_a_clip_is_looked_over_and_the_target_is_ranked_among_what_shows(clip):
    """A network that sees the target where it is, and a brighter thing in a corner."""
    frozen, (later,) = look.looks_at(clip)
    truth, other = clip.box(later), Box(2, 2, 20, 20)

    def script(i, view):
        shown = []
        for box, quality in ((truth if i > frozen else clip.box(i), 0.8), (other, 0.95)):
            x, y = view.x, view.y
            width, height = view.extent
            if x <= box.cx <= x + width and y <= box.cy <= y + height:
                shown.append((box, quality))
        return seen(6.0, *shown) if shown else seen(-6.0, (Box(0, 0, 1, 1), 0.1))

    pipeline = ScriptedPipeline(script, SPEC)
    (found,) = look.look_over(TargetTracker(pipeline), pipeline, clip, 5.0)
    assert (found.clip, found.later_s, found.rank, found.things) == (
        "scene",
        pytest.approx(3.0, abs=0.1),
        2,
        2,
    )
    assert found.windows >= 5
