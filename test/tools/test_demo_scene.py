"""What the demo promises: its scene, tracked with the network that ships."""

from __future__ import annotations

import numpy as np

from efftam_ros.core.geometry import iou
from efftam_ros.core.types import Frame, Image, Prompt, TrackState
from efftam_ros.runtime.pipeline import open_pipeline, open_tracker
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


def test_the_shipped_network_finds_the_car_again_after_the_camera_turned_away_from_it():
    tracker = open_tracker(open_pipeline())
    hidden: list[TrackState] = []
    since_return, found = 0, False
    for index, shown in enumerate(render_scene(turns_away=True)):
        prompt = None if index else Prompt(box=shown.box)
        track = tracker.step(Frame(Image.from_array(shown.bgr), index * NS // 30), prompt)
        if shown.box is None:
            hidden.append(track.state)
        elif hidden:
            since_return += 1
            found = track.state is TrackState.TRACKING and iou(track.box, shown.box) > 0.5
            if found or since_return == 30:
                break
    assert len(hidden) >= 30
    assert TrackState.TRACKING not in hidden[3:]
    assert found
