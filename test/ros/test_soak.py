"""Everything at once for a long time: floods of requests, hostile images and cameras, and the stream goes on.

`EFFTAM_SOAK_S` changes its length (default 20 minutes).
"""

from __future__ import annotations

import math
import os
import random
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from efftam_ros.msg import BoundingBox, TargetSelection
from efftam_ros.srv import ClearTarget, SelectTarget
from geometry_msgs.msg import Point
from level_pipeline import bright_box, scene
from ros_helpers import box_selection, image_message, stamp_of
from sensor_msgs.msg import CameraInfo

from efftam_ros.core.geometry import Box, iou

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("EFFTAM_SOAK_S", "1200"))
MIB = 2**20
BATCH = 40
SCENES = 40  # the target runs to the image's edge in so many images, then the scene begins anew
MAX_GROWTH = 150 * MIB
MAX_LOG_BYTES_PER_S = 2_000


def resident(pid: int) -> int:
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) * 1024


def selections(dice: random.Random, stamp: int) -> list[TargetSelection]:
    """Good, useless and hostile ones."""
    huge = 10.0 ** dice.randint(3, 300)
    mask = np.full((dice.choice((240, 1000)), 320), dice.choice((0, 255)), np.uint8)
    return [
        box_selection(bright_box(0), stamp),
        box_selection(Box(-huge, -huge, 2 * huge, 2 * huge)),
        box_selection(Box(math.nan, 0, 10, math.inf)),
        box_selection(Box(0, 0, 60, 60), units=TargetSelection.NORMALIZED),
        box_selection(Box(5, 5, 9, 9), 2**31 * 10**9 - 1),
        TargetSelection(kind=dice.randrange(256), target_id=dice.randrange(3)),
        TargetSelection(kind=TargetSelection.POINTS, points=[Point(x=9.0, y=9.0)] * 2000, labels=[1] * 2000),
        TargetSelection(kind=TargetSelection.MASK, mask=image_message(mask, 0, "mono8")),
        TargetSelection(kind=TargetSelection.CLEAR),
    ]


def hostile_images(dice: random.Random, stamp: int) -> list:
    """Images that the node must refuse, or answer without harm."""
    tiny = image_message(np.zeros((1, 1, 3), np.uint8), stamp)
    tiny.header.frame_id = "f" * dice.choice((10, 10**6))
    long_name = image_message(scene(0), stamp)
    long_name.encoding = "e" * 10**5
    lying = image_message(scene(0), stamp)
    lying.width, lying.height = 2**31, 2**31
    lying.step = dice.choice((0, 1, 2**32 - 1))
    return [tiny, long_name, lying, image_message(scene(0), dice.choice((0, 1, 2**31 * 10**9 - 1)))]


def hostile_camera(dice: random.Random) -> CameraInfo:
    number = dice.choice((math.nan, math.inf, -1.0, 0.0, 1e308))
    return CameraInfo(
        width=dice.choice((0, 320, 2**32 - 1)),
        height=240,
        distortion_model="m" * dice.choice((3, 10**5)),
        d=[number] * dice.choice((0, 5, 1000)),
        k=[number] * 9,
        binning_x=dice.choice((0, 2**32 - 1)),
    )


def test_the_stream_goes_on_through_everything(tracker_process):
    peer = tracker_process("-p", "image_timeout:=60.0", "-p", "diagnostics_period:=1.0")
    dice = random.Random(0)
    begin, base, rounds = time.monotonic(), 0, 0
    calls = followed = 0
    early = 0
    while time.monotonic() < begin + SECONDS:
        # A quiet stretch: the target must be found and followed as if nothing had been.
        peer.clear()
        base += 1000
        # The first one after a jump of the stamps is withheld.
        peer.images.publish(image_message(scene(0), stamp_of(base - 1)))
        peer.spin_for(0.3)
        peer.send(image_message(scene(0), stamp_of(base)))
        answer = peer.select(box_selection(bright_box(0), stamp_of(base)))
        assert answer.success, answer.message
        for i in range(1, SCENES // 4):
            box = peer.send(image_message(scene(i), stamp_of(base + i)))
        assert box.state == BoundingBox.TRACKING
        assert iou(Box(box.x, box.y, box.width, box.height), bright_box(SCENES // 4 - 1)) > 0.8
        followed += 1
        # A wild one.
        for i in range(BATCH):
            waiting = []
            stamp = stamp_of(base + SCENES + i)
            for message in hostile_images(dice, stamp):
                peer.images.publish(message)
            peer.images.publish(image_message(scene(i % SCENES), stamp + 1))
            peer.camera_infos.publish(hostile_camera(dice))
            for selection in selections(dice, stamp + 1):
                peer.selections.publish(selection)
                waiting.append(peer.select_client.call_async(SelectTarget.Request(selection=selection)))
            waiting.append(peer.clear_client.call_async(ClearTarget.Request()))
            # No more at once: a service keeps ten requests.
            peer.wait(lambda w=waiting: all(f.done() for f in w), "the answers of a wild stretch", 60.0)
            calls += len(waiting)
        if rounds % 5 == 0:
            peer.process.send(signal.SIGSTOP)
            time.sleep(0.5)
            peer.process.send(signal.SIGCONT)
        rounds += 1
        if rounds == 3:
            early = resident(peer.process.pid)
        peer.forget()
    assert followed == rounds > 3
    assert resident(peer.process.pid) - early < MAX_GROWTH
    log = peer.process.output
    assert "Traceback" not in log
    assert len(log) < MAX_LOG_BYTES_PER_S * (time.monotonic() - begin) + 20_000
    print(f"{rounds} rounds, {calls} requests answered, {resident(peer.process.pid) / MIB:.0f} MiB")
