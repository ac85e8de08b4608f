"""Tracks, damage and orientation: what a file and a camera make of the same video."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from av.codec.context import ThreadType
from av.stream import Disposition
from support.odd_videos import (
    CODECS,
    COUNT,
    GROUP,
    RATE,
    lose_packets,
    number_of,
    picture,
    turn,
    write,
    write_tracks,
)

from efftam_ros.core.errors import InputError
from efftam_ros.images.camera import Camera, CameraOptions
from efftam_ros.images.streams.decoding import ImageDecoder
from efftam_ros.images.streams.h264 import PictureNumbers
from efftam_ros.images.streams.opening import choose_track
from efftam_ros.images.video import open_video
from efftam_ros.tools.cli import main


@pytest.mark.parametrize("codec", CODECS)
def test_images_that_need_a_lost_packet_are_left_out_and_it_is_told(codec: str, tmp_path: Path):
    file, told = tmp_path / "radio.ts", []
    write(file, codec, "mpegts")
    lose_packets(file, [20, 40])
    source = open_video(file, report=told.append)
    frames = list(source.frames())
    whole = [round(f.stamp_ns * RATE / 1e9) - round(frames[0].stamp_ns * RATE / 1e9) for f in frames]
    missing = set(range(COUNT)) - set(whole)
    assert missing >= {*range(20, 30), *range(40, 45)}
    assert len(missing) <= 15 + 2 * 2  # those before may be whole
    assert not source.is_whole
    (line,) = told
    assert "radio.ts: " in line
    assert "images that need them are left out" in line
    with closing(Camera(str(file), None)) as camera:
        seen = list(camera.frames())
        assert camera.damaged > 0
        assert camera.left_out > 10
    assert {round((f.stamp_ns - seen[0].stamp_ns) * RATE / 1e9) for f in seen} <= set(whole)


def remuxed(file: Path, out: Path, change: Callable[[list[av.Packet]], list[av.Packet]]) -> None:
    """The same video with changed packets."""
    with av.open(str(file)) as source, av.open(str(out), "w") as container:
        stream = container.add_stream_from_template(source.streams.video[0])
        for packet in change([packet for packet in source.demux(video=0) if packet.size]):
            packet.stream = stream
            container.mux(packet)


def test_images_that_need_a_picture_that_was_never_recorded_are_left_out(tmp_path: Path):
    """As RTP loses them: nothing is damaged, and FFmpeg shows the others torn without a word."""
    file, lossy, told = tmp_path / "whole.mkv", tmp_path / "lossy.mkv", []
    write(file)
    remuxed(file, lossy, lambda packets: packets[:20] + packets[22:])
    frames = list(open_video(lossy, report=told.append).frames())
    assert [number_of(f.bgr) for f in frames] == [*range(20), *range(30, COUNT)]
    assert "damaged or lost packets: 1; 8 images that need them are left out" in told[0]
    with closing(Camera(str(lossy), None)) as camera:
        assert {number_of(f.bgr) for f in camera.frames()} <= {*range(20), *range(30, COUNT)}


def test_a_recording_that_begins_between_key_frames_begins_with_the_first_whole_image(tmp_path: Path):
    file = tmp_path / "cut.ts"
    write(file, "libx264", "mpegts")
    data = file.read_bytes()
    file.write_bytes(data[188 * (len(data) // 188 // 10) :])
    frames = list(open_video(file).frames())
    assert [number_of(f.bgr) for f in frames[:3]] == [15, 16, 17]
    assert len(frames) == COUNT - GROUP


def spoil(file: Path, which: slice) -> list[int]:
    """Make these packets undecodable; where all of them are in the file."""
    with av.open(str(file)) as container:
        packets = [(p.pos, p.size) for p in container.demux(video=0) if p.size]
    data = bytearray(file.read_bytes())
    for at, size in packets[which]:
        data[at + 4 : at + size] = bytes(size - 4)
    file.write_bytes(data)
    return [at for at, _ in packets]


def test_reading_goes_on_behind_a_packet_that_can_not_be_decoded(tmp_path: Path):
    file, told = tmp_path / "card.mp4", []
    write(file)
    spoil(file, slice(20, 21))
    source = open_video(file, report=told.append)
    frames = list(source.frames())
    assert [number_of(f.bgr) for f in frames] == [*range(20), *range(30, 60)]
    assert not source.is_whole
    assert "card.mp4: " in told[0]
    assert "left out" in told[0]
    for count, is_complete in ((5, True), (6, False)):  # image 20 is the one
        report = tmp_path / "t.json"
        words = ["--start", "15", "--frames", str(count), "--box", "40,40,60,60", "--json", str(report)]
        assert main(["track", str(file), *words, "--quiet"]) == 0
        assert json.loads(report.read_text())["complete"] is is_complete


def test_a_video_whose_last_image_stands_for_long_is_whole(tmp_path: Path):
    file, lasting = tmp_path / "clip.mp4", tmp_path / "lasting.mp4"
    write(file)

    def prolong(packets: list[av.Packet]) -> list[av.Packet]:
        packets[-1].duration *= 60
        return packets

    remuxed(file, lasting, prolong)
    video = open_video(lasting)
    with av.open(str(lasting)) as container:
        assert container.duration > 1.5e6 * COUNT / RATE
    assert [number_of(f.bgr) for f in video.frames()] == [*range(COUNT)]
    assert video.is_whole
    next(video.frames())
    assert not video.is_whole  # as far as it was read this time


def test_of_a_video_that_is_damaged_and_truncated_the_end_alone_is_told(tmp_path: Path):
    file, told = tmp_path / "card.mp4", []
    write(file)
    places = spoil(file, slice(20, 21))
    file.write_bytes(file.read_bytes()[: places[40]])
    with pytest.raises(InputError, match="the file is truncated, copy it again"):
        list(open_video(file, report=told.append).frames())
    assert told == []


@pytest.mark.parametrize("codec", CODECS)
def test_a_video_whose_last_packets_can_not_be_decoded_is_damaged_and_not_truncated(codec, tmp_path: Path):
    file, told = tmp_path / "card.mp4", []
    write(file, codec)
    spoil(file, slice(-8, None))
    source = open_video(file, report=told.append)
    frames = list(source.frames())
    assert [number_of(f.bgr) for f in frames] == [*range(COUNT - 8)]
    assert (source.is_whole, len(told)) == (False, 1)


SENT = {"K": (True, False), "k": (True, True), "f": (False, True)}  # whether a key frame, and damaged


def stream_of(codec: str) -> SimpleNamespace:
    """A track of ten images a second, without a decoder."""
    context = SimpleNamespace(name=codec, extradata=None, flags=0, thread_type=ThreadType.SLICE)
    rates = {"average_rate": 10, "guessed_rate": 10, "time_base": Fraction(1, 10)}
    return SimpleNamespace(codec_context=context, **rates)


class Packet:
    """A packet that completes the images of the packets ``shown``, with their numbers, or gives an error."""

    def __init__(self, pts: int | None, shown: Iterable[int] = (), **more: object) -> None:
        self.pts = self.dts = pts
        self.size, self.time_base, self.is_corrupt, self.is_discard = 9, Fraction(1, 10), False, False
        self.opaque: object = None
        self.frames = [frame(number, number) for number in shown]
        self.error: Exception | None = None
        vars(self).update(more)

    def __bytes__(self) -> bytes:
        return b"\0\0\1\x02" if self.size else b""

    def decode(self) -> list[SimpleNamespace]:
        if self.error is not None:
            raise self.error
        return self.frames


def frame(number: int, pts: int | None, is_key: bool = False, is_corrupt: bool = False) -> SimpleNamespace:
    times = {"pts": pts, "dts": pts, "time_base": None}
    return SimpleNamespace(opaque=(number, pts), key_frame=is_key, is_corrupt=is_corrupt, **times)


def whole(packets: str, pts_of, dts_of=None) -> str:
    """Which images are whole (1), of a stream of ten a second: key frames ``K``, others ``.``; with damage in
    the packet ``c``, in the image ``f``, in a key frame ``k``; ``x`` can't be decoded. ``dts_of``: as
    ``pts_of`` unless given; images are shown in the order of ``pts_of``."""
    decoder, found = ImageDecoder(stream_of("mpeg4")), ""
    for number, kind in enumerate(packets):
        is_key, is_damaged = SENT.get(kind, (False, False))
        pts, dts = pts_of(number), (dts_of or pts_of)(number)
        error = av.error.InvalidDataError(1, "bad") if kind == "x" else None
        packet = Packet(pts, dts=dts, is_corrupt=kind == "c", error=error)
        packet.frames = [frame(number, pts, is_key, is_damaged)]
        found += "".join("01"[image.is_whole] for image in decoder.decode(packet)) or "-"
    return found


@pytest.mark.parametrize(
    ("packets", "expected"),
    [
        ("K..K..", "111111"),
        *(("K..x..K..", "111-00111"), ("K..c..K..", "111000111"), ("K..f..K..", "111000111")),
        ("K..x..k..K.", "111-0000011"),  # a key frame that is damaged ends no damage
        # After two seconds without a key frame they are used again, damaged ones too: a stream that is
        # refreshed piece by piece has none. The next key frame ends this.
        ("K.f" + "." * 22 + "f..K.f.", "11" + "0" * 21 + "1" * 7 + "00"),
        ("K..c.K..", "11100111"),
    ],
)
@pytest.mark.parametrize(
    "pts_of", [lambda n: n, lambda n: 5 + n, lambda n: None], ids=["from 0", "from 5", "without times"]
)
def test_which_images_are_whole_after_what(packets, expected, pts_of):
    assert whole(packets, pts_of) == expected


def test_images_that_are_shown_before_the_lost_one_but_made_of_it_are_torn_too():
    assert whole("Kc..K", (0, 3, 1, 2, 4).__getitem__, dts_of=lambda n: n) == "10001"


def test_a_mark_may_mean_the_packet_after_it_and_nothing_of_a_next_part_whose_times_begin_anew():
    assert whole("K..cK..K.", lambda n: n) == "111000011"
    assert whole("K..c..K...K..K..", lambda n: n % 10) == "1110001111111111"


@pytest.mark.parametrize(
    "options",
    [
        {"preset": "ultrafast", "tune": "zerolatency"},
        {"preset": "medium", "bf": "3", "x264-params": "b-pyramid=normal:cqm=jvt"},
        {"preset": "veryfast", "x264-params": "interlaced=1"},
        {"preset": "veryfast", "tune": "zerolatency", "x264-params": "intra-refresh=1"},
    ],
)
@pytest.mark.parametrize("pixels", ["yuv420p", "yuv444p"])
def test_a_lost_picture_of_h264_is_known_by_its_number(options: dict[str, str], pixels: str):
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.framerate = 320, 240, pixels, RATE
    encoder.time_base, encoder.options = Fraction(1, RATE), options
    made = []
    for i in range(COUNT):
        frame = av.VideoFrame.from_ndarray(picture(i), "bgr24").reformat(format=pixels)
        frame.pts = i
        made += encoder.encode(frame)
    packets = [bytes(packet) for packet in [*made, *encoder.encode(None)]]
    whole, lossy = PictureNumbers(), PictureNumbers()
    assert not any(whole.lacks(packet) for packet in packets)
    kept = [i for i in range(COUNT) if not 20 <= i < 25]
    assert [i for i in kept if lossy.lacks(packets[i])] == [25]
    assert not any(PictureNumbers().lacks(data) for data in (b"", b"\0\0\1", b"\0\0\1\x67\x64", bytes(99)))


def test_parameters_of_h264_that_are_cut_off_leave_those_of_before():
    def unit(kind: int, *bits: str) -> bytes:
        text = "".join(bits) + "1"
        text += "0" * (-len(text) % 8)
        return b"\0\0\1" + bytes([kind]) + int(text, 2).to_bytes(len(text) // 8, "big")

    # Profile 244 with its planes apart, number of 4 bits; then slices with plane and number.
    parameters = unit(0x67, f"{244:08b}", "0" * 16, "1", "00100", "1", "1100", "1", "011", "10")
    first, *others = (unit(0x41 if i else 0x65, "111", "00", f"{i:04b}") for i in range(5))
    cut_off = b"\0\0\1\x67" + bytes([244, 0, 0, 0b00010000])  # behind the number of the set
    numbers = PictureNumbers()
    sent = [parameters, first, others[0], cut_off, others[1], others[2]]
    assert not any(numbers.lacks(data) for data in sent)
    assert numbers.lacks(unit(0x41, "111", "00", f"{6:04b}"))


def counted(codec: str, packets: list[Packet]) -> tuple[int, int]:
    """Damaged packets and images left out, once all of these and the end were decoded."""
    decoder = ImageDecoder(stream_of(codec))
    for packet in packets:
        decoder.decode(packet)
    end = Packet(None, size=0)
    decoder.decode(end)
    return decoder.damaged, decoder.left_out


def test_of_h265_a_packet_is_missed_whose_image_never_comes():
    order = [0, 3, 2, 4, 1, 7, 6, 8, 5]  # as three B frames are shown
    late = [Packet(n, order[n - 2 : n - 1] if n > 1 else []) for n in range(9)]
    rest = [Packet(9, order[7:] + [9])]
    assert counted("hevc", late + rest) == (0, 0)
    assert counted("hevc", [Packet(n, [] if n in (3, 5) else [n]) for n in range(60)]) == (2, 2)
    # What is sent before the first key frame is none, nor what an edit list hides.
    assert counted("hevc", [Packet(n, [] if n < 4 else [n]) for n in range(60)]) == (0, 0)
    assert counted("hevc", [Packet(n, [n] * (n != 7), is_discard=n == 7) for n in range(60)]) == (0, 0)


@pytest.mark.parametrize(
    ("kinds", "chosen", "is_noted"),
    [("fd", 1, True), ("ff", 0, True), ("cf", 1, False), ("cff", 1, True), ("c", 0, False), ("f", 0, False)],
)
def test_a_cover_is_read_only_where_there_is_no_film_and_is_no_choice(kinds, chosen, is_noted):
    """Films ``f``, ``d`` by default, covers ``c``."""
    of = {"f": Disposition(0), "d": Disposition.default, "c": Disposition.attached_pic}
    context = SimpleNamespace(name="h264", width=9, height=9)
    streams = [SimpleNamespace(codec_context=context, disposition=of[kind], frames=0) for kind in kinds]
    found, note = choose_track(SimpleNamespace(streams=SimpleNamespace(video=streams)), -1, "x")
    assert (found is streams[chosen], bool(note)) == (True, is_noted)


def test_the_default_track_is_read_and_another_one_by_its_number(tmp_path: Path, capsys):
    file = tmp_path / "drone.mp4"
    write_tracks(file)
    source = open_video(file)
    assert (source.width, len(list(source.frames())), source.is_whole) == (640, 20, True)
    assert "0: mjpeg 160x120, cover picture; 1: h264 320x240; 2: h264 640x480, default" in source.note
    assert "track 2 is read; choose another by --track N" in source.note
    assert main(["doctor", str(file)]) == 0
    listed = f"{file}: 640x480 px, 30 images/s, 20 images\n{file}: {source.note}\n"
    assert capsys.readouterr().out == listed
    assert (open_video(file, track=1).width, open_video(file, track=1).note) == (320, "")
    with pytest.raises(InputError, match=r"no video track 3; it has 0: mjpeg .*2: h264 640x480"):
        open_video(file, track=3)
    for track, width in ((-1, 640), (1, 320)):
        with closing(Camera(str(file), 10.0, CameraOptions(track=track))) as camera:
            assert camera.width == width
    with pytest.raises(InputError, match=r"no video track 3; it has .* default$"):
        Camera(str(file), 10.0, CameraOptions(track=3))


# By the matrix a, b, c, d, with which (x, y) is shown at (a x + c y, b x + d y): the note.
TURNS = {
    (1, 0, 0, 1): "",
    (0, 1, -1, 0): "rotated by 270 degrees counter",
    (-1, 0, 0, -1): "rotated by 180 degrees counter",
    (0, -1, 1, 0): "rotated by 90 degrees counter",
    (-1, 0, 0, 1): "mirrored, as",
    (1, 0, 0, -1): "mirrored and rotated by 180 degrees counter",
    (0, 1, 1, 0): "mirrored and rotated by 90 degrees counter",
    (0, -1, -1, 0): "mirrored and rotated by 270 degrees counter",
}


def shown_by(matrix: tuple[int, ...], picture: np.ndarray) -> np.ndarray:
    a, b, c, d = matrix
    y, x = np.mgrid[: picture.shape[0], : picture.shape[1]]
    across, down = a * x + c * y, b * x + d * y
    across, down = across - across.min(), down - down.min()
    shown = np.empty((down.max() + 1, across.max() + 1, 3), np.uint8)
    shown[down, across] = picture
    return shown


@pytest.mark.parametrize("matrix", TURNS)
def test_a_video_is_turned_and_mirrored_as_players_show_it_and_the_note_is_true(matrix, tmp_path: Path):
    turned, note = tmp_path / "turned.mp4", TURNS[matrix]
    write(turned)
    upright = next(open_video(turned).frames()).bgr
    turn(turned, *(value << 16 for value in matrix))
    source = open_video(turned)
    shown = next(source.frames()).bgr
    assert np.array_equal(shown, shown_by(matrix, upright))
    assert (source.height, source.width) == shown.shape[:2]
    assert shown.flags.c_contiguous
    assert source.note.startswith(note)
    assert bool(source.note) == bool(note)
    if "rotated" in note:  # in words: mirrored first, then rotated
        mirrored = upright[:, ::-1] if "mirrored" in note else upright
        turns = int(note.split(" degrees")[0].split()[-1]) // 90
        assert np.array_equal(shown, np.rot90(mirrored, turns))
    told: list[str] = []
    with closing(Camera(str(turned), 10.0, report=told.append)) as camera:
        assert (camera.height, camera.width) == next(camera.frames()).bgr.shape[:2] == shown.shape[:2]
    assert told == ([f"{turned}: {source.note}"] if note else [])


def test_another_angle_is_refused(tmp_path: Path):
    file = tmp_path / "tilted.mp4"
    write(file)
    half = round(0.7071 * (1 << 16))
    turn(file, half, half, -half, half)
    with pytest.raises(InputError, match="only multiples of 90"):
        open_video(file)


@pytest.mark.parametrize(("is_turned", "ratio"), [(False, Fraction(2)), (True, Fraction(1, 2))])
def test_the_overlay_keeps_the_pixels_shape(is_turned, ratio, tmp_path: Path):
    file, out = tmp_path / "wide.mp4", tmp_path / "o.mp4"
    with av.open(str(file), "w") as container:
        stream = container.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        stream.codec_context.sample_aspect_ratio = Fraction(2, 1)
        frame = av.VideoFrame.from_ndarray(picture(0), "bgr24")
        container.mux([*stream.encode(frame), *stream.encode(None)])
    if is_turned:
        turn(file, 0, 1 << 16, -1 << 16, 0)
    with closing(Camera(str(file))) as camera:
        assert (camera.width < camera.height, camera.pixel_ratio) == (is_turned, ratio)
    assert main(["track", str(file), "--box", "40,40,60,60", "--out", str(out), "--quiet"]) == 0
    with av.open(str(out)) as container:
        assert container.streams.video[0].sample_aspect_ratio == ratio
