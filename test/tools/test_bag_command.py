"""`efftam bag` and the reading of `efftam select`'s options, without ROS."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from bag_helpers import read_messages, stamps
from support.odd_videos import write_tracks
from test_video import write_wide
from tools_helpers import assert_refused, square_picture

from efftam_ros.tools.cli import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "pictures"
    path.mkdir()
    for i in range(5):
        cv2.imwrite(str(path / f"{i}.png"), square_picture(40 + 3 * i, 30 + 2 * i))
    return path


def test_pictures_become_images_with_stamps_and_an_uncalibrated_camera(folder: Path, tmp_path: Path):
    assert main(["bag", str(folder), "--out", str(tmp_path / "bag"), "--fps", "10", "--quiet"]) == 0
    images = read_messages(tmp_path / "bag", "/camera/image_raw")
    assert stamps(images) == [1_000_000_000 + i * 100_000_000 for i in range(5)]
    for i, image in enumerate(images):
        assert np.array_equal(image.data.reshape(120, 160, 3), square_picture(40 + 3 * i, 30 + 2 * i))
        assert (image.encoding, image.header.frame_id) == ("bgr8", "camera_optical_frame")
    infos = read_messages(tmp_path / "bag", "/camera/camera_info")
    assert stamps(infos) == stamps(images)
    assert (infos[0].width, infos[0].height, infos[0].k[0]) == (160, 120, 0.0)


@pytest.mark.parametrize("encoding", ["raw", "jpeg"])
def test_a_bag_is_replayed_with_bearings_when_the_field_of_view_is_given(
    folder: Path, tmp_path: Path, encoding: str
):
    bag, out = str(tmp_path / "bag"), str(tmp_path / "out")
    assert main(["bag", str(folder), "--out", bag, "--encoding", encoding, "--fov", "60", "--quiet"]) == 0
    assert main(["replay", bag, "--box", "40,30,24,24", "--out", out, "--threads", "1", "--quiet"]) == 0
    velocities = read_messages(Path(out), "/velocity")
    assert len(velocities) == 5
    assert all(v.has_bearing for v in velocities)
    focal = 80 / np.tan(np.radians(30))
    assert velocities[0].azimuth == pytest.approx(np.arctan((velocities[0].center_x - 80) / focal))


def test_no_more_images_than_asked_for(folder: Path, tmp_path: Path):
    bag = tmp_path / "bag"
    words = ["--frames", "2", "--storage", "sqlite3", "--quiet"]
    assert main(["bag", str(folder), "--out", str(bag), *words]) == 0
    assert len(read_messages(bag, "/camera/image_raw")) == 2


def test_track_range_and_topic_are_those_that_are_given_to_a_command(tmp_path: Path, efftam_here):
    write_tracks(tmp_path / "tracks.mp4")
    write_wide(tmp_path / "thermal.mkv")
    efftam_here("bag", "tracks.mp4", "--out", "tracks", "--track", "1", "--topic", "nose/image/", "--quiet")
    images = read_messages(tmp_path / "tracks", "/nose/image")
    assert {image.width for image in images} == {320}
    assert len(read_messages(tmp_path / "tracks", "/nose/camera_info")) == len(images)
    efftam_here("bag", "thermal.mkv", "--out", "thermal", "--range", "7500,8136", "--quiet")
    pixels = read_messages(tmp_path / "thermal", "/camera/image_raw")[0].data
    assert (pixels.min(), pixels.max()) == (0, 255)
    track = ("track", "--box", "40,40,60,60", "--frames", "3", "--json", "-", "--quiet")
    assert json.loads(efftam_here(*track, "tracks.mp4", "--track", "1").stdout)["width"] == 320
    told = efftam_here(*track, "thermal.mkv", "--range", "0,65535").stderr
    assert told.count("grey levels") == 1  # with the selection


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bag", "/nowhere", "--out", "x"], "/nowhere"),
        (["bag", "{folder}", "--out", "{folder}"], "exists already"),
        (["bag", "{folder}", "--out", "x", "--fov", "180"], "--fov is 180"),
        (["bag", "{folder}", "--out", "x", "--frames", "0"], "--frames is 0"),
        (["bag", "{folder}", "--out", "x", "--topic", "/"], "--topic is '/'"),
        (["bag", "{folder}", "--out", "x", "--topic", "bad topic"], "--topic is 'bad topic'"),
        (["bag", "{folder}", "--out", "x", "--topic", "/a//b"], "--topic is '/a//b'"),
        (["bag", "{folder}", "--out", "x", "--topic", "/a/1b"], "--topic is '/a/1b'"),
        (["select"], "give one of --box, --point, --mask, --clear"),
        (["select", "--clear", "--box", "1,2,3,4"], "--box and --clear was given"),
        (["select", "--box", "1,2,3"], "--box '1,2,3' is not X,Y,W,H"),
        (["select", "--point", "1,2,3"], "must be 1 (on the target) or 0 (off it)"),
        (["select", "--clear", "--stamp", "now"], "--stamp 'now' is not in seconds"),
        (["select", "--mask", "/nowhere.png"], "/nowhere.png"),
    ],
)
def test_what_can_not_be_done_is_refused_in_one_line(efftam, folder: Path, arguments, words):
    assert_refused(efftam(*(a.format(folder=folder) for a in arguments)), words)
