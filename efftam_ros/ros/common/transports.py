"""Forms in which images are published, as the parameter image_transport names them. Imports no ROS."""

from __future__ import annotations

from typing import NamedTuple


class Transport(NamedTuple):
    """``suffix``: of the topic, as image_transport names it; ``depth``: images that may wait."""

    message_type: str
    suffix: str
    depth: int


# Depth 1: an image that has not been read is replaced by the next. Of a video every message is needed.
TRANSPORTS = {
    "raw": Transport("sensor_msgs/msg/Image", "", 1),
    "compressed": Transport("sensor_msgs/msg/CompressedImage", "/compressed", 1),
    "ffmpeg": Transport("ffmpeg_image_transport_msgs/msg/FFMPEGPacket", "/ffmpeg", 30),
    "foxglove": Transport("foxglove_msgs/msg/CompressedVideo", "/foxglove", 30),
}
BY_TYPE = {transport.message_type: name for name, transport in TRANSPORTS.items()}
