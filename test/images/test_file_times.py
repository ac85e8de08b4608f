"""Stamps of files: times that are missing, wrong, of decoding alone, below zero, or end too early."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import av
import cv2
import numpy as np
import pytest
from support.odd_videos import picture

from efftam_ros.core.errors import InputError
from efftam_ros.images.camera import Camera, open_source
from efftam_ros.images.source import NS
from efftam_ros.images.streams.times import FileTimes
from efftam_ros.images.video import open_video
from efftam_ros.tools.cli import main

MS = 1_000_000
TRUE_MS = [1000 * i / 30 for i in range(300)]
B_FRAMES = {"bf": "3", "g": "30", "preset": "veryfast"}
# Numbers in the order of decoding, of images in the order of display: three B frames between others.
REORDERED = [n for i in range(0, 301, 4) for n in (i, i + 2, i + 3, i + 1) if n < 300]


def stamped(times_ms: Iterable[float | None], numbers: Iterable[int] | None = None, **more) -> list[float]:
    """The stamps, ms."""
    times = FileTimes(round(NS / 30), **more)
    images = (
        SimpleNamespace(number=number, own_ns=None if time is None else round(time * MS))
        for number, time in zip(range(300) if numbers is None else numbers, times_ms, strict=False)
    )
    return [stamp / MS for stamp, _ in times.stamped(images)]


def changed(change: Callable[[int, float], float | None]) -> list[float | None]:
    return [change(i, time) for i, time in enumerate(TRUE_MS)]


@pytest.mark.parametrize("numbers", [None, REORDERED], ids=["in order", "B frames"])
@pytest.mark.parametrize(
    "change",
    [
        lambda i, t: TRUE_MS[i - (i % 5 == 4)],
        lambda i, t: TRUE_MS[i - (i % 5 == 4)] - (i % 5 == 4),
        lambda i, t: TRUE_MS[i - i % 3],
        lambda i, t: t - 1000 * (i == 150),
        lambda i, t: t + 1000 * (i == 150),
        lambda i, t: t + 50 * (i == 150),
        lambda i, t: t - 4000 * (150 <= i < 153),
        lambda i, t: t + 95_443_717 * (i == 150),  # a clock of 33 bits at 90 kHz, once around
        lambda i, t: 5000 if i == 0 else t,
        lambda i, t: None if i % 4 == 1 else t,
    ],
    ids=["equal", "back by 1 ms", "three equal", "early", "late", "a little late", "three early", "wrapped"]
    + ["the first", "missing"],
)
def test_a_wrong_time_is_mended_alone(change, numbers):
    assert stamped(changed(change), numbers) == pytest.approx(TRUE_MS, abs=1)


@pytest.mark.parametrize("start_ns", [0, None])
def test_times_of_decoding_alone_are_those_of_the_images_in_the_order_of_display(start_ns):
    """Also a constant time late, as FFmpeg guesses them."""
    found = stamped([TRUE_MS[n] + 33 for n in REORDERED], REORDERED, start_ns=start_ns)
    expected = [t + (33 if start_ns is None else 0) for t in TRUE_MS]
    assert found == pytest.approx(expected[: len(found)], abs=1)
    one_wrong = [TRUE_MS[n] + 1000 * (i == 150) for i, n in enumerate(REORDERED)]
    assert stamped(one_wrong, REORDERED) == pytest.approx(TRUE_MS[: len(REORDERED)], abs=34)


def test_images_without_any_time_after_times_of_decoding_alone_go_on_with_the_period():
    numbers = REORDERED[:60]
    stamps = stamped([TRUE_MS[n] if i < 40 else None for i, n in enumerate(numbers)], numbers)
    assert stamps == pytest.approx(TRUE_MS[:60], abs=34)


def test_uneven_times_and_pauses_stay_as_they_are():
    uneven = np.cumsum(np.random.default_rng(1).choice([10, 33, 40, 200, 5000], 300)).tolist()
    assert stamped(uneven) == pytest.approx(uneven)


def test_joined_parts_go_on_and_a_clock_that_is_set_back_is_caught_up_with():
    joined = stamped(TRUE_MS[:150] + TRUE_MS[:150])
    assert joined == pytest.approx(TRUE_MS, abs=1)
    for back_ms in (50, 120, 300):
        found = stamped(changed(lambda i, t, back_ms=back_ms: t - back_ms * (i >= 100)))
        assert found[-1] == pytest.approx(TRUE_MS[-1] - back_ms, abs=1)
        assert min(b - a for a, b in pairwise(found)) > 15
    # A clock that is set back and forward again: the shift is taken back at once.
    found = stamped(changed(lambda i, t: t - 2000 * (100 <= i < 200)))
    assert found == pytest.approx(TRUE_MS, abs=1)


def test_times_below_zero_are_shifted_once():
    times = FileTimes(round(NS / 30))
    images = [SimpleNamespace(number=i, own_ns=round((t - 500) * MS)) for i, t in enumerate(TRUE_MS)]
    assert [s / MS for s, _ in times.stamped(images)] == pytest.approx(TRUE_MS)
    assert (times.moved_ns, times.mended, times.restarts) == (500 * MS, 0, 0)


def test_an_error_comes_behind_the_images_before_it():
    def images():
        yield from (SimpleNamespace(number=i, own_ns=i * NS) for i in range(3))
        raise InputError("broken here")

    found = []
    with pytest.raises(InputError, match="broken here"):
        found += [found.append(stamp) for stamp, _ in FileTimes(NS).stamped(images())]
    assert found == [0, NS, 2 * NS]


# --- Files ---


def encode(
    file: Path, codec: str = "libx264", form: str | None = None, count: int = 90, **options: str
) -> None:
    with av.open(str(file), "w", format=form) as out:
        stream = out.add_stream(codec, rate=30, options=options)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        for i in range(count):
            frame = av.VideoFrame.from_ndarray(picture(i % 60), "bgr24")
            frame.pts, frame.time_base = i, Fraction(1, 30)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))


def read(file: Path, **more) -> tuple[list[float], bool, str]:
    """Stamps, s, from the first on; whether it is whole; what was said."""
    told: list[str] = []
    source = open_video(file, report=told.append, **more)
    stamps = [frame.stamp_ns / NS for frame in source.frames()]
    return [stamp - stamps[0] for stamp in stamps], source.is_whole, "; ".join([source.note, *told])


@pytest.mark.parametrize("form", ["avi", "asf", "mxf"])
def test_containers_with_decoding_times_alone_give_those_of_display(form: str, tmp_path: Path):
    file = tmp_path / f"b.{form}"
    encode(file, form=form, **B_FRAMES)
    found, is_whole, _ = read(file)
    assert found == pytest.approx([i / 30 for i in range(90)], abs=0.002)
    assert is_whole
    played = list(Camera(str(file), None).frames())
    steps = [(b.stamp_ns - a.stamp_ns) / (b.index - a.index) / NS for a, b in pairwise(played)]
    assert steps == pytest.approx([1 / 30] * len(steps), abs=0.002)


def remux(source: Path, out: Path, change: Callable[[int, av.Packet], None]) -> None:
    with av.open(str(source)) as before, av.open(str(out), "w") as after:
        stream = after.add_stream_from_template(before.streams.video[0])
        for i, packet in enumerate(p for p in before.demux(video=0) if p.size):
            change(i, packet)
            packet.stream = stream
            after.mux(packet)


def test_a_muxer_that_stores_decoding_times_as_those_of_display(tmp_path: Path):
    encode(tmp_path / "b.mp4", **B_FRAMES)

    def same(i: int, packet: av.Packet) -> None:
        packet.pts = packet.dts = round(i / 30 / packet.time_base)

    remux(tmp_path / "b.mp4", tmp_path / "same.mkv", same)
    found, is_whole, _ = read(tmp_path / "same.mkv")
    assert found == pytest.approx([i / 30 for i in range(90)], abs=0.002)
    assert is_whole


def at_once(i: int, packet: av.Packet) -> None:
    packet.pts = packet.dts = 0


def jpegs(count: int = 20) -> list[bytes]:
    return [cv2.imencode(".jpg", picture(i))[1].tobytes() for i in range(count)]


def multipart(parts: list[bytes]) -> bytes:
    head = b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n"
    return b"".join(head % len(part) + part + b"\r\n" for part in parts)


@pytest.mark.parametrize("name", ["a.obu", "a.h264", "a.mjpeg", "a.jpg", "multipart.mjpeg", "zero.mkv"])
def test_a_stream_without_times_says_so_and_takes_the_rate_that_is_given(name: str, tmp_path: Path):
    file = tmp_path / name
    if name == "a.obu":
        # In a process of its own: SVT-AV1 gives the thread that calls it real-time priority, if it may.
        with ProcessPoolExecutor(1, get_context("spawn")) as encoder:
            encoder.submit(encode, file, "libsvtav1", "obu", 20, preset="12").result()
    elif name == "a.h264":
        encode(file, form="h264", count=20, **B_FRAMES)
    elif name == "zero.mkv":  # all have the same time
        encode(tmp_path / "a.mkv", count=20, bf="0")
        remux(
            tmp_path / "a.mkv", file, lambda i, packet: setattr(packet, "pts", 0) or setattr(packet, "dts", 0)
        )
    else:
        file.write_bytes(multipart(jpegs()) if "multipart" in name else b"".join(jpegs()))
    _, is_whole, said = read(file)
    assert is_whole
    assert "has no time stamps" in said
    assert "--fps" in said
    found, is_whole, said = read(file, fps=10)
    assert (found, said) == (pytest.approx([i / 10 for i in range(20)]), "")


def test_a_rate_that_is_given_replaces_the_times_of_a_file(tmp_path: Path):
    encode(tmp_path / "slow.mp4", count=24)
    found, is_whole, said = read(tmp_path / "slow.mp4", fps=240)
    assert (found, is_whole, said) == (pytest.approx([i / 240 for i in range(24)], abs=1e-8), True, "")


def write_jpegs(file: Path, ms_of: Callable[[int], float], count: int = 60) -> None:
    with av.open(str(file), "w") as out:
        stream = out.add_stream("mjpeg", rate=30)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuvj420p"
        stream.time_base = Fraction(1, 1000)
        for i, data in enumerate(jpegs(count)):
            packet = av.Packet(data)
            packet.stream, packet.time_base = stream, Fraction(1, 1000)
            packet.pts = packet.dts = round(ms_of(i))
            out.mux(packet)


def test_equal_times_of_a_recording_are_mended_and_told(tmp_path: Path):
    write_jpegs(tmp_path / "same.mkv", lambda i: TRUE_MS[i - (i % 5 == 4)])
    found, is_whole, said = read(tmp_path / "same.mkv")
    assert found == pytest.approx([i / 30 for i in range(60)], abs=0.002)
    assert is_whole
    assert "12 images" in said


def spoil_time(file: Path, image: int, shift_s: float) -> None:
    """Shift the time in the header of one image of an MPEG-TS."""
    data, count = bytearray(file.read_bytes()), 0
    for at in range(0, len(data), 188):
        if not data[at + 1] & 0x40:
            continue
        p = at + 4 + (1 + data[at + 4] if data[at + 3] & 0x20 else 0)
        if data[p : p + 3] != b"\0\0\1" or data[p + 3] & 0xF0 != 0xE0:
            continue
        if count == image:
            b = data[p + 9 : p + 14]
            pts = (b[0] >> 1 & 7) << 30 | b[1] << 22 | (b[2] >> 1) << 15 | b[3] << 7 | b[4] >> 1
            pts = (pts + round(shift_s * 90_000)) % 2**33
            data[p + 9] = b[0] & 0xF1 | (pts >> 30 & 7) << 1
            data[p + 10], data[p + 11] = pts >> 22 & 255, (pts >> 15 & 127) << 1 | 1
            data[p + 12], data[p + 13] = pts >> 7 & 255, (pts & 127) << 1 | 1
        count += 1
    assert count > image
    file.write_bytes(data)


@pytest.mark.parametrize("shift_s", [-1.0, -4.0, 0.5, 3600.0])
def test_one_wrong_time_in_the_header_of_a_packet_moves_no_other(shift_s: float, tmp_path: Path):
    encode(tmp_path / "one.ts", form="mpegts", bf="0", tune="zerolatency")
    spoil_time(tmp_path / "one.ts", 45, shift_s)
    found, is_whole, said = read(tmp_path / "one.ts")
    assert found == pytest.approx([i / 30 for i in range(90)], abs=0.002)
    assert is_whole
    assert "1 images" in said


@pytest.mark.parametrize("first_s", [2**33 / 90_000 - 1.0, 40_000.0])
def test_a_clock_that_wraps_or_begins_late_gives_even_stamps(first_s: float, tmp_path: Path):
    """An MPEG-TS has 33 bits at 90 kHz; with times below zero a bag could not be written."""
    file = tmp_path / "wraps.ts"
    with av.open(str(file), "w", format="mpegts", options={"output_ts_offset": f"{first_s}"}) as out:
        stream = out.add_stream("libx264", rate=30, options={"bf": "0", "g": "15"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for i in range(90):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 2 * i, np.uint8), "bgr24")
            frame.pts, frame.time_base = i, Fraction(1, 30)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    found, is_whole, _ = read(file)
    assert found == pytest.approx([i / 30 for i in range(90)], abs=0.002)
    assert is_whole


def test_times_below_zero_are_moved_and_every_output_agrees(tmp_path: Path):
    file = tmp_path / "before.mkv"
    write_negative(file)
    told: list[str] = []
    source = open_video(file, report=told.append)
    stamps = [frame.stamp_ns for frame in source.frames()]
    assert stamps[0] == 0
    assert np.diff(stamps) / NS == pytest.approx(1 / 30, abs=0.002)
    assert "begin at -0.49" in source.note
    assert main(["bag", str(file), "--out", str(tmp_path / "bag"), "--quiet"]) == 0
    report = tmp_path / "track.json"
    assert main(["track", str(file), "--box", "40,40,60,60", "--json", str(report), "--quiet"]) == 0
    written = [int(frame["stamp_ns"]) for frame in json.loads(report.read_text())["frames"]]
    assert written == stamps


def write_negative(file: Path) -> None:
    """A Matroska whose cluster begins before zero can't be written: its first blocks are set back by hand."""
    write_jpegs(file, lambda i: 500 + TRUE_MS[i], 30)
    data = bytearray(file.read_bytes())
    at = data.index(b"\x44\x89\x88") + 3  # the duration, ms
    data[at : at + 8] = struct.pack(">d", 500)
    at = 0
    while (at := data.find(b"\xa3", at)) >= 0:  # SimpleBlock: size, track, relative time
        size_bytes = 9 - data[at + 1].bit_length()
        place = at + 1 + size_bytes + 1
        if data[place - 1] == 0x81 and data[place + 3 : place + 5] == b"\xff\xd8":
            (time,) = np.frombuffer(bytes(data[place : place + 2]), ">i2")
            data[place : place + 2] = np.array([time - 1000], ">i2").tobytes()
        at += 1
    file.write_bytes(data)


