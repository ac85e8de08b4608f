"""Videos and playlists behind an address: with an end, or live. Other live streams: ros/test_camera_node."""

from __future__ import annotations

import threading
import time
from itertools import islice

import numpy as np
import pytest
from support.odd_videos import write
from support.streams import web_server, write_video

from efftam_ros.core.errors import InputError
from efftam_ros.images.camera import Camera, open_source
from efftam_ros.images.video import VideoFile

ENDED = {"clip.mp4": {}, "clip.ts": {}, "clip.mkv": {}, "list.m3u8": {"hls_time": "1", "hls_list_size": "0"}}


@pytest.mark.parametrize("name", ENDED)
def test_a_finished_video_behind_an_address_is_read_to_its_end_by_its_own_times(name, tmp_path):
    write_video(tmp_path / name, "hls" if name.endswith("m3u8") else None, **ENDED[name])
    with web_server(tmp_path) as address:
        before = threading.active_count()
        source = open_source(f"{address}/{name}")
        assert threading.active_count() == before  # nothing reads on beside it
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
    assert np.median(np.diff([f.stamp_ns for f in frames])) / 1e9 == pytest.approx(1 / 30, abs=0.002)
    assert frames[-1].index - frames[0].index < 75  # hardly one is passed over
