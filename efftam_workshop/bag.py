"""Write a bag from a video or a folder of images, with CameraInfo, for `efftam replay` and the launch files.

Images are raw or JPEG. Without --fov the camera is uncalibrated, and the tracker publishes no bearing.
"""

from __future__ import annotations

import argparse
import math
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from efftam_ros.core.errors import InputError, shown
from efftam_ros.images.message import image_fields
from efftam_ros.images.video import open_video
from efftam_ros.messages.bags import CAMERA_INFO_TYPE, IMAGE_TYPES, STORAGES, open_typestore, writing
from efftam_ros.tools.common.options import add_image_arguments, add_quiet_argument, report
from efftam_ros.tools.common.outputs import Output, check_outputs
from efftam_ros.tools.common.terminal import progress_bar

# Stamp of the first image, ns. It is not zero, because a stamp of zero means "not stamped".
START_NS = 1_000_000_000
# Regular expression of a valid ROS 2 name: no part is empty or begins with a digit.
TOPIC = r"/?[A-Za-z_]\w*(/[A-Za-z_]\w*)*/?"
FRAME_ID = "camera_optical_frame"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("video", metavar="VIDEO", help="video or folder of images")
    parser.add_argument("--out", type=Path, required=True, metavar="BAG", help="folder of the new bag")
    parser.add_argument("--storage", choices=STORAGES, default="mcap", help="default mcap")
    parser.add_argument(
        "--encoding", choices=("raw", "jpeg"), default="raw", help="image encoding (default raw)"
    )
    parser.add_argument(
        "--topic",
        default="/camera/image_raw",
        help="image topic (default %(default)s, JPEG: .../compressed)",
    )
    parser.add_argument(
        "--fov", type=float, metavar="DEG", help="horizontal field of view of a pinhole camera"
    )
    parser.add_argument("--frames", type=int, metavar="N", help="most images to write")
    add_image_arguments(parser)
    add_quiet_argument(parser)


def run(args: argparse.Namespace) -> int:
    if args.fov is not None and not 0 < args.fov < 180:
        raise InputError(f"--fov is {args.fov:g}; give degrees above 0 and below 180")
    if args.frames is not None and args.frames < 1:
        raise InputError(f"--frames is {args.frames}; give 1 or more")
    if not re.fullmatch(TOPIC, args.topic, re.ASCII):
        raise InputError(
            f"--topic is {shown(args.topic)}; give a name of letters, digits and _ such as /camera/image_raw"
        )
    check_outputs([Output("--out", args.out, "new folder")])
    source, store = open_video(args.video, args.fps, args.range, args.track, report), open_typestore()
    if source.note:
        report(f"{source.name}: {source.note}")
    base = "/" + args.topic.strip("/")
    compressed = args.encoding == "jpeg"
    total = min(source.count or math.inf, args.frames or math.inf)
    focal_px = source.width / 2 / math.tan(math.radians(args.fov) / 2) if args.fov is not None else None
    with writing(args.out, args.storage) as writer:
        topics = {
            # The topics are named like those of image_transport, so that the tracker finds the calibration.
            IMAGE_TYPES[compressed]: base + "/compressed" * compressed,
            CAMERA_INFO_TYPE: base.rpartition("/")[0] + "/camera_info",
        }
        connections = {
            kind: writer.add_connection(topic, kind, typestore=store) for kind, topic in topics.items()
        }
        count = 0
        bar_total = None if math.isinf(total) else int(total)
        with progress_bar(bar_total, args.out.name, unit="image", quiet=args.quiet) as bar:
            # Each image is written as soon as it is decoded, because a video may be larger than the memory.
            for frame in source.frames():
                if count >= total:
                    break
                stamp = START_NS + frame.stamp_ns
                header = make_header(store, stamp)
                messages = {
                    CAMERA_INFO_TYPE: camera_info(store, header, source.width, source.height, focal_px),
                    IMAGE_TYPES[compressed]: make_image(store, header, frame.bgr, compressed),
                }
                for kind, message in messages.items():
                    writer.write(connections[kind], stamp, store.serialize_cdr(message, kind))
                count += 1
                bar.update()
    print(
        f"{count} images of {source.width}x{source.height} on {topics[IMAGE_TYPES[compressed]]} in {args.out}"
    )
    return 0


def make_header(store: Any, stamp_ns: int) -> Any:
    """Build a std_msgs/Header with this stamp."""
    stamp = store.types["builtin_interfaces/msg/Time"](*divmod(stamp_ns, 1_000_000_000))
    return store.types["std_msgs/msg/Header"](stamp=stamp, frame_id=FRAME_ID)


def make_image(store: Any, header: Any, bgr: Any, compressed: bool) -> Any:
    """Build a sensor_msgs Image (bgr8) or CompressedImage (JPEG) from a BGR image uint8 [H, W, 3]."""
    if not compressed:
        pixels = np.ascontiguousarray(bgr)
        return store.types[IMAGE_TYPES[0]](**image_fields(pixels, "bgr8", header), data=pixels.reshape(-1))
    coded = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, 90])[1]
    return store.types[IMAGE_TYPES[1]](
        header=header, format="bgr8; jpeg compressed bgr8", data=coded.reshape(-1)
    )


def camera_info(store: Any, header: Any, width: int, height: int, focal_px: float | None) -> Any:
    """Build a sensor_msgs/CameraInfo without distortion; K is zero (uncalibrated) without a focal length."""
    k: NDArray[np.float64] = np.zeros(9)
    if focal_px is not None:
        k = np.array([focal_px, 0, width / 2 - 0.5, 0, focal_px, height / 2 - 0.5, 0, 0, 1.0])
    whole = store.types["sensor_msgs/msg/RegionOfInterest"](
        x_offset=0, y_offset=0, height=0, width=0, do_rectify=False
    )
    return store.types[CAMERA_INFO_TYPE](
        header=header,
        height=height,
        width=width,
        distortion_model="plumb_bob",
        d=np.zeros(5),
        k=k,
        r=np.eye(3).reshape(-1),
        p=np.insert(k, (3, 6, 9), 0.0),
        binning_x=0,
        binning_y=0,
        roi=whole,
    )
