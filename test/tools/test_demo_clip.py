"""What the demo promises of its clip, tracked with the network that ships, and its command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from support.clip import Shown, clip
from support.scripted_target import OneTarget
from tools_helpers import assert_refused

from efftam_ros.core.geometry import Box, iou
from efftam_ros.core.types import Frame, Image, Prompt, Track, TrackState
from efftam_ros.images.source import NS
from efftam_ros.images.video import open_video
from efftam_ros.runtime.backends import PipelineConfig
from efftam_ros.runtime.opening import open_pipeline, open_targets
from efftam_ros.tools import demo
from efftam_ros.tools.demo import CLIP, TWIN

FPS = 30


def tracked(shown: list[Shown], fps: int = FPS) -> list[Track]:
    tracker = OneTarget(open_targets(open_pipeline()))
    return [
        tracker.step(
            Frame(Image.from_array(bgr), index * NS // fps), None if index else Prompt(box=shown[0].box)
        )
        for index, (bgr, _) in enumerate(shown)
    ]


def test_the_shipped_network_follows_the_car_past_its_twin_and_finds_it_behind_the_bridge():
    shown = clip()[::3]
    tracks = tracked(shown, FPS // 3)
    hidden = [track for track, (_, box) in zip(tracks, shown, strict=True) if box is None]
    overlaps = [
        iou(track.box, box) if track.box else 0.0
        for track, (_, box) in zip(tracks[1:], shown[1:], strict=True)
        if box is not None
    ]
    assert len(hidden) > 6
    assert TrackState.TRACKING not in {track.state for track in hidden}
    assert np.mean(overlaps) >= 0.8
    assert tracks[-1].state is TrackState.TRACKING


def test_the_shipped_network_follows_both_cars_past_one_another_and_keeps_their_ids():
    """At a third of the rate, until the look-alike has left the image."""
    begin, drawn = TWIN
    targets = open_targets(open_pipeline(PipelineConfig(max_targets=2)))
    seen = 0
    for index, (bgr, box) in list(enumerate(clip(150)))[::3]:
        frame = Frame(Image.from_array(bgr), index * NS // FPS)
        prompts = {0: {0: Prompt(box=box)}, begin: {1: Prompt(box=Box(*drawn))}}
        found = {step.target_id: step.track for step in targets.step(frame, prompts.get(index, {}))}
        assert iou(found[0].box, box) > 0.8
        assert found[0].state is TrackState.TRACKING or index < 9
        twin = other_car(bgr, box) if begin < index else None
        if twin is not None and twin.x1 < 630:
            seen += 1
            assert iou(found[1].box, twin) > 0.7
            assert found[1].state in (TrackState.ACQUIRING, TrackState.TRACKING)
    assert seen > 23
    assert found[1].state in (TrackState.COASTING, TrackState.LOST)


def other_car(bgr: np.ndarray, box: Box) -> Box | None:
    """What else is as red as the cars."""
    blue, green, red = np.moveaxis(bgr.astype(int), 2, 0)
    x0, y0, x1, y1 = map(int, box.edges())
    is_red = (red > blue + 60) & (red > green + 60)
    is_red[max(0, y0 - 8) : y1 + 8, max(0, x0 - 8) : x1 + 8] = False
    ys, xs = np.nonzero(is_red)
    return Box.from_edges(xs.min(), ys.min(), xs.max() + 1, ys.max() + 1) if len(xs) > 150 else None


def test_the_clip_is_small_and_its_boxes_belong_to_its_images():
    assert sum(path.stat().st_size for path in CLIP.iterdir()) < 1.2e6
    shown = clip()
    for bgr, box in shown[::15]:
        if box is not None:
            x, y, width, height = map(round, box.xywh())
            blue, _, red = bgr[y : y + height, x : x + width].reshape(-1, 3).astype(int).T
            assert np.mean(red > blue + 60) > 0.25  # nothing else in the clip is as red as the cars


def test_the_shipped_network_finds_the_car_again_after_the_camera_turned_away_from_it():
    pytest.importorskip("panda3d", reason="the rendered world needs panda3d: pip install panda3d")
    from simulation.paths import direction
    from simulation.world import World, WorldConfig

    world = World(WorldConfig(focal_px=800.0, with_bridge=False))
    shown = []
    for index in range(0, 120, 3):  # at a third of the rate
        time_s = 2.0 + index / FPS
        yaw, pitch = direction(world.config.drone.at(time_s), world.config.target.at(time_s))
        # Away by 1.2 rad within 0.6 s, there for 1.5 s, and back.
        share = min(max((index - 30) / 18, 0.0), 1.0) - min(max((index - 93) / 18, 0.0), 1.0)
        shot = world.shoot(time_s, yaw + 0.6 * (1 - math.cos(math.pi * share)), pitch)
        shown.append(Shown(shot.image, shot.box))
    world.close()
    tracks = tracked(shown, FPS // 3)
    gone = [index for index, (_, box) in enumerate(shown) if box is None]
    assert len(gone) > 14
    assert TrackState.TRACKING not in {tracks[index].state for index in gone[2:]}
    back = [t for t, (_, box) in zip(tracks[gone[-1] + 1 :], shown[gone[-1] + 1 :], strict=True) if box]
    assert any(t.state is TrackState.TRACKING for t in back)
    assert iou(tracks[-1].box, shown[-1].box) > 0.5


def test_the_clip_is_tracked_and_compared_with_its_boxes(efftam, tmp_path: Path):
    done = efftam("demo", "--frames", "12", "--out", "results", "--quiet")
    assert done.returncode == 0, done.stderr
    tracked, compared, written = done.stdout.splitlines()
    assert tracked.startswith("12 frames, mean ms: whole frame ")
    assert compared.startswith("mean overlap with the truth 0.9")
    assert compared.endswith("0 frames in state TRACKING while the target was hidden")
    assert written == "wrote results/overlay.mp4, results/track.json"
    report = json.loads((tmp_path / "results" / "track.json").read_text())
    assert [frame["index"] for frame in report["frames"]] == list(range(12))
    assert (tmp_path / "results" / report["video"]).is_file()
    assert len(list(open_video(tmp_path / "results" / "overlay.mp4").frames())) == 12


def test_the_first_image_counts_for_nothing_and_what_is_claimed_of_a_hidden_target_is_counted():
    frames = [{"box": [0, 0, 10, 10], "state": state} for state in ("ACQUIRING", *["TRACKING"] * 3, "LOST")]
    frames[4]["box"] = None
    nan = [math.nan] * 4
    truth = np.array([[90, 90, 9, 9], [0, 0, 10, 10], [5, 0, 10, 10], nan, [0, 0, 9, 9], nan], float)
    assert demo._compared(frames, truth).startswith(
        "mean overlap with the truth 0.44, 1 frames in state TRACKING"
    )
    assert demo._compared(frames[:1], truth).startswith("mean overlap with the truth unknown, 0 frames")


def test_with_its_twin_there_are_two_targets_from_where_that_is_in_sight(efftam_here, tmp_path: Path):
    done = efftam_here("demo", "--twin", "--frames", "8", "--out", "results", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("mean overlap with the truth 0.9")
    report = json.loads((tmp_path / "results" / "track.json").read_text())
    assert [frame["index"] for frame in report["frames"]] == list(range(36, 44))
    for frame in report["frames"]:
        first, second = frame["targets"]
        assert (first["id"], second["id"], first["measured"], second["measured"]) == (0, 1, True, True)
        assert second["box"][1] > first["box"][1] + 100  # it comes from below


def test_what_can_not_work_is_refused_before_anything_is_written(efftam_here, square_video: Path):
    assert_refused(efftam_here("demo", "--out", "square.mp4/demo"), "--out square.mp4/demo")
    assert_refused(efftam_here("demo", "--bundle", "nope"), "nope")
    assert_refused(efftam_here("demo", "--frames", "0"), "--frames is 0; it must be at least 1")
    assert list(square_video.parent.iterdir()) == [square_video]
