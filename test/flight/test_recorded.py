"""Positions in recorded videos: poses from CSV and from DJI's subtitles, terrain heights, KML and GeoJSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from efftam_flight.position.config import PositionConfig
from efftam_flight.position.geodesy import GeoPoint, LocalFrame
from efftam_flight.position.recorded import RecordedPoses, beside, read_poses, video_positions
from efftam_flight.position.track_files import TrackPoint, write_track
from efftam_flight.values import NS
from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.reasons import Reason, ReasonCode
from efftam_ros.core.types import Motion, Track, TrackState

SIZE = (1280, 720)
FORWARD = (1.0, 0.0, 0.0)
HEAD = "time,latitude,longitude,altitude,height,roll,pitch,yaw"
# 30 m high, looking east and 30 degrees down; flying north at 2 m/s.
STEP = 2.0 / 111_195.0
ROWS = [f"{t},{47.4 + STEP * t:.9f},8.55,460,30,0,-30,90" for t in range(6)]


def table(tmp_path: Path, rows: list[str] = ROWS, head: str = HEAD) -> Path:
    path = tmp_path / "poses.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


def seen(second: float, u: float = 640.0, v: float = 360.0, **changes) -> Track:
    stamp, box = round(second * NS), Box(u - 10, v - 10, 20.0, 20.0)
    plain = {
        "state": TrackState.TRACKING,
        "box": box,
        "measured": True,
        "age_s": 0.0,
        "motion": Motion(stamp, box, (0.0, 0.0), np.eye(4)),
        "image_size": SIZE,
    }
    return Track(stamp, **{**plain, **changes})


def test_a_table_of_poses_gives_places_on_the_ground(tmp_path):
    positions = video_positions(table(tmp_path), SIZE, field_of_view_deg=80.0)
    (found,) = [positions.locate({1: seen(2.5)})[1]]
    assert found["valid"]
    frame = LocalFrame(GeoPoint(47.4, 8.55, 460.0))
    north, east, up = frame.to_local(GeoPoint(found["latitude"], found["longitude"], found["altitude"]))
    assert (north, east, up) == pytest.approx((5.0, 30 / math.tan(math.radians(30)), -30.0), abs=0.06)
    assert found["height_source"] == "home"
    assert found["range"] == pytest.approx(60.0, abs=0.1)


def test_a_target_at_the_right_edge_is_half_the_field_of_view_off(tmp_path):
    rows = [f"{t},47.4,8.55,460,30,0,-30,0" for t in range(3)]
    found = video_positions(table(tmp_path, rows), SIZE, field_of_view_deg=80.0).locate(
        {1: seen(1.0, u=1280.0)}
    )
    frame = LocalFrame(GeoPoint(47.4, 8.55, 460.0))
    north, east, _ = frame.to_local(GeoPoint(found[1]["latitude"], found[1]["longitude"], 0.0))
    # The ray (1, tan 40, 0) tilted by 30 degrees meets the ground 60 m along the axis.
    assert (north, east) == pytest.approx((51.96, 60 * math.tan(math.radians(40))), abs=0.1)


@pytest.mark.parametrize(
    ("second", "changes"),
    [
        (0.0, {"state": TrackState.LOST, "box": None, "motion": None, "measured": False}),
        (9.0, {}),  # after the last pose
    ],
)
def test_without_a_box_or_a_pose_the_reason_is_given(tmp_path, second, changes):
    found = video_positions(table(tmp_path), SIZE, 80.0).locate({1: seen(second, **changes)})[1]
    assert found["valid"] is False
    assert found["reason"]


def test_a_gap_between_poses_is_no_pose(tmp_path):
    recording = read_poses(table(tmp_path, [ROWS[0], ROWS[1], ROWS[4]]))
    poses = RecordedPoses(recording, PositionConfig(), None)
    assert not isinstance(poses.at(NS // 2, FORWARD), Reason)
    assert poses.at(2 * NS, FORWARD).code is ReasonCode.POSITION_NO_PLACE


@pytest.mark.parametrize(
    ("rows", "head", "words"),
    [
        (ROWS, "time,latitude,longitude,altitude,height,roll,pitch", ("yaw",)),
        (["0,47.4,8.55,460,30,0,west,90"], HEAD, ("line 2", "pitch", "west")),
        (["0,47.4,8.55,460,30,0,-30,"], HEAD, ("line 2", "yaw")),
        (["0,8.55,147.4,460,30,0,-30,0", "1,147.4,8.55,460,30,0,-30,0"], HEAD, ("line 3", "147.4")),
        ([ROWS[1], ROWS[0]], HEAD, ("sort",)),
        ([], HEAD, ("no poses",)),
    ],
)
def test_a_wrong_table_is_refused_with_the_place(tmp_path, rows, head, words):
    with pytest.raises(InputError) as refused:
        read_poses(table(tmp_path, rows, head))
    for word in words:
        assert word in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_are_not_there_and_views_that_can_not_be_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"no\.csv"):
        read_poses(tmp_path / "no.csv")
    with pytest.raises(InputError, match="field-of-view"):
        video_positions(table(tmp_path), SIZE)
    with pytest.raises(InputError, match="200"):
        video_positions(table(tmp_path), SIZE, 200.0)


# DJI's subtitles

NEW_SRT = """1
00:00:00,000 --> 00:00:00,033
<font size="28">FrameCnt: 1, DiffTime: 33ms
2024-05-01 12:00:00.123
[iso: 100] [shutter: 1/1000.0] [fnum: 2.8] [ev: 0] [color_md: default] [focal_len: 24.00] [latitude: 47.400000] [longitude: 8.550000] [rel_alt: 30.100 abs_alt: 460.200] [ct: 5500] [gb_yaw: 90.0 gb_pitch: -30.0 gb_roll: 0.0] </font>

