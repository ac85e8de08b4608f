"""`efftam demo` tracks its clip, and refuses what can't work."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
from tools_helpers import assert_refused

from efftam_ros.images.video import open_video
from efftam_ros.tools import demo


def test_the_clip_is_tracked_and_compared_with_its_boxes(efftam, tmp_path: Path):
    done = efftam("demo", "--frames", "12", "--out", "results", "--quiet")
    assert done.returncode == 0, done.stderr
    tracked, compared, written = done.stdout.splitlines()
    assert tracked.startswith("12 frames, mean ms: whole frame ")
    assert compared.startswith("mean overlap with the truth 0.9")
    assert compared.endswith("0 frames claimed while the target was hidden")
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
    assert demo._compared(frames, truth).startswith("mean overlap with the truth 0.44, 1 frames claimed")
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
