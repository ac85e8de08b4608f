"""`efftam track` as a process on real videos and folders, with the network that ships."""

from __future__ import annotations

import json
import re
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from support.reasons import because
from tools_helpers import square_picture

from efftam_ros.core.errors import InputError
from efftam_ros.core.geometry import Box
from efftam_ros.core.types import Prompt, Track, TrackState
from efftam_ros.tools.cli import main
from efftam_ros.tools.common.options import tracker_config
from efftam_ros.tools.common.prompts import read_prompts
from efftam_ros.tools.common.track_json import frame_record

FIELDS = [
    "index",
    "stamp",
    "stamp_ns",
    "state",
    "reason",
    "reason_code",
    "box",
    "measured",
    "confidence",
    "presence",
    "iou",
]
FIELDS += ["likeness", "velocity", "windows", "camera_motion", "targets"]


def test_a_video_becomes_overlay_and_json(efftam, square_video: Path, tmp_path: Path):
    result = efftam("track", square_video, "--box", "40,30,24,24", "--out", "overlay.mp4", "--json", "t.json")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    (summary,) = result.stdout.splitlines()
    assert summary.startswith("12 frames, mean ms: whole frame ")
    assert "image_encoder" in summary
    assert "states: ACQUIRING" in summary

    report = json.loads((tmp_path / "t.json").read_text())
    assert list(report) == ["video", "fps", "width", "height", "bundle", "backend", "complete", "frames"]
    assert report["complete"]
    assert (report["fps"], report["width"], report["height"]) == (10.0, 160, 120)
    assert report["backend"] == "onnxruntime-cpu"
    frames = report["frames"]
    assert [list(frame) for frame in frames] == [FIELDS] * 12
    assert [frame["index"] for frame in frames] == list(range(12))
    assert [frame["stamp"] for frame in frames] == pytest.approx([i / 10 for i in range(12)])
    assert [frame["stamp_ns"] for frame in frames] == [str(i * 100_000_000) for i in range(12)]
    assert frames[-1]["state"] == "TRACKING"
    assert frames[-1]["measured"] is True
    x, y, w, h = frames[-1]["box"]
    assert (x + w / 2, y + h / 2) == (pytest.approx(40 + 33 + 12, abs=8), pytest.approx(30 + 22 + 12, abs=8))

    with av.open(str(tmp_path / "overlay.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.frames, stream.width) == ("h264", 12, 160)


def test_a_stage_of_few_frames_counts_for_all_of_them(efftam, tmp_path: Path):
    folder = tmp_path / "frames"
    folder.mkdir()
    for i in range(10):  # from the sixth on the target is gone and searched for
        cv2.imwrite(str(folder / f"{i}.png"), square_picture(40 + 3 * i if i < 5 else 900, 30))
    summary = efftam("track", folder, "--box", "40,30,24,24").stdout
    whole, stages = re.search(r"whole frame ([\d.]+) \((.*)\)", summary).groups()
    of = {name: float(ms) for name, ms in (stage.split() for stage in stages.split(", "))}
    assert "search" in of
    assert sum(of.values()) < float(whole) + 0.05 * (1 + len(of))  # rounding


def test_the_json_names_the_video_from_where_it_lies(efftam, square_video: Path, tmp_path: Path):
    (tmp_path / "all" / "runs").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "all" / "runs")
    square_video.rename(tmp_path / "all" / "v.mp4")
    result = efftam("track", "all/v.mp4", *("--box", "40,30,24,24", "--frames", "2", "--json", "link/t.json"))
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "all" / "runs" / "t.json").read_text())["video"] == "../v.mp4"


def test_a_folder_by_a_point_from_a_later_frame_to_stdout(efftam, tmp_path: Path):
    folder = tmp_path / "frames"
    folder.mkdir()
    for i in range(8):
        cv2.imwrite(str(folder / f"{i}.png"), square_picture(40 + 3 * i, 30))
    arguments = ["--point", "58,42", "--point", "41,25,0", "--start", "2", "--frames", "4", "--fps", "20"]
    result = efftam("track", folder, *arguments, "--json", "-")
    assert result.returncode == 0, result.stderr
    frames = json.loads(result.stdout)["frames"]
    assert [frame["index"] for frame in frames] == [2, 3, 4, 5]
    assert frames[0]["stamp"] == pytest.approx(0.1)
    assert "4 frames" in result.stderr


def test_a_mask_selects_too(efftam, square_video: Path, tmp_path: Path):
    mask = np.full((120, 160), 127, np.uint8)
    mask[30:54, 40:64] = 128
    cv2.imwrite(str(tmp_path / "mask.png"), mask)
    result = efftam("track", square_video, "--mask", "mask.png", "--frames", "2", "--json", "-")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["frames"][0]["box"] == pytest.approx([40, 30, 24, 24], abs=4)
    assert report["complete"], "all that was asked for"


def test_a_record_has_what_is_known_and_null_for_the_rest():
    lost = Track(stamp_ns=1_500_000_001, state=TrackState.LOST, reason=because("absent for 1.2 s"))
    scores = {"presence": 0.25, "quality": 0.5, "likeness": 0.75, "confidence": 0.625}
    guessed = Track(0, TrackState.COASTING, Box(1, 2, 3, 4), **scores)
    record = frame_record(3, {5: lost, 0: guessed})
    assert (record["index"], record["stamp"], record["stamp_ns"]) == (3, pytest.approx(1.5), "1500000001")
    assert (record["box"], record["velocity"], record["likeness"]) == (None, None, None)
    assert record["confidence"] is None
    assert (record["reason"], record["reason_code"]) == ("absent for 1.2 s", 1)
    assert (record["targets"][0]["reason"], record["targets"][0]["reason_code"]) == ("", 0)
    first, second = record["targets"]  # by id; the frame's own fields are those of the one that leads
    assert (first["id"], first["box"], first["measured"]) == (0, [1.0, 2.0, 3.0, 4.0], False)
    assert (first["presence"], first["iou"], first["likeness"]) == (0.25, 0.5, 0.75)
    assert first["confidence"] == 0.625
    assert second == {"id": 5} | {name: record[name] for name in second if name != "id"}
    json.dumps(record, allow_nan=False)


