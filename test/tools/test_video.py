"""Real files: stamps, rotation, sizes, browser-playable output, broken input."""

from __future__ import annotations

import struct
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from support.odd_videos import write_tracks
from support.streams import web_server
from tools_helpers import square_picture

from efftam_ros.core.errors import InputError
from efftam_ros.images.camera import open_source
from efftam_ros.images.levels import Levels
from efftam_ros.images.source import NS
from efftam_ros.images.stills.folder import read_bgr
from efftam_ros.images.video import open_video
from efftam_ros.tools.common.video import VideoWriter


def test_a_video_gives_its_pictures_and_stamps(square_video: Path):
    source = open_video(square_video)
    assert (source.width, source.height, source.fps, source.count) == (160, 120, 10.0, 12)
    frames = list(source.frames())
    assert [f.index for f in frames] == list(range(12))
    assert [f.stamp_ns for f in frames] == [i * NS // 10 for i in range(12)]
    difference = np.abs(frames[5].bgr.astype(int) - square_picture(55, 40))
    assert np.median(difference) <= 3  # compression
    first = next(source.frames(start=7))
    assert (first.index, first.stamp_ns) == (7, 700_000_000)


@pytest.mark.parametrize("width", [854, 150, 98])
def test_widths_whose_rows_the_decoder_pads_are_whole_pictures(tmp_path: Path, width: int):
    """854x480 is what DAVIS has, and rows of it end in padding; drawing needs contiguous pixels."""
    picture = square_picture(40, 30, width)
    with VideoWriter(tmp_path / "wide.mp4", width, 120, 10.0) as writer:
        for i in range(3):
            writer.write(picture, i * NS // 10)
    for frame in open_video(tmp_path / "wide.mp4").frames():
        assert frame.bgr.flags.c_contiguous
        assert np.median(np.abs(frame.bgr.astype(int) - picture)) <= 3


def test_uneven_stamps_survive_and_a_repeated_one_is_shown_for_a_tick(tmp_path: Path):
    stamps = [0, 40_000_000, 140_000_000, 140_000_000, 150_000_000, 400_000_000]
    path = tmp_path / "uneven.mp4"
    with VideoWriter(path, 64, 48, 25.0) as writer:
        for i, stamp in enumerate(stamps):
            writer.write(square_picture(i, i, 64, 48, 16), 7 * NS + stamp)
    source = open_video(path)
    with av.open(str(path)) as container:
        found = [round(frame.pts * frame.time_base * NS) for frame in container.decode(video=0)]
    assert found == pytest.approx(stamps, abs=12_000)
    assert sorted(set(found)) == found
    assert source.fps == pytest.approx(
        6 / 0.32, rel=1e-3
    )  # the average: an mp4 has no duration of the last one


def written(path: Path, times_ms: list[int], **options: str) -> Path:
    with av.open(str(path), "w", options={"movflags": "+faststart", **options}) as out:
        stream = out.add_stream("libx264", rate=25, options={"bf": "0", "g": "1"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        for time_ms in times_ms:
            frame = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), "bgr24")
            frame.pts, frame.time_base = time_ms, Fraction(1, 1000)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("start_ms", [0, 3000])
def test_a_file_is_truncated_where_it_lacks_images_and_ends_before_its_own_time(start_ms, tmp_path: Path):
    whole = written(tmp_path / "whole.mp4", [start_ms + 40 * i for i in range(30)])
    with av.open(str(whole)) as container:
        places = [packet.pos for packet in container.demux(video=0) if packet.size]
    data, cut = whole.read_bytes(), tmp_path / "cut.mp4"
    for end, count in ((places[28], 28), (places[5], 5), (places[5] + 9, 6)):
        cut.write_bytes(data[:end])
        with pytest.raises(InputError, match=f"ends after {count} of 30 frames"):
            list(open_video(cut).frames())


def test_images_that_an_edit_list_hides_are_not_missed(tmp_path: Path):
    file = written(tmp_path / "edited.mp4", [40 * i for i in range(30)])
    data = bytearray(file.read_bytes())
    at = data.index(b"elst") + 12
    data[at : at + 4] = struct.pack(">I", 800)  # ms
    file.write_bytes(data)
    source = open_video(file)
    assert (len(list(source.frames())), source.count, source.is_whole) == (20, 30, True)


def test_times_that_are_missing_or_go_back_grow_by_a_period(tmp_path: Path):
    """Matroska can't hold those before 0; parts of a recording, here three, are joined as they are."""
    before = written(tmp_path / "before.mkv", [40 * i - 390 for i in range(20)], avoid_negative_ts="disabled")
    stamps = {f.index: f.stamp_ns / NS for f in open_video(before).frames()}
    assert np.diff(list(stamps.values())) == pytest.approx(0.04, abs=1e-3)
    times_ms = [40 * i + 90 * (i // 4) for i in range(12)]
    part = written(tmp_path / "part.ts", times_ms)
    (tmp_path / "joined.ts").write_bytes(3 * part.read_bytes())
    stamps = {f.index: f.stamp_ns / NS for f in open_video(tmp_path / "joined.ts").frames()}
    assert len(stamps) >= 30  # some where the parts meet may be damaged
    for index in stamps.keys() & {one - 1 for one in stamps}:
        here, then = index % 12, (index + 1) % 12
        step_s = (times_ms[then] - times_ms[here]) / 1000
        if then:
            assert stamps[index + 1] - stamps[index] == pytest.approx(step_s, abs=0.01)


def test_output_plays_in_a_browser(square_video: Path):
    """H.264, 4:2:0, and the index before the frames so that playing starts before all is loaded."""
    with av.open(str(square_video)) as container:
        context = container.streams.video[0].codec_context
        assert (context.name, context.pix_fmt) == ("h264", "yuv420p")
    data = square_video.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")


def test_odd_sizes_are_padded_by_their_last_line(tmp_path: Path):
    path = tmp_path / "odd.mp4"
    with VideoWriter(path, 63, 47, 30.0) as writer:
        writer.write(square_picture(20, 20, 63, 47, 16), 0)
    source = open_video(path)
    assert (source.width, source.height) == (64, 48)
    picture = next(source.frames()).bgr.astype(int)
    assert np.abs(picture[:, -1] - picture[:, -2]).max() <= 12


def test_a_folder_is_read_in_natural_order_from_any_image_on(tmp_path: Path):
    for value, name in ((1, "img1.png"), (2, "IMG2.PNG"), (10, "img10.png")):
        cv2.imwrite(str(tmp_path / name), np.full((8, 8, 3), value, np.uint8))
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "img5.png").mkdir()
    for start in (0, 1):
        found = [
            (f.index, int(f.bgr[0, 0, 0]), f.stamp_ns) for f in open_video(tmp_path, fps=5).frames(start)
        ]
        assert found == [(0, 1, 0), (1, 2, 200_000_000), (2, 10, 400_000_000)][start:]
    assert list(open_video(tmp_path).frames())[1].stamp_ns == pytest.approx(NS / 30, abs=1)


WIDE = [(low + np.tile(np.arange(160), (120, 1)) * 4).astype(np.uint16) for low in (7500, 8100, 7700)]


def write_wide(path: Path) -> None:
    """A video of 16-bit grey images, or a folder of them, of a scene that becomes brighter and darker."""
    if path.suffix:
        with av.open(str(path), "w") as container:
            stream = container.add_stream("ffv1", rate=10)
            stream.width, stream.height, stream.pix_fmt = 160, 120, "gray16le"
            for image in WIDE:
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="gray16le")))
            container.mux(stream.encode(None))
    else:
        path.mkdir()
        for i, image in enumerate(WIDE):
            cv2.imwrite(str(path / f"{i}.png"), image)


