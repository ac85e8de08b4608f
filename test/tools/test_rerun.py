"""`--rerun`: the viewer's files, read back by its own reader."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from bag_helpers import write_bag
from test_replay import PERIOD_NS, START_NS, camera, replay
from test_sequences import write_own
from tools_helpers import assert_refused, square_picture

from efftam_ros.core.geometry import Box, View
from efftam_ros.core.types import Motion, Track, TrackState
from efftam_ros.images.video import open_video
from efftam_workshop.rerun_file import rerun_file

pytest.importorskip("rerun", reason="rerun-sdk is not installed")
from rerun.chunk import RrdReader

Rows = dict[str, list[tuple[int, dict[str, Any]]]]


def rows_of(file: Path) -> Rows:
    """By entity: time, ns, and components of every row that has a time."""
    found: Rows = defaultdict(list)
    for chunk in RrdReader(file).store().stream():
        if not chunk.timeline_names:
            continue
        assert chunk.timeline_names == ["image_stamp"]
        batch = chunk.to_record_batch()
        times = batch.column("image_stamp").cast("int64").to_pylist()
        names = [name for name in batch.schema.names if ":" in name]
        for time, row in zip(times, batch.select(names).to_pylist(), strict=True):
            known = {name: value for name, value in row.items() if value is not None}
            found[str(chunk.entity_path)].append((time, known))
    return {entity: sorted(rows, key=lambda row: row[0]) for entity, rows in found.items()}


def test_a_run_of_a_video_shows_each_image_with_its_result(efftam, square_video: Path, tmp_path: Path):
    result = efftam(
        "track", square_video, "--box", "40,30,24,24", "--rerun", "first.rrd", "--json", "t.json", "--quiet"
    )
    assert result.returncode == 0, result.stderr
    frames = json.loads((tmp_path / "t.json").read_text())["frames"]
    rows = rows_of(tmp_path / "first.rrd")
    names = {"image", "image/box", "image/mask", "image/velocity", "presence", "likeness", "velocity"}
    names.add("confidence")
    assert set(rows) == {f"/first/{name}" for name in {*names, "state"}}
    for name in names:
        assert [time for time, _ in rows[f"/first/{name}"]] == [i * 100_000_000 for i in range(12)], name
    jpeg = bytes(np.array(rows["/first/image"][3][1]["EncodedImage:blob"], np.uint8).tobytes())
    shown = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    assert np.abs(shown.astype(int) - square_picture(49, 36)).mean() < 4
    for frame, (_, box) in zip(frames, rows["/first/image/box"], strict=True):
        (centre,), (half,) = box["Boxes2D:centers"], box["Boxes2D:half_sizes"]
        x, y, w, h = frame["box"]
        assert (*centre, *half) == pytest.approx((x + w / 2, y + h / 2, w / 2, h / 2), abs=1e-3)
        assert box["Boxes2D:labels"] == [frame["state"]]
    outline = np.concatenate([np.array(s) for s in rows["/first/image/mask"][11][1]["LineStrips2D:strips"]])
    x, y, w, h = frames[11]["box"]
    assert (*outline.min(axis=0), *outline.max(axis=0)) == pytest.approx((x, y, x + w, y + h), abs=2)
    assert [row["Scalars:scalars"] for _, row in rows["/first/presence"]] == [[f["presence"]] for f in frames]
    shown_likeness = [row["Scalars:scalars"][0] for _, row in rows["/first/likeness"]]
    np.testing.assert_equal(shown_likeness, [np.float64(f["likeness"] or np.nan) for f in frames])
    assert not np.isnan(shown_likeness[-1])
    assert [row["Scalars:scalars"] for _, row in rows["/first/velocity"]] == [f["velocity"] for f in frames]
    assert [row["StateChange:state"] for _, row in rows["/first/state"]] == [["ACQUIRING"], ["TRACKING"]]


def test_every_target_has_its_entities(tmp_path: Path):
    """One that is removed is shown no more."""
    one, two = (
        Track(0, TrackState.TRACKING, box=Box(x, 5, 20, 10), measured=True, image_size=(80, 60))
        for x in (5, 40)
    )
    with rerun_file(tmp_path / "both.rrd", "both") as file:
        for index, answers in enumerate(({0: one, 1: two}, {0: one})):
            timed = {key: (replace(track, stamp_ns=index), None) for key, track in answers.items()}
            file.write(np.zeros((60, 80, 3), np.uint8), timed)
    rows = rows_of(tmp_path / "both.rrd")
    assert len(rows["/both/image"]) == 2
    (_, first), (_, second) = rows["/both/image/box"][0], rows["/both/image/1/box"][0]
    assert (first["Boxes2D:labels"], second["Boxes2D:labels"]) == (["TRACKING"], ["1 TRACKING"])
    assert second["Boxes2D:centers"] == [[50, 10]]
    assert [time for time, _ in rows["/both/image/1/box"]] == [0, 1]
    assert "Boxes2D:centers" not in rows["/both/image/1/box"][1][1]
    assert (len(rows["/both/presence"]), len(rows["/both/1/presence"])) == (2, 1)


def test_a_missed_target_has_windows_and_later_no_box(tmp_path: Path):
    image, covariance = np.zeros((60, 80, 3), np.uint8), np.eye(4)
    box, windows = Box(10, 20, 30, 15), (View.window(20, 20, 16, 192), View.window(40, 20, 16, 192))
    motion = Motion(0, box, (40.0, -20.0), covariance)
    tracks = [
        Track(0, TrackState.TRACKING, box, measured=True, motion=motion),
        Track(1, TrackState.COASTING, box, motion=motion, windows=windows),
        Track(2, TrackState.LOST, windows=windows[:1]),
        Track(3, TrackState.LOST),
        Track(4, TrackState.LOST),
    ]
    with rerun_file(tmp_path / "x.rrd", "clip") as file:
        for track in tracks:
            file.write(image, {0: (track, np.full((60, 80), 255, np.uint8) if track.measured else None)})
    rows = rows_of(tmp_path / "x.rrd")
    shown = [
        (time, "Clear:is_recursive" not in row, len(row.get("Boxes2D:centers", [])))
        for time, row in rows["/x/image/windows"]
    ]
    assert shown == [(1, True, 2), (2, True, 1), (3, False, 0)]
    assert [(t, "Clear:is_recursive" in row) for t, row in rows["/x/image/box"]] == [
        (0, False),
        (1, False),
        (2, True),
    ]
    assert rows["/x/image/box"][1][1]["Boxes2D:labels"] == ["COASTING (predicted)"]
    assert [(t, "Clear:is_recursive" in row) for t, row in rows["/x/image/mask"]] == [(0, False), (1, True)]
    assert rows["/x/image/velocity"][0][1]["Arrows2D:vectors"] == [[20.0, -10.0]]
    assert [time for time, _ in rows["/x/state"]] == [0, 1, 2]


def test_a_bag_is_shown_at_the_dates_of_its_stamps(tmp_path: Path):
    bag = write_bag(tmp_path / "in", camera(4))
    file = tmp_path / "r.rrd"
    assert replay(bag, "--box", "40,30,24,24", "--out", tmp_path / "out", "--rerun", file) == 0
    assert [time for time, _ in rows_of(file)["/r/image"]] == [START_NS + i * PERIOD_NS for i in range(4)]
    (entry,) = RrdReader(file).recordings()
    assert (entry.application_id, entry.recording_id) == ("efftam", "in")


def test_an_evaluation_shows_the_truth_beside_each_trackers_box(efftam, tmp_path: Path):
    rows = ["0,40,30,16,16", "1,nan,nan,nan,nan", "2,42,30,16,16"]
    for name in ("car", "van"):
        write_own(tmp_path / "set" / name, rows)
    result = efftam(
        "eval", "set", "--policy", "default,samurai", "--repeats", "2", "--rerun", "e.rrd", "--quiet"
    )
    assert result.returncode == 0, result.stderr
    found = rows_of(tmp_path / "e.rrd")
    parts = {entity.split("/")[2] for entity in found}
    assert parts == {r"default\ car", r"default\ van", r"samurai\ car", r"samurai\ van"}
    for part in parts:
        assert len(found[f"/e/{part}/image"]) == 3
        truth = [row.get("Boxes2D:centers") for _, row in found[f"/e/{part}/image/truth"]]
        assert truth == [[[48.0, 38.0]], None, [[50.0, 38.0]]]


def test_what_was_tracked_before_an_error_is_kept(efftam, tmp_path: Path):
    (tmp_path / "images").mkdir()
    for i in range(3):
        cv2.imwrite(str(tmp_path / "images" / f"{i}.png"), square_picture(40 + 3 * i, 30))
    (tmp_path / "images" / "3.png").write_bytes(b"no picture")
    files = ("--rerun", "x.rrd", "--json", "t.json", "--out", "o.mp4")
    result = efftam("track", "images", "--box", "40,30,24,24", *files, "--quiet")
    assert_refused(result, "3.png is not a readable image")
    assert len(rows_of(tmp_path / "x.rrd")["/x/image"]) == 3
    assert len(json.loads((tmp_path / "t.json").read_text())["frames"]) == 3
    assert len(list(open_video(tmp_path / "o.mp4").frames())) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"images", "x.rrd", "t.json", "o.mp4"}


def test_a_missing_package_is_named_with_its_extra(efftam_here, square_video: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rerun", None)
    result = efftam_here("track", square_video, "--box", "40,30,24,24", "--rerun", "x.rrd")
    assert_refused(result, "rerun-sdk is not installed", "pip install rerun-sdk (extra [view])")
