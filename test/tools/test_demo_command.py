"""`efftam demo` tracks its clip, and refuses what can't work."""

from __future__ import annotations

import json
from pathlib import Path

from tools_helpers import assert_refused

from efftam_ros.images.video import open_video


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