@pytest.mark.parametrize("name", ["thermal.mkv", "thermal"])
def test_16_bit_images_have_one_range_that_follows_the_stamps_or_stays(tmp_path: Path, name: str):
    write_wide(tmp_path / name)
    for text in ("auto", "7500,8136"):
        source = open_video(tmp_path / name, levels=text)
        for _ in range(2):  # each time from the beginning
            levels, frames = Levels(text), list(source.frames())
            assert len(frames) == 3
            for frame, image in zip(frames, WIDE, strict=True):
                expected = levels.reduced(image, frame.stamp_ns)[..., None].repeat(3, axis=2)
                assert np.array_equal(frame.bgr, expected)
    assert (frames[0].bgr.min(), frames[0].bgr.max()) == (0, 255)
    with pytest.raises(InputError, match="LOW,HIGH"):
        open_video(tmp_path / name, levels="8000")


@pytest.mark.parametrize("pixels", ["gbrp16le", "gray10le"])
def test_other_images_of_more_than_8_bits_have_the_range_too_and_their_colours(tmp_path: Path, pixels: str):
    rgb = np.stack([WIDE[0] + 40, WIDE[0] + 20, WIDE[0]], axis=2)
    with av.open(str(tmp_path / "x.mkv"), "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.width, stream.height, stream.pix_fmt = 160, 120, pixels
        container.mux(
            stream.encode(av.VideoFrame.from_ndarray(rgb, format="rgb48le").reformat(format=pixels))
        )
        container.mux(stream.encode(None))
    first = next(open_video(tmp_path / "x.mkv", levels="7500,8176").frames())
    blue, green, red = map(int, first.bgr[50, 80])
    assert 110 < blue < 150  # of 7820
    assert (green > blue + 4, red > green + 4) == ((pixels != "gray10le"),) * 2


@pytest.mark.parametrize("place", ["{folder}", "file://{folder}", "{server}"])
def test_range_and_track_are_those_that_are_given_wherever_the_video_is(tmp_path: Path, place: str):
    write_tracks(tmp_path / "tracks.mp4")
    write_wide(tmp_path / "thermal.mkv")
    with web_server(tmp_path) as server:
        place = place.format(folder=tmp_path, server=server)
        assert open_source(f"{place}/tracks.mp4", track=1).width == 320
        shown = next(open_source(f"{place}/thermal.mkv", levels="7500,8136").frames()).bgr
        assert (shown.min(), shown.max()) == (0, 255)
        assert [f.stamp_ns for f in open_source(f"{place}/tracks.mp4", fps=240.0).frames()][:3] == [
            round(i * NS / 240) for i in range(3)
        ]


def test_stamps_of_a_fractional_rate_do_not_drift(tmp_path: Path):
    cv2.imwrite(str(tmp_path / "0.png"), np.zeros((8, 8, 3), np.uint8))
    source = open_video(tmp_path, fps=30000 / 1001)
    source.files = source.files * 3001
    *_, last = source.frames(start=2999)
    assert last.stamp_ns == round(Fraction(3000 * 1001, 30000) * NS)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: None, "does not exist"),
        (lambda p: p.write_bytes(b""), "not a readable video"),
        (lambda p: p.write_text("hello " * 100), "not a readable video"),
        (lambda p: p.mkdir(), "holds no images"),
    ],
)
def test_what_is_no_video_is_refused(tmp_path: Path, make, words: str):
    path = tmp_path / "clip.mp4"
    make(path)
    with pytest.raises(InputError, match=words) as refusal:
        open_video(path)
    assert "\n" not in str(refusal.value)


