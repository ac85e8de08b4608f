"""Decoding leaves no threads behind: a camera that runs for hours gives as many images."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from test_coded_video import NAMES, PERIOD_NS, message, packets

from efftam_ros.images.coded_video import VideoDecoder
from efftam_ros.images.video import open_video
from efftam_ros.tools.demo import CLIP

MIN_IMAGES = 40


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.fixture
def no_collection():
    """What only the collector of garbage ends is not ended."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_images_of_a_video_topic_make_no_threads(no_collection):
    decoder, kept = VideoDecoder(), []
    data = packets("h264", count=MIN_IMAGES)
    for i, packet in enumerate(data):
        kept.append(decoder.decode(message(NAMES["h264"][0], packet, (i + 1) * PERIOD_NS), i * PERIOD_NS)[2])
    kept[0]()
    before = threads()
    for convert in kept:
        convert()
    assert threads() <= before + 1


def test_images_of_a_video_file_make_no_threads(no_collection):
    kept, before = [], 0
    for frame in open_video(CLIP / "video.mp4").frames():
        kept.append(frame)
        if len(kept) == 5:
            before = threads()
        if len(kept) == MIN_IMAGES:
            break
    assert len(kept) == MIN_IMAGES
    assert threads() <= before + 1