2
00:00:00,033 --> 00:00:00,066
<font size="28">FrameCnt: 2, DiffTime: 33ms
[focal_len: 24.00] [latitude: 47.400010] [longitude: 8.550000] [rel_alt: 30.100 abs_alt: 460.200] [gb_yaw: 90.5 gb_pitch: -30.0 gb_roll: 0.0] </font>
"""  # noqa: E501
OLD_SRT = """1
00:00:00,000 --> 00:00:01,000
[iso : 110] [focal_len : 280] [latitude : 47.400000] [longtitude : 8.550000] [altitude: 30.0]
"""


def test_djis_subtitles_give_position_height_and_the_gimbals_angles(tmp_path):
    (tmp_path / "DJI_0001.SRT").write_text(NEW_SRT.replace("\n", "\r\n"))
    video = tmp_path / "DJI_0001.MP4"
    path = beside(video)
    assert path is not None
    assert path.name == "DJI_0001.SRT"
    recording = read_poses(path)
    first, second = recording.poses
    assert (first.point.latitude, first.point.longitude, first.point.altitude) == (47.4, 8.55, 460.2)
    assert (first.height, first.pitch, first.yaw, second.yaw) == (30.1, -30.0, 90.0, 90.5)
    assert (first.stamp_ns, second.stamp_ns) == (0, 33_000_000)
    # 24 mm on a 36 mm wide picture.
    positions = video_positions(path, SIZE)
    assert positions._lens.fx == pytest.approx(1280 * 24 / 36)
    assert positions.locate({1: seen(0.02)})[1]["valid"]
    assert beside(tmp_path / "other.mp4") is None


@pytest.mark.parametrize(
    ("text", "word"), [(OLD_SRT, "gb_yaw"), ("1\n00:00:00,000 --> 1\nhello\n", "latitude")]
)
def test_subtitles_without_what_is_needed_name_it(tmp_path, text, word):
    path = tmp_path / "v.srt"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_poses(path)
    assert word in str(refused.value)
    assert "--poses" in str(refused.value)


def test_focal_lengths_in_tenths_of_a_millimetre_are_noticed(tmp_path):
    path = tmp_path / "v.srt"
    path.write_text(NEW_SRT.replace("focal_len: 24.00", "focal_len: 240"))
    assert read_poses(path).focal_mm == 24.0


def test_a_block_without_a_focal_length_keeps_that_of_the_blocks_before(tmp_path):
    path, second = tmp_path / "v.srt", NEW_SRT.rindex("[focal_len: 24.00] ")
    path.write_text(NEW_SRT[:second] + NEW_SRT[second + len("[focal_len: 24.00] ") :])
    assert read_poses(path).focal_mm == 24.0


# Tracks

POINTS = [TrackPoint(float(t), GeoPoint(47.4 + t / 1e5, 8.55, 431.0), 2.0) for t in range(3)]
KML = "{http://www.opengis.net/kml/2.2}"


def test_a_kml_track_has_a_line_for_each_target_in_longitude_and_latitude(tmp_path):
    path = tmp_path / "target.kml"
    write_track(path, {1: POINTS, 2: POINTS[:1]})
    root = ElementTree.parse(path).getroot()
    assert root.tag == f"{KML}kml"
    marks = root.findall(f"{KML}Document/{KML}Placemark")
    assert [mark.findtext(f"{KML}name") for mark in marks] == ["Target 1", "Target 2"]
    line = marks[0].findtext(f"{KML}LineString/{KML}coordinates").split()
    assert line == ["8.55,47.4,431.0", "8.55,47.40001,431.0", "8.55,47.40002,431.0"]
    assert marks[1].findtext(f"{KML}Point/{KML}coordinates") == "8.55,47.4,431.0"


def test_a_geojson_track_has_times_and_accuracies(tmp_path):
    path = tmp_path / "target.geojson"
    write_track(path, {1: POINTS, 2: POINTS[:1]})
    collection = json.loads(path.read_text())
    first, second = collection["features"]
    assert collection["type"] == "FeatureCollection"
    assert first["geometry"] == {
        "type": "LineString",
        "coordinates": [[8.55, 47.4, 431.0], [8.55, 47.40001, 431.0], [8.55, 47.40002, 431.0]],
    }
    assert first["properties"] == {"target": 1, "times_s": [0.0, 1.0, 2.0], "accuracies_m": [2.0] * 3}
    assert second["geometry"] == {"type": "Point", "coordinates": [8.55, 47.4, 431.0]}


def test_only_measured_positions_are_in_the_track(tmp_path):
    positions = video_positions(table(tmp_path), SIZE, 80.0)
    for second in (1.0, 1.1, 1.2):
        positions.locate({1: seen(second)})
    coasting = {"state": TrackState.COASTING, "measured": False, "age_s": 0.1}
    assert positions.locate({1: seen(1.3, **coasting)})[1]["valid"]
    path = tmp_path / "t.kml"
    assert positions.write(path) == 3


# Terrain

rasterio = pytest.importorskip("rasterio", reason="needs GeoTIFF: pip install rasterio")


def terrain(tmp_path: Path, heights: np.ndarray, crs: str = "EPSG:4326") -> Path:
    """Around the camera: 0.01 degrees to each side, 430 m where ``heights`` is 0."""
    from rasterio.transform import from_bounds

    path = tmp_path / "ground.tif"
    rows, columns = heights.shape
    with rasterio.open(
        path,
        "w",
        driver="GTiff",
        width=columns,
        height=rows,
        count=1,
        dtype="float32",
        crs=crs,
        nodata=-9999.0,
        transform=from_bounds(8.54, 47.39, 8.56, 47.41, columns, rows),
    ) as file:
        file.write((430.0 + heights).astype("float32"), 1)
    return path


def test_terrain_moves_the_target_to_where_the_ray_meets_the_slope(tmp_path):
    """The ground rises by a tenth to the east, from the camera on."""
    from efftam_flight.position.terrain import Terrain

    degrees = np.linspace(8.54, 8.56, 401)
    metres = (((degrees[:-1] + degrees[1:]) / 2) - 8.55) * 75_400.0
    slope = np.tile(np.maximum(metres, 0.0) / 10, (50, 1))
    ground = Terrain(terrain(tmp_path, slope))
    frame = LocalFrame(GeoPoint(47.4, 8.55, 460.0))
    down = math.radians(30.0)
    height = ground.height_above(frame, (0.0, 0.0, 0.0), (0.0, math.cos(down), math.sin(down)))
    # 30 - d / 10 = d tan(30)
    away = 30.0 / (math.tan(down) + 0.1)
    assert height == pytest.approx(away * math.tan(down), abs=0.3)
    assert math.isnan(ground.height_above(frame, (0.0, 0.0, 0.0), (0.0, 1.0, -0.1)))
    assert math.isnan(ground.height_above(frame, (0.0, 0.0, 0.0), (0.0, -0.9999, 0.001)))  # leaves the file


def test_terrain_is_used_and_named_before_the_height_above_home(tmp_path):
    path = terrain(tmp_path, np.full((50, 50), 10.0))
    found = video_positions(table(tmp_path), SIZE, 80.0, terrain=path).locate({1: seen(1.0)})[1]
    assert found["height_source"] == "terrain"
    assert found["altitude"] == pytest.approx(440.0, abs=0.01)
    assert found["range"] == pytest.approx(40.0, abs=0.1)


def test_no_data_in_the_terrain_falls_to_the_next_height_and_says_so(tmp_path):
    path = terrain(tmp_path, np.full((50, 50), -10429.0))
    found = video_positions(table(tmp_path), SIZE, 80.0, terrain=path).locate({1: seen(1.0)})[1]
    assert found["height_source"] == "home"


def test_a_terrain_that_is_none_is_refused(tmp_path):
    path = tmp_path / "no.tif"
    path.write_text("hello")
    with pytest.raises(InputError, match=r"no\.tif"):
        video_positions(table(tmp_path), SIZE, 80.0, terrain=path)