BAD = {
    "no such video": (["nope.mp4", "--box", "1,1,9,9"], ["nope.mp4 does not exist"]),
    "no video": (["text.mp4", "--box", "1,1,9,9"], ["text.mp4 is not a readable video"]),
    "target and page": (["square.mp4", "--box", "1,1,9,9", "--page"], ["leave out"]),
    "port out of range": (["square.mp4", "--page", "--port", "70000"], ["port is 70000", "65535"]),
    "guessable token": (["square.mp4", "--page", "--token", "short"], ["token", "5 characters"]),
    "address of another": (["square.mp4", "--page", "--address", "203.0.113.1"], ["203.0.113.1"]),
    "no target": (["square.mp4"], ["target", "--box X,Y,W,H"]),
    "box of three": (["square.mp4", "--box", "1,2,3"], ["--box '1,2,3' is not X,Y,W,H"]),
    "box with NaN": (["square.mp4", "--box", "1,2,nan,4"], ["--box '1,2,nan,4'", "finite"]),
    "box outside": (["square.mp4", "--box", "500,2,30,40"], ["outside the image of 160 x 120 px"]),
    "mask of another size": (["square.mp4", "--mask", "small.png"], ["mask is 8 x 8 px", "160 x 120 px"]),
    "no such bundle": (["square.mp4", "--box", "1,1,9,9", "--bundle", "."], ["is not a bundle"]),
    "no such back end": (["square.mp4", "--box", "1,1,9,9", "--backend", "abacus"], ["'abacus'"]),
    "back end that cannot run": (
        ["square.mp4", "--box", "1,1,9,9", "--backend", "tensorrt"],
        ["back end tensorrt can't run"],
    ),
    "no such setting": (["square.mp4", "--box", "1,1,9,9", "--set", "speed=3"], ["'speed=3'", "lost_after"]),
    "setting out of range": (
        ["square.mp4", "--box", "1,1,9,9", "--set", "gate_iou=3"],
        ["gate_iou is 3.0", "[0, 1]"],
    ),
    "negative start": (["square.mp4", "--box", "1,1,9,9", "--start", "-1"], ["--start is -1"]),
    "no frame": (["square.mp4", "--box", "1,1,9,9", "--frames", "0"], ["--frames 0"]),
    "start behind the end": (
        ["square.mp4", "--box", "1,1,9,9", "--start", "99"],
        ["--start is 99", "12 frames"],
    ),
    "negative threads": (["square.mp4", "--box", "1,1,9,9", "--threads", "-2"], ["threads is -2"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_code_2(case: str, square_video: Path, tmp_path: Path, monkeypatch, capsys):
    """Within this process, as a network is opened in the last cases only; processes are tested in
    test_cli."""
    (tmp_path / "text.mp4").write_text("no video at all")
    cv2.imwrite(str(tmp_path / "small.png"), np.full((8, 8), 255, np.uint8))
    monkeypatch.chdir(tmp_path)
    arguments, words = BAD[case]
    assert main(["track", *arguments]) == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1, captured.err
    for word in words:
        assert word in captured.err


def test_settings_from_the_command_line():
    given = ["lost_after=2.5", "acquire_frames=5", "identity=false"]
    config = tracker_config(given, policy="samurai", view=None)
    assert (config.lost_after, config.acquire_frames, config.identity) == (2.5, 5, False)
    assert (config.policy, config.view) == ("samurai", "bundle")
    for text in ("lost_after", "=3", "nope=1", "acquire_frames=2.5", "lost_after=soon", "identity=no"):
        with pytest.raises(InputError, match="--set"):
            tracker_config([text])
    with pytest.raises(InputError, match="give it once"):
        tracker_config(["policy=samurai"], policy="default")


BOX = Prompt(box=Box(1, 2, 5, 4))
POINTS = Prompt(points=((5, 6), (7, 8), (9, 9)), labels=(1, 0, 1))


@pytest.mark.parametrize(
    ("boxes", "points", "found"),
    [
        ([], [], {}),
        (["1,2,5,4"], [], {0: BOX}),
        (["1,2,5,4", "1,2,5,4"], [], {0: BOX, 1: BOX}),
        (["7:1,2,5,4"], [], {7: BOX}),
        ([], ["5,6", "7,8,0", "9,9,1"], {0: POINTS}),
        (
            ["1,2,5,4"],
            ["5,6", "3:7,8"],
            {0: Prompt(box=BOX.box, points=((5, 6),), labels=(1,)), 3: Prompt(points=((7, 8),), labels=(1,))},
        ),
        *(([f"{text}:1,2,5,4"], [], "0 to 254") for text in ("255", "-1", "a", "")),
        (["1:1,2,5,4", "1,2,5,4"], [], "second box of target 1"),
        ([], ["5,6,2"], "third number"),
    ],
)
def test_targets_on_the_command_line_have_ids_or_are_refused(boxes, points, found):
    if isinstance(found, dict):
        assert read_prompts(boxes, points, None, 100, 100) == found
    else:
        with pytest.raises(InputError, match=found):
            read_prompts(boxes, points, None, 100, 100)
