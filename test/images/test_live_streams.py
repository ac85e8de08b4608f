"""Live streams, read from real senders on loopback: loss, pause, restart, another size, other codecs."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from contextlib import closing
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest
from av.codec.hwaccel import HWAccel, hwdevices_available
from free_ports import free_port
from support.odd_videos import COUNT, RATE, write
from support.streams import rtsp_server, sender, web_server, write_video

from efftam_ros.core.errors import InputError
from efftam_ros.images import camera as camera_module
from efftam_ros.images.camera import Camera, CameraOptions, _Player, is_live, open_source
from efftam_ros.images.source import NS
from efftam_ros.images.video import VideoFile
from efftam_ros.tools.cli import main

FIRST_WAIT_S = 30.0
MS = 1_000_000


def udp(port: int) -> str:
    return f"udp://127.0.0.1:{port}"


def patient(source: str, **options) -> Camera:
    """A camera that outlasts senders that come and go, but not for ever."""
    camera = Camera(source, None, CameraOptions(**options))
    camera._opened.set()  # with patience alone, the first refusal would end it
    camera._patience_s = FIRST_WAIT_S
    return camera


def wait_for(condition, what: str) -> None:
    end = time.monotonic() + FIRST_WAIT_S
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_mpeg_ts_over_udp_gives_images_with_the_senders_times(codec):
    port = free_port()
    # Small: a sender that falls behind its own clock is not believed.
    with sender(port, codec, size="128x96"), closing(patient(udp(port))) as camera:
        assert (camera.width, camera.height) == (128, 96)
        frames = list(islice(camera.frames(), 30))
    first, last = frames[0], frames[-1]
    grey = (float(last.bgr.mean()) - float(first.bgr.mean())) % 200
    assert grey == pytest.approx((last.index - first.index) % 200, abs=4)
    steps = [b.stamp_ns - a.stamp_ns for a, b in pairwise(frames) if b.index == a.index + 1]
    assert min(steps) > 5 * MS
    # The sender's period; arrivals are farther apart, by the time that it takes to encode.
    assert np.median(steps) == pytest.approx(NS / 30, abs=0.1 * MS)
    assert abs(frames[-1].stamp_ns - time.time_ns()) < 60 * NS
    assert all(f.bgr.flags.c_contiguous and f.bgr.dtype == np.uint8 for f in frames)


def test_a_wait_for_the_first_image_is_told_once_and_the_patience_ends_a_stream_that_stops(monkeypatch):
    monkeypatch.setattr("efftam_ros.images.camera.QUIET_S", 0.05)
    port, told = free_port(), []
    with sender(port):
        images = Camera(udp(port), 2.0, CameraOptions(timeout=0.5), told.append).frames()
        next(images)
    assert all(image.size == (320, 240) for image in images)  # to its end
    assert told == [f"{udp(port)}: waiting to open {udp(port)}"]


@pytest.mark.parametrize("codec", ["libx264", "libx265"])
def test_packets_that_can_not_be_decoded_are_counted_and_the_stream_goes_on(codec):
    """All of them: also once it was silent, and was opened again."""
    port = free_port()
    with closing(patient(udp(port), timeout=0.5)) as camera:
        images = camera.frames()
        for _ in range(2):
            before, left_out = camera.damaged, camera.left_out
            with sender(port, codec, size="128x96", damaged=7):
                next(images)  # perhaps one of before
                first = next(images)
                assert camera.damaged >= before
                assert camera.left_out >= left_out
                wait_for(lambda least=before + 6: camera.damaged > least, "packets that can't be decoded")
                assert next(f.index for f in images if f.index > first.index + 10)
            wait_for(lambda: "nothing arrives" in camera.waiting_for, "the silence")


def test_after_a_pause_and_a_restart_with_another_size_the_images_come_again():
    port = free_port()
    with closing(patient(udp(port), timeout=0.5)) as camera:
        images = camera.frames()
        with sender(port) as process:
            first = next(images)
            process.send_signal(signal.SIGSTOP)
            wait_for(lambda: "nothing arrives; the next attempt in" in camera.waiting_for, "the silence")
            process.send_signal(signal.SIGCONT)
            later = next(f for f in images if f.stamp_ns > first.stamp_ns + 500 * MS)
        assert later.size == (320, 240)
        with sender(port, size="640x360"):
            other = next(f for f in images if f.size != (320, 240))
        assert other.size == (640, 360)
        assert other.stamp_ns > later.stamp_ns > first.stamp_ns


def test_an_rtsp_server_is_read_restarted_with_another_size_and_asks_for_a_password():
    port = free_port(socket.SOCK_STREAM)
    url = f"rtsp://pilot:secret@127.0.0.1:{port}/live"
    with closing(patient(url)) as camera:
        wait_for(lambda: "Connection refused; the next attempt in" in camera.waiting_for, "the refusal")
        assert "secret" not in camera.waiting_for + camera.name
        images = camera.frames()
        with rtsp_server(port, "320x240", "pilot", "wrong"):
            wait_for(lambda: "401" in camera.waiting_for, "the server to ask for a password")
        with rtsp_server(port, "320x240", "pilot", "secret"):
            frames = list(islice(images, 10))
            assert {f.size for f in frames} == {(320, 240)}
        with rtsp_server(port, "640x360"):
            assert next(f for f in images if f.size != (320, 240)).size == (640, 360)


def test_images_read_ahead_are_due_by_their_own_times_which_begin_anew_after_a_stall_or_a_jump():
    player, at = _Player(), 100 * NS
    for own_ms, passed_ms, due_ms in (
        (7000, 0, 0),  # at once, whatever its time
        (7040, 0, 40),
        (7500, 0, 500),
        (7540, 300, 540),
        (7580, 1500, 580),  # late, by less than a second
        (7620, 1700, 1700),  # by more
        (7660, 1700, 1740),
        (20_000, 1800, 1800),  # another part
        (20_040, 1800, 1840),
        (19_950, 1800, 1840 + 1e-6),  # times grow
        (3000, 1900, 1900),
        (3040, 1900, 1940),
    ):
        assert player.due_ns(own_ms * MS, at + passed_ms * MS) == at + round(due_ms * MS)


def test_a_file_plays_once_in_real_time(tmp_path):
    file = tmp_path / "clip.mp4"
    write(file)
    began = time.monotonic()
    frames = list(Camera(str(file)).frames())
    assert time.monotonic() - began >= (COUNT - 1) / RATE - 0.05
    assert frames[-1].index == COUNT - 1
    assert frames[-1].stamp_ns - frames[0].stamp_ns >= (COUNT - 1 - frames[0].index) * NS / RATE - MS


def test_without_a_sender_the_caller_is_told_what_was_waited_for():
    port = free_port()
    with pytest.raises(InputError, match=rf"udp://@:{port} can't be opened: no MPEG-TS arrives; check"):
        Camera(f"udp://@:{port}")
    with pytest.raises(InputError, match="can't be opened: Connection refused; check"):
        Camera(f"rtsp://127.0.0.1:{free_port(socket.SOCK_STREAM)}/none")


def test_the_pauses_between_attempts_grow_until_images_come(tmp_path, monkeypatch):
    """Of a stream that is refused, opened in vain, and broken off after some images."""
    monkeypatch.setattr("efftam_ros.images.camera.FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr("efftam_ros.images.camera.LONGEST_PAUSE_S", 0.04)
    (tmp_path / "empty.h264").write_bytes(b"")
    write(tmp_path / "images.h264", form="h264")
    fates = ["refused", "empty", "refused", "images", "refused", "empty", "images", "images", "refused"]
    told, coming, began, really_open = [], iter(fates), threading.Event(), av.open

    def opened(source, **given):
        began.wait()
        told.append(camera.waiting_for)
        fate = next(coming, "refused")
        if fate == "refused":
            raise OSError(111, "Connection refused")
        return really_open(str(tmp_path / f"{fate}.h264"))

    monkeypatch.setattr(av, "open", opened)
    with closing(Camera("udp://127.0.0.1:9", None)) as camera:
        began.set()
        wait_for(lambda: len(told) > len(fates), "the attempts")
    pauses = [text.rpartition(" in ")[2] for text in told[1 : len(fates) + 1]]
    assert pauses == [f"{pause:g} s" for pause in (0.02, 0.04, 0.04, 0.01, 0.02, 0.04, 0.01, 0.01, 0.02)]


DEVICE = {"device_size": "1280x720", "device_fps": 60.0, "device_format": "mjpeg"}
OF_DEVICE = ("/dev/video2", "v4l2", {"video_size": "1280x720", "framerate": "60", "input_format": "mjpeg"})


@pytest.mark.parametrize(
    ("source", "options", "asked"),
    [
        (2, DEVICE, OF_DEVICE),
        ("/dev/video2", DEVICE, OF_DEVICE),
        ("rtsp://x/y", {}, ("rtsp://x/y", None, {"rtsp_flags": "prefer_tcp"})),
        ("rtsps://x/y", {"rtsp_transport": "udp"}, ("rtsps://x/y", None, {"rtsp_transport": "udp"})),
        ("udp://@:9", {}, ("udp://@:9", None, {"fifo_size": "50000", "overrun_nonfatal": "1"})),
        ("a/b.SDP", {}, ("file:a/b.SDP", None, {"protocol_whitelist": "file,udp,rtp,tcp,crypto"})),
        ("http://x/a.m3u8", {}, ("http://x/a.m3u8", None, {"live_start_index": "-1"})),
    ],
)
@pytest.mark.parametrize(("timeout", "timeouts"), [(2.0, (5.0, 2.0)), (8.0, (8.0, 8.0))])
def test_what_is_asked_for_by_kind_of_source(source, options, asked, timeout, timeouts, monkeypatch):
    """A silence ends a stream later while it is opened."""

    def refuse(name, **given):
        assert (name, given["format"], given["timeout"]) == (*asked[:2], timeouts)
        known = given["options"]
        assert {option: known.get(option) for option in asked[2]} == asked[2]
        assert ("rtsp_transport" in known) == ("rtsp_transport" in options)
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(av, "open", refuse)
    with pytest.raises(InputError, match="busy"):
        Camera(source, options=CameraOptions(timeout=timeout, **options))


@pytest.mark.parametrize("way", [1, -1])
def test_stamps_follow_the_systems_clock_only_when_it_is_set(monkeypatch, way):
    """Ahead, or back: by more than 0.1 s. What it drifts by since then counts."""
    clock = SimpleNamespace(time_ns=lambda: 1000 * NS, monotonic_ns=lambda: 0)
    monkeypatch.setattr("efftam_ros.images.camera.time", clock)
    camera = SimpleNamespace(_offset_ns=1000 * NS)
    for drift_ms, followed_ms in ((90, 0), (110, 110), (200, 110), (300, 300), (900_000, 900_000)):
        clock.time_ns = lambda ms=drift_ms: 1000 * NS + way * ms * MS
        assert Camera._system_ns(camera, NS) == 1001 * NS + way * followed_ms * MS


def test_addresses_devices_and_descriptions_of_streams_are_live_files_and_folders_not():
    for live in (0, "/dev/video2", "rtsp://x/y", "udp://@:5600", "a/b.sdp", "A.SDP"):
        assert is_live(live)
    for still in ("a/b.mp4", "0", "file:///a/b.mp4"):
        assert not is_live(still)


def test_efftam_track_follows_a_stream(tmp_path):
    port = free_port()
    report = tmp_path / "track.json"
    words = ["--box", "40,40,60,60", "--frames", "5", "--json", report, "--out", tmp_path / "out.mp4"]
    with sender(port):
        assert main(["track", udp(port), *map(str, words), "--quiet"]) == 0
    written = json.loads(report.read_text())
    assert written["video"] == udp(port)
    assert (written["width"], written["height"], len(written["frames"])) == (320, 240, 5)
    stamps = [frame["stamp"] for frame in written["frames"]]
    assert stamps == sorted(set(stamps))


# --- Videos and playlists behind an address: with an end, or live ---

ENDED = {"clip.mp4": {}, "clip.ts": {}, "clip.mkv": {}, "list.m3u8": {"hls_time": "1", "hls_list_size": "0"}}


@pytest.mark.parametrize("name", ENDED)
def test_a_finished_video_behind_an_address_is_read_to_its_end_by_its_own_times(name, tmp_path):
    write_video(tmp_path / name, "hls" if name.endswith("m3u8") else None, **ENDED[name])
    with web_server(tmp_path) as address:
        before = threading.active_count()
        source = open_source(f"{address}/{name}")
        wait_for(lambda: threading.active_count() == before, "the end of all that read beside it")
        frames = list(source.frames())
        assert isinstance(source, VideoFile)
        # As the camera node plays it: in real time, where a slow reader may miss some.
        played = list(Camera(f"{address}/{name}", None).frames())
    assert [frame.index for frame in frames] == list(range(75))
    assert played[-1].index == 74
    assert len(played) > 20
    for found in (frames, played):
        spans = [(frame.stamp_ns - found[0].stamp_ns) / 1e9 for frame in found]
        assert spans == pytest.approx([(f.index - found[0].index) / 30 for f in found], abs=0.002)
    assert source.is_whole


def test_a_video_whose_server_sends_no_parts_of_it_is_refused_with_the_remedy(tmp_path):
    write(tmp_path / "clip.mov")
    with web_server(tmp_path) as address, pytest.raises(InputError, match=r"no parts of files.*faststart"):
        open_source(f"{address}/clip.mov")


def test_a_file_by_its_address_is_the_file(tmp_path):
    write_video(tmp_path / "a clip.mp4")
    address = (tmp_path / "a clip.mp4").as_uri()
    assert len(list(open_source(address).frames())) == 75
    assert next(islice(Camera(address, None).frames(), 1)).index == 0


def test_live_segments_of_a_playlist_are_played_at_their_own_times(tmp_path):
    """Each second the next one is there."""
    write_video(tmp_path / "all.m3u8", "hls", 8.0, hls_time="1", hls_list_size="0", hls_flags="split_by_time")
    lines = (tmp_path / "all.m3u8").read_text().replace("#EXT-X-ENDLIST\n", "").splitlines()
    head = lines[: lines.index(next(line for line in lines if line.startswith("#EXTINF")))]
    segments = list(zip(lines[len(head) :: 2], lines[len(head) + 1 :: 2], strict=True))
    assert len(segments) >= 6
    stop = threading.Event()

    def grow() -> None:
        for last in range(2, len(segments) + 1):
            text = "\n".join([*head, *(word for segment in segments[:last] for word in segment)])
            (tmp_path / "new").write_text(text + "\n")
            (tmp_path / "new").replace(tmp_path / "live.m3u8")
            if stop.wait(1.0):
                return

    growing = threading.Thread(target=grow)
    growing.start()
    try:
        with web_server(tmp_path) as address:
            time.sleep(0.2)
            source = open_source(f"{address}/live.m3u8")
            assert isinstance(source, Camera)
            frames = list(islice(source.frames(), 60))
            source.close()
    finally:
        stop.set()
        growing.join()
    # A slow machine passes images over: those that come have their own times all the same.
    steps = [(b.stamp_ns - a.stamp_ns) / (b.index - a.index) / NS for a, b in pairwise(frames)]
    assert np.median(steps) == pytest.approx(1 / 30, abs=0.002)


def video_of(codec: str, path: Path) -> Path:
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=10)
        stream.width, stream.height = 64, 48
        stream.pix_fmt = stream.codec.video_formats[0].name
        for i in range(5):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 10 * i, np.uint8), "bgr24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path


def test_a_named_hardware_decoder_that_lacks_the_codec_is_an_error_and_auto_decodes_in_software(
    tmp_path, monkeypatch
):
    """As an H.265 stream for a device that has H.264 alone: here a codec that no device has."""
    path = str(video_of("ffv1", tmp_path / "video.mkv"))
    device = hwdevices_available()[0]
    # That the device itself works was proved by then.
    made = HWAccel(device, allow_software_fallback=False)
    monkeypatch.setattr(camera_module, "_hardware", lambda name: made)
    with pytest.raises(InputError, match=f"hardware_decoder {device}") as error:
        list(Camera(path, options=CameraOptions(hardware_decoder=device)).frames())
    assert "auto or off" in str(error.value)
    monkeypatch.setattr(camera_module, "_hardware", lambda name: HWAccel(device))
    camera = Camera(path, options=CameraOptions(hardware_decoder="auto"))
    assert len(list(camera.frames())) > 0
    assert camera.decoder == "ffv1, software"


@pytest.mark.parametrize("error", [RuntimeError("planted"), MemoryError("planted"), KeyError("planted")])
def test_after_an_unforeseen_error_the_stream_is_opened_again(tmp_path, monkeypatch, error):
    opened, told = Camera._open, []
    planted = iter([error])

    def raises_once(camera):
        for one in planted:
            raise one
        return opened(camera)

    monkeypatch.setattr(Camera, "_open", raises_once)
    monkeypatch.setattr(Camera, "_is_file", False)
    camera = Camera(str(video_of("ffv1", tmp_path / "video.mkv")), None, report=told.append)
    assert next(camera.frames()).bgr.shape == (48, 64, 3)
    camera.close()
    assert any("planted" in line for line in told)