@pytest.mark.parametrize("name", ["cut.mkv", "cut.webm", "cut.flv"])
def test_a_recording_that_was_cut_short_is_not_whole(name: str, tmp_path: Path):
    codec = "libvpx" if name.endswith("webm") else "libx264"
    encode(tmp_path / f"whole{name[3:]}", codec)
    whole = tmp_path / f"whole{name[3:]}"
    found, is_whole, _ = read(whole)
    assert (len(found), is_whole) == (90, True)
    (tmp_path / name).write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    with pytest.raises(InputError, match="truncated"):
        read(tmp_path / name)
    report = tmp_path / "track.json"
    assert main(["track", str(tmp_path / name), "--box", "9,9,60,60", "--json", str(report), "--quiet"]) == 2
    assert json.loads(report.read_text())["complete"] is False


def test_a_sound_track_that_is_longer_than_the_pictures_makes_no_file_truncated(tmp_path: Path):
    file = tmp_path / "sound.mkv"
    with av.open(str(file), "w") as out:
        video, sound = out.add_stream("libx264", rate=30), out.add_stream("aac", rate=8000)
        video.width, video.height, video.pix_fmt = 64, 48, "yuv420p"
        for i in range(30):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), i, np.uint8), "bgr24")
            frame.pts, frame.time_base = i, Fraction(1, 30)
            out.mux(video.encode(frame))
        out.mux(video.encode(None))
        for i in range(40):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
            frame.sample_rate, frame.pts = 8000, 1024 * i
            out.mux(sound.encode(frame))
        out.mux(sound.encode(None))
    found, is_whole, _ = read(file)
    assert (len(found), is_whole) == (30, True)
    assert open_source(str(file)).fps == pytest.approx(30)
