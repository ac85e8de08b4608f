"""What the demo promises: its scene, tracked with the network that ships."""

from __future__ import annotations

import numpy as np

from efftam_ros.core.geometry import iou
from efftam_ros.core.types import Frame, Image, Prompt
from efftam_ros.runtime.pipeline import open_pipeline
from efftam_ros.runtime.tracker import open_tracker
from efftam_ros.tools.common.video import NS
from efftam_ros.tools.scene.render import render_scene


def test_the_shipped_network_follows_the_car_past_its_twin_and_finds_it_behind_the_bridge():
    tracker = open_tracker(open_pipeline())
    overlaps, claimed = [], 0
    for index, shown in enumerate(render_scene()):
        prompt = None if index else Prompt(box=shown.box)
        track = tracker.step(Frame(Image.from_array(shown.bgr), index * NS // 30), prompt)
        if shown.box is None:
            claimed += track.measured
        elif index:
            overlaps.append(iou(track.box, shown.box) if track.box else 0.0)
    assert np.mean(overlaps) >= 0.7
    assert claimed == 0
