"""`efftam track` with the camera's poses: positions in the JSON, and the way over the ground as KML."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tools_helpers import assert_refused

from efftam_ros.tools.common import positions

BOX = ("--box", "40,30,24,24", "--quiet")
KML = "{http://www.opengis.net/kml/2.2}"


def poses(folder: Path, name: str = "poses.csv") -> Path:
    """30 m high, looking north and 45 degrees down, for the two seconds of the square's video."""
    path = folder / name
    rows = [f"{t},47.4,8.55,460,30,0,-45,0" for t in (0.0, 1.0, 2.0)]
    path.write_text("\n".join(["time,latitude,longitude,altitude,height,roll,pitch,yaw", *rows]) + "\n")
    return path


def test_a_video_with_poses_gives_places_and_a_track(efftam, square_video: Path, tmp_path: Path):
    given = ("--poses", poses(tmp_path), "--field-of-view", "60", "--json", "t.json", "--track", "target.kml")
    result = efftam("track", square_video, *BOX, *given)
    assert result.returncode == 0, result.stderr
    frames = json.loads((tmp_path / "t.json").read_text())["frames"]
    placed = [frame["targets"][0]["position"] for frame in frames]
    found = [place for place in placed if place["valid"]]
    assert len(found) >= 8
    assert found[-1]["latitude"] == pytest.approx(47.4 + 30 / 111_195, abs=1e-4)
    assert found[-1]["height_source"] == "home"
    # The square moves to the right: to the east.
    assert found[-1]["longitude"] > found[0]["longitude"]
    line = ElementTree.parse(tmp_path / "target.kml").find(f".//{KML}coordinates").text.split()
    assert len(line) == len(found)
    assert float(line[-1].split(",")[1]) == pytest.approx(found[-1]["latitude"], abs=1e-6)


def test_without_poses_the_json_is_as_before(efftam, square_video: Path, tmp_path: Path):
    result = efftam("track", square_video, *BOX, "--frames", "2", "--json", "t.json")
    assert result.returncode == 0, result.stderr
    (target,) = json.loads((tmp_path / "t.json").read_text())["frames"][0]["targets"]
    assert "position" not in target


SEEN = ("--poses", "poses.csv", "--field-of-view", "60")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("--track", "target.kml"), ("--poses",)),
        (("--track", "target.gpx"), ("target.gpx", ".kml")),
        (("--poses", "none.csv"), ("none.csv",)),
        (("--poses", "poses.csv"), ("--field-of-view",)),
        ((*SEEN, "--track", "no/t.kml"), ("no/t.kml",)),
        ((*SEEN, "--track", "one.kml", "--json", "one.kml"), ("one.kml",)),
    ],
)
def test_what_is_missing_is_said_before_the_work(
    efftam_here, square_video: Path, tmp_path: Path, given, words
):
    poses(tmp_path)
    assert_refused(efftam_here("track", square_video, *BOX, *given), *words)


def test_a_number_is_still_the_videos_track(efftam_here, square_video: Path, tmp_path: Path):
    result = efftam_here("track", square_video, *BOX, "--track", "7", "--frames", "1")
    assert_refused(result, "7")


def test_without_the_flight_package_it_is_named(efftam, square_video: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(positions, "plugin_module", lambda *given: None)
    poses(tmp_path)
    args = type("Args", (), {"poses": tmp_path / "poses.csv", "ground_track": None, "terrain": None})()
    with pytest.raises(positions.InputError, match="efftam_flight"):
        positions.open_positions(args, (160, 120))