def test_sound_without_pictures_is_refused(tmp_path: Path):
    path = tmp_path / "sound.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    with pytest.raises(InputError, match="holds no video stream"):
        open_video(path)


def test_a_broken_image_or_one_of_another_size_is_refused_by_name(tmp_path: Path):
    cv2.imwrite(str(tmp_path / "0.png"), np.zeros((8, 8, 3), np.uint8))
    cv2.imwrite(str(tmp_path / "1.png"), np.zeros((8, 9, 3), np.uint8))
    with pytest.raises(InputError, match=r"1\.png is 9x8 px, the first image 8x8 px"):
        list(open_video(tmp_path).frames())
    (tmp_path / "1.png").write_bytes(b"\x89PNG nonsense")
    with pytest.raises(InputError, match=r"1\.png is not a readable image"):
        read_bgr(tmp_path / "1.png")


@pytest.mark.parametrize(
    ("kind", "pixels", "codec"), [("h264", "yuv420p", "libx264"), ("mjpeg", "yuvj420p", "mjpeg")]
)
def test_a_raw_stream_has_the_rate_that_is_given(tmp_path: Path, kind: str, pixels: str, codec: str):
    path = tmp_path / f"camera.{kind}"
    with av.open(str(path), "w", format=kind) as container:
        stream = container.add_stream(codec, rate=60)
        stream.width = stream.height = 64
        stream.pix_fmt = pixels
        for i in range(12):
            picture = np.full((64, 64, 3), 9 * i, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="bgr24")))
        container.mux(stream.encode(None))
    source = open_video(path, fps=60)
    assert (source.fps, source.note) == (60, "")
    assert [f.stamp_ns for f in source.frames()] == [round(i * NS / 60) for i in range(12)]
    default = open_video(path)
    assert default.fps == (60 if kind == "h264" else 25)  # H.264 may tell its rate
    assert "no time stamps" in default.note
    assert "--fps" in default.note


def test_frame_rates_that_are_none(tmp_path: Path):
    cv2.imwrite(str(tmp_path / "0.png"), np.zeros((8, 8, 3), np.uint8))
    for fps in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="frame rate"):
            open_video(tmp_path, fps=fps)


def test_outputs_that_would_not_play_are_refused(tmp_path: Path):
    with pytest.raises(InputError, match=r"\.mp4"):
        VideoWriter(tmp_path / "o.avi", 8, 8, 30)
    with pytest.raises(InputError, match="does not exist"):
        VideoWriter(tmp_path / "no" / "o.mp4", 8, 8, 30)
    with VideoWriter(tmp_path / "empty.mp4", 8, 8, 30):
        pass
    assert not (tmp_path / "empty.mp4").exists()
