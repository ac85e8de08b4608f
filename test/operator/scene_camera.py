"""A camera as a process: the clip that ships, back and forth without end, on the topic `image`.

Each stamp is the time of publishing, rounded so that its last three digits are the number of the picture:
from a stamp alone, ``truth[stamp % 1000]`` is where the target was. With --barcode each picture carries its
stamp in its pixels as well: 64 blocks along the upper edge, the lowest bit first. Prints the truth, one line
of JSON (a box x, y, width, height px for each picture), when the pictures are made.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(1, str(Path(__file__).parents[1]))

import rclpy
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image
from support.clip import clip

from efftam_ros.images.message import fill_image

# Of the clip these show the target alone and without a break.
FIRST, MAX_PICTURES = 130, 100
BITS = 64


def with_barcode(bgr: np.ndarray, stamp_ns: int) -> np.ndarray:
    """``bgr`` uint8 [H, W, 3] with the stamp's bits along its upper edge, written in place."""
    block = bgr.shape[1] // 80
    bits = np.array([stamp_ns >> i & 1 for i in range(BITS)], np.uint8) * 255
    bgr[:block, : BITS * block] = np.repeat(bits, block)[None, :, None]
    return bgr


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespace", default="")
    parser.add_argument("--size", type=int, nargs=2, default=(1280, 720), metavar=("W", "H"))
    parser.add_argument("--pictures", type=int, default=90, help="different ones, before it goes back")
    parser.add_argument("--fps", type=float, default=30.0)
    parser.add_argument("--barcode", action="store_true")
    args = parser.parse_args()
    if not 2 <= args.pictures <= MAX_PICTURES:
        parser.error(f"--pictures is {args.pictures}; give 2 to {MAX_PICTURES}")
    return args


def main() -> int:
    args = parse_arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    scene = clip(FIRST + args.pictures, tuple(args.size))[FIRST:]
    pictures = [frame.bgr for frame in scene]
    print(json.dumps([frame.box.xywh() for frame in scene if frame.box is not None]), flush=True)
    rclpy.init(signal_handler_options=rclpy.SignalHandlerOptions.NO)
    node = rclpy.create_node("scene_camera", namespace=args.namespace)
    images = node.create_publisher(
        Image, "image", QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE)
    )
    forth_and_back = [*range(args.pictures), *range(args.pictures - 2, 0, -1)]
    due = time.monotonic()
    try:
        for number in itertools.cycle(forth_and_back):
            stamp_ns = time.time_ns() // 1000 * 1000 + number
            picture = with_barcode(pictures[number], stamp_ns) if args.barcode else pictures[number]
            message = fill_image(Image(), picture, "bgr8")
            message.header.frame_id = "camera_optical_frame"
            message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, 10**9)
            images.publish(message)
            due = max(due + 1 / args.fps, time.monotonic() - 1 / args.fps)
            time.sleep(max(0.0, due - time.monotonic()))
    except KeyboardInterrupt:
        pass
    finally:
        rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
